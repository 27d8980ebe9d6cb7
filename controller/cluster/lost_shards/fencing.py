"""The greatest positions that anybody knows of shards that are given up, and a fence against later news of them.

A shard whose disk is given up goes on at the greatest position that is known to have existed (``rebuilding.py``). A
greater one that turned up later would be given again, to another write. So a *fence* comes before the question::

    report: what is open? ─► fence: all else begins anew ─► heard? and drop older packets ─► is all as was reported?

**Invariant.** When all have answered, every domain, in its decided incarnation, is open at a process that was asked or
nowhere, and a process that was asked drops all packets of earlier incarnations. So all positions that anybody will ever
know of the lost shards are in an answer, or are forgotten with a domain that begins anew. This holds for

* *packets on their way* from a lost shard, or from a domain that knew its positions and was closed or moved since;
* *a worker that was cut off*, from the leader only or from all. It alone may know the last position, may tell others
  meanwhile, and may be back at any moment, before a round of recovery notices. Its domains have been given another
  incarnation: their packets are dropped, and they are closed where they are open now;
* *a process that ends while others are asked*, or that has a successor of its name: nothing is decided then;
* *a worker that comes later*: none of its open domains has a decided incarnation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from controller.cluster.leader.port import LeaderPort
from controller.cluster.leader.reconcile import Reports, homeless
from controller.cluster.state import ClusterState
from domains.engine.clock import latest
from domains.errors import Unavailable
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from worker.protocol.messages import Report
from worker.protocol.operations import Heard, HeardRequest


async def heard_so_far(leader: LeaderPort, given_up: Mapping[DomainIndex, int] | None = None) -> Clock:
    """The positions that all workers know; from now on they drop packets of ``given_up`` before these incarnations."""
    request = HeardRequest(dict(given_up or {}))
    answers: Mapping[str, Heard] = await leader.fleet.ask_all(request)
    return latest(each.positions for each in answers.values())


async def heard_at_last(leader: LeaderPort, lost: Collection[DomainIndex], check: Callable[[], None]) -> Clock:
    """The positions that anybody knows, or ever will, of lost shards. ``check`` raises if they are no longer lost.

    :raises Unavailable: workers came or went meanwhile; it may be asked again.
    """
    there = _processes(leader)
    reports = await leader.fleet.ask_all(Report(leader.epoch))
    await _fence(leader, lost, reports, check)
    decided = leader.ledger.decided
    open_here = set(decided.placement) - set(homeless(decided, reports))
    fenced = {domain: given.incarnation for domain, given in decided.placement.items()}
    heard = await heard_so_far(leader, fenced)
    now = leader.ledger.decided.placement
    moved = [domain for domain in open_here if now[domain].incarnation != fenced[domain]]
    if moved or any(_processes(leader).get(name) != process for name, process in there.items()):
        raise Unavailable("workers came or went meanwhile: nothing is decided", hint="look again")
    return heard


def _processes(leader: LeaderPort) -> dict[str, int]:
    """The process numbers of the workers that are there."""
    return {name: member.descriptor.incarnation for name, member in leader.fleet.members.items()}


async def _fence(
    leader: LeaderPort, lost: Collection[DomainIndex], reports: Reports, check: Callable[[], None]
) -> None:
    """Give new incarnations to lost shards and to all domains that no present worker has open. (A recovery does that
    too, but may not have come to it yet.)"""

    def away(state: ClusterState) -> list[DomainIndex]:
        named = {*lost, *homeless(state, reports)} & state.placement.keys()
        return [domain for domain in sorted(named) if leader.taking.may_be_open(domain)]

    def decide(before: ClusterState) -> ClusterState:
        check()
        epoch = before.epoch + 1
        given = {domain: replace(before.placement[domain], incarnation=epoch) for domain in away(before)}
        return before.next_epoch({**before.placement, **given})

    if not away(leader.ledger.decided):
        return
    decided = await leader.decide(decide)
    left = [domain for domain, given in decided.placement.items() if given.incarnation == decided.epoch]
    leader.taking.left_out(left, decided.epoch)
    leader.disturb(f"shard {', '.join(map(str, sorted(lost)))} is to be given up")
