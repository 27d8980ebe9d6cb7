"""Draining a worker: an operator decides that it gets no domains, so that it can be stopped without a loss.

The decision is written to the state and carried out by the next round of recovery, by this leader or the next one. It
holds for the worker's process: after a restart it gets domains again. A drained worker also gets domains that no other
worker can take.
"""

from __future__ import annotations

from dataclasses import replace

from controller.cluster.leader.placing import place
from controller.cluster.leader.port import LeaderPort
from domains.errors import BadRequest, NotFound, Unavailable


async def drain(leader: LeaderPort, worker: str) -> None:
    """Give a worker's domains to others, and give it none until its process is started anew.

    :raises NotFound, BadRequest, Unavailable: nothing is changed.
    """
    leader.ready()
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
    await leader.decide(lambda before: replace(before, draining={**before.draining, worker: process}))
    leader.disturb(f'draining worker "{worker}"')
    try:
        await leader.until_calm()
    except TimeoutError:
        raise Unavailable(
            f'worker "{worker}" is given no more domains, but has not lost all of its own yet: {leader.trouble}',
            hint="they go to others as soon as that is over; look at the status",
        ) from None
    if any(given.worker == worker for given in leader.ledger.decided.placement.values()):
        raise Unavailable(f'worker "{worker}" has domains still: no other could take them', hint="see the status")


async def undrain(leader: LeaderPort, worker: str) -> None:
    """Let a worker have domains again. Raises NotFound, Unavailable."""
    leader.ready()
    if worker not in leader.ledger.decided.draining:
        raise NotFound(f'worker "{worker}" is not being drained')
    await leader.decide(
        lambda before: replace(before, draining={n: p for n, p in before.draining.items() if n != worker})
    )
    leader.rebalance()
