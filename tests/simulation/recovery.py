"""Domains that are lost and brought back while the others serve, as a leader does it (``controller/cluster``).

What is to be removed and built again is the leader's own ``repair``; here its steps are taken on a simulation, with
packets delivered in any order between them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random

from controller.cluster.leader.reconcile import Repair, repair
from domains.plan.commands import RemoveNodes
from domains.plan.graph import DomainIndex
from migrations.flow.plan import MigrationPlan, State
from tests.simulation.simulation import Simulation
from worker.protocol.messages import DomainReport


def recover(
    simulation: Simulation,
    state: State,
    lost: Collection[int],
    rng: Random,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Lose these domains but for their stores, and bring them back.

    ``between`` is called at moments at which anything may happen, but what goes to a domain that is not linked yet.
    """
    opened = [DomainIndex(index) for index in lost]
    survivors = {
        domain.index: DomainReport(
            domain.incarnation,
            True,
            frozenset(v.index for v in domain.vertices.values()),
            frozenset(),
            tuple(domain.store.tables()),
            {},
        )
        for domain in simulation.domains
        if domain.index not in lost
    }
    steps = repair(state, survivors, opened)
    simulation.lose(opened, {domain: RemoveNodes(nodes) for domain, nodes in steps.removals.items()})
    _take(simulation, steps, rng, between)


def _take(simulation: Simulation, steps: Repair, rng: Random, between: Callable[[], None]) -> None:
    for step in steps.fresh:
        simulation.command(step.domain, step.command)
    while simulation.unaware():
        simulation.deliver(rng)
        between()
    simulation.unlinked.clear()
    between()
    simulation.settle(rng)
    simulation.migrate(
        MigrationPlan((*steps.again, *steps.indexes, *steps.feeds, *steps.activations), ()), between, rng
    )
