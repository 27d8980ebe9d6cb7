"""Reads that hit tell only the reader. What its key pins above is as recent as the key itself.

Without this an aggregate's entries would stand in the order of their fills, and memory pressure would take the hottest
keys' groups, and the readers' keys with them, once in every turnover: under Zipf(1.15) reads and a quarter of the
memory that cost three of a hundred hits.
"""

from __future__ import annotations

from typing import assert_never

from domains import graph
from domains.expressions import Field
from domains.graph import Columns
from domains.operators.join import LEFT, RIGHT, side_columns
from domains.vertex import Vertex


def indexes_at(vertex: Vertex, columns: Columns) -> list[tuple[Vertex, Columns]]:
    """The partial indexes, this vertex's own among them, that hold what a look-up by ``columns`` finds at the very same
    key. What stands there under other keys (the far side of a join) has no part in it."""
    own = vertex.indexes.get(columns)
    found = [(vertex, columns)] if own is not None and own.partial else []
    for parent, above in _sources(vertex, columns):
        found.extend(indexes_at(parent, above))
    return found


def sole_reader(vertex: Vertex) -> Vertex | None:
    """The reader that alone is computed from this vertex; None if there are several, or if another domain reads it too.

    Only that reader's order says what the state above is worth: with two, what one has done with may be what the other
    is asked for all the time.
    """
    leaf: Vertex | None = None
    below, seen = [vertex], {vertex}
    while below:
        one = below.pop()
        if not one.children:
            if leaf is not None:
                return None
            leaf = one
        new = [child for child in one.children if child not in seen]
        seen.update(new)
        below.extend(new)
    return leaf if leaf is not None and isinstance(leaf.node.operator, graph.Reader) else None


def _sources(vertex: Vertex, columns: Columns) -> list[tuple[Vertex, Columns]]:
    """The parents, and where the columns stand there; those that do not have all of them are left out."""
    operator, parents = vertex.node.operator, vertex.parents
    match operator:
        case graph.Project(expressions=expressions):
            fields = [expressions[column] for column in columns]
            above = tuple(field.position for field in fields if isinstance(field, Field))
            return [(parents[0], above)] if len(above) == len(columns) else []
        case graph.Aggregate(group=group):
            known = all(column < len(group) for column in columns)
            return [(parents[0], tuple(group[column] for column in columns))] if known else []
        case graph.Join(kind=kind, left_on=left_on, right_on=right_on):
            width = len(parents[LEFT].node.columns)
            sides = [(side, side_columns(kind, (left_on, right_on), width, columns, side)) for side in (LEFT, RIGHT)]
            return [(parents[side], above) for side, above in sides if -1 not in above]
        case graph.Base() | graph.Ingress():
            return []
        case graph.Filter() | graph.Union() | graph.TopK() | graph.Egress() | graph.Reader():
            return [(parent, columns) for parent in parents]
        case _:
            assert_never(operator)
