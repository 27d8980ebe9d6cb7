"""Rows of one key by a column's range: what a join by ``<`` and its like looks up of the other side.

::

    a JOIN b ON b.k = a.k AND a.x < b.y        a row of a ──► the rows of b at its k, of these the ones with y above x

A key of few rows is gone through; the rows of others stand in order, and a range of them is found by bisection. They
are put in order when a range of them is first asked for, and are kept so as long as the key is (``RowIndex``). A base
table is walked by an index of its own. What is found may be more than the range has, never less: whoever asks applies
the condition itself.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from domains.language.collating.collation import Collations
from domains.language.compile import compile_expression
from domains.language.encoding import encode_key
from domains.language.expressions import Constant
from domains.language.functions.comparands import comparand
from domains.language.ordered import NULL_BYTES, encode_value
from domains.language.types import Column, Delta, Row, SqlType, Value
from domains.plan.deltas import Entry, consolidate, key_function
from domains.plan.sides import SideRange
from domains.store.walking import Bounds, both, bounded

FEW_ROWS = 16
"""Rows of a key that are gone through, at 0.1 µs each: no more than an order of them would save."""
RANK_BYTES = 120
"""A row's place in an order, beside the bytes that it is found by."""

_AFTER_NULL = bytes((NULL_BYTES[0] + 1,))
_BEHIND = b"\xff"
"""Behind all that begin with the same value."""


class Ranged:
    """The rows of one key, by a column of theirs."""

    __slots__ = ()

    def within(self, bounds: Bounds) -> Iterable[Delta]:
        """Those whose column is within the bounds, perhaps with others; read as they are taken."""
        raise NotImplementedError


Partners = Collection[Delta] | Ranged
"""What a side has at a join key: its rows, or, where a match is in a range of many, what answers for ranges."""


class RowsInOrder(Ranged):
    """The rows of an entry by one column; those that have NULL there are in no range."""

    __slots__ = ("_entry", "_place", "_ranked", "bytes")

    def __init__(self, entry: Entry, place: Callable[[Row], bytes | None]) -> None:
        self._entry = entry
        self._place = place
        placed = [(at + encode_key(row), row) for row in entry if (at := place(row)) is not None]
        self._ranked = sorted(placed)
        self.bytes = sum(RANK_BYTES + len(rank) for rank, _ in placed)

    def within(self, bounds: Bounds) -> Iterator[Delta]:
        ranked, entry = self._ranked, self._entry
        low, high = bounds
        start = _AFTER_NULL if low is None else low[0] if low[1] else low[0] + _BEHIND
        begin = bisect_left(ranked, (start,))
        end = len(ranked) if high is None else bisect_left(ranked, (high[0] + _BEHIND if high[1] else high[0],))
        for at in range(begin, end):
            row = ranked[at][1]
            yield row, entry[row]

    def move(self, row: Row, *, came: bool) -> int:
        """A row has come into the entry, or is gone from it; answers by how many bytes this grows."""
        place = self._place(row)
        if place is None:
            return 0
        rank = (place + encode_key(row), row)
        if came:
            insort(self._ranked, rank)
        else:
            at = bisect_left(self._ranked, rank)
            assert self._ranked[at][0] == rank[0], "a row is taken back that is not there"
            del self._ranked[at]
        grown = RANK_BYTES + len(rank[0])
        if not came:
            grown = -grown
        self.bytes += grown
        return grown

    def agrees(self) -> bool:
        """Whether it has the rows of its entry, for the invariants."""
        return self._ranked == RowsInOrder(self._entry, self._place)._ranked


class FoundRows(Ranged):
    """Many rows that a look-up has found, and that nobody keeps: put in order if several ask for ranges of them."""

    __slots__ = ("_asked", "_order", "_place", "_rows")

    def __init__(self, rows: Collection[Delta], place: Callable[[Row], bytes | None]) -> None:
        self._rows = rows
        self._place = place
        self._asked = 0
        self._order: RowsInOrder | None = None

    def within(self, bounds: Bounds) -> Iterable[Delta]:
        if self._order is None:
            self._asked += 1
            if self._asked <= FEW_ROWS:
                return self._rows
            self._order = RowsInOrder(dict(consolidate(self._rows)), self._place)
        return self._order.within(bounds)


def are_few(rows: Collection[object]) -> bool:
    return len(rows) <= FEW_ROWS


def ranged(rows: Collection[Delta] | None, column: int, collations: Collations) -> Partners | None:
    """Rows that a look-up has found, for ranges of them; None where it met a hole."""
    return rows if rows is None or are_few(rows) else FoundRows(rows, place_function(column, collations))


def place_function(column: int, collations: Collations) -> Callable[[Row], bytes | None]:
    """Row → the bytes by which its value in a column sorts; None for NULL."""
    key_of = key_function((column,), collations)

    def place(row: Row) -> bytes | None:
        (value,) = key_of(row)
        return None if value is None else encode_value(value)

    return place


class RangeOfSide:
    """The bounds of one side's column for a row of the other side."""

    def __init__(self, sought: SideRange, columns: Sequence[Column]) -> None:
        self.column = sought.column
        self._type = columns[sought.column].type
        self._key = key_function((0,), () if self._type.equality is None else ((0, self._type.equality),))
        self._tests = [(name, compile_expression(value), value.type) for name, value in sought.tests]

    def bounds(self, row: Row) -> Bounds | None:
        """None: nothing is in the range."""
        found: Bounds = (None, None)
        for function, value_of, type_ in self._tests:
            value, exact = value_of(row), True
            if value is not None and type_.kind is not self._type.kind:
                value, exact = _among(value, type_, self._type)
            if value is None:
                return None
            bounds = bounded(function, encode_value(self._key((value,))[0]), exact)
            if found == (None, None):
                found = bounds
                continue
            merged = both(({0: found},), ({0: bounds},))
            if not merged:
                return None
            found = merged[0][0]
        return found


def _among(value: Value, given: SqlType, column: SqlType) -> tuple[Value, bool]:
    """A value as one of the column's kind, and whether it is exactly that."""
    made = comparand(Constant(value, given), column)
    assert made is not None, "exact numbers are among each other"
    return made.value, made.exact
