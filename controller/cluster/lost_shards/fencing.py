"""How far anybody has heard of shards that are to be given up, so that nobody hears of more afterwards.

A shard whose disk is given up goes on at the greatest position that is known to have existed (``rebuilding.py``). A
position that somebody hears of later would be given again, to another write. So a *fence* comes before the question::

    report: what is open? ─► fence: all else begins anew ─► heard? from now on only what is decided ─► as was reported?

**Invariant.** When all have answered, every domain, in the incarnation that is decided, is open at a process that was
asked or nowhere, and whoever was asked hears nothing that was sent in an earlier one. So what anybody will ever know
of the lost shards from before is in an answer, or goes with a domain that begins anew. This holds for

* *what is on its way* from a lost shard, or from a domain that has told of it and was closed or moved since;
* *a worker that was cut off*, from the leader only or from all. It may alone have heard the last, may tell others of it
  meanwhile, and may be back in the next moment, before a round of recovery has seen that it was away. Its domains have
  been given another incarnation: nobody hears what they tell, and where they are open now they are closed;
* *a process that ends while others are asked*, or has a successor of its name: nothing is decided then;
* *whoever comes later*: nothing that he has open is of an incarnation that is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from controller.cluster.leader.handles import together
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
    """How far all that are there have heard; from now on nothing of ``given_up`` before these incarnations."""
    request = HeardRequest(dict(given_up or {}))
    answers: list[Heard] = await together(leader.fleet.ask(name, request) for name in leader.fleet.names())
    return latest(each.positions for each in answers)


async def heard_at_last(leader: LeaderPort, lost: Collection[DomainIndex], check: Callable[[], None]) -> Clock:
    """How far anybody has heard, and ever will, of shards that are lost. ``check`` raises where they are not any more.

    :raises Unavailable: workers came or went meanwhile. Nothing depends on it; it may be asked again.
    """
    there = _processes(leader)
    reports = await _reports(leader, sorted(there))
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
    """Of the workers that are there."""
    return {name: member.descriptor.incarnation for name, member in leader.fleet.members.items()}


async def _reports(leader: LeaderPort, names: Sequence[str]) -> Reports:
    message = Report(leader.epoch)
    return dict(zip(names, await together(leader.fleet.ask(name, message) for name in names), strict=True))


async def _fence(
    leader: LeaderPort, lost: Collection[DomainIndex], reports: Reports, check: Callable[[], None]
) -> None:
    """Other incarnations for what is lost and for whatever nobody who is there has open: nobody will ever open those.

    The recovery decides them as well; it may not have come to it yet.
    """

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
