"""How state is read: :class:`Pull` fills holes on the way, :class:`Peek` never does.

Because a domain runs one step at a time, nothing interleaves with a pull: inside a domain there is no replay protocol.
Only an ingress can answer "not here"; a pull goes on past such a miss to collect all of them, and fills nothing that
was computed from one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from domains.errors import StorageFailure
from domains.language.types import Delta, Row
from domains.operators.edges import BaseOperator
from domains.operators.operator import Found, Vertex
from domains.plan.deltas import at_most, key_function
from domains.plan.graph import Columns
from domains.store.storage import Store, TableStore


class SeenByBackfill(Protocol):
    """The rows of a base table that vertices in backfill see: ``backfill.py``, ``replay.py``."""

    def unseen(self, table: str) -> bool:
        """Whether that is nothing, so that it need not be looked up."""

    def seen(self, table: str, columns: Columns, key: Row, rows: list[Delta]) -> list[Delta]:
        """Of its stored rows that were found by these columns at this key, those that they see."""


class Peek:
    """State as it is; a hole stays a hole."""

    def __init__(self, store: Store, seen: SeenByBackfill | None = None, gated: Collection[Vertex] = ()) -> None:
        self._store = store
        self._seen = seen
        self._gated = gated

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        if vertex in self._gated:
            return [()] * len(keys)
        index = vertex.indexes.get(columns)
        if index is not None:
            return [index.get(key) for key in keys]
        return vertex.operator.compute(self, columns, keys)

    def count(self, vertex: Vertex, columns: Columns, keys: Sequence[Row], most: int) -> list[int | None]:
        """How many rows each key has, but no more than ``most``; of a base table or an index no more are read."""
        base = vertex.operator
        if isinstance(base, BaseOperator) and columns not in vertex.indexes and self._seen is None:
            stored = tuple(base.columns[column] for column in columns)
            return list(self._store.table(base.table).count_many(stored, keys, most))
        return [None if rows is None else at_most(rows, most) for rows in self.find(vertex, columns, keys)]

    def base(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return find_in_base(self._store, vertex, columns, keys, self._seen)

    def missing(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return [None] * len(keys)


class PeekOld(Peek):
    """State as it was before this step's evictions: an entry that was evicted is still seen."""

    def __init__(self, store: Store, evicted: Mapping[tuple[Vertex, Columns], Mapping[Row, Found]]) -> None:
        super().__init__(store)
        self._evicted = evicted

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        found = super().find(vertex, columns, keys)
        evicted = self._evicted.get((vertex, columns))
        if evicted:
            found = [evicted.get(key) if rows is None else rows for key, rows in zip(keys, found, strict=True)]
        return found


class Pull(Peek):
    """State made to be there: each hole on the way is computed from the parents and filled."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.misses: dict[tuple[Vertex, Columns], dict[Row, None]] = {}
        self.filled = 0

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        index = vertex.indexes.get(columns)
        if index is None:
            return vertex.operator.compute(self, columns, keys)
        found = [index.get(key) for key in keys]
        holes = list({key: None for key, rows in zip(keys, found, strict=True) if rows is None})
        if index.partial:
            for key in keys:
                index.touch(key)
        if not holes:
            return found
        for key, material in zip(holes, vertex.operator.compute(self, columns, holes), strict=True):
            if material is not None:
                index.fill(key, material)
                self.filled += 1
        return [index.get(key) if rows is None else rows for key, rows in zip(keys, found, strict=True)]

    def missing(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        self.misses.setdefault((vertex, columns), {}).update(dict.fromkeys(keys))
        return [None] * len(keys)


def find_in_base(
    store: Store, vertex: Vertex, columns: Columns, keys: Sequence[Row], seen: SeenByBackfill | None
) -> list[Found]:
    base = vertex.operator
    assert isinstance(base, BaseOperator)
    if seen is not None and seen.unseen(base.table):
        return [()] * len(keys)
    stored = tuple(base.columns[column] for column in columns)
    table_store = store.table(base.table)
    unique = table_store.schema.primary_key
    if unique and len(unique) < len(stored) and set(unique) <= set(stored):
        # The primary key decides, and what else the look-up names is checked: no index of its own.
        places = [stored.index(column) for column in unique]
        rows = _find_many(table_store, unique, [tuple(key[place] for place in places) for key in keys])
        key_of = key_function(stored)
        found = [[d for d in some if key_of(d[0]) == key] for some, key in zip(rows, keys, strict=True)]
    else:
        found = _find_many(table_store, stored, keys)
    if seen is not None:
        found = [seen.seen(base.table, stored, key, rows) for key, rows in zip(keys, found, strict=True)]
    return [base.cut(rows) for rows in found]


def _find_many(table: TableStore, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
    """:raises StorageFailure: with the table's name, since whoever asked a view, maybe of another domain, gave none."""
    try:
        return table.find_many(columns, keys)
    except StorageFailure as error:
        raise StorageFailure(f'table "{table.schema.name}" cannot be read: {error.message}', hint=error.hint) from error
