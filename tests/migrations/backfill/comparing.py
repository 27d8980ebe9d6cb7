"""States made comparable: what a vertex holds, whatever order it came in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from domains.archive.rows import decode_block
from domains.engine.lifecycle.replay import exported
from domains.language.types import Row
from domains.operators.edges import EgressOperator, ReaderOperator
from domains.operators.operator import Vertex
from domains.operators.over import OverOperator
from domains.operators.topk import TopIndex
from domains.plan.graph import DomainIndex, Materialization, NodeIndex
from tests.simulation.simulation import Simulation

States = dict[tuple[DomainIndex, NodeIndex], Any]


def canonical(vertex: Vertex, items: Iterable[Any]) -> Any:
    """A state's items without their order.

    A multiset's values are kept in the order of their coming, which nothing depends on. How many spare rows a TopK
    holds depends on whether rows were taken back meanwhile: what it shows does not.
    """
    index = next((index for index in vertex.indexes.values() if isinstance(index, TopIndex)), None)
    if index is not None:
        ranking = index.ranking
        return Counter(tuple(held[ranking.offset : ranking.shown]) for *held, _ in items)
    if isinstance(vertex.operator, OverOperator):
        return Counter(items)
    if isinstance(vertex.operator, ReaderOperator) or not hasattr(_leading(vertex), "grouping"):
        rows: Counter[Row] = Counter()
        for row, weight in items:
            rows[row] += weight
        return rows
    return {key: (rows, row, _unordered(states)) for key, rows, row, states in items}


def _leading(vertex: Vertex) -> Any:
    return next((i for i in vertex.indexes.values() if hasattr(i, "grouping")), None)


def _unordered(states: Sequence[Any]) -> Any:
    return tuple(tuple(frozenset(kept) if isinstance(kept, tuple) else kept for kept in state) for state in states)


def held(simulation: Simulation) -> States:
    """The full states of a simulation, by domain and node."""
    states: States = {}
    for domain in simulation.domains:
        for vertex in domain.vertices.values():
            if vertex.node.materialization is not Materialization.FULL or isinstance(vertex.operator, EgressOperator):
                continue
            if isinstance(vertex.operator, ReaderOperator):
                rows = simulation.readers[domain.index, vertex.index][()]
                states[domain.index, vertex.index] = Counter(rows)
            else:
                states[domain.index, vertex.index] = canonical(vertex, exported(vertex))
    return states


def computed(simulation: Simulation, states: dict[tuple[DomainIndex, NodeIndex], list[bytes]]) -> States:
    """What a bulk job came to, in the same form."""
    return {
        (domain, node): canonical(
            simulation.domains[domain].vertices[node], [item for block in blocks for item in decode_block(block)]
        )
        for (domain, node), blocks in states.items()
    }
