"""Draining a worker: an operator's decision that it is to have no domains, so that it can be stopped unnoticed.

Like giving up a disk (``rebuilding.py``) it is decided in the state and carried out by the leader's next round, so a
leader that dies in between leaves it to the next one. It holds for the worker's process: one that is started anew is
given domains again, and so is one that alone can take what was lost with another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.cluster.placing import place
from controller.cluster.state import ClusterState
from domains.errors import BadRequest, NoLeader, NotFound, Unavailable

if TYPE_CHECKING:
    from controller.cluster.leader import Leader


async def drain(leader: Leader, worker: str) -> None:
    """Have a worker's domains go to others, and give it none until its process is started anew.

    :raises NotFound, BadRequest, Unavailable: nothing is changed.
    """
    if leader.recovery is None:  # A leader may have its migrator a moment earlier.
        raise NoLeader(f"the leader is not ready: {leader.trouble}", hint="try again")
    member = leader.fleet.members.get(worker)
    if member is None:
        known = ", ".join(leader.fleet.names()) or "none"
        raise NotFound(f'no worker "{worker}" is there', hint=f"there are: {known}")
    state = leader.ledger.decided
    own = [domain for domain, given in state.placement.items() if given.worker == worker]
    others = {name: data for name, data in leader.taking.takers(leader.fleet.names()).items() if name != worker}
    stranded = sorted(set(own) - place(own, others, state.placement).keys())
    if stranded:
        raise BadRequest(
            f'no other worker can take domain {stranded[0]} from "{worker}"',
            hint="start another worker that has the same data directory",
        )
    process = member.descriptor.incarnation
    await _decide(leader, lambda before: replace(before, draining={**before.draining, worker: process}))
    leader.disturb(f'draining worker "{worker}"')
    try:
        async with asyncio.timeout(leader.settings.timing.calm_patience):
            await leader.calm.wait()
    except TimeoutError:
        raise Unavailable(
            f'worker "{worker}" is given no more domains, but has not lost all of its own yet: {leader.trouble}',
            hint="they go to others as soon as that is over; look at the status",
        ) from None
    if any(given.worker == worker for given in leader.ledger.decided.placement.values()):
        raise Unavailable(f'worker "{worker}" has domains still: no other could take them', hint="see the status")


async def undrain(leader: Leader, worker: str) -> None:
    """Let a worker have domains again. Raises NotFound, Unavailable."""
    leader.serving()
    if worker not in leader.ledger.decided.draining:
        raise NotFound(f'worker "{worker}" is not being drained')
    await _decide(
        leader, lambda before: replace(before, draining={n: p for n, p in before.draining.items() if n != worker})
    )
    leader.rebalance()


async def _decide(leader: Leader, change: Callable[[ClusterState], ClusterState]) -> None:
    await leader.ledger.amend(change, patience=leader.settings.timing.commit_patience)
