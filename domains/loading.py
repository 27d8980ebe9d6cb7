"""The state of a full vertex as plain items, and back: what a bulk backfill computes elsewhere and loads here.

==================  ==============================================================  ======================
index               an item                                                         its rows
==================  ==============================================================  ======================
rows                ``(row, weight)``                                               the row
groups of γ         ``(key, rows, row, states)``, see :meth:`Grouping.export`       the group's row
ranked rows of τ    ``(row, …, row, whole)``: one group's held rows in their order  the first of them
a reader            ``(row, weight)``                                               the row
==================  ==============================================================  ======================

A vertex is exported by the index that has all of it: that of its groups or ranked rows where there is one, else any of
its row indexes. What its other indexes hold follows from it. Loading what was exported gives the same state, to the
last value that is kept, and in slices: each item is whole, and they may come in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from domains.operators.aggregate import GroupIndex
from domains.operators.edges import Reader
from domains.operators.topk import TopIndex
from domains.operators.whole_groups import WholeGroups
from domains.state import Index, RowIndex
from domains.types import Delta
from domains.vertex import Vertex


def exported(vertex: Vertex) -> Iterator[Any]:
    """The items of a full vertex that is not a reader (whose rows are in the reader map)."""
    index = _leading(vertex)
    if isinstance(index, (GroupIndex, WholeGroups, TopIndex)):
        return index.exported()
    return rows_of_state(vertex)


def rows_of_state(vertex: Vertex) -> Iterator[Delta]:
    """All rows of a vertex with full state."""
    index = _leading(vertex)
    return (delta for key in index.keys() for delta in index.get(key) or ())  # noqa: SIM118


def load(vertex: Vertex, items: Sequence[Any]) -> list[Delta]:
    """Add items to the state of a full vertex, whose other items are others; answers their rows.

    A reader's are to be published by the caller.
    """
    rows: Iterable[Delta]
    if isinstance(vertex.operator, Reader):
        return vertex.operator.kept(items)
    index = _leading(vertex)
    rows = index.load(items) if isinstance(index, (GroupIndex, WholeGroups, TopIndex)) else items
    for other in vertex.indexes.values():
        if isinstance(other, RowIndex):
            other.apply(rows)
    return list(rows)


def _leading(vertex: Vertex) -> Index:
    indexes = list(vertex.indexes.values())
    assert indexes, f"{vertex} has no state"
    assert not any(index.partial for index in indexes), f"{vertex} has partial state"
    return next((index for index in indexes if not isinstance(index, RowIndex)), indexes[0])
