"""Snapshots that are held: each is a checkpoint of the database, which a restart does not end.

::

    DIR/base/held/DIGEST/         links to the database's files, and what was in memory, in one of its own
                        /held     the record, once it is told of: a directory without it is no snapshot, and goes

A checkpoint is on disk when it is made, with all steps before it; and so are these steps in the database itself, since
its files are the same. It costs the writing of what is in memory, and then the room of what is written over later.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

from domains.archive.manifest import opened, sealed
from domains.errors import HeadraceError, StorageFailure
from domains.store.storage import SnapshotRecord
from worker.rocks.acknowledged import sync_directory
from worker.rocks.database import Database
from worker.rocks.stored_table import StoreView, ViewedTable

DIRECTORY, RECORD = "held", "held"


class HeldSnapshots:
    """Those of the database in directory ``path``. Call it between steps."""

    def __init__(self, path: Path, tables: Callable[[Database], tuple[ViewedTable, ...]]) -> None:
        """``tables``: all that a database has."""
        self._directory = path / DIRECTORY
        self._tables = tables
        self._opened: dict[str, tuple[Database, StoreView]] = {}
        self.records: dict[str, SnapshotRecord] = {}
        self._untold: dict[str, SnapshotRecord] = {}
        self.damaged: list[str] = []
        """What is wrong with those that cannot be told of, as sentences."""
        for each in self._directory.iterdir() if self._directory.is_dir() else ():
            if not (each / RECORD).exists():
                _remove(each)  # The process ended while it was made, or dropped.
                continue
            try:
                record = SnapshotRecord(**opened(json.loads((each / RECORD).read_bytes())))
            except (OSError, ValueError, TypeError, HeadraceError):
                self.damaged.append(f"the snapshot in {each} is damaged: delete this directory")
            else:
                self.records[record.name] = record

    def keep(self, record: SnapshotRecord, database: Database) -> None:
        """:raises StorageFailure: nothing is kept."""
        where = self._where(record.name)
        try:
            self._directory.mkdir(exist_ok=True)
        except OSError as error:
            raise StorageFailure(f"cannot hold a snapshot in {where}: {error.strerror or error}") from error
        _remove(where)
        database.checkpoint(where)
        self._untold[record.name] = record

    def tell_of(self, name: str) -> None:
        """From now on it is there. :raises StorageFailure: it cannot be written down."""
        record, where = self._untold[name], self._where(name)
        made = where / f"{RECORD}.new"
        try:
            with made.open("w", encoding="utf-8") as file:
                json.dump(sealed(asdict(record)), file)
                file.flush()
                os.fsync(file.fileno())
            made.replace(where / RECORD)
            sync_directory(where)
            sync_directory(self._directory)
        except OSError as error:
            raise StorageFailure(f"cannot hold a snapshot in {where}: {error.strerror or error}") from error
        self.records[name] = self._untold.pop(name)

    def view(self, name: str) -> StoreView:
        """:raises StorageFailure: it is damaged."""
        if name not in self._opened:
            database = Database(self._where(name), create=False, read_only=True)
            try:
                view = StoreView(database.view(b"", b"\xff"), self._tables(database), is_kept=True)
            except BaseException:
                database.close()
                raise
            self._opened[name] = database, view
        return self._opened[name][1]

    def drop(self, name: str) -> None:
        """:raises StorageFailure: its directory cannot be deleted."""
        if name in self.records or name in self._untold:
            self._close(name)
            _remove(self._where(name))
            self.records.pop(name, None)
            self._untold.pop(name, None)

    def close(self) -> None:
        for name in list(self._opened):
            self._close(name)

    def _close(self, name: str) -> None:
        if name in self._opened:
            self._opened.pop(name)[0].close()

    def _where(self, name: str) -> Path:
        return self._directory / blake2b(name.encode(), digest_size=16).hexdigest()


def _remove(directory: Path) -> None:
    """The record first: what is left by a crash is no snapshot."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            (directory / RECORD).unlink()
        with suppress(FileNotFoundError):
            shutil.rmtree(directory)
    except OSError as error:
        raise StorageFailure(f"cannot delete {directory}: {error.strerror or error}") from error
