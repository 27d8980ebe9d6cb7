"""The tables as a transaction sees them: the stored rows with its own changes, and each look-up remembered."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from heapq import merge
from itertools import chain, islice
from typing import cast

from domains.engine.transactions.look_ups import TableLookUps
from domains.engine.writing.write import TableDeltas
from domains.engine.writing.written import WrittenTable, WrittenTables
from domains.language.encoding import row_encoder
from domains.language.types import Delta, Row, TableSchema, collations_of
from domains.operators.state import row_bytes
from domains.plan.deltas import Entry, add_row, at_most, consolidate, key_function
from domains.plan.graph import Columns
from domains.store.storage import StoredRows, TableRows, TableStore
from domains.store.walking import Interval


class StagedTable:
    """See :class:`domains.store.storage.StoredRows`; ``stored`` are the rows that all see."""

    def __init__(self, stored: TableStore, looked_up: TableLookUps, transaction: str) -> None:
        self.schema: TableSchema = stored.schema
        self.stored = stored
        self.deltas: Entry = {}
        """The transaction's own changes."""
        self._by: dict[Columns, dict[Row, Entry]] = {}
        """The same by keys, for the columns that were looked up by."""
        self._looked_up = looked_up
        self._transaction = transaction
        self._collations = collations_of(stored.schema.columns)

    def change(self, deltas: Iterable[Delta]) -> None:
        for row, weight in deltas:
            add_row(self.deltas, row, weight)
            for columns, own in self._by.items():
                add_row(own.setdefault(key_function(columns, self._collations)(row), {}), row, weight)

    def go_back(self, deltas: Entry) -> None:
        """Have these changes and no others."""
        self.deltas = deltas
        self._by.clear()

    def see(self, other: StagedTable) -> None:
        """Have the changes of another, which go on."""
        self.deltas, self._by = other.deltas, other._by

    def read_whole(self) -> list[Delta]:
        """Whoever reads the stored rows elsewhere may read all of them; these are its own changes of them."""
        self._looked_up.all(self._transaction)
        return list(self.deltas.items())

    # --- look-ups -------------------------------------------------------------------------------------------

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        return self.find_many(columns, [key])[0]

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        if columns:
            self._looked_up.keys(columns, keys, self._transaction)
        else:
            self._looked_up.all(self._transaction)
        found = self.stored.find_many(columns, keys) if columns else [self.stored.find((), ()) for _ in keys]
        if not self.deltas:
            return found
        own = self.own(columns)
        return [self._with(rows, own.get(key)) for rows, key in zip(found, keys, strict=True)]

    def count_many(self, columns: Columns, keys: Sequence[Row], most: int) -> list[int]:
        """An estimate, by which the way of a look-up is chosen: nothing remembers that it was asked."""
        counts = self.stored.count_many(columns, keys, most)
        own = self.own(columns) if self.deltas else {}
        return [
            min(most, count + at_most(own.get(key, {}).items(), most)) for count, key in zip(counts, keys, strict=True)
        ]

    def own(self, columns: Columns) -> Mapping[Row, Entry]:
        """The changes by keys of these columns."""
        if not columns:
            return {(): self.deltas}
        own = self._by.get(columns)
        if own is None:
            own, key_of = {}, key_function(columns, self._collations)
            for row, weight in self.deltas.items():
                own.setdefault(key_of(row), {})[row] = weight
            self._by[columns] = own
        return own

    @staticmethod
    def _with(rows: list[Delta], own: Entry | None) -> list[Delta]:
        return consolidate([*rows, *own.items()]) if own else rows

    def slices(self, limit: int) -> Iterator[list[Delta]]:
        self._looked_up.all(self._transaction)
        left, new = self._taken(), [delta for delta in self.deltas.items() if delta[1] > 0]
        for part in self.stored.slices(limit):
            yield _without(part, left)
        for at in range(0, len(new), limit):
            yield new[at : at + limit]

    def _taken(self) -> Entry:
        return {row: -weight for row, weight in self.deltas.items() if weight < 0}

    @property
    def orders(self) -> tuple[Columns, ...]:
        return self.stored.orders

    def walk(
        self, order: Columns, interval: Interval, first: int, most: int, *, descending: bool = False
    ) -> Iterator[list[Delta]]:
        """What was walked of the interval is remembered, so far as it went."""
        place_of = row_encoder(order, [self.schema.columns[at].type for at in order])
        start, end = interval
        new = sorted(
            (
                (place, (row, weight))
                for row, weight in self.deltas.items()
                if weight > 0 and _is_in(interval, place := place_of(row))
            ),
            key=lambda each: each[0],
            reverse=descending,
        )
        left = self._taken()
        stored = chain.from_iterable(
            _without(part, left) for part in self.stored.walk(order, interval, first, most, descending=descending)
        )
        rows = merge(
            ((place_of(delta[0]), delta) for delta in stored), new, key=lambda each: each[0], reverse=descending
        )
        begin = start if end is None or not descending else end
        walked, size = self._looked_up.walk(order, begin, self._transaction), first
        if descending:
            walked.end = end
        while part := list(islice(rows, size)):
            if descending:
                walked.start = part[-1][0]
            else:
                walked.end = part[-1][0] + b"\xff"
            yield [delta for _, delta in part]
            size = min(2 * size, most)
        walked.start, walked.end = interval

    def has_index(self, columns: Columns) -> bool:
        return self.stored.has_index(columns)

    def best_key(self, tied: Collection[int]) -> Columns:
        return self.stored.best_key(tied)

    @property
    def row_count(self) -> int:
        """An estimate, as ``count_many``."""
        return self.stored.row_count + sum(self.deltas.values())

    # --- values that are given out, whatever becomes of the transaction ---------------------------------------

    def next_auto_increment(self, count: int) -> int:
        return self.stored.next_auto_increment(count)

    def raise_auto_increment(self, at_least: int) -> None:
        self.stored.raise_auto_increment(at_least)


def _is_in(interval: Interval, place: bytes) -> bool:
    return interval[0] <= place and (interval[1] is None or place < interval[1])


def _without(part: list[Delta], left: Entry) -> list[Delta]:
    """The rows but those that are ``left`` to be taken; equal rows of a bag may come in several parts."""
    if not left:
        return part
    kept = []
    for row, weight in part:
        taken = min(weight, left.get(row, 0))
        if taken:
            add_row(left, row, -taken)
        if weight > taken:
            kept.append((row, weight - taken))
    return kept


class StagedTables(WrittenTables):
    """The tables of one shard that a transaction has come to, by name."""

    def __init__(self, committed: WrittenTables, look_ups: dict[str, TableLookUps], transaction: str) -> None:
        dict.__init__(self)
        self._committed = committed
        self._look_ups = look_ups
        self._transaction = transaction

    def made(self, name: str) -> WrittenTable:
        known = self._committed.get(name)
        if known is None or known.schema is not known.stored.schema:
            known = self._committed.made(name)
        looked_up = self._look_ups.get(name)
        if looked_up is None:
            looked_up = self._look_ups[name] = TableLookUps(known.schema)
        own = self[name] = copy(known)
        # Of a table that is written to, operations need look-ups, and values that are given out.
        own.stored = cast(TableStore, self.seen(known.stored, looked_up))
        return own

    def seen(self, stored: TableStore, looked_up: TableLookUps) -> StagedTable:
        """A table as the transaction sees it."""
        return StagedTable(stored, looked_up, self._transaction)

    def table(self, name: str) -> StoredRows:
        """As :class:`domains.store.storage.TableRows` has it. Raises NotFound."""
        return self.staged(name)

    def staged(self, name: str) -> StagedTable:
        return cast(StagedTable, self.known(name).stored)

    def stage(self, changed: TableDeltas) -> int:
        """Add changes, and tell about how many bytes they take."""
        size = 0
        for table, deltas in changed.items():
            self.staged(table.schema.name).change(deltas)
            size += sum(row_bytes(row) for row, _ in deltas)
        return size

    def staged_deltas(self) -> dict[str, Entry]:
        found = {name: self.staged(name).deltas for name in self}
        return {name: deltas for name, deltas in found.items() if deltas}

    def changes(self) -> TableDeltas:
        """All that is staged, for the tables that are stored."""
        return {self._committed.known(name): list(deltas.items()) for name, deltas in self.staged_deltas().items()}

    def go_back(self, deltas: Mapping[str, Entry]) -> None:
        for name in self:
            self.staged(name).go_back(dict(deltas.get(name, {})))


class ChangedTables:
    """Tables with changes that count as done, for a process that evaluates over a cut of them."""

    def __init__(self, stored: TableRows, changes: Mapping[str, Sequence[Delta]]) -> None:
        self._stored = stored
        self._changes = changes

    def table(self, name: str) -> StoredRows:
        stored, changes = self._stored.table(name), self._changes.get(name, ())
        if not changes:
            return stored
        changed = StagedTable(cast(TableStore, stored), TableLookUps(stored.schema), "")
        changed.change(changes)
        changed.read_whole()  # Nobody asks what is looked up here.
        return changed
