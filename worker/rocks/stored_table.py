"""Reading one base table in RocksDB: out of the database as it is, or out of a view of it as it was.

See :class:`domains.store.storage.StoredRows` for what is promised and ``layout.py`` for the bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from domains.errors import NotFound, StorageFailure
from domains.language.ordered import value_end
from domains.language.types import Delta, Row, TableSchema, Value, collations_of
from domains.plan.deltas import at_most, key_function
from domains.plan.graph import Columns
from domains.store.row_types import RowTypes
from domains.store.storage import best_key
from domains.store.walking import Interval, orders_of
from worker.rocks import layout
from worker.rocks.codec import RowCodec
from worker.rocks.database import DatabaseView
from worker.rocks.indexes import Access, TableIndexes
from worker.rocks.iterating import Entries, FoundEntries, KeyRange

UNREADABLE = (ValueError, EOFError, TypeError, ArithmeticError)
"""Errors of decoding bytes that are no row."""


class StoredTable:
    """The rows of one shard of one table."""

    schema: TableSchema
    row_count: int

    def __init__(self, reading: Entries, number: int, indexes: TableIndexes) -> None:
        self._reading = reading
        self.number = number
        self.indexes = indexes
        self._rows = layout.table_prefix(layout.ROWS, number)
        self._rows_end = layout.table_end(layout.ROWS, number)

    def adopt(self, schema: TableSchema, pads: tuple[Value, ...]) -> None:
        """Rows have this schema from now on; ``pads`` are the values of its last columns in rows stored before them."""
        self.schema = schema
        self.pads = pads
        self.codec = RowCodec(schema, pads)
        self._types = RowTypes(schema)

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        access = self.indexes.access(columns)
        return self._search(columns, key) if access is None else self._find(access, key)

    def _find(self, access: Access, key: Row) -> list[Delta]:
        prefix = access.start + access.encode(key)
        if access.single:
            content = self._reading.get(prefix)
            return [] if content is None else [(self._decode_all([content], [prefix])[0], 1)]
        # No value and no row key begins with ff, so that this is above every entry of the key.
        return self._rows_with(access, prefix, self._reading.items(prefix, prefix + b"\xff"))

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        access = self.indexes.access(columns)
        if access is None:
            return [self._search(columns, key) for key in keys]
        return self.find_stored(access, keys)

    def count_many(self, columns: Columns, keys: Sequence[Row], most: int) -> list[int]:
        access = self.indexes.access(columns)
        if access is None or access.single:
            return [at_most(rows, most) for rows in self.find_many(columns, keys)]
        prefixes = [access.start + access.encode(key) for key in keys]
        return [len(entries) for entries in self._reading.prefixed(prefixes, access.end, most)]

    def find_stored(self, access: Access, keys: Sequence[Row]) -> list[list[Delta]]:
        if len(keys) < 2:
            return [self._find(access, key) for key in keys]
        start, encode = access.start, access.encode
        prefixes = [start + encode(key) for key in keys]
        if access.single:
            stored = zip(prefixes, self._reading.get_many(prefixes), strict=True)
            found = {key: content for key, content in stored if content is not None}
            rows = dict(zip(found, self._decode_all(list(found.values()), list(found)), strict=True))
            return [[(rows[key], 1)] if key in rows else [] for key in prefixes]
        answers = self._reading.prefixed(prefixes, access.end)
        return [self._rows_with(access, prefix, entries) for prefix, entries in zip(prefixes, answers, strict=True)]

    def _rows_with(self, access: Access, prefix: bytes, entries: list[tuple[bytes, bytes]]) -> list[Delta]:
        """The rows of the entries that begin with ``prefix``."""
        if access.start == self._rows:
            return self.rows_of(len(self._rows), entries)
        skip = len(prefix)
        if access.rest:
            # The columns between are cut out, as if the index were of those that were asked for.
            for at, (key, value) in enumerate(entries):
                end = skip
                for _ in range(access.rest):
                    end = value_end(key, end)
                entries[at] = key[:skip] + key[end:], value
        return self.rows_of(skip, entries)

    def rows_of(self, skip: int, entries: list[tuple[bytes, bytes]]) -> list[Delta]:
        """The rows of index (or row) entries, whose row keys begin after ``skip`` bytes."""
        if not self.schema.primary_key:
            inline, tail = layout.INLINE[0], -layout.UNIQUE_BYTES
            contents = [key[skip + 1 : tail] if key[skip] == inline else value for key, value in entries]
            missing = [at for at, content in enumerate(contents) if not content]
        else:
            contents = [value for _, value in entries]
            missing = [] if all(contents) else [at for at, content in enumerate(contents) if not content]
        if missing:
            fetched = self._reading.get_many([self._rows + entries[at][0][skip:] for at in missing])
            for at, content in zip(missing, fetched, strict=True):
                if content is None:
                    raise self._bad_row(entries[at][0], "an index entry has no row")
                contents[at] = content
        keys = [key for key, _ in entries]
        if self.schema.primary_key or len(contents) < 2:
            return [(row, 1) for row in self._decode_all(contents, keys)]
        counted = Counter(contents)
        return list(zip(self._decode_all(list(counted), keys), counted.values(), strict=True))

    def _decode_all(self, contents: Sequence[bytes], keys: Sequence[bytes]) -> list[Row]:
        """``keys`` are named where something is no row; of a bag with equal rows, one that is near."""
        try:
            rows = list(map(self.codec.decode, contents))
            misfit = self._types.misfit(rows)
        except UNREADABLE as error:
            raise self._bad_row(keys[0], f"this or one of the {len(keys)} from it on is no row: {error}") from error
        if misfit is not None:
            raise self._bad_row(keys[misfit[0]], misfit[1])
        return rows

    def _bad_row(self, key: bytes, what: str) -> StorageFailure:
        return self._reading.cannot_read(f'table "{self.schema.name}", key {key.hex()}: {what}')

    def _search(self, columns: Columns, key: Row) -> list[Delta]:
        rows = self.rows_of(len(self._rows), self._reading.items(self._rows, self._rows_end))
        if not columns:
            return rows
        key_of = key_function(columns, collations_of(self.schema.columns))
        return [(row, weight) for row, weight in rows if key_of(row) == key]

    def slices(self, limit: int) -> Iterator[list[Delta]]:
        start = self._rows
        while entries := self._reading.items(start, self._rows_end, limit):
            yield self.rows_of(len(self._rows), entries)
            if len(entries) < limit:
                return
            start = entries[-1][0] + b"\x00"

    @property
    def orders(self) -> tuple[Columns, ...]:
        return orders_of(self.schema, [index.columns for index in self.indexes.usable()])

    def walk(
        self, order: Columns, interval: Interval, first: int, most: int, *, descending: bool = False
    ) -> Iterator[list[Delta]]:
        access = self.indexes.ordered(order)
        start = access.start + interval[0]
        end = access.end if interval[1] is None else access.start + interval[1]
        read, size = self._reading.before if descending else self._reading.items, first
        while start < end and (entries := read(start, end, size)):
            last, is_end = entries[-1][0], len(entries) < size
            yield self._rows_with(access, access.start, entries)
            if is_end:
                return
            start, end = (start, last) if descending else (last + b"\x00", end)
            size = min(2 * size, most)

    def has_index(self, columns: Columns) -> bool:
        access = self.indexes.access(columns)
        return access is not None and not access.rest

    def best_key(self, tied: Collection[int]) -> Columns:
        return best_key(self.schema, [index.columns for index in self.indexes.all if index.ready], tied)


@dataclass(frozen=True, slots=True)
class ViewedTable:
    """What has to be known of a table to read its entries elsewhere. Picklable."""

    number: int
    schema: TableSchema
    pads: tuple[Value, ...]
    indexes: dict[str, Any]
    row_count: int
    position: int

    def over(self, reading: Entries) -> StoredTable:
        table = StoredTable(reading, self.number, TableIndexes.from_json(self.number, self.schema, self.indexes))
        table.adopt(self.schema, self.pads)
        table.row_count = self.row_count
        return table


@dataclass(frozen=True, slots=True)
class StoreView:
    """Tables of one store as they were between two steps; whoever has made it closes it."""

    entries: DatabaseView
    tables: tuple[ViewedTable, ...]
    is_kept: bool = False
    """Others read it, too: it is not for whoever asked for it to close."""

    def table(self, name: str) -> StoredTable:
        return self.viewed(name).over(self.entries)

    def viewed(self, name: str) -> ViewedTable:
        """Raises NotFound."""
        for each in self.tables:
            if each.schema.name == name:
                return each
        raise NotFound(f'no table "{name}"')

    def position(self, name: str) -> int:
        return self.viewed(name).position

    def schemas(self) -> list[TableSchema]:
        return [each.schema for each in self.tables]

    def of(self, names: Sequence[str]) -> StoreView:
        """Some of its tables, for one of several who read it."""
        return StoreView(self.entries, tuple(self.viewed(name) for name in names), is_kept=True)

    def ranges(self, ranges: Sequence[KeyRange], most: int) -> FoundEntries:
        return self.entries.ranges(ranges, most)

    def misread(self, what: str) -> StorageFailure:
        return self.entries.cannot_read(what)

    @property
    def is_closed(self) -> bool:
        """Also where its store was closed."""
        return self.entries.is_closed

    def close(self) -> None:
        if not self.is_kept:
            self.entries.close()
