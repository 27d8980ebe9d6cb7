"""How far was acknowledged, kept beside the RocksDB in a file that a damaged log cannot take along.

RocksDB opens past a hole in its log, and does not notice a log that was deleted. So every ``sync`` of the store notes
afterwards, and before anybody is told, how far it reached: the sequence number of RocksDB, which counts every change,
and the position of each table, which gives the loss a name. Whoever opens the store compares first.

::

    DIR/base/acknowledged            two slots, written in turns: a crash tears the one that nobody was told of
    DIR/base/acknowledged.tables     where a slot has no room for all tables: their positions at some time before

The log is synced first, then the record, then the client is told. So the record is never ahead of what a crash keeps,
and never behind what a client was told. Both syncs one after the other cost 260 µs where the log's own cost 150 (the
median of 400 on a virtual disk); both at once cost 220, but then a record may be ahead of the log. The bytes of the
file are allocated when it is made: writing over them changes none of the file system's own records.

Where a slot cannot name all tables (of names as long as usual, some 2,000), it names those that have changed since
``acknowledged.tables`` was written; once these are too many as well, that file is written anew. So what a sync writes
does not grow with the number of tables. The file comes after the log's sync and before the slot, as if it were one.

The file of slots is also the store's lock for the time before RocksDB takes its own: what somebody writes meanwhile
would look like a loss. It is never replaced, since the lock is on the file and not on its name.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import Any
from zlib import crc32

from domains.errors import StorageFailure
from domains.sealed import opened, sealed
from worker.rocks.database import in_use

FILE = "acknowledged"
TABLES = "acknowledged.tables"

SLOT = 64 * 2**10
"""Bytes of one: the positions of some 2,000 tables."""

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
    """Of each table."""


class AcknowledgedRecord:
    """Open from construction to ``close``. ``write`` may be called from several threads."""

    def __init__(self, directory: Path) -> None:
        """Raises FileNotFoundError; StorageInUse; StorageFailure where neither slot is whole, which no crash does."""
        self.path = directory / FILE
        self._descriptor = os.open(self.path, os.O_RDWR)
        self._writing = Lock()
        try:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise in_use(directory) from error
            found = [each for each in map(self._read, (0, 1)) if each is not None]
            if not found:
                raise StorageFailure(f'the record of what was acknowledged, "{self.path}", is damaged')
            self._number, document = max(found, key=lambda each: each[0])
            self._before = self._read_before() if "before" in document else Acknowledged(0, {})
            """What the slot's positions are changes of."""
        except BaseException:
            os.close(self._descriptor)
            raise
        self.last = self._before  # Newer than the slot where a crash came between the two.
        if document["sequence"] >= self._before.sequence:
            positions = {**self._before.positions, **document["positions"]}
            self.last = Acknowledged(document["sequence"], {name: at for name, at in positions.items() if at})

    @classmethod
    def make(cls, directory: Path) -> AcknowledgedRecord:
        """A new one, that nothing was acknowledged. It appears under its name when it is whole."""
        with NamedTemporaryFile("wb", dir=directory, prefix=f"{FILE}.", delete=False) as file:
            file.write(_record(0, _document(0, {})).ljust(2 * SLOT, b"\x00"))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(file.name, directory / FILE)
        except FileExistsError:
            pass  # Somebody else was first, and has the lock.
        finally:
            os.unlink(file.name)
        _sync_directory(directory)
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
        """Where it is missing or damaged, a loss is noticed by the slot, which names the tables that it knows."""
        try:
            found = opened(json.loads(self.path.with_name(TABLES).read_text("utf-8")))
            return Acknowledged(int(found["sequence"]), found["positions"])
        except (OSError, ValueError, KeyError, TypeError):
            return Acknowledged(0, {})

    def write(self, reached: Acknowledged, *, back: bool = False) -> None:
        """Return when it is on disk. What was noted is never taken back, but with ``back``. Raises OSError."""
        with self._writing:
            if reached.sequence <= self.last.sequence and not back:
                return
            record = _record(self._number + 1, self._changes(reached))
            os.pwrite(self._descriptor, record, (self._number + 1) % 2 * SLOT)
            _sync(self._descriptor)
            self._number, self.last = self._number + 1, reached

    def _changes(self, reached: Acknowledged) -> bytes:
        """The document of a slot."""
        known, changed = self._before.positions, reached.positions
        if known:
            gone = dict.fromkeys(known.keys() - reached.positions.keys(), 0)
            changed = {**gone, **dict(reached.positions.items() - known.items())}
        document = _document(reached.sequence, changed, before=bool(known))
        if len(document) <= SLOT - _HEADER.size:
            return document
        self._write_before(reached)
        return _document(reached.sequence, {}, before=True)

    def _write_before(self, reached: Acknowledged) -> None:
        path = self.path.with_name(TABLES)
        beside = path.with_suffix(".tables.new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump(sealed({"sequence": reached.sequence, "positions": dict(reached.positions)}), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _sync_directory(path.parent)
        self._before = reached

    def close(self) -> None:
        os.close(self._descriptor)


def _record(number: int, document: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, number, len(document), crc32(_NUMBER.pack(number) + document)) + document


def _document(sequence: int, positions: Mapping[str, int], *, before: bool = False) -> bytes:
    document = {"sequence": sequence, "positions": positions, **({"before": True} if before else {})}
    return json.dumps(document, separators=(",", ":")).encode()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
