"""Window functions over the rows of one partition, in order: how each is kept up to date.

A batch changes a partition at a few places. From a place on, each function goes over the rows whose value the change
can reach, and no further::

    ROW_NUMBER, RANK, DENSE_RANK    the rows from there on, until one has the number that it had
    LAG, LEAD by n                  the n rows on one side
    a frame without beginning       the rows from there on, until one has the sum (MIN, MAX: the value) that it had
    a frame without end             the rows before, likewise
    a frame of some rows            those rows whose frame has the place in it; each frame is entered and left once
    all of the partition            its one value; all rows, if that has changed
    NTILE, PERCENT_RANK, CUME_DIST  all rows: each depends on how many there are
    JSON_ARRAYAGG, JSON_OBJECTAGG   those rows whose frame has the place in it; each text is made of its whole frame

A row that is appended to a running sum of 100,000 thus costs one addition; one that is put before them, 100,000.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from domains.language.collating.collation import keyed
from domains.language.documents import member_of, object_text, sorted_members
from domains.language.types import Column, Row, SqlType, Value
from domains.operators.accumulators import Accumulator, Sum, accumulator, average_value, better, sum_value
from domains.operators.framing import Dirty, Framing, PartitionBatch, RankedRow, merged, order_of
from domains.plan.graph import (
    AggregateCall,
    AggregateFunction,
    BoundKind,
    Over,
    WindowCall,
    WindowFunction,
)


class RunningFunction(ABC):
    """One call; its value is at ``at`` of a row's values."""

    def __init__(self, call: WindowCall, at: int) -> None:
        self.call = call
        self.at = at

    @abstractmethod
    def revise(self, batch: PartitionBatch) -> None:
        """Set the values that the batch changes."""

    def put(self, row: RankedRow, value: Value, dirty: Dirty) -> None:
        if row.values[self.at] != value:
            row.values[self.at] = value
            dirty[row] = None


class Numbers(RunningFunction):
    """ROW_NUMBER, RANK and DENSE_RANK."""

    def revise(self, batch: PartitionBatch) -> None:
        rows, at = batch.rows, self.at
        by_peers = self.call.function is not WindowFunction.ROW_NUMBER
        place = 0
        for change in batch.changes:
            start, stop = (change.peers_first, change.peers_last) if by_peers else (change.first, change.last)
            place = max(place, start)
            while place < len(rows):
                number = self._number(rows, place)
                if place >= stop and rows[place].values[at] == number:
                    break  # From here to the next change, all are what they were.
                self.put(rows[place], number, batch.dirty)
                place += 1

    def _number(self, rows: list[RankedRow], place: int) -> int:
        function = self.call.function
        if function is WindowFunction.ROW_NUMBER or not place:
            return place + 1
        before = rows[place - 1]
        number: int = before.values[self.at]
        if before.order == rows[place].order:
            return number
        return number + 1 if function is WindowFunction.DENSE_RANK else place + 1


class Shares(RunningFunction):
    """PERCENT_RANK, CUME_DIST and NTILE."""

    def revise(self, batch: PartitionBatch) -> None:
        rows = batch.rows
        count, first = len(rows), 0
        while first < count:
            end = bisect_right(rows, rows[first].order, key=order_of)
            for place in range(first, end):
                self.put(rows[place], self._share(place, first, end, count), batch.dirty)
            first = end

    def _share(self, place: int, first: int, end: int, count: int) -> Value:
        if self.call.function is WindowFunction.PERCENT_RANK:
            return first / (count - 1) if count > 1 else 0.0
        if self.call.function is WindowFunction.CUME_DIST:
            return end / count
        each, larger = divmod(count, self.call.number)
        if place < larger * (each + 1):
            return place // (each + 1) + 1
        return larger + (place - larger * (each + 1)) // each + 1


class Neighbours(RunningFunction):
    """LAG and LEAD."""

    def revise(self, batch: PartitionBatch) -> None:
        rows, number, argument, default = batch.rows, self.call.number, self.call.argument, self.call.default
        assert argument is not None, "LAG and LEAD are of something"
        away = -number if self.call.function is WindowFunction.LAG else number
        for change in batch.changes:
            start, end = (change.first, change.last + number) if away < 0 else (change.first - number, change.last)
            for place in range(max(start, 0), min(end, len(rows))):
                row = rows[place]
                if 0 <= place + away < len(rows):
                    value = rows[place + away].row[argument]
                else:
                    value = None if default is None else row.row[default]
                self.put(row, value, batch.dirty)


class Picks(RunningFunction):
    """FIRST_VALUE, LAST_VALUE and NTH_VALUE."""

    def __init__(self, call: WindowCall, at: int, over: Over) -> None:
        super().__init__(call, at)
        self._framing = Framing(call.frame, over)
        is_last = call.function is WindowFunction.LAST_VALUE
        self._steady = self._framing.to_last if is_last else self._framing.from_first
        """All rows see one row, or none as yet."""

    def revise(self, batch: PartitionBatch) -> None:
        rows, bounds = batch.rows, self._framing.of(batch.rows)
        if not self._steady:
            for start, end in merged(self._framing.spans(batch)):
                for place in range(start, end):
                    self.put(rows[place], self._pick(rows, *bounds(place)), batch.dirty)
            return
        spans = list(self._framing.spans(batch))
        if self.call.function is WindowFunction.LAST_VALUE:
            place = len(rows) - 1
            for _, end, change in reversed(spans):
                place = min(place, end - 1)
                while place >= 0 and not (place < change.peers_first and self._is_known(rows, place, bounds)):
                    self.put(rows[place], self._pick(rows, *bounds(place)), batch.dirty)
                    place -= 1
            return
        place = 0
        for start, _, change in spans:
            place = max(place, start)
            while place < len(rows) and not (place >= change.peers_last and self._is_known(rows, place, bounds)):
                self.put(rows[place], self._pick(rows, *bounds(place)), batch.dirty)
                place += 1

    def _is_known(self, rows: list[RankedRow], place: int, bounds: Callable[[int], tuple[int, int]]) -> bool:
        """Whether this row shows that all further ones, up to another change, see the row that they saw."""
        row, value = rows[place], self._pick(rows, *bounds(place))
        return value is not None and row.said is not None and bool(row.values[self.at] == value)

    def _pick(self, rows: list[RankedRow], first: int, end: int) -> Value:
        assert self.call.argument is not None, "it is of something"
        place = end - 1 if self.call.function is WindowFunction.LAST_VALUE else first
        if self.call.function is WindowFunction.NTH_VALUE:
            place += self.call.number - 1
        return rows[place].row[self.call.argument] if first <= place < end else None


class Documents(RunningFunction):
    """JSON_ARRAYAGG and JSON_OBJECTAGG: the rows of the frame in their order, so that of several members with one key
    the last one counts, as in MySQL."""

    def __init__(self, call: WindowCall, at: int, over: Over) -> None:
        super().__init__(call, at)
        self._framing = Framing(call.frame, over)

    def revise(self, batch: PartitionBatch) -> None:
        rows, bounds = batch.rows, self._framing.of(batch.rows)
        for start, end in merged(self._framing.spans(batch)):
            known: tuple[tuple[int, int], Value] | None = None
            for place in range(start, end):
                frame = bounds(place)
                if known is None or known[0] != frame:
                    known = frame, self._text(rows[frame[0] : frame[1]])
                self.put(rows[place], known[1], batch.dirty)

    def _text(self, rows: Sequence[RankedRow]) -> str | None:
        column = self.call.argument
        assert column is not None, "it is of something"
        parts = [str(row.row[column]) for row in rows if row.row[column] is not None]
        if not parts:
            return None
        if self.call.function is WindowFunction.JSON_OBJECTAGG:
            return object_text(sorted_members(dict(map(member_of, parts))))
        return f"[{', '.join(parts)}]"


# Aggregates over frames.


class Fold(ABC):
    """An aggregate's state as a value that is never changed, so that each row may keep its own."""

    def __init__(self, call: WindowCall, parent: Sequence[SqlType]) -> None:
        self.call, self.kind = call, parent[call.argument or 0].kind
        self.column = -1 if call.argument is None else call.argument

    start: Any = 0
    leaves = True
    """A row that was added can be taken away again."""

    @abstractmethod
    def add(self, state: Any, row: Row, weight: int) -> Any: ...

    def result(self, state: Any) -> Value:
        value: Value = state
        return value


class CountFold(Fold):
    def add(self, state: Any, row: Row, weight: int) -> Any:
        return state + weight if self.column < 0 or row[self.column] is not None else state


class SumFold(Fold):
    """``(how many are not NULL, their exact total)``."""

    def __init__(self, call: WindowCall, parent: Sequence[SqlType]) -> None:
        super().__init__(call, parent)
        self._sum = Sum(_aggregate_call(call), parent)
        self.start = tuple(self._sum.start())

    def add(self, state: Any, row: Row, weight: int) -> Any:
        value = row[self.column]
        return state if value is None else (state[0] + weight, self._sum.plus(state[1], value, weight))

    def result(self, state: Any) -> Value:
        count, total = state
        if not count:
            return None
        if self.call.function is WindowFunction.AVG:
            return average_value(self.kind, total, count, self.call.type.scale)
        return sum_value(self.kind, total)


class ExtremumFold(Fold):
    start: Any = None
    leaves = False

    def __init__(self, call: WindowCall, parent: Sequence[SqlType]) -> None:
        super().__init__(call, parent)
        collation = parent[self.column].equality
        key = None if collation is None else keyed(collation)
        self._better = better(key, greatest=call.function is WindowFunction.MAX)

    def add(self, state: Any, row: Row, weight: int) -> Any:
        value: Any = row[self.column]
        return value if self.is_better(value, state) else state

    def is_better(self, value: Any, than: Any) -> bool:
        if value is None or than is None:
            return value is not None
        return self._better(value, than)


class AccumulatedFold(Fold):
    """An aggregate that a group keeps in an accumulator: its state is copied for each row."""

    def __init__(self, call: WindowCall, parent: Sequence[SqlType]) -> None:
        super().__init__(call, parent)
        self._accumulator = accumulator(_aggregate_call(call), parent, full=True)
        self.start = self._accumulator.start()

    def add(self, state: Any, row: Row, weight: int) -> Any:
        changed = [dict(each) if isinstance(each, dict) else each for each in state]
        self._accumulator.update(changed, [(row, weight)])
        return changed

    def result(self, state: Any) -> Value:
        return self._accumulator.result(state, 0)


_FOLDS: dict[WindowFunction, type[Fold]] = {
    WindowFunction.COUNT_ROWS: CountFold,
    WindowFunction.COUNT: CountFold,
    WindowFunction.SUM: SumFold,
    WindowFunction.AVG: SumFold,
    WindowFunction.MIN: ExtremumFold,
    WindowFunction.MAX: ExtremumFold,
}


def _aggregate_call(call: WindowCall) -> AggregateCall:
    return AggregateCall(AggregateFunction(call.function.value), call.argument, call.type)


class Prefixes(RunningFunction):
    """A frame without a beginning (or without an end, and then all of it the other way round): each row keeps the state
    of its frame, which that of the next goes on from."""

    def __init__(self, call: WindowCall, at: int, over: Over, fold: Fold, state_at: int) -> None:
        super().__init__(call, at)
        self._framing = Framing(call.frame, over)
        self._fold = fold
        self._state_at = state_at

    def revise(self, batch: PartitionBatch) -> None:
        rows, bounds = batch.rows, self._framing.of(batch.rows)
        spans = list(self._framing.spans(batch))
        if self._framing.from_first:
            reached = 0
            for start, _, change in spans:
                reached = self._forward(batch, bounds, max(start, reached), self._framing.behind(change, batch))
            return
        reached = len(rows)
        for _, end, change in reversed(spans):
            reached = self._backward(batch, bounds, min(end, reached), self._framing.before(change, batch))

    def _forward(self, batch: PartitionBatch, bounds: Callable[[int], tuple[int, int]], start: int, behind: int) -> int:
        """Go over the rows from ``start`` on; answers the first that is ``behind`` and has the state that it had."""
        rows, fold, state_at = batch.rows, self._fold, self._state_at
        added, state = (bounds(start - 1)[1], rows[start - 1].values[state_at]) if start else (0, fold.start)
        for place in range(start, len(rows)):
            end = bounds(place)[1]
            for row in rows[added:end]:
                state = fold.add(state, row.row, 1)
            added = max(added, end)
            if place >= behind and self._is_known(rows[place], state):
                return place
            self._keep(rows[place], state, batch.dirty)
        return len(rows)

    def _backward(self, batch: PartitionBatch, bounds: Callable[[int], tuple[int, int]], end: int, before: int) -> int:
        rows, fold, state_at = batch.rows, self._fold, self._state_at
        added, state = (bounds(end)[0], rows[end].values[state_at]) if end < len(rows) else (end, fold.start)
        for place in range(end - 1, -1, -1):
            first = bounds(place)[0]
            while added > first:
                added -= 1
                state = fold.add(state, rows[added].row, 1)
            if place < before and self._is_known(rows[place], state):
                return place + 1
            self._keep(rows[place], state, batch.dirty)
        return 0

    def _is_known(self, row: RankedRow, state: Any) -> bool:
        return row.said is not None and bool(row.values[self._state_at] == state)

    def _keep(self, row: RankedRow, state: Any, dirty: Dirty) -> None:
        row.values[self._state_at] = state
        self.put(row, self._fold.result(state), dirty)


class Slides(RunningFunction):
    """A frame with both ends."""

    def __init__(self, call: WindowCall, at: int, over: Over, fold: Fold) -> None:
        super().__init__(call, at)
        self._framing = Framing(call.frame, over)
        self._fold = fold

    def revise(self, batch: PartitionBatch) -> None:
        bounds = self._framing.of(batch.rows)
        slide = self._sums if self._fold.leaves else self._extrema
        for start, end in merged(self._framing.spans(batch)):
            slide(batch.rows, bounds, start, end, batch.dirty)

    def _sums(
        self, rows: list[RankedRow], bounds: Callable[[int], tuple[int, int]], start: int, end: int, dirty: Dirty
    ) -> None:
        fold, state = self._fold, self._fold.start
        left = entered = bounds(start)[0]
        for place in range(start, end):
            first, last = bounds(place)
            while entered < last:
                state = fold.add(state, rows[entered].row, 1)
                entered += 1
            while left < first:
                state = fold.add(state, rows[left].row, -1)
                left += 1
            self.put(rows[place], fold.result(state), dirty)

    def _extrema(
        self, rows: list[RankedRow], bounds: Callable[[int], tuple[int, int]], start: int, end: int, dirty: Dirty
    ) -> None:
        """The rows that are better than all behind them in the frame: the first of them is the best."""
        fold = self._fold
        assert isinstance(fold, ExtremumFold)
        best: deque[tuple[int, Value]] = deque()
        entered = bounds(start)[0]
        for place in range(start, end):
            first, last = bounds(place)
            for at in range(entered, last):
                value = rows[at].row[fold.column]
                if value is not None:
                    while best and not fold.is_better(best[-1][1], value):
                        best.pop()
                    best.append((at, value))
            entered = max(entered, last)
            while best and best[0][0] < first:
                best.popleft()
            self.put(rows[place], best[0][1] if best else None, dirty)


class Totals(RunningFunction):
    """An aggregate over all of the partition: one value, kept as a group's is."""

    def __init__(self, call: WindowCall, at: int, parent: Sequence[SqlType]) -> None:
        super().__init__(call, at)
        self._accumulator: Accumulator = accumulator(_aggregate_call(call), parent, full=True)

    def revise(self, batch: PartitionBatch) -> None:
        kept = batch.totals[self.at]
        is_new = kept is None
        if kept is None:
            kept = batch.totals[self.at] = [self._accumulator.start(), None]
        known = self._accumulator.update(kept[0], batch.deltas)
        assert known, "a kept extremum needs nobody"
        value = self._accumulator.result(kept[0], len(batch.rows))
        if is_new or value != kept[1]:
            spans = [(0, len(batch.rows))]
        else:
            spans = [(change.first, change.last) for change in batch.changes]
        kept[1] = value
        for start, end in spans:
            for row in batch.rows[start:end]:
                self.put(row, value, batch.dirty)


def functions_of(over: Over, parent: Sequence[Column]) -> tuple[list[RunningFunction], int]:
    """The functions of an operator, and how many values they keep of a row."""
    found: list[RunningFunction] = []
    width = len(over.calls)
    for at, call in enumerate(over.calls):
        match call.function:
            case WindowFunction.ROW_NUMBER | WindowFunction.RANK | WindowFunction.DENSE_RANK:
                found.append(Numbers(call, at))
            case WindowFunction.PERCENT_RANK | WindowFunction.CUME_DIST | WindowFunction.NTILE:
                found.append(Shares(call, at))
            case WindowFunction.LAG | WindowFunction.LEAD:
                found.append(Neighbours(call, at))
            case WindowFunction.FIRST_VALUE | WindowFunction.LAST_VALUE | WindowFunction.NTH_VALUE:
                found.append(Picks(call, at, over))
            case WindowFunction.COUNT_ROWS | WindowFunction.COUNT | WindowFunction.SUM | WindowFunction.AVG:
                found.append(_summed(call, at, over, parent, width))
            case WindowFunction.MIN | WindowFunction.MAX:
                found.append(_summed(call, at, over, parent, width))
            case WindowFunction.VAR_POP | WindowFunction.VAR_SAMP:
                found.append(_summed(call, at, over, parent, width))
            case WindowFunction.STDDEV_POP | WindowFunction.STDDEV_SAMP:
                found.append(_summed(call, at, over, parent, width))
            case WindowFunction.BIT_AND | WindowFunction.BIT_OR | WindowFunction.BIT_XOR:
                found.append(_summed(call, at, over, parent, width))
            case WindowFunction.JSON_ARRAYAGG | WindowFunction.JSON_OBJECTAGG:
                found.append(Documents(call, at, over))
            case _:
                assert_never(call.function)
        width += isinstance(found[-1], Prefixes)
    return found, width


def _summed(call: WindowCall, at: int, over: Over, parent: Sequence[Column], state_at: int) -> RunningFunction:
    """An aggregate, by what kind of frame it has."""
    types = [column.type for column in parent]
    from_first = call.frame.start.kind is BoundKind.UNBOUNDED_PRECEDING
    to_last = call.frame.end.kind is BoundKind.UNBOUNDED_FOLLOWING
    if from_first and to_last:
        return Totals(call, at, types)
    fold = _FOLDS.get(call.function, AccumulatedFold)(call, types)
    return Prefixes(call, at, over, fold, state_at) if from_first or to_last else Slides(call, at, over, fold)
