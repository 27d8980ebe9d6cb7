"""Base shards that survive a crash as far as they were synced: whole steps, a prefix of them.

A shard is locked by the process that has it open. Who opens it after another process of the same host that is alive and
superseded kills that one first, as workers do (a stopped process could write after it wakes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random

from domains.errors import StorageFailure
from domains.language.types import Delta, TableSchema
from domains.plan.graph import DomainIndex
from domains.store.memory_store import MemoryTable
from domains.store.storage import SnapshotRecord, TransactionPart, TransactionRecord
from tests.cluster_simulation.adhoc import DictView
from tests.cluster_simulation.loop import Process
from tests.failing_store import FailingStore, Fuse


@dataclass(slots=True)
class _Step:
    """What one commit did, to be undone."""

    rows: dict[str, list[Delta]]
    positions: dict[str, int]
    """Before it."""
    numbers: dict[str, int]
    """AUTO_INCREMENT, before it."""
    streams: dict[str, dict[str, int]]
    """The streams of numbered writes, before it."""
    records: dict[str, TransactionRecord]
    """What was kept of transactions, before it."""
    parts: dict[str, TransactionPart]
    """What was noted of them for cuts, before it."""


class CrashStore(FailingStore):
    """A store of which ``crash`` takes the steps that were not synced, all but some of the first."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        super().__init__(fuse or Fuse())
        self._unsynced: list[_Step] = []
        self._floors: dict[str, int] = {}
        """Up to where each table's log is trimmed."""

    def commit(self, log: Iterable[tuple[str, int, Sequence[Delta]]]) -> None:
        entries = list(log)
        step = _Step({}, {name: self.position(name) for name, _, _ in entries}, {}, {}, self.records(), self.parts())
        for schema in self.tables():
            table = self.table(schema.name)
            if table._staged:
                step.rows[schema.name] = list(table._staged)
            step.numbers[schema.name] = table._committed_auto_increment
            if table._staged_streams:
                step.streams[schema.name] = dict(table.streams())
        super().commit(entries)
        self._unsynced.append(step)

    def view(self, tables: Sequence[str]) -> DictView:
        return DictView(self, tables)

    # What changes the catalog is one write of its own, which RocksDB puts behind all those before it in its log. It is
    # taken for synced here, which is the stricter of what can be.
    def create_table(self, schema: TableSchema) -> MemoryTable:
        self.sync()
        return super().create_table(schema)

    def alter_table(self, schema: TableSchema) -> MemoryTable:
        self.sync()
        return super().alter_table(schema)

    def drop_table(self, name: str) -> None:
        self.sync()
        super().drop_table(name)

    def keep_snapshot(self, record: SnapshotRecord) -> None:
        if record.held:
            self.sync()  # A checkpoint is on disk, and the steps before it.
        super().keep_snapshot(record)

    def sync(self) -> None:
        self.fuse.burn("sync")
        self._unsynced.clear()

    def flush(self) -> None:
        super().flush()
        self._unsynced.clear()

    def crash(self, random: Random) -> int:
        """The process is gone. Answers how many steps are."""
        kept = random.choice((0, len(self._unsynced), random.randint(0, len(self._unsynced))))
        lost = self._unsynced[kept:]
        self._unsynced.clear()
        self._snapshots = {name: kept for name, kept in self._snapshots.items() if kept[0].held}
        self._untold.clear()
        self.rollback()
        for step in reversed(lost):
            self._undo(step)
        for schema in self.tables():
            table = self.table(schema.name)
            # Indexes that were being built are begun again: their cursors were the process's.
            for columns in sorted(table._building):
                table._building.discard(columns)
        if self.lost is not None:  # Whole steps only, and none where one before it is not there.
            self.open_again(there=not lost and random.random() < 0.5)
        return len(lost)

    def _undo(self, step: _Step) -> None:
        for name, deltas in step.rows.items():
            table = self.table(name)
            table.stage([(row, -weight) for row, weight in deltas])
            table.commit()
        for name, position in step.positions.items():
            self._positions[name] = position
            self.trim_after(name, position)
        self._records, self._parts = step.records, step.parts
        self._copies = {id: copies for id, copies in self._copies.items() if id in step.parts}
        for name, streams in step.streams.items():
            self.table(name)._streams = streams
        for name, number in step.numbers.items():
            table = self.table(name)
            table._auto_increment = table._committed_auto_increment = number

    def floor(self, name: str) -> int:
        """The position after which the log begins."""
        return self._floors.get(name, 0)

    def log(self, table: str, after: int, limit: int) -> list[tuple[int, list[Delta]]]:
        floor = self.floor(table)
        assert after >= floor, f'the log of "{table}" is read after {after}, and was trimmed up to {floor}'
        return super().log(table, after, limit)

    def trim_log(self, table: str, up_to: int) -> None:
        super().trim_log(table, up_to)
        self._floors[table] = max(up_to, self.floor(table))

    def trim_after(self, name: str, position: int) -> None:
        self._log[name] = [entry for entry in self._log[name] if entry[0] <= position]


@dataclass(slots=True)
class Disk:
    """One shard's directory."""

    store: CrashStore
    owner: Process | None = None
    host: str = ""
    incarnation: int = 0


class Disks:
    """All shards' directories: of one deployment, reached from every host that has them."""

    def __init__(self, random: Random, kill: Callable[[Process, str], None]) -> None:
        self._random = random
        self._kill = kill
        self.disks: dict[tuple[str, DomainIndex], Disk] = {}
        """By data directory and shard."""
        self.fuse = Fuse()
        """Of all of them."""
        self.refused: set[DomainIndex] = set()
        """Those that cannot be opened now: the disk is full, or broken."""

    def open(self, place: tuple[str, DomainIndex], process: Process, host: str, incarnation: int) -> CrashStore:
        domain = place[1]
        if domain in self.refused:
            raise StorageFailure(f"shard {domain} cannot be opened now", hint="see the disk")
        disk = self.disks.setdefault(place, Disk(CrashStore(self.fuse)))
        if disk.owner is not None and disk.owner is not process:
            if disk.host != host:
                raise StorageFailure(f"shard {domain} is open on host {disk.host}", hint="stop that process")
            if disk.incarnation >= incarnation:
                raise StorageFailure(f"shard {domain} is open in a later incarnation", hint="nothing is to be done")
            self._kill(disk.owner, f"fenced off by {process}")
        assert disk.owner is None or disk.owner is process, "whoever was killed still holds its shard"
        if disk.incarnation > incarnation:
            raise StorageFailure(f"shard {domain} went on in incarnation {disk.incarnation}")
        disk.owner, disk.host, disk.incarnation = process, host, incarnation
        return disk.store

    def close(self, place: tuple[str, DomainIndex], process: Process, incarnation: int) -> None:
        disk = self.disks[place]
        if disk.owner is process and disk.incarnation == incarnation:
            disk.store.sync()
            disk.owner = None

    def crash(self, process: Process) -> int:
        """All that the process had open. Answers how many steps are lost."""
        lost = 0
        for disk in self.disks.values():
            if disk.owner is process:
                lost += disk.store.crash(self._random)
                disk.owner = None
        return lost
