"""The Store made of dicts: what the simulator and Spark tasks give a domain in place of RocksDB.

It keeps the same promises as ``worker/rocks`` and is tested by the same suite: a step is staged, then committed as a
whole or rolled back; a look-up sees committed steps only; scans go in storage order. Nothing is durable. Rows are
kept by content with their weight, and each index (the primary key is one) maps a key to the rows that have it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter

from domains.errors import AlreadyExists, NotFound
from domains.language.encoding import encode_key, row_encoder
from domains.language.types import Delta, Row, TableSchema, collations_of
from domains.plan.copies import PartCopy
from domains.plan.deltas import at_most, key_function
from domains.plan.graph import Columns
from domains.store.storage import (
    SnapshotRecord,
    TransactionPart,
    TransactionRecord,
    best_key,
    declared_indexes,
    snapshot_gone,
)
from domains.store.walking import Interval, orders_of
from domains.store.widening import Widening, widening

_Weights = dict[Row, int]


def _add(weights: _Weights, row: Row, weight: int) -> None:
    total = weights.get(row, 0) + weight
    assert total >= 0, f"retraction of a row that is not stored: {row!r}"
    if total:
        weights[row] = total
    else:
        del weights[row]


class MemoryTable:
    """One table's rows; see :class:`domains.store.storage.TableStore`."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self._collations = collations_of(schema.columns)
        self._rows: _Weights = {}
        self._indexes: dict[Columns, dict[Row, _Weights]] = {columns: {} for columns in declared_indexes(schema)}
        if schema.primary_key:
            self._indexes[schema.primary_key] = {}
        self._building: set[Columns] = set()
        self._early: dict[Columns, Callable[[Row], Row]] = {}
        """The keys of rows by columns that are not the table's yet."""
        self._staged: list[Delta] = []
        self._count = 0
        self._auto_increment = self._committed_auto_increment = 0
        self._streams: dict[str, int] = {}
        self._staged_streams: dict[str, int] = {}
        self._ordered: list[tuple[bytes, Row]] | None = None
        """The rows in storage order, made when a scan needs it and dropped by the next commit."""
        self._walked: dict[Columns, list[tuple[bytes, Row]]] = {}
        """The same by other orders, for walks."""

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        assert not self._staged, "look-up with uncommitted staged deltas"
        if not columns:
            return list(self._rows.items())
        index = self._index(columns)
        if index is None:
            key_of = self._key_of(columns)
            return [(row, n) for row, n in self._rows.items() if key_of(row) == key]
        taken, rows_by_key = index
        return list(rows_by_key.get(tuple(key[columns.index(at)] for at in taken), {}).items())

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        if columns not in self._indexes:
            return [self.find(columns, key) for key in keys]
        assert not self._staged, "look-up with uncommitted staged deltas"
        found = self._indexes[columns].get
        return [list(rows.items()) if (rows := found(key)) else [] for key in keys]

    def count_many(self, columns: Columns, keys: Sequence[Row], most: int) -> list[int]:
        return [at_most(self.find(columns, key), most) for key in keys]

    def _index(self, columns: Columns) -> tuple[Columns, dict[Row, _Weights]] | None:
        """The index of exactly these columns in whatever order, with its own order of them.

        A dict has no order of keys, so first columns of the primary key have an index from when they are asked for.
        """
        if columns in self._indexes:
            return columns, self._indexes[columns]
        wanted = sorted(columns)
        for item in self._indexes.items():
            if sorted(item[0]) == wanted:
                return item
        first = self.schema.primary_key[: len(columns)]
        if not columns or sorted(first) != wanted:
            return None
        self._indexes[first] = self._fill(first)
        return first, self._indexes[first]

    def scan(self, after: bytes | None, limit: int) -> tuple[list[Delta], bytes | None]:
        assert not self._staged, "scan with uncommitted staged deltas"
        if self._ordered is None:
            self._ordered = sorted((self._place(row), row) for row in self._rows)
        start = 0 if after is None else bisect_right(self._ordered, after, key=lambda item: item[0])
        part = self._ordered[start : start + limit]
        deltas = [(row, self._rows[row]) for _, row in part]
        return deltas, part[-1][0] if start + limit < len(self._ordered) else None

    def slices(self, limit: int) -> Iterator[list[Delta]]:
        after: bytes | None = None
        while True:
            part, after = self.scan(after, limit)
            yield part
            if after is None:
                return

    @property
    def orders(self) -> tuple[Columns, ...]:
        width = len(self.schema.columns)
        return orders_of(self.schema, [columns for columns in self._indexes if max(columns) < width])

    def walk(
        self, order: Columns, interval: Interval, first: int, most: int, *, descending: bool = False
    ) -> Iterator[list[Delta]]:
        assert not self._staged, "walk with uncommitted staged deltas"
        if order not in self._walked:
            encode = row_encoder(order, [self.schema.columns[at].type for at in order])
            self._walked[order] = sorted([(encode(row), row) for row in self._rows], key=itemgetter(0))
        start, end = interval
        keys = [key for key, _ in self._walked[order]]
        found = self._walked[order][bisect_left(keys, start) : len(keys) if end is None else bisect_left(keys, end)]
        rows, size = [row for _, row in (reversed(found) if descending else found)], first
        while rows:
            yield [(row, self._rows[row]) for row in rows[:size]]
            rows, size = rows[size:], min(2 * size, most)

    def before(self, row: Row, cursor: bytes | None) -> bool:
        return cursor is None or self._place(row) <= cursor

    def _place(self, row: Row) -> bytes:
        return encode_key(self._key_of(self.schema.primary_key)(row) if self.schema.primary_key else row)

    def _key_of(self, columns: Columns) -> Callable[[Row], Row]:
        return self._early.get(columns) or key_function(columns, self._collations)

    @property
    def row_count(self) -> int:
        return self._count + sum(weight for _, weight in self._staged)

    # --- writing ------------------------------------------------------------------------------------------------

    def stage(self, deltas: Sequence[Delta]) -> None:
        self._staged += [delta for delta in deltas if delta[1] < 0]
        self._staged += [delta for delta in deltas if delta[1] > 0]

    def next_auto_increment(self, count: int) -> int:
        first = self._auto_increment + 1
        self._auto_increment += count
        return first

    def raise_auto_increment(self, at_least: int) -> None:
        self._auto_increment = max(self._auto_increment, at_least)

    def last_number(self, stream: str) -> int:
        return self._streams.get(stream, 0)

    def streams(self) -> dict[str, int]:
        return self._streams

    def remember(self, stream: str, number: int) -> None:
        self._staged_streams[stream] = number

    def commit(self) -> None:
        """Apply what was staged (the store's doing)."""
        for stream, number in self._staged_streams.items():
            if number:
                self._streams[stream] = number
            else:
                self._streams.pop(stream, None)
        self._staged_streams.clear()
        staged, self._staged = self._staged, []
        indexes = [(self._key_of(columns), rows_by_key) for columns, rows_by_key in self._indexes.items()]
        for row, weight in staged:
            _add(self._rows, row, weight)
            for key_of, rows_by_key in indexes:
                key = key_of(row)
                weights = rows_by_key.setdefault(key, {})
                _add(weights, row, weight)
                if not weights:
                    del rows_by_key[key]
            self._count += weight
        if staged:
            self._ordered = None
            self._walked.clear()
        self._committed_auto_increment = self._auto_increment

    def rollback(self) -> None:
        """Forget what was staged (the store's doing)."""
        self._staged.clear()
        self._staged_streams.clear()
        self._auto_increment = self._committed_auto_increment

    def alter(self, schema: TableSchema) -> None:
        """Take a wider schema: every row is widened."""
        widen, grows = widening(self.schema, schema), len(schema.columns) > len(self.schema.columns)
        self.schema = schema
        self._collations = collations_of(schema.columns)
        if grows:
            self._early = {key: key_of for key, key_of in self._early.items() if max(key) >= len(schema.columns)}
            self._rows = {widen(row): weight for row, weight in self._rows.items()}
            self._indexes = {columns: self._fill(columns) for columns in self._indexes}
            self._ordered = None
            self._walked.clear()

    # --- indexes ------------------------------------------------------------------------------------------------

    def has_index(self, columns: Columns) -> bool:
        return self._index(columns) is not None

    def best_key(self, tied: Collection[int]) -> Columns:
        return best_key(self.schema, self._indexes, tied)

    def add_index(self, columns: Columns, widen: Widening | None = None) -> None:
        if self.has_index(columns) or columns in self._building:
            return
        if widen is not None and max(columns) >= len(self.schema.columns):
            self._early[columns] = widen.key_function(columns)
        if self._rows:
            self._building.add(columns)
        else:
            self._indexes[columns] = {}

    def build_index(self, columns: Columns, after: bytes | None, limit: int) -> bytes | None:
        if columns not in self._building:
            return None
        # Slices only keep the caller's pace the same as on disk: the index is made whole by the last one.
        _, cursor = self.scan(after, limit)
        if cursor is None:
            self._building.discard(columns)
            self._indexes[columns] = self._fill(columns)
        return cursor

    def drop_index(self, columns: Columns) -> None:
        assert columns != self.schema.primary_key, "the primary key is not dropped as an index"
        self._building.discard(columns)
        self._early.pop(columns, None)
        self._indexes.pop(columns, None)

    def _fill(self, columns: Columns) -> dict[Row, _Weights]:
        rows_by_key: dict[Row, _Weights] = {}
        key_of = self._key_of(columns)
        for row, weight in self._rows.items():
            rows_by_key.setdefault(key_of(row), {})[row] = weight
        return rows_by_key


class MemoryStore:
    """See :class:`domains.store.storage.Store`; ``log`` and ``trim_log`` as in the store on disk."""

    def __init__(self, *, keep_log: bool = True) -> None:
        self._keep_log = keep_log
        self._tables: dict[str, MemoryTable] = {}
        self._positions: dict[str, int] = {}
        self._log: dict[str, list[tuple[int, list[Delta]]]] = {}
        self._records: dict[str, TransactionRecord] = {}
        self._staged_records: dict[str, TransactionRecord | None] = {}
        self._parts: dict[str, TransactionPart] = {}
        self._staged_parts: dict[str, tuple[TransactionPart, tuple[PartCopy, ...]]] = {}
        self._copies: dict[str, tuple[PartCopy, ...]] = {}
        self._snapshots: dict[str, tuple[SnapshotRecord, MemoryStore]] = {}
        self._untold: dict[str, tuple[SnapshotRecord, MemoryStore]] = {}

    def create_table(self, schema: TableSchema) -> MemoryTable:
        if schema.name in self._tables:
            raise AlreadyExists(f'table "{schema.name}" exists')
        table = self._tables[schema.name] = self.make_table(schema)
        self._positions[schema.name] = 0
        self._log[schema.name] = []
        return table

    def make_table(self, schema: TableSchema) -> MemoryTable:
        """The parts of a new table."""
        return MemoryTable(schema)

    def alter_table(self, schema: TableSchema) -> MemoryTable:
        table = self.table(schema.name)
        widen = widening(table.schema, schema)
        self._log[schema.name] = [
            (sequence, [(widen(row), weight) for row, weight in deltas]) for sequence, deltas in self._log[schema.name]
        ]
        for id, record in self._records.items():
            if schema.name in record.changes:
                widened = [(widen(row), weight) for row, weight in record.changes[schema.name]]
                self._records[id] = replace(record, changes={**record.changes, schema.name: widened})
        table.alter(schema)
        return table

    def drop_table(self, name: str) -> None:
        self.table(name)
        del self._tables[name], self._positions[name], self._log[name]
        for id, record in self._records.items():
            left = {table: deltas for table, deltas in record.changes.items() if table != name}
            read = tuple(table for table in record.read if table != name)
            self._records[id] = replace(record, changes=left, read=read)

    def table(self, name: str) -> MemoryTable:
        table = self._tables.get(name)
        if table is None:
            raise NotFound(f'no table "{name}"')
        return table

    def tables(self) -> list[TableSchema]:
        """The schemas of all tables, in the order of their creation."""
        return [table.schema for table in self._tables.values()]

    schemas = tables

    def commit(self, log: Iterable[tuple[str, int, Sequence[Delta]]]) -> None:
        for name, sequence, deltas in log:
            assert sequence > self.position(name), f'position of "{name}" goes back to {sequence}'
            self._positions[name] = sequence
            if self._keep_log:
                self._log[name].append((sequence, list(deltas)))
        for table in self._tables.values():
            table.commit()
        for id, record in self._staged_records.items():
            self._records.pop(id, None)
            if record is not None:
                self._records[id] = record
        self._staged_records.clear()
        for id, (part, copies) in self._staged_parts.items():
            self._parts[id], self._copies[id] = part, copies
        self._staged_parts.clear()

    def rollback(self) -> None:
        for table in self._tables.values():
            table.rollback()
        self._staged_records.clear()
        self._staged_parts.clear()

    def keep(self, transaction: str, record: TransactionRecord | None) -> None:
        self._staged_records[transaction] = record

    def records(self) -> dict[str, TransactionRecord]:
        return dict(self._records)

    def note_part(self, transaction: str, part: TransactionPart, copies: Sequence[PartCopy] = ()) -> None:
        self._staged_parts[transaction] = part, tuple(copies)

    def parts(self) -> dict[str, TransactionPart]:
        return dict(sorted(self._parts.items()))

    def part(self, transaction: str) -> TransactionPart | None:
        return self._parts.get(transaction)

    def copies_of(self, transaction: str) -> tuple[PartCopy, ...]:
        return self._copies.get(transaction, ())

    def forget_parts(self, transactions: Iterable[str]) -> None:
        for id in transactions:
            self._parts.pop(id, None)
            self._copies.pop(id, None)

    def keep_snapshot(self, record: SnapshotRecord) -> None:
        copy = MemoryStore(keep_log=False)
        for name, table in self._tables.items():
            copy.create_table(table.schema).stage(table.find((), ()))
            copy._positions[name] = self._positions[name]
        copy.commit(())
        self._untold[record.name] = record, copy

    def tell_of_snapshot(self, name: str) -> None:
        self._snapshots[name] = self._untold.pop(name)

    def drop_snapshot(self, name: str) -> None:
        self._snapshots.pop(name, None)
        self._untold.pop(name, None)

    def snapshots(self) -> dict[str, SnapshotRecord]:
        return {name: record for name, (record, _) in self._snapshots.items()}

    def snapshot(self, name: str) -> MemoryStore:
        if name not in self._snapshots:
            raise snapshot_gone(name)
        return self._snapshots[name][1]

    def position(self, table: str) -> int:
        self.table(table)
        return self._positions[table]

    def log(self, table: str, after: int, limit: int) -> list[tuple[int, list[Delta]]]:
        """The next log entries, at most ``limit``: (sequence, deltas) with a sequence above ``after``, oldest first.

        Rows have the table's present width.
        """
        self.table(table)
        entries = self._log[table]
        return list(islice(entries, (start := bisect_right(entries, after, key=lambda entry: entry[0])), start + limit))

    def flush(self) -> None:
        """There are no files."""

    def trim_log(self, table: str, up_to: int) -> None:
        """Forget the log's entries up to and including sequence ``up_to``."""
        self.table(table)
        self._log[table] = [entry for entry in self._log[table] if entry[0] > up_to]
