"""Provenance: how a look-up by some columns of a node becomes look-ups of its parents.

A node may be partial by key columns only if each of them can be followed up every path to a base table, or to state
that holds it. :func:`route` is one step of that path; :func:`traced` follows it to the end. The engine takes the same
steps: for joins the plan records the side (``Node.drives``), for the others there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from domains.plan.graph import Columns, Node, NodeIndex
from domains.plan.sides import COMPUTED, LEFT, RIGHT
from domains.plan.traits import is_base, traits_of

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
    traits = traits_of(node.operator)
    if traits.groups_by is not None and any(column not in traits.groups_by for column in columns):
        return None
    origins = _origins(node, columns, node_of)
    if traits.matching is not None:
        side = driving_side(node, columns, node_of)
        return (ProvenanceStep(side, tuple(dict.fromkeys(c for c in origins[side] if c != COMPUTED))),)
    if traits.goes_round:
        origins = origins[:1]  # The others are consulted by what comes of it.
    if any(COMPUTED in own or len(set(own)) < len(own) for own in origins):
        return None
    return tuple(ProvenanceStep(parent, own) for parent, own in enumerate(origins))


def _origins(node: Node, columns: Columns, node_of: NodeOf) -> tuple[Columns, ...]:
    return traits_of(node.operator).origins(columns, [len(node_of(parent).columns) for parent in node.parents])


def driving_side(node: Node, columns: Columns, node_of: NodeOf) -> int:
    """The side that decides more of the columns with a traced provenance, else more of the columns; left on a tie.

    It decides one at least: an entry that was computed from *all* rows of a side would be named by none of them (rule
    5).
    """
    known = []
    for parent, origins in zip(node.parents, _origins(node, columns, node_of), strict=True):
        own = [column for column in origins if column != COMPUTED]
        known.append((sum(traced(parent, column, node_of) for column in own), len(own)))
    return RIGHT if known[RIGHT] > known[LEFT] else LEFT


def traced(index: NodeIndex, column: int, node_of: NodeOf) -> bool:
    """Whether one column can be followed up every path to a base table."""
    node = node_of(index)
    if is_base(node.operator):
        return True
    if traits_of(node.operator).matching is not None:
        origins = zip(node.parents, _origins(node, (column,), node_of), strict=True)
        return any(own != COMPUTED and traced(parent, own, node_of) for parent, (own,) in origins)
    steps = route(node, (column,), node_of)
    if steps is None:
        return False
    return all(traced(node.parents[step.parent], step.columns[0], node_of) for step in steps)
