"""How state is read: :class:`Pull` fills holes on the way, :class:`Peek` never does.

Because a domain runs one step at a time, nothing interleaves with a pull: inside a domain there is no replay protocol.
Only an ingress can answer "not here"; a pull goes on past such a miss to collect all of them, and fills nothing that
was computed from one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from domains.errors import StorageFailure
from domains.language.ordered import encode_value
from domains.language.types import Delta, Row
from domains.operators.edges import BaseOperator
from domains.operators.operator import Found, Vertex
from domains.operators.ranged import FoundRows, Partners, Ranged, place_function, ranged
from domains.plan.deltas import at_most
from domains.plan.graph import Columns
from domains.plan.sides import COMPUTED
from domains.plan.traits import traits_of
from domains.store.walking import Bounds, Box, exactly, intervals


class SeenByBackfill(Protocol):
    """The rows of a base table that vertices in backfill see: ``backfill.py``, ``replay.py``."""

    def unseen(self, table: str) -> bool:
        """Whether that is nothing, so that it need not be looked up."""

    def seen(self, table: str, columns: Columns, key: Row, rows: list[Delta]) -> list[Delta]:
        """The rows that they may see, of those stored rows that were found by these columns at this key."""


class Peek:
    """State as it is; a hole stays a hole."""

    def __init__(self, seen: SeenByBackfill | None = None, gated: Collection[Vertex] = ()) -> None:
        self._seen = seen
        self._gated = gated

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        if vertex in self._gated:
            return [()] * len(keys)
        if vertex.is_base:
            return self._stored(vertex.operator, columns, keys)  # type: ignore[arg-type]
        index = vertex.indexes.get(columns)
        if index is not None:
            return list(map(index.get, keys))
        return vertex.operator.compute(self, columns, keys)

    def ranged(self, vertex: Vertex, columns: Columns, column: int, keys: Sequence[Row]) -> list[Partners | None]:
        def whole(key: Row) -> FoundRows:
            place = place_function(column, vertex.collations)
            return FoundRows(self.find(vertex, columns, [key])[0] or (), place)

        walk = _range_walk(vertex, columns, column) if self._seen is None else None
        if walk is not None:
            return [WalkedRows(self, walk, key, partial(whole, key)) for key in keys]
        index, found = vertex.indexes.get(columns), self.find(vertex, columns, keys)
        if index is not None and vertex not in self._gated:
            return [index.ranged(key, column, vertex.collations) for key in keys]
        return [ranged(rows, column, vertex.collations) for rows in found]

    def count(self, vertex: Vertex, columns: Columns, keys: Sequence[Row], most: int) -> list[int | None]:
        """How many rows each key has, but no more than ``most``; of a base table or an index no more are read."""
        base = vertex.operator
        if isinstance(base, BaseOperator) and self._seen is None:
            return list(base.stored.count_many((base.keys.get(columns) or base.key(columns)).columns, keys, most))
        return [None if rows is None else at_most(rows, most) for rows in self.find(vertex, columns, keys)]

    def missing(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return [None] * len(keys)

    def _stored(self, base: BaseOperator, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        """:raises StorageFailure: with the table's name: whoever asked a view, maybe of another domain, gave none."""
        seen = self._seen
        if seen is not None and seen.unseen(base.table):
            return [()] * len(keys)
        by = base.keys.get(columns) or base.key(columns)
        try:
            if not by.unique:
                found = base.stored.find_many(by.columns, keys)
            else:
                of_unique = base.stored.find_many(by.unique, list(map(by.part, keys)))
                same = by.key_of
                found = [[d for d in some if same(d[0]) == key] for some, key in zip(of_unique, keys, strict=True)]
        except StorageFailure as error:
            raise StorageFailure(f'table "{base.table}" cannot be read: {error.message}', hint=error.hint) from error
        if seen is not None:
            found = [seen.seen(base.table, by.columns, key, rows) for key, rows in zip(keys, found, strict=True)]
        return list(found) if base.is_whole else list(map(base.cut, found))


class PeekOld(Peek):
    """State as it was before this step's evictions: an entry that was evicted is still seen."""

    def __init__(self, evicted: Mapping[tuple[Vertex, Columns], Mapping[Row, Found]]) -> None:
        super().__init__()
        self._evicted = evicted

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        found = super().find(vertex, columns, keys)
        evicted = self._evicted.get((vertex, columns))
        if evicted:
            found = [evicted.get(key) if rows is None else rows for key, rows in zip(keys, found, strict=True)]
        return found


@dataclass(slots=True)
class DomainCounters:
    """What the domain has done, for status and metrics."""

    steps: int = 0
    writes: int = 0
    upqueries: int = 0
    fills: int = 0
    evictions: int = 0
    published_deltas: int = 0


class Pull(Peek):
    """State made to be there: each hole on the way is computed from the parents and filled."""

    def __init__(self, counter: DomainCounters) -> None:
        super().__init__()
        self.misses: dict[tuple[Vertex, Columns], dict[Row, None]] = {}
        self._counter = counter

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        index = vertex.indexes.get(columns)
        if index is None:
            return super().find(vertex, columns, keys)
        found = list(map(index.get, keys))
        if None not in found:
            if index.partial:
                for key in keys:
                    index.touch(key)
            return found
        holes: dict[Row, None] = {}
        for key, rows in zip(keys, found, strict=True):
            if rows is None:
                holes[key] = None
            elif index.partial:
                index.touch(key)
        for key, material in zip(holes, vertex.operator.compute(self, columns, list(holes)), strict=True):
            if material is not None:
                index.fill(key, material)
                self._counter.fills += 1
        for at, key in enumerate(keys):
            if found[at] is None:
                found[at] = index.get(key)
        return found

    def missing(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        self.misses.setdefault((vertex, columns), {}).update(dict.fromkeys(keys))
        return [None] * len(keys)


# Ranges of base tables: walked by an index, through what filters and projects on the way down.

FIRST_WALKED = 32
"""Rows that a walk reads first. It goes on by twice as many, since mostly all of a range is wanted."""
MOST_WALKED = 2_048


class RangeWalk(NamedTuple):
    """How ranges of a vertex without state are walked in the base table that its rows come from."""

    between: list[Vertex]
    base: BaseOperator
    columns: Columns
    """The columns of the key in the base, and that of the range behind them."""
    order: Columns


def _range_walk(vertex: Vertex, columns: Columns, column: int) -> RangeWalk | None:
    """None where its rows come from elsewhere too, or the table has no such order."""
    between: list[Vertex] = []
    wanted = (*columns, column)
    while not vertex.is_base:
        if vertex.indexes or len(vertex.parents) != 1 or traits_of(vertex.node.operator).own_state:
            return None
        between.append(vertex)
        (parent,) = vertex.parents
        (wanted,) = traits_of(vertex.node.operator).origins(wanted, [len(parent.node.columns)])
        if COMPUTED in wanted:
            return None
        vertex = parent
    base = vertex.operator
    assert isinstance(base, BaseOperator)
    order = base.order_by(wanted[:-1], wanted[-1])
    return None if order is None else RangeWalk(between, base, wanted, order)


class WalkedRows(Ranged):
    """The rows of one key, each range by a walk of the base table; all of them at once, when walks have read as many
    rows as the table has. ``whole`` has all of them."""

    def __init__(self, peek: Peek, walk: RangeWalk, key: Row, whole: Callable[[], Ranged]) -> None:
        self._peek = peek
        self._way = walk
        *stored, self._last = [walk.base.columns[at] for at in walk.columns]
        self._box: Box = {at: exactly(encode_value(value)) for at, value in zip(stored, key, strict=True)}
        self._read = 0
        self._whole_of = whole
        self._whole: Ranged | None = None

    def within(self, bounds: Bounds) -> Iterable[Delta]:
        if self._whole is None and self._read > self._way.base.stored.row_count:
            self._whole = self._whole_of()
        return self._walked(bounds) if self._whole is None else self._whole.within(bounds)

    def _walked(self, bounds: Bounds) -> Iterator[Delta]:
        between, base, _, order = self._way
        for interval in intervals(order, ({**self._box, self._last: bounds},)):
            for part in base.stored.walk(order, interval, FIRST_WALKED, MOST_WALKED):
                self._read += len(part)
                rows = base.cut(part)
                for vertex in reversed(between):
                    rows = vertex.operator.forward([rows], self._peek)  # type: ignore[arg-type]
                yield from rows
