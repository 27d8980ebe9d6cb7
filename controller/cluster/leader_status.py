"""What the leader tells of itself and of what it sees, as JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from controller.cluster.leader import Leader


def directory_of(leader: Leader) -> dict[str, Any]:
    """Which worker has which domain, and where it answers. As JSON."""
    state = leader.ledger.decided
    return {
        "epoch": state.epoch,
        "domains": {
            str(domain): {"worker": given.worker, "incarnation": given.incarnation}
            for domain, given in sorted(state.placement.items())
        },
        "workers": {
            name: {"host": member.descriptor.host, "port": member.descriptor.port}
            for name, member in sorted(leader.fleet.members.items())
        },
    }


def status_of(leader: Leader) -> dict[str, Any]:
    """What the leader sees, times in seconds. As JSON."""
    now = asyncio.get_running_loop().time()
    state = leader.ledger.state
    placement = {} if state is None else state.placement
    return {
        "epoch": leader.epoch,
        "calm": bool(leader.calm),
        "trouble": leader.trouble or None,
        "doing": (leader.recovery.step if leader.recovery is not None and not leader.calm else "") or None,
        "shards": None if state is None else state.shards,
        "quorum": None if state is None else state.quorum,
        "closed": {str(domain): why for domain, why in sorted(leader.closed.items())},
        "rebuilding": leader.rebuild_operations.running,
        "migrating": leader.migrator is not None and leader.migrator.busy,
        "workers": [
            {
                "name": name,
                "host": member.descriptor.host,
                "port": member.descriptor.port,
                "heard": round(now - member.heard, 3),
                "draining": state is not None and state.draining.get(name) == member.descriptor.incarnation,
                "domains": sorted(domain for domain, given in placement.items() if given.worker == name),
            }
            for name, member in sorted(leader.fleet.members.items())
        ],
    }
