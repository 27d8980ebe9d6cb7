"""The rows of a partition in order, what a batch changes of them, and frames: which rows a row's function sees."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, assert_never

from domains.language.encoding import encode_order
from domains.language.types import Delta, Row
from domains.plan.graph import BoundKind, Frame, FrameBound, Over


class RankedRow:
    """A row of the parent, one copy: where it stands, the functions' values (then their running states), and the output
    row that children have heard of."""

    __slots__ = ("order", "rank", "row", "said", "values")

    def __init__(self, row: Row, order: bytes, rank: bytes, width: int) -> None:
        self.row = row
        self.order = order
        self.rank = rank
        self.values: list[Any] = [None] * width
        self.said: Row | None = None


order_of = attrgetter("order")
rank_of = attrgetter("rank")
Dirty = dict[RankedRow, None]
"""Rows one of whose values has changed."""


@dataclass(slots=True)
class PartitionChange:
    """The place in a partition where rows came or went. Positions are those of the rows as they are now: what came is
    at ``first`` to ``last``; where one went only, both are the row behind it."""

    first: int
    last: int
    peers_first: int
    peers_last: int
    """The last of its peers, with those that came."""
    low: bytes
    high: bytes
    """The least and greatest order of what came and went."""


@dataclass(slots=True)
class PartitionBatch:
    """The rows of a partition after a batch, what was changed, and by what."""

    rows: list[RankedRow]
    changes: list[PartitionChange]
    deltas: Sequence[Delta]
    came: int
    """How many rows were put in."""
    totals: list[Any]
    """Each function's state over the whole partition, and its value."""
    dirty: Dirty


# Frames: which rows a row's function sees, and whose frames a change is in.


class Framing:
    """A frame over the rows of a partition."""

    def __init__(self, frame: Frame, over: Over) -> None:
        self.frame = frame
        self.from_first = frame.start.kind is BoundKind.UNBOUNDED_PRECEDING
        self.to_last = frame.end.kind is BoundKind.UNBOUNDED_FOLLOWING
        self._column = over.order[0].column if over.order else -1
        self._descending = tuple(term.descending for term in over.order[:1])

    def spans(self, batch: PartitionBatch) -> Iterator[tuple[int, int, PartitionChange]]:
        """The rows, from one to another, whose frames may have a change in them, for each change; and those that
        came."""
        count = len(batch.rows)
        for change in batch.changes:
            start, end = self._since(change, batch.rows), self._until(change, batch.rows)
            if start < min(end, count):
                yield max(start, 0), min(end, count), change

    def _since(self, change: PartitionChange, rows: list[RankedRow]) -> int:
        end = self.frame.end
        match end.kind:
            case BoundKind.UNBOUNDED_FOLLOWING:
                return 0
            case BoundKind.FOLLOWING if self.frame.rows:
                return change.first - end.by
            case BoundKind.PRECEDING if self.frame.rows:
                return change.first
            case BoundKind.FOLLOWING | BoundKind.PRECEDING:
                reached = bisect_left(rows, change.low, key=lambda row: self._bound(row, end))
                return min(reached, change.first)
            case BoundKind.CURRENT_ROW | BoundKind.UNBOUNDED_PRECEDING:
                return change.first if self.frame.rows else change.peers_first
            case _:
                assert_never(end.kind)

    def _until(self, change: PartitionChange, rows: list[RankedRow]) -> int:
        start = self.frame.start
        match start.kind:
            case BoundKind.UNBOUNDED_PRECEDING:
                return len(rows)
            case BoundKind.PRECEDING if self.frame.rows:
                return change.last + start.by
            case BoundKind.FOLLOWING if self.frame.rows:
                return change.last
            case BoundKind.FOLLOWING | BoundKind.PRECEDING:
                reached = bisect_right(rows, change.high, key=lambda row: self._bound(row, start))
                return max(reached, change.last)
            case BoundKind.CURRENT_ROW | BoundKind.UNBOUNDED_FOLLOWING:
                return change.last if self.frame.rows else change.peers_last
            case _:
                assert_never(start.kind)

    def behind(self, change: PartitionChange, batch: PartitionBatch) -> int:
        """The reach of a frame without a beginning: the first row from which on frames have the change in them, be they
        of the rows as they were or as they are. (A row's frame by ROWS moves as rows come and go before it.)"""
        end = self.frame.end
        if self.frame.rows:
            return change.last + (end.by + batch.came if end.kind is BoundKind.PRECEDING else 0)
        if end.kind is BoundKind.CURRENT_ROW:
            return change.peers_last
        found = bisect_left(batch.rows, change.high, key=lambda row: self._bound(row, end))
        return max(found, change.peers_last)

    def before(self, change: PartitionChange, batch: PartitionBatch) -> int:
        """Likewise for a frame without an end: the rows before this one have the change in their frames."""
        start = self.frame.start
        if self.frame.rows:
            return change.first - (start.by + batch.came if start.kind is BoundKind.FOLLOWING else 0)
        if start.kind is BoundKind.CURRENT_ROW:
            return change.peers_first
        found = bisect_right(batch.rows, change.low, key=lambda row: self._bound(row, start))
        return min(found, change.peers_first)

    def of(self, rows: list[RankedRow]) -> Callable[[int], tuple[int, int]]:
        """The first row of each row's frame and the one behind its last; they never go back from row to row."""
        count, frame = len(rows), self.frame
        peers = (0, 0)

        def around(place: int) -> tuple[int, int]:
            nonlocal peers
            if not peers[0] <= place < peers[1]:
                order = rows[place].order
                first = place if place == peers[1] else bisect_left(rows, order, key=order_of)
                end = place + 1
                while end < count and rows[end].order == order:
                    end += 1
                peers = (first, end)
            return peers

        def bounds(place: int) -> tuple[int, int]:
            first = 0 if self.from_first else self._place(frame.start, rows, place, around, end=False)
            end = count if self.to_last else self._place(frame.end, rows, place, around, end=True)
            return (first, end) if first < end else (end, end)

        return bounds

    def _place(
        self,
        bound: FrameBound,
        rows: list[RankedRow],
        place: int,
        around: Callable[[int], tuple[int, int]],
        *,
        end: bool,
    ) -> int:
        if bound.kind is BoundKind.CURRENT_ROW:
            return (place + 1 if end else place) if self.frame.rows else around(place)[end]
        if not self.frame.rows:
            bisect = bisect_right if end else bisect_left
            return bisect(rows, self._bound(rows[place], bound), key=order_of)
        moved = place + (bound.by if bound.kind is BoundKind.FOLLOWING else -bound.by) + end
        return max(0, min(moved, len(rows)))

    def _bound(self, row: RankedRow, bound: FrameBound) -> bytes:
        """A bound by value, as what orders begin with. One that leaves the values of its type is before or behind all
        rows but those of NULL."""
        value = row.row[bound.by]
        if value is not None or row.row[self._column] is None:
            return encode_order((value,), self._descending)
        if bound.kind is BoundKind.FOLLOWING:
            return b"\xfd" if self._descending[0] else b"\xff"
        return b"\x00" if self._descending[0] else b"\x02"


def merged(spans: Iterator[tuple[int, int, PartitionChange]]) -> list[tuple[int, int]]:
    """The rows of all spans, each once."""
    found: list[tuple[int, int]] = []
    for start, end, _ in sorted(spans, key=lambda span: span[:2]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
