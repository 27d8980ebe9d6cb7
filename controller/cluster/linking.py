"""What each worker is told when domains are linked: where all are, and which nodes of its own are to go. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from controller.cluster.fleet import Member
from controller.cluster.reconcile import Repair
from controller.cluster.state import Assignment, ClusterState
from domains.graph import DomainIndex, NodeIndex
from worker.messages import Placed, Reconfigure


def links(
    state: ClusterState,
    members: Mapping[str, Member],
    todo: Repair,
    closed: Collection[DomainIndex],
    workers: Iterable[str],
) -> list[tuple[str, Reconfigure]]:
    """A message to each of the workers. What is ``closed``, or on a worker that is no member, is nowhere."""
    placement = {
        domain: _placed(given, members)
        for domain, given in sorted(state.placement.items())
        if given.worker in members and domain not in closed
    }

    def removals(worker: str) -> dict[DomainIndex, tuple[NodeIndex, ...]]:
        return {d: gone for d, gone in todo.removals.items() if state.placement[d].worker == worker}

    return [(worker, Reconfigure(state.epoch, placement, removals(worker))) for worker in workers]


def _placed(given: Assignment, members: Mapping[str, Member]) -> Placed:
    worker = members[given.worker].descriptor
    return Placed(given.worker, worker.host, worker.port, given.incarnation, worker.incarnation)
