"""The acknowledged positions, kept beside the RocksDB in a file that a damaged log cannot take along.

RocksDB opens past a hole in its log, and does not notice a log that was deleted. So every ``sync`` of the store notes
afterwards, and before anybody is told, how far it reached: the sequence number of RocksDB, which counts every change,
and the position of each table, which gives the loss a name. Whoever opens the store compares first.

::

    the log is synced ──► the record is written ──► the client is told ──► within SYNC_SECONDS the record is synced

    DIR/base/acknowledged            four slots; never written over: the last one that was synced, the one that a sync
                                     is under way for, and the newest
    DIR/base/acknowledged.tables     where a slot has no room for all tables: their positions at some time before

* **The record is never ahead of the log**: it is written after the log's sync has returned.
* **After a kill it is exact**: what was written survives the process, in the memory of the operating system, and a
  write that was torn was told to nobody.
* **After a power cut or a crash of the operating system** it may be behind, by what was acknowledged since its last
  sync. The log was synced and has all of it. Only where the log is damaged in just these last steps as well, does their
  loss go unnamed. What a power cut tears is a slot that was not synced, and the one that was is whole: a record without
  any whole slot is damaged.

A second sync before each answer would name that, too. It cost a client who is alone as much again as the log's own (260
µs for both, 150 for the log's). The bytes of the file are allocated when it is made: writing over them changes none of
the file system's own records.

Where a slot cannot name all tables (of names as long as usual, some 2,000), it names those that have changed since
``acknowledged.tables`` was written; once these are too many as well, that file is written anew. So what a sync writes
does not grow with the number of tables. The file comes after the log's sync and before the slot, and is synced itself.

The file of slots is also the store's lock for the time before RocksDB takes its own: what somebody writes meanwhile
would look like a loss. It is never replaced, since the lock is on the file and not on its name.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from tempfile import NamedTemporaryFile
from threading import Event, Lock, Thread
from typing import Any, NamedTuple
from zlib import crc32

from domains.archive.manifest import opened, sealed
from domains.errors import StorageFailure
from worker.rocks.database import in_use

FILE = "acknowledged"
TABLES = "acknowledged.tables"

SLOT = 64 * 2**10
"""Bytes of one: the positions of some 2,000 tables."""

SLOTS = 4
"""See above: three of them may not be written over."""
_ALL = frozenset(range(SLOTS))

SYNC_SECONDS = 0.5
"""Seconds from a write of the record until it is synced. Each sync makes one of the log's wait, so not more often; less
often would leave more for a power cut."""

_HEADER = Struct("<8sQII")
"""Magic, number, length of the document, checksum of number and document."""
_MAGIC = b"hrack01\n"
_NUMBER = Struct("<Q")

_sync = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    sequence: int
    """RocksDB's, which counts every change of every key."""
    positions: Mapping[str, int]
    """The position of each table."""


class PreparedRecord(NamedTuple):
    reached: Acknowledged
    number: int
    record: bytes | None
    """The bytes of its slot. None: the file of tables is to be written before."""


class AcknowledgedRecord:
    """Open from construction to ``close``. ``write`` may be called from several threads."""

    def __init__(self, directory: Path) -> None:
        """Raises FileNotFoundError; StorageInUse; StorageFailure where no slot is whole, which no crash does."""
        self.path = directory / FILE
        self._descriptor = os.open(self.path, os.O_RDWR)
        self._writing, self._one_sync = Lock(), Lock()
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise in_use(directory) from error
            found = {slot: each for slot in range(SLOTS) if (each := self._read(slot)) is not None}
            if not found:
                raise StorageFailure(f'the record of what was acknowledged, "{self.path}", is damaged')
            self._newest = max(found, key=lambda slot: found[slot][0])
            self._number, document = found[self._newest]
            """``_number``: of the record that was prepared last. The greatest is the newest."""
            self._before = self._read_before() if "before" in document else Acknowledged(0, {})
            """The record whose positions the slot's positions change."""
            _sync(self._descriptor)  # A process that was killed may have left all of it in memory.
        except BaseException:
            os.close(self._descriptor)
            raise
        self.last = self._before  # Newer than the slot where a crash came between the two.
        if document["sequence"] >= self._before.sequence:
            positions = {**self._before.positions, **document["positions"]}
            self.last = Acknowledged(document["sequence"], {name: at for name, at in positions.items() if at})
        self._synced = self._syncing = self._newest
        self._failed: OSError | None = None
        self._unsynced, self._closing = Event(), Event()
        self._thread: Thread | None = None

    @classmethod
    def make(cls, directory: Path) -> AcknowledgedRecord:
        """A new one, that nothing was acknowledged. It appears under its name when it is whole."""
        with NamedTemporaryFile("wb", dir=directory, prefix=f"{FILE}.", delete=False) as file:
            file.write(_record(0, _document(0, {})).ljust(SLOTS * SLOT, b"\x00"))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(file.name, directory / FILE)
        except FileExistsError:
            pass  # Somebody else was first, and has the lock.
        finally:
            os.unlink(file.name)
        sync_directory(directory)
        return cls(directory)

    def _read(self, slot: int) -> tuple[int, dict[str, Any]] | None:
        """Number and document of a slot; None where it was never written, or not wholly."""
        data = os.pread(self._descriptor, SLOT, slot * SLOT)
        if len(data) < _HEADER.size:
            return None
        magic, number, length, checksum = _HEADER.unpack_from(data)
        document = data[_HEADER.size : _HEADER.size + length]
        if magic != _MAGIC or len(document) != length or crc32(_NUMBER.pack(number) + document) != checksum:
            return None
        return number, json.loads(document)

    def _read_before(self) -> Acknowledged:
        """The file's content. Where it is missing or damaged, a loss is noticed by the slot, which names the tables
        that it knows."""
        try:
            found = opened(json.loads(self.path.with_name(TABLES).read_text("utf-8")))
            return Acknowledged(int(found["sequence"]), found["positions"])
        except (OSError, ValueError, KeyError, TypeError):
            return Acknowledged(0, {})

    def prepare(self, sequence: Callable[[], int], positions: Mapping[str, int]) -> PreparedRecord:
        """What ``write`` takes, of how far it is now: the steps' thread goes on changing both. Made before the log's
        sync: a thread that has just waited for the disk is four times as slow (5 µs and 20), and the client waits."""
        with self._writing:  # Also while they are asked: what has a greater number has come at least as far.
            self._number += 1
            reached = Acknowledged(sequence(), dict(positions))
            document = self._changes(reached)
            has_room = len(document) <= SLOT - _HEADER.size and reached.sequence >= self._before.sequence
            return PreparedRecord(reached, self._number, _record(self._number, document) if has_room else None)

    def write(self, prepared: PreparedRecord, *, back: bool = False) -> None:
        """Return when it survives this process; a sync follows. What was noted is never taken back, but with ``back``.

        :raises OSError: it cannot be written, or what was written before could not be synced.
        """
        with self._writing:
            if self._failed is not None:
                raise self._failed
            if prepared.reached.sequence <= self.last.sequence and not back:
                return
            record = prepared.record
            if record is None:
                self._write_before(prepared.reached)
                record = _record(prepared.number, _document(prepared.reached.sequence, {}, before=True))
            slot = min(_ALL - {self._synced, self._syncing, self._newest})
            os.pwrite(self._descriptor, record, slot * SLOT)
            self.last, self._newest = prepared.reached, slot
            if self._thread is None:
                self._thread = Thread(target=self._sync_behind, name="headrace-acknowledged", daemon=True)
                self._thread.start()
        if not self._unsynced.is_set():
            self._unsynced.set()

    def sync(self) -> None:
        """Return when what was written so far is on disk. Any thread may write on meanwhile."""
        with self._one_sync:
            with self._writing:
                self._unsynced.clear()
                if self._closing.is_set():
                    self._unsynced.set()  # Else the thread that syncs behind would wait again, and who closes for it.
                self._syncing = self._newest
            try:
                _sync(self._descriptor)
            except OSError as error:
                self._failed = error
                raise
            self._synced = self._syncing

    def _sync_behind(self) -> None:
        while self._unsynced.wait() and not self._closing.wait(SYNC_SECONDS):
            try:
                self.sync()
            except OSError:
                return  # The next write raises it.

    def _changes(self, reached: Acknowledged) -> bytes:
        """The document of a slot."""
        known, changed = self._before.positions, reached.positions
        if known:
            gone = dict.fromkeys(known.keys() - reached.positions.keys(), 0)
            changed = {**gone, **dict(reached.positions.items() - known.items())}
        return _document(reached.sequence, changed, before=bool(known))

    def _write_before(self, reached: Acknowledged) -> None:
        path = self.path.with_name(TABLES)
        beside = path.with_suffix(".tables.new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(sealed({"sequence": reached.sequence, "positions": dict(reached.positions)}), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        sync_directory(path.parent)
        self._before = reached

    def close(self) -> None:
        """Sync what was written. Closed again, it does nothing. Raises OSError."""
        self._closing.set()
        if self._thread is not None:
            self._unsynced.set()
            self._thread.join()
        try:
            if self._failed is None and self._newest != self._synced:
                self.sync()
        finally:
            # Once: afterwards the number may be another file's, or a connection's.
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


def _record(number: int, document: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, number, len(document), crc32(_NUMBER.pack(number) + document)) + document


def _document(sequence: int, positions: Mapping[str, int], *, before: bool = False) -> bytes:
    document = {"sequence": sequence, "positions": positions, **({"before": True} if before else {})}
    return json.dumps(document, separators=(",", ":")).encode()


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
