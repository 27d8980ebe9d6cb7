"""Provenance: how a look-up by some columns of a node becomes look-ups of its parents.

A node may be partial by key columns only if each of them can be followed up every path to a base table, or to state
that holds it. :func:`route` is one step of that path; :func:`traced` follows it to the end. The engine takes the same
steps: for joins the plan records the side (``Node.drives``), for the others there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from domains.language.expressions import Field
from domains.operators.join import LEFT, RIGHT, side_columns
from domains.plan.graph import (
    Aggregate,
    Base,
    Columns,
    Egress,
    Filter,
    Ingress,
    Join,
    Node,
    NodeIndex,
    Project,
    Reader,
    TopK,
    Union,
)

NodeOf = Callable[[NodeIndex], Node]


@dataclass(frozen=True, slots=True)
class ProvenanceStep:
    """A look-up of the ``parent``-th parent by ``columns``."""

    parent: int
    columns: Columns


def route(node: Node, columns: Columns, node_of: NodeOf) -> tuple[ProvenanceStep, ...] | None:
    """The look-ups of the parents that a look-up of ``columns`` passes to; None where a column has no provenance.

    For a join only the driving side is named: both sides are consulted by the join columns in any case.
    """
    match node.operator:
        case Base():
            return ()
        case Filter() | Egress() | Reader() | Ingress():
            return (ProvenanceStep(0, columns),)
        case Union():
            return tuple(ProvenanceStep(parent, columns) for parent in range(len(node.parents)))
        case Project(expressions=expressions):
            sources = []
            for column in columns:
                expression = expressions[column]
                if not isinstance(expression, Field):
                    return None
                sources.append(expression.position)
            return (ProvenanceStep(0, tuple(dict.fromkeys(sources))),) if _distinct(sources) else None
        case Aggregate(group=group):
            if any(column >= len(group) for column in columns):
                return None
            return (ProvenanceStep(0, tuple(group[column] for column in columns)),)
        case TopK(group=group):
            return (ProvenanceStep(0, columns),) if all(column in group for column in columns) else None
        case Join():
            side = driving_side(node, columns, node_of)
            own = _on_side(node, columns, node_of, side)
            return (ProvenanceStep(side, tuple(dict.fromkeys(c for c in own if c >= 0))),)


def _distinct(columns: list[int]) -> bool:
    return len(set(columns)) == len(columns)


def _on_side(node: Node, columns: Columns, node_of: NodeOf, side: int) -> Columns:
    join = node.operator
    assert isinstance(join, Join)
    width = len(node_of(node.parents[LEFT]).columns)
    return side_columns(join.kind, (join.left_on, join.right_on), width, columns, side)


def driving_side(node: Node, columns: Columns, node_of: NodeOf) -> int:
    """The side that decides more of the columns with a traced provenance, else more of the columns; left on a tie.

    It decides one at least: an entry that was computed from *all* rows of a side would be named by none of them (rule
    5).
    """
    known = []
    for side in (LEFT, RIGHT):
        own = [column for column in _on_side(node, columns, node_of, side) if column >= 0]
        parent = node.parents[side]
        known.append((sum(traced(parent, column, node_of) for column in own), len(own)))
    return RIGHT if known[RIGHT] > known[LEFT] else LEFT


def traced(index: NodeIndex, column: int, node_of: NodeOf) -> bool:
    """Whether one column can be followed up every path to a base table."""
    node = node_of(index)
    if isinstance(node.operator, Base):
        return True
    if isinstance(node.operator, Join):
        return any(
            own[0] >= 0 and traced(node.parents[side], own[0], node_of)
            for side in (LEFT, RIGHT)
            if (own := _on_side(node, (column,), node_of, side))
        )
    steps = route(node, (column,), node_of)
    if steps is None:
        return False
    return all(traced(node.parents[step.parent], step.columns[0], node_of) for step in steps)
