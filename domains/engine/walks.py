"""Rows of an evaluation by walks of base tables: those in a range of an index, and the first ones in its order.

::

    ORDER BY … LIMIT 20      an index has this order         walk it, until twenty rows have come up
    a < 7, id BETWEEN …      an index begins with it         walk that part of it alone
    both, by two indexes     whoever finds the less          the part, if it is small; else the order, for a while

A walk may be long: twenty rows of an order may lie behind a million that a condition turns down. So it ends after a
part of what all rows would cost, and these are then gone through as they would have been without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from domains.engine.descent import Descent, descend
from domains.engine.vertices import Vertices
from domains.language.collating.collation import Collations
from domains.language.encoding import encode_order
from domains.language.ordered import encode_value
from domains.language.types import Delta, Row
from domains.operators.edges import BaseOperator
from domains.operators.operator import Vertex
from domains.plan.deltas import key_function
from domains.plan.graph import Columns, NodeIndex, OrderTerm
from domains.plan.traits import traits_of
from domains.store.walking import EVERYWHERE, Boxes, Walk, exactly, is_covered, narrowest, walk_in_order

SLICE_ROWS = 2_000
"""The rows of one slice of a scan: enough to make the cost of a slice small, and some hundred kB."""
LOOKUP_ROWS = 4
"""A look-up by an index costs about as much as scanning so many rows."""
FEW_KEYS = 64
"""Looked up at once in an evaluation of few rows, and rows of a slice: so that these bytes are noticed in time."""
GUESSED = 1_000
"""Rows of a key that are counted to estimate a look-up; more are as good as many."""
FEW_WALKED = 500
"""Rows that a walk reads at most to see whether they are all that conditions leave."""
WALKED = 20_000
"""Rows of a range that are held at most. Of more, the table is scanned, but where the range is one of its own order."""

Passing = Callable[[list[Delta]], list[Delta]]
"""Rows → those of them that are wanted."""


class WalkExceeded(Exception):
    """A walk would read more than is worth it."""


class Walks(ABC):
    """The part of an evaluation that walks, in small slices where it is one of ``few`` rows."""

    _elsewhere: Mapping[NodeIndex, Callable[[], Iterator[list[Delta]]]]
    _root: Vertex

    def __init__(self, vertices: Vertices, few: bool) -> None:
        self._vertices = vertices
        self._together = FEW_KEYS if few else SLICE_ROWS
        self._ranged: dict[Vertex, list[Delta] | None] = {}

    @property
    def collations(self) -> Collations:
        """Of the root's columns."""
        return self._root.collations

    # --- of the root ----------------------------------------------------------------------------------------

    def within(self, boxes: Boxes) -> Iterator[list[Delta]] | None:
        """The rows of the root in the boxes, which may come with others; None where no index has them by a range."""
        rows = self._within(self._root, boxes)
        return self._walked(self._root, (), boxes, None, beside=True) if rows is None else iter([rows])

    def first(self, order: Sequence[OrderTerm], count: int, boxes: Boxes, passing: Passing) -> list[Delta] | None:
        """Those of the root's rows in the boxes that pass, up to the first ``count`` by the order, and all that are
        equal to the last one in it; None where they do not come in this order."""
        return self._first(self._root, order, count, boxes, passing)

    # --- of a node ------------------------------------------------------------------------------------------

    def _first(
        self, vertex: Vertex, order: Sequence[OrderTerm], count: int, boxes: Boxes, passing: Passing
    ) -> list[Delta] | None:
        parts = self._walked(vertex, order, boxes, count) if order and count else None
        if parts is None:
            return None
        order_of = key_function(tuple(term.column for term in order), vertex.collations)
        ways = [term.descending for term in order]
        found: list[Delta] = []
        last: bytes | None = None
        left = count
        try:
            for part in parts:
                found += (passed := passing(part))
                left -= sum(weight for _, weight in passed)
                if last is None and left <= 0:
                    ranks = sorted(encode_order(order_of(row), ways) for row, n in found for _ in range(n))
                    last = ranks[count - 1]
                if last is not None and any(encode_order(order_of(row), ways) > last for row, _ in part):
                    break
        except WalkExceeded:
            return None
        return found

    def _first_of(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]] | None:
        """What τ has to see at these keys: of each the first rows; None where they do not come in its order."""
        cut = traits_of(vertex.node.operator).cut
        if cut is None or set(cut.group) != set(columns) or len(keys) > FEW_KEYS:
            return None
        parent, count = vertex.parents[0], cut.limit + cut.offset
        key_of = key_function(columns, parent.collations)
        answers: list[list[Delta]] = []
        for key in keys:
            box = {column: exactly(encode_value(value)) for column, value in zip(columns, key, strict=True)}

            def of_key(part: list[Delta], key: Row = key) -> list[Delta]:
                return [delta for delta in part if key_of(delta[0]) == key]

            found = self._first(parent, cut.order, count, (box,), of_key)
            if found is None:
                return None
            answers.append(found)
        return answers

    def _ranged_rows(self, vertex: Vertex) -> list[Delta] | None:
        """The rows of a filter above a base table that demands a range which an index has, if they are not many."""
        if vertex not in self._ranged:
            self._ranged[vertex] = self._within(vertex, EVERYWHERE) if _demands(vertex) else None
        return self._ranged[vertex]

    def _ranged_part(self, vertex: Vertex) -> Iterator[list[Delta]] | None:
        """The same, however many they are, where they lie side by side in the table."""
        rows = self._ranged_rows(vertex)
        if rows is not None:
            return iter([rows])
        return self._walked(vertex, (), EVERYWHERE, None, beside=True) if _demands(vertex) else None

    def _within(self, vertex: Vertex, boxes: Boxes) -> list[Delta] | None:
        parts = self._walked(vertex, (), boxes, None)
        try:
            return None if parts is None else list(chain.from_iterable(parts))
        except WalkExceeded:
            return None

    # --- walks ----------------------------------------------------------------------------------------------

    def _walked(
        self, vertex: Vertex, order: Sequence[OrderTerm], boxes: Boxes, count: int | None, *, beside: bool = False
    ) -> Iterator[list[Delta]] | None:
        """The rows of a node by a walk of a base table, of which ``count`` are wanted, or all in the boxes; they raise
        WalkExceeded where it is too long. ``beside``: however long, if they lie side by side in the table."""
        vertices = self._vertices
        found = descend(
            vertex.node,
            lambda node: [vertices[parent].node for parent in node.parents],
            order,
            boxes,
            is_sought=lambda node, columns: self._decides(vertices[node.index], columns),
            stops=self._elsewhere,
        )
        if found is None:
            return None
        slices = self._walked_base(vertices[found.base.index], found, count, beside)
        if slices is None:
            return None
        for index, side in reversed(found.way):
            slices = self._turned(
                vertices[index], self._spent(self._through(vertices[index], side, slices), vertices[index])
            )
        return slices

    def _through(self, vertex: Vertex, side: int, slices: Iterator[list[Delta]]) -> Iterator[list[Delta]]:
        if traits_of(vertex.node.operator).matching is not None:
            vertex.operator.drive_from((), side)
            return self._matched(vertex, side, slices)
        return self._forwarded(vertex, slices)

    def _walked_base(
        self, vertex: Vertex, found: Descent, count: int | None, beside: bool
    ) -> Iterator[list[Delta]] | None:
        base = vertex.operator
        assert isinstance(base, BaseOperator)
        table, boxes = base.stored, found.boxes
        orders, key, total = table.orders, table.schema.primary_key, table.row_count
        if count is None:
            walk = narrowest(orders, boxes)
            if walk is None or (beside and walk.order != key):
                return None
            most = total if beside else min(WALKED, max(GUESSED, total // 16))
            return self._turned(vertex, self._spent(self._walk(base, walk, self._together, most), vertex))
        in_order = walk_in_order(orders, key, boxes, found.order)
        if in_order is None:
            return None
        narrow = None if is_covered(in_order.order, boxes) else narrowest(orders, boxes, ranged=False)
        if narrow is not None and narrow.order != in_order.order:
            try:  # There may be so few of them that their order does not matter.
                few = list(chain.from_iterable(self._walk(base, narrow, self._together, FEW_WALKED)))
                return self._turned(vertex, self._spent(iter([few]), vertex))
            except WalkExceeded:
                pass
        most = max(LOOKUP_ROWS * count + FEW_KEYS, total // LOOKUP_ROWS)
        return self._turned(vertex, self._spent(self._walk(base, in_order, count + 1, most), vertex))

    def _walk(self, base: BaseOperator, walk: Walk, first: int, most: int) -> Iterator[list[Delta]]:
        size = min(first, self._together)
        for interval in reversed(walk.intervals) if walk.descending else walk.intervals:
            for part in base.stored.walk(walk.order, interval, size, self._together, descending=walk.descending):
                most -= len(part)
                if most < 0:
                    raise WalkExceeded
                yield base.cut(part)

    # --- what the evaluation does ---------------------------------------------------------------------------

    @abstractmethod
    def _decides(self, vertex: Vertex, columns: Columns) -> bool:
        """Whether a look-up by these columns comes down to indexes of base tables."""

    @abstractmethod
    def _matched(self, vertex: Vertex, side: int, slices: Iterator[list[Delta]]) -> Iterator[list[Delta]]:
        """The rows of ⋈ for those of one side, whose matches are looked up."""

    @abstractmethod
    def _forwarded(self, vertex: Vertex, slices: Iterator[list[Delta]]) -> Iterator[list[Delta]]:
        """The rows of an operator of one parent that goes row by row."""

    @abstractmethod
    def _spent(self, slices: Iterator[list[Delta]], vertex: Vertex) -> Iterator[list[Delta]]:
        """The slices of a node, counted as read."""

    def _turned(self, vertex: Vertex, slices: Iterator[list[Delta]]) -> Iterator[list[Delta]]:
        """The slices, for whoever measures each vertex."""
        return slices


def _demands(vertex: Vertex) -> bool:
    return traits_of(vertex.node.operator).demands is not None and vertex.parents[0].is_base
