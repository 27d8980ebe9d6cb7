"""The base shards of one domain in one RocksDB: the catalog of tables, and the steps' atomic writes.

See :class:`domains.store.storage.Store`. One thread calls everything but :meth:`RocksStore.sync`.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from domains.errors import AlreadyExists, NotFound, StorageFailure
from domains.language.collating.collation import VERSIONS
from domains.language.json_rows import schema_from_json, value_from_json
from domains.language.types import Delta, TableSchema
from domains.plan.copies import PartCopy
from domains.store.storage import (
    DISK_RESERVE,
    CommitLost,
    SnapshotRecord,
    TransactionPart,
    TransactionRecord,
    declared_indexes,
    snapshot_gone,
)
from worker.rocks import layout
from worker.rocks.acknowledged import PreparedRecord
from worker.rocks.codec import MARSHAL_VERSION
from worker.rocks.cut import TableCut, read_log, trim_log
from worker.rocks.database import Database
from worker.rocks.held import HeldSnapshots
from worker.rocks.indexes import TableIndexes
from worker.rocks.layout import StreamNumbers
from worker.rocks.opening import Loss, losses, open_database
from worker.rocks.row_cache import CacheRoom
from worker.rocks.stored_table import StoreView, ViewedTable
from worker.rocks.table import Pending, RocksTable, TableCounters

FORMAT = 3
"""The format of everything in ``layout.py`` and ``codec.py``. Raised with any change that an older program would
misread: in 2 came the record of what was acknowledged, without which such a store is damaged, and in 3 what is kept of
transactions. Earlier ones open, and become this one."""

IDENTITY_BYTES = 8
"""The bytes of a table's identity: no two tables that an archive ever meets have the same."""


class RocksStore:
    """Opens or makes the database in directory ``path``. Writes are refused while its disk has less than ``reserve``
    bytes free, and taken again as soon as it has more.

    ``keep_log=False`` writes no log (scratch tables of a backfill). StorageFailure where another process has the
    directory, where it is corrupt, of another format, or missing with ``create=False``.

    A commit that fails (the disk is full) raises CommitLost, and its step is rolled back: look-ups show the state
    before it. From then on the store takes no writes until it is opened again, since RocksDB does not say how much of
    the failed write reached the disk; opening it again keeps whole steps only.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        keep_log: bool = True,
        accept_loss: bool = False,
        reserve: int = DISK_RESERVE,
    ) -> None:
        self._keep_log = keep_log
        self._pending: Pending = {}
        self._tables: dict[str, RocksTable] = {}
        self._snapshots: dict[str, tuple[SnapshotRecord, StoreView]] = {}
        """Those that end with the process."""
        self._untold: dict[str, tuple[SnapshotRecord, StoreView]] = {}
        self._positions: dict[str, int] = {}
        """Of each table, the last step that RocksDB has taken. Other threads copy it."""
        self._synced = -1
        """The sequence number up to which all is on disk."""
        self._room = CacheRoom()
        self._next_table = 1
        opened = open_database(Path(path), create=create, accept_loss=accept_loss)
        self._database, self._record, self.loss = opened.database, opened.record, opened.loss
        """``loss``: what was acknowledged, is missing, and was accepted to be."""
        self._database.reserve = reserve
        try:
            self._load()
            self._held = HeldSnapshots(Path(path), _held_tables)
            if self.loss is not None:
                self._go_on_without(self.loss)
        except BaseException:
            self._database.close()
            self._record.close()
            raise

    def _load(self) -> None:
        header = self._database.get(layout.STORE_KEY)
        if header is None:
            self._save_header()
            return
        version, self._next_table = marshal.loads(header)
        if not 1 <= version <= FORMAT:
            raise StorageFailure(
                f"the database in {self._database.path} has format {version}, this program reads {FORMAT}",
                hint="open it with the version of headrace that wrote it",
            )
        if version != FORMAT:
            self._save_header()
        for number, entry, schema, counters in _catalog(self._database):
            _check_collations(schema.name, entry.get("collations", {}))
            self._tables[schema.name] = RocksTable(
                self._database,
                self._pending,
                number,
                schema,
                TableIndexes.from_json(number, schema, entry["indexes"]),
                pads=tuple(value_from_json(pad) for pad in entry["pads"]),
                numbers=StreamNumbers.load(self._database, self._pending, number),
                counters=counters,
                identity=entry.get("identity") or token_hex(IDENTITY_BYTES),
                save_catalog=self._save_catalog,
                room=self._room,
            )
            self._positions[schema.name] = self._tables[schema.name].counters.position
            given_up = TableIndexes.given_up(number, entry["indexes"])
            if given_up or "identity" not in entry:  # An earlier version wrote it.
                self._save_catalog(self._tables[schema.name], given_up)

    def _go_on_without(self, loss: Loss) -> None:
        """A position that was lost is not given again: a token of a lost write never stands for another one. What is
        left of the log goes, and the next position leaves a gap, so that an archive goes on with a snapshot, also one
        that has the lost writes."""
        for name, (_, last) in loss.positions.items():
            if name in self._tables:
                self.trim_log(name, last)
                self.commit([(name, last + 2, [])])
        reached = self._reached()
        self._database.sync()
        self._record.write(reached, back=True)
        self._record.sync()

    # --- tables -------------------------------------------------------------------------------------------------

    def create_table(self, schema: TableSchema, identity: str | None = None) -> RocksTable:
        """``identity``: of a table that goes on here, as its archive has it; else it is a new one."""
        assert not self._pending, "a table is created between steps"
        if schema.name in self._tables:
            raise AlreadyExists(f'table "{schema.name}" exists')
        number, self._next_table = self._next_table, self._next_table + 1
        table = RocksTable(
            self._database,
            self._pending,
            number,
            schema,
            TableIndexes.declared(number, schema, declared_indexes(schema)),
            identity=identity or token_hex(IDENTITY_BYTES),
            save_catalog=self._save_catalog,
            room=self._room,
        )
        self._save_catalog(table, ())
        self._tables[schema.name] = table
        self._positions[schema.name] = 0
        return table

    def alter_table(self, schema: TableSchema) -> RocksTable:
        assert not self._pending, "a table is altered between steps"
        table = self.table(schema.name)
        table.alter(schema)
        return table

    def drop_table(self, name: str) -> None:
        assert not self._pending, "a table is dropped between steps"
        number = self.table(name).number
        kinds = (layout.ROWS, layout.INDEXES, layout.LOG, layout.STREAMS)
        self._database.write(
            {layout.table_prefix(layout.CATALOG, number): None, layout.table_prefix(layout.COUNTERS, number): None},
            delete_ranges=[(layout.table_prefix(kind, number), layout.table_end(kind, number)) for kind in kinds],
        )
        del self._positions[name]
        self._tables.pop(name).close()

    def table(self, name: str) -> RocksTable:
        table = self._tables.get(name)
        if table is None:
            raise NotFound(f'no table "{name}"')
        return table

    def tables(self) -> list[TableSchema]:
        """The schemas of all tables, in the order of their creation."""
        return [table.schema for table in self._tables.values()]

    def _save_catalog(self, table: RocksTable, delete_ranges: Sequence[tuple[bytes, bytes]]) -> None:
        changes: Pending = {
            layout.STORE_KEY: self._header(),
            layout.table_prefix(layout.CATALOG, table.number): _to_json(table.catalog_entry()),
            layout.table_prefix(layout.COUNTERS, table.number): table.encode_counters(),
        }
        self._database.write(changes, delete_ranges=delete_ranges)

    def _save_header(self) -> None:
        self._database.write({layout.STORE_KEY: self._header()})

    def _header(self) -> bytes:
        return marshal.dumps((FORMAT, self._next_table), MARSHAL_VERSION)

    # --- steps --------------------------------------------------------------------------------------------------

    def commit(self, log: Iterable[tuple[str, int, Sequence[Delta]]]) -> None:
        pending = self._pending
        touched: dict[str, RocksTable] = {}
        for name, sequence, deltas in log:
            table = touched[name] = self._tables[name]
            table.advance(sequence, deltas if self._keep_log else None)
        for name, table in self._tables.items():
            if table.staged and name not in touched:
                touched[name] = table
                table.stage_counters()
        if not pending:
            return
        try:
            self._database.write(pending)
        except StorageFailure as error:
            for table in touched.values():
                table.rollback()
            if error is self._database.lost:
                raise CommitLost(error.message, hint=error.hint) from error
            raise
        else:
            for name, table in touched.items():
                table.staged = False
                if table.numbers.staged:
                    table.numbers.settle()
                self._positions[name] = table.counters.position
        finally:
            pending.clear()

    def rollback(self) -> None:
        self._pending.clear()
        for table in self._tables.values():
            if table.staged:
                table.rollback()

    def position(self, table: str) -> int:
        return self.table(table).counters.position

    # --- transactions over several shards -----------------------------------------------------------------------

    def keep(self, transaction: str, record: TransactionRecord | None) -> None:
        self._pending[layout.TRANSACTIONS + transaction.encode()] = None if record is None else self._encoded(record)

    def _encoded(self, record: TransactionRecord) -> bytes:
        changes = {
            name: (self.table(name).schema.generation, self.table(name).codec.encode_log(deltas))
            for name, deltas in record.changes.items()
        }
        then = (record.since, dict(record.at), record.order)
        kept = (record.decider, record.others, record.affected, record.read, changes, then)
        return marshal.dumps(kept, MARSHAL_VERSION)

    def records(self) -> dict[str, TransactionRecord]:
        entries = self._database.items(layout.TRANSACTIONS, layout.prefix_end(layout.TRANSACTIONS))
        return {key[len(layout.TRANSACTIONS) :].decode(): self._decoded(value) for key, value in entries}

    def _decoded(self, data: bytes) -> TransactionRecord:
        decider, others, affected, read, changes, then = marshal.loads(data)
        there = {
            name: self.table(name).codec.decode_log(deltas)
            for name, (generation, deltas) in changes.items()
            if name in self._tables and self.table(name).schema.generation == generation
        }
        read = tuple(each for each in read if each in self._tables)
        return TransactionRecord(decider, others, affected, read, there, *then)

    def note_part(self, transaction: str, part: TransactionPart, copies: Sequence[PartCopy] = ()) -> None:
        clocks = (dict(part.prepared), dict(part.before), dict(part.committed))
        noted = marshal.dumps((part.decider, part.others, *clocks, part.prepared_order, part.order), MARSHAL_VERSION)
        self._pending[layout.PARTS + transaction.encode()] = noted
        if copies:
            kept = [(c.shard, c.incarnation, c.order, c.changes, c.behind, c.is_left_out) for c in copies]
            self._pending[layout.COPIES + transaction.encode()] = marshal.dumps(kept, MARSHAL_VERSION)

    def parts(self) -> dict[str, TransactionPart]:
        entries = self._database.items(layout.PARTS, layout.prefix_end(layout.PARTS))
        return {key[len(layout.PARTS) :].decode(): TransactionPart(*marshal.loads(value)) for key, value in entries}

    def part(self, transaction: str) -> TransactionPart | None:
        noted = self._database.get(layout.PARTS + transaction.encode())
        return None if noted is None else TransactionPart(*marshal.loads(noted))

    def copies_of(self, transaction: str) -> tuple[PartCopy, ...]:
        kept = self._database.get(layout.COPIES + transaction.encode())
        return () if kept is None else tuple([PartCopy(*each) for each in marshal.loads(kept)])

    def forget_parts(self, transactions: Iterable[str]) -> None:
        ids = [id.encode() for id in transactions]
        gone: dict[bytes, bytes | None] = {kept + id: None for kept in (layout.PARTS, layout.COPIES) for id in ids}
        if gone:
            self._database.write(gone)

    def sync(self) -> None:
        """Return when every step committed so far is on disk, and noted. Any thread; commits go on meanwhile.

        StorageFailure: the disk refused, and none of the steps since the last sync may be told to anyone.
        """
        if self._database.sequence() == self._synced and self._database.failure is None:
            return  # What a transaction stages is in memory: the log's sync would take as long as that of a write.
        reached = self._reached()
        self._database.sync()
        try:
            self._record.write(reached)
        except OSError as error:
            self._database.fail("sync", error)
        self._synced = reached.reached.sequence

    def _reached(self) -> PreparedRecord:
        """The record of what is reached, to be taken before a sync, which may serve later steps as well: the record is
        never ahead of it."""
        return self._record.prepare(self._database.sequence, self._positions)

    def flush(self) -> None:
        """Sort to files what is in memory. Any thread; commits go on meanwhile."""
        self._database.flush()

    def close(self) -> None:
        """Sync, and release the directory. A step that was not committed is forgotten. A second call does nothing."""
        if self._database.closed:
            return
        self._pending.clear()
        self._held.close()
        try:
            try:
                reached = self._reached()
                if self._database.close():
                    self._record.write(reached)
            finally:
                self._record.close()
        except OSError as error:
            raise StorageFailure(f"cannot close {self._database.path}: {error.strerror or error}") from error

    @property
    def failure(self) -> StorageFailure | None:
        """Why not all of it can be read, or it takes no writes before it is opened again."""
        return self._database.failure

    @property
    def lost(self) -> StorageFailure | None:
        """Why it takes no writes before it is opened again."""
        return self._database.lost

    def when_lost(self, call: Callable[[], None]) -> None:
        """``call`` is told as soon as ``lost``, by any thread."""
        self._database.on_lost = call

    def opened_after(self, before: RocksStore) -> None:
        """Keep the alarm of an unreadable file from the life before this one: it is still damaged."""
        self._database.opened_after(before._database)

    def alarms(self) -> list[dict[str, str]]:
        """JSON-ready: what is wrong with it, and what was lost and is not acknowledged to be."""
        lost = [{"since": "", "error": told} for told in (*losses(self._database.path), *self._held.damaged)]
        return [*self._database.alarms(), *lost]

    def full(self) -> str | None:
        """Why there is no room for writes. Any thread."""
        try:
            self._database.check_room()
        except StorageFailure as error:
            return str(error)
        return None

    # --- log ----------------------------------------------------------------------------------------------------

    def log(self, table: str, after: int, limit: int) -> list[tuple[int, list[Delta]]]:
        """The next log entries, at most ``limit``: (sequence, deltas) with a sequence above ``after``, oldest first.

        Rows have the table's present width.
        """
        found = self.table(table)
        return read_log(self._database, found.number, found.codec, after, limit)

    def trim_log(self, table: str, up_to: int) -> None:
        """Forget the log's entries up to and including sequence ``up_to``."""
        assert not self._pending, "a log is trimmed between steps"
        trim_log(self._database, self.table(table).number, up_to)

    def cut(self, table: str, *, rows: bool = False) -> TableCut:
        """A table as it is now, for another thread to read while steps go on: log, and with ``rows`` rows."""
        assert not self._pending, "a table is cut between steps"
        found = self.table(table)
        span = layout.table_prefix(layout.ROWS, found.number), layout.table_end(layout.ROWS, found.number)
        return TableCut(
            self._database,
            found.number,
            found.codec,
            found.schema,
            found.identity,
            found.counters.position,
            found.counters.auto_increment,
            self._database.view(*span) if rows else None,
        )

    def keep_snapshot(self, record: SnapshotRecord) -> None:
        assert not self._pending, "a snapshot is kept between steps"
        if record.held:
            self._held.keep(record, self._database)
        else:
            self._untold[record.name] = record, self.view(list(self._tables))

    def tell_of_snapshot(self, name: str) -> None:
        if name in self._untold:
            self._snapshots[name] = self._untold.pop(name)
        else:
            self._held.tell_of(name)

    def drop_snapshot(self, name: str) -> None:
        self._held.drop(name)
        for kept in (self._snapshots, self._untold):
            if name in kept:
                kept.pop(name)[1].close()

    def snapshots(self) -> dict[str, SnapshotRecord]:
        return {name: record for name, (record, _) in self._snapshots.items()} | self._held.records

    def snapshot(self, name: str) -> StoreView:
        if name in self._held.records:
            return self._held.view(name)
        if name not in self._snapshots:
            raise snapshot_gone(name)
        return self._snapshots[name][1]

    def view(self, tables: Sequence[str]) -> StoreView:
        """Tables as they are now, to be looked up while steps go on: all of them through one view."""
        assert not self._pending, "a view is made between steps"
        found = [self.table(name) for name in tables]
        return StoreView(
            self._database.view(b"", b"\xff"),
            tuple(
                ViewedTable(t.number, t.schema, t.pads, t.indexes.to_json(), t.row_count, t.counters.position)
                for t in found
            ),
        )


def _catalog(database: Database) -> Iterator[tuple[int, dict[str, Any], TableSchema, TableCounters]]:
    for key, value in database.items(layout.CATALOG, layout.prefix_end(layout.CATALOG)):
        number = int.from_bytes(key[len(layout.CATALOG) :], "big")
        entry = json.loads(value)
        counters = database.get(layout.table_prefix(layout.COUNTERS, number))
        assert counters is not None, "a catalog entry without counters"
        yield number, entry, schema_from_json(entry["schema"]), TableCounters(*marshal.loads(counters))


def _held_tables(database: Database) -> tuple[ViewedTable, ...]:
    return tuple(
        ViewedTable(
            number,
            schema,
            tuple(value_from_json(pad) for pad in entry["pads"]),
            entry["indexes"],
            counters.rows,
            counters.position,
        )
        for number, entry, schema, counters in _catalog(database)
    )


def _check_collations(table: str, versions: dict[str, str]) -> None:
    for name, version in versions.items():
        if VERSIONS.get(name) != version:
            raise StorageFailure(
                f'table "{table}" has keys of collation {name}, version "{version}", and this program makes those of '
                f'"{VERSIONS.get(name)}"',
                hint="open it with the version of headrace that wrote it, back up, and restore with this one",
            )


def _to_json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
