"""One base table in RocksDB: rows staged for the step's write, look-ups and scans of what was committed.

See :class:`domains.store.storage.TableStore` for what is promised and ``layout.py`` for the bytes.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domains.language.collating.collation import versions
from domains.language.encoding import Encoder, row_encoder
from domains.language.json_rows import schema_to_json, value_to_json
from domains.language.types import Delta, Row, TableSchema, Value, collations_of
from domains.operators.state import row_weigher
from domains.plan.graph import Columns
from domains.store.widening import Widening, widening
from worker.rocks import layout
from worker.rocks.codec import MARSHAL_VERSION
from worker.rocks.database import Database
from worker.rocks.indexes import TableIndexes
from worker.rocks.layout import StreamNumbers
from worker.rocks.row_cache import CacheRoom, ReadAhead
from worker.rocks.stored_table import StoredTable

Pending = dict[bytes, bytes | None]
"""The step's write: key → value, None to delete. Shared by the tables of a store."""


@dataclass(slots=True)
class TableCounters:
    """Values that every step of a table writes anew."""

    rows: int = 0
    auto_increment: int = 0
    """The last value that was given out."""
    unique: int = 0
    """The last unique part of a bag's row key."""
    position: int = 0
    """The sequence number of the last committed step."""

    def values(self) -> tuple[int, int, int, int]:
        return self.rows, self.auto_increment, self.unique, self.position


class RocksTable(StoredTable):
    """One shard of one base table. Made by :class:`worker.rocks.store.RocksStore` only."""

    def __init__(
        self,
        database: Database,
        pending: Pending,
        number: int,
        schema: TableSchema,
        indexes: TableIndexes,
        *,
        pads: tuple[Value, ...] = (),
        numbers: StreamNumbers | None = None,
        counters: TableCounters | None = None,
        identity: str,
        save_catalog: Callable[[RocksTable, Sequence[tuple[bytes, bytes]]], None],
        room: CacheRoom,
    ) -> None:
        super().__init__(database, number, indexes)
        self._database = database
        self._pending = pending
        self.identity = identity
        """Unique to this table; a table of the same name that is created after this one was dropped has another."""
        self._save_catalog = save_catalog
        self._room = room
        self._cache = room.new_cache()
        self._ahead = ReadAhead(database)
        self._log = layout.table_prefix(layout.LOG, number)
        self._counters_key = layout.table_prefix(layout.COUNTERS, number)
        self.counters = counters or TableCounters()
        self._before = self.counters.values()
        """The counters before the step that changes them."""
        self.numbers = numbers or StreamNumbers(pending, number, {})
        self.staged = False
        """Whether the step has touched this table (rows, auto-increment or a stream's number)."""
        self.adopt(schema, pads)

    def adopt(self, schema: TableSchema, pads: tuple[Value, ...]) -> None:
        super().adopt(schema, pads)
        self._unique = {schema.primary_key, *schema.unique}
        self._cache.adopt(row_weigher([column.type for column in schema.columns]), collations_of(schema.columns))
        key = schema.primary_key
        self._encode_primary: Encoder = row_encoder(key, [schema.columns[at].type for at in key])

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, columns: Columns, key: Row) -> list[Delta]:
        assert not self._pending, "look-up with uncommitted staged deltas"
        return super().find(columns, key)

    def count_many(self, columns: Columns, keys: Sequence[Row], most: int) -> list[int]:
        assert not self._pending, "look-up with uncommitted staged deltas"
        return super().count_many(columns, keys, most)

    def find_many(self, columns: Columns, keys: Sequence[Row]) -> list[list[Delta]]:
        assert not self._pending, "look-up with uncommitted staged deltas"
        access = self.indexes.known.get(columns) or self.indexes.access(columns)
        if access is None:
            return [self._search(columns, key) for key in keys]
        if access.is_early:
            return self.find_stored(access, keys)
        known = self._cache.ways.get(columns) or self._cache.way(columns)
        known.idle = 0
        answers = list(map(known.answers.get, keys))
        if None not in answers:
            return answers  # type: ignore[return-value]
        missing = [key for key, rows in zip(keys, answers, strict=True) if rows is None]
        found = self.find_stored(access, missing)
        # A new row's keys are looked for, and not there: nobody will ask for that again.
        self._cache.remember(known, missing, found, keep_empty=columns not in self._unique)
        if len(found) == len(keys):
            return found
        rest = iter(found)
        return [next(rest) if rows is None else rows for rows in answers]

    def scan(self, after: bytes | None, limit: int) -> tuple[list[Delta], bytes | None]:
        assert not self._pending, "scan with uncommitted staged deltas"
        if self.schema.primary_key:
            entries, cursor = self._slice(after, limit)
            return self.rows_of(len(self._rows), entries), cursor
        deltas: list[Delta] = []
        while len(deltas) < limit:
            entries, cursor = self._slice(after, limit - len(deltas))
            if cursor is not None:
                # The last row may have equals beyond the slice: they are counted now, so that none is cut in two.
                place = entries[-1][0][: -layout.UNIQUE_BYTES]
                entries += self._ahead.all(entries[-1][0] + b"\x00", place + b"\xff" * layout.UNIQUE_BYTES)
                cursor = place[len(self._rows) :] + b"\xff" * layout.UNIQUE_BYTES
            deltas += self.rows_of(len(self._rows), entries)
            if cursor is None:
                return deltas, None
            after = cursor
        return deltas, after

    def _slice(self, after: bytes | None, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """The row entries after a cursor, and the cursor after them (None at the end)."""
        start = self._rows if after is None else self._rows + after + b"\x00"
        entries = self._ahead.first(start, self._rows_end, limit)
        if len(entries) == limit:
            return entries, entries[-1][0][len(self._rows) :]
        self._ahead.forget()
        return entries, None

    def before(self, row: Row, cursor: bytes | None) -> bool:
        if cursor is None:
            return True
        return (self._encode_primary(row) if self.schema.primary_key else self._place(row)) <= cursor

    def _place(self, row: Row) -> bytes:
        return layout.bag_place(self.codec.encode(row))

    @property
    def row_count(self) -> int:  # type: ignore[override]  # It changes with every step.
        return self.counters.rows

    def close(self) -> None:
        """The table is dropped."""
        self._ahead.forget()
        self._room.give_up(self._cache)

    # --- writing ------------------------------------------------------------------------------------------------

    def stage(self, deltas: Sequence[Delta]) -> None:
        self._touch()
        self.counters.rows += sum([weight for _, weight in deltas])
        gone = [delta for delta in deltas if delta[1] < 0]
        come = [delta for delta in deltas if delta[1] > 0] if gone else deltas
        if self.schema.primary_key:
            self._retract_keyed(gone)
            self._insert_keyed(come)
        else:
            for row, weight in gone:
                self._retract_from_bag(row, -weight)
            self._insert_into_bag(come)
        self._ahead.forget()
        self._cache.forget(deltas)

    def _insert_keyed(self, deltas: Sequence[Delta]) -> None:
        pending, prefix, encode = self._pending, self._rows, self.codec.encode
        indexes = [(index.prefix, index.encode) for index in self.indexes.all]
        for row, weight in deltas:
            assert weight == 1, "a table with a primary key holds each row once"
            key = self._encode_primary(row)
            content = encode(row)
            pending[prefix + key] = content
            covered = content if len(content) <= layout.COVERING_LIMIT else b""
            for index, columns in indexes:
                pending[index + columns(row) + key] = covered

    def _retract_keyed(self, deltas: Sequence[Delta]) -> None:
        for row, _ in deltas:
            self._delete(row, self._encode_primary(row))

    def _insert_into_bag(self, deltas: Sequence[Delta]) -> None:
        # Bulk loads and votes need speed here, so all loops are comprehensions: 0.8 µs a row with one index, beside the
        # 2 µs that RocksDB takes.
        pending, prefix, pack = self._pending, self._rows, layout.pack_sequence
        inline, limit, place = layout.INLINE, layout.INLINE_LIMIT, layout.bag_place
        rows = [row for row, weight in deltas for _ in range(weight)]
        contents = self.codec.encode_many(rows)
        first = self.counters.unique + 1
        self.counters.unique += len(rows)
        if max(map(len, contents), default=0) <= limit:
            keys = [inline + content + pack(unique) for unique, content in enumerate(contents, first)]
            pending.update(dict.fromkeys([prefix + key for key in keys], b""))
        else:
            keys = [place(content) + pack(unique) for unique, content in enumerate(contents, first)]
            for key, content in zip(keys, contents, strict=True):
                pending[prefix + key] = content if len(content) > limit else b""
        for index in self.indexes.all:
            head, columns = index.prefix, index.encode
            entries = [head + columns(row) + key for row, key in zip(rows, keys, strict=True)]
            pending.update(dict.fromkeys(entries, b""))

    def _retract_from_bag(self, row: Row, count: int) -> None:
        """Delete any ``count`` of the equal rows."""
        pending, content = self._pending, self.codec.encode(row)
        place = self._rows + layout.bag_place(content)
        stored = self._database.items(place, place + b"\xff" * (layout.UNIQUE_BYTES + 1), count + len(pending))
        keys = [key for key, value in stored if key not in pending and value in (b"", content)]
        if len(keys) < count:
            keys += [
                key
                for key, value in pending.items()
                if value in (b"", content) and key.startswith(place) and len(key) == len(place) + layout.UNIQUE_BYTES
            ]
        assert len(keys) >= count, f"retraction of a row that is not stored: {row!r}"
        for key in keys[:count]:
            self._delete(row, key[len(self._rows) :])

    def _delete(self, row: Row, key: bytes) -> None:
        self._pending[self._rows + key] = None
        for index in self.indexes.all:
            self._pending[index.prefix + index.encode(row) + key] = None

    def next_auto_increment(self, count: int) -> int:
        self._touch()
        first = self.counters.auto_increment + 1
        self.counters.auto_increment += count
        return first

    def raise_auto_increment(self, at_least: int) -> None:
        if at_least > self.counters.auto_increment:
            self._touch()
            self.counters.auto_increment = at_least

    def last_number(self, stream: str) -> int:
        return self.numbers.known.get(stream, 0)

    def streams(self) -> Mapping[str, int]:
        return self.numbers.known

    def remember(self, stream: str, number: int) -> None:
        self._touch()
        self.numbers.remember(stream, number)

    def advance(self, sequence: int, logged: Sequence[Delta] | None) -> None:
        """Give the step its sequence number and log its deltas, unless they are None. The store calls this."""
        assert sequence > self.counters.position, f'position of "{self.schema.name}" goes back to {sequence}'
        self._touch()
        self.counters.position = sequence
        self.stage_counters()
        if logged is not None:
            self._pending[self._log + layout.pack_sequence(sequence)] = self.codec.encode_log(logged)

    def stage_counters(self) -> None:
        """Stage the counters of a step that has changed the table. The store calls this."""
        self._pending[self._counters_key] = self.encode_counters()

    def encode_counters(self) -> bytes:
        return marshal.dumps(self.counters.values(), MARSHAL_VERSION)

    def _touch(self) -> None:
        if not self.staged:
            self._before, self.staged = self.counters.values(), True

    def rollback(self) -> None:
        """Forget what the step has staged. The store calls this."""
        self.counters = TableCounters(*self._before)
        self.numbers.rollback()
        self.staged = False

    # --- schema and indexes -------------------------------------------------------------------------------------

    def alter(self, schema: TableSchema) -> None:
        """Take a wider schema; stored rows are widened when they are read."""
        added = widening(self.schema, schema).constants
        self.indexes.alter(schema)
        self.adopt(schema, self.pads + added)
        self._save_catalog(self, ())

    def add_index(self, columns: Columns, widen: Widening | None = None) -> None:
        assert not self._pending, "an index is declared between steps"
        if not self.has_index(columns) and self.indexes.of(columns) is None:
            early = widen if max(columns, default=0) >= len(self.schema.columns) else None
            self.indexes.add(columns, ready=self.counters.rows == 0, widen=early)
            self._save_catalog(self, ())

    def build_index(self, columns: Columns, after: bytes | None, limit: int) -> bytes | None:
        assert not self._pending, "an index is built between steps"
        index = self.indexes.of(columns)
        if index is None or index.ready:
            assert self.has_index(columns), f"build of an index that was not declared: {columns}"
            return None
        entries, cursor = self._slice(after, limit)
        skip, keyed = len(self._rows), bool(self.schema.primary_key)
        built: Pending = {}
        for key, value in entries:
            row_key = key[skip:]
            content = value or row_key[1 : -layout.UNIQUE_BYTES]
            covered = content if keyed and len(content) <= layout.COVERING_LIMIT else b""
            built[index.prefix + index.encode(self.codec.decode(content)) + row_key] = covered
        self._database.write(built)
        if cursor is None:
            self.indexes.finish(index)
            self._save_catalog(self, ())
        return cursor

    def drop_index(self, columns: Columns) -> None:
        assert not self._pending, "an index is dropped between steps"
        index = self.indexes.of(columns)
        if index is not None:
            self.indexes.remove(index)
            self._save_catalog(self, [(index.prefix, index.end)])

    def catalog_entry(self) -> dict[str, Any]:
        return {
            "schema": schema_to_json(self.schema),
            "identity": self.identity,
            "indexes": self.indexes.to_json(),
            "pads": [value_to_json(value) for value in self.pads],
            "collations": versions([column.type.collation for column in self.schema.columns]),
        }
