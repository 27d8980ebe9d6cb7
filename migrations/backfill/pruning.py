"""Column pruning: of its base tables a task reads the columns that something of it depends on, and no others. Pure.

::

    votes (user, story) ─► ⋈ story = id ─► π author        of votes: story
                              ▲
    stories (id, author, title, text) ─┘                   of stories: id, author

What a task comes to is a function of the bag of rows with these columns, so rows that differ in others only may come as
one, their weights summed. That is most of a bulk job's speed where a large table is aggregated: of 47 million votes for
2.5 million stories as many rows are left, before any code of ours sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from domains.deltas import Entry, add_row
from domains.graph import (
    Aggregate,
    Base,
    Columns,
    Egress,
    Filter,
    Ingress,
    Join,
    Materialization,
    Node,
    NodeIndex,
    Project,
    Reader,
    TopK,
    Union,
)
from domains.rewriting import fields_of
from domains.types import Delta


def columns_read(nodes: Sequence[Node]) -> dict[str, frozenset[int]]:
    """By base table, the stored positions of the columns that the nodes depend on, which are in topological order.

    Of a node that keeps state, or below which nothing is, every column counts.
    """
    widths = {node.index: len(node.columns) for node in nodes}
    wanted: dict[NodeIndex, set[int]] = {index: set() for index in widths}
    ends = widths.keys() - {parent for node in nodes for parent in node.parents}
    read: dict[str, set[int]] = {}
    for node in reversed(nodes):
        of_node = wanted[node.index]
        if node.materialization is not Materialization.NONE or node.index in ends:
            of_node.update(range(widths[node.index]))
        if isinstance(node.operator, Base):
            stored = node.operator.columns
            read.setdefault(node.operator.table, set()).update(stored[column] for column in of_node)
        elif not isinstance(node.operator, Ingress):
            parents = _of_parents(node, of_node, [widths[parent] for parent in node.parents])
            for parent, columns in zip(node.parents, parents, strict=True):
                wanted[parent].update(columns)
    return {table: frozenset(columns) for table, columns in read.items()}


def _of_parents(node: Node, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
    """Of each parent the columns that these of the node depend on, and those that decide which rows it has."""
    match node.operator:
        case Filter(predicate=predicate):
            return [wanted | fields_of(predicate)]
        case Project(expressions=expressions):
            return [set[int]().union(*map(fields_of, expressions))]
        case Union():
            return [wanted for _ in node.parents]
        case Join(left_on=left_on, right_on=right_on, residual=residual):
            both = wanted | (fields_of(residual) if residual is not None else set())
            width = widths[0]
            left, right = ({c for c in both if c < width}, {c - width for c in both if c >= width})
            return [left | set(left_on), right | set(right_on)]
        case Aggregate(group=group, calls=calls):
            ordered = {term.column for call in calls for term in call.order}
            return [{*group, *(call.argument for call in calls if call.argument is not None), *ordered}]
        case TopK() | Egress() | Reader():  # Rows are ranked whole, and leave the domain whole.
            return [set(range(width)) for width in widths]
        case Base() | Ingress():
            return []
        case _:
            assert_never(node.operator)


def pruned(rows: Iterable[Delta], columns: Columns, width: int) -> list[Delta]:
    """Rows with None in all other columns than these, equal ones as one."""
    if len(columns) == width:
        return list(rows)
    wanted, entry = set(columns), Entry()
    for row, weight in rows:
        add_row(entry, tuple(value if place in wanted else None for place, value in enumerate(row)), weight)
    return list(entry.items())
