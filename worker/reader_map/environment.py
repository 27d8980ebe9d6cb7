"""The only module that imports lmdb: how the environment is opened, how it grows, and which errors mean "again".

Format and engine are those of LMDB 0.9 (511-byte keys). Writes are neither synced nor written through the map:
``writemap`` would gain a tenth, but a full disk then kills the process by a signal where ``write`` says so by an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb

from domains.errors import StorageFailure, Unavailable

Environment = lmdb.Environment
Transaction = lmdb.Transaction[bytes]
Cursor = lmdb.Cursor[bytes]

Error = lmdb.Error
MapFull = lmdb.MapFullError
DiskFull = (lmdb.DiskError, OSError)

INITIAL_SIZE = 2**33
"""8 GiB of addresses, not of memory or disk: the file is as large as the pages that were ever used. Growing costs all
open reads a second try, so there is room for what one machine's memory limit is likely to be."""

READER_SLOTS = 510
"""Read transactions open at once, over all processes. Not fewer: a slot costs 64 bytes, and a read without one fails."""

LMDB_0_9 = 0

_FILES = ("data.mdb", "lock.mdb")


def create(path: Path, size: int) -> Environment:
    """A new, empty environment; what an earlier process left at ``path`` is deleted. Its readers must open anew."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            (path / name).unlink(missing_ok=True)
        return lmdb.open(
            str(path),
            map_size=size,
            sync=False,
            metasync=False,
            readahead=False,
            max_readers=READER_SLOTS,
            max_spare_txns=1,
            lib_version=LMDB_0_9,
        )
    except (lmdb.Error, OSError) as error:
        raise StorageFailure(f"cannot make the reader map in {path}: {error}") from error


def attach(path: Path) -> Environment:
    """The environment that another process writes."""
    try:
        return lmdb.open(
            str(path), readonly=True, create=False, readahead=False, max_readers=READER_SLOTS, max_spare_txns=1
        )
    except (lmdb.Error, OSError) as error:
        raise Unavailable(f"no reader map in {path}: {error}") from error


def grow(environment: Environment) -> int:
    """Double the map, after taking back what dead readers hold. Open reads of this process fail and try again."""
    environment.reader_check()
    size = int(environment.info()["map_size"]) * 2
    environment.set_mapsize(size)
    return size


def again(environment: Environment, error: Exception) -> bool:
    """Whether a read that failed by this error is to be tried again, because the map has grown beneath it."""
    if isinstance(error, lmdb.MapResizedError):
        environment.set_mapsize(0)
        return True
    if isinstance(error, lmdb.ReadersFullError):
        return environment.reader_check() > 0
    return "dropped object" in str(error)


def used_bytes(environment: Environment) -> int:
    """The size of the file: pages in use and pages free for use again."""
    page: Any = environment.stat()["psize"]
    return int((environment.info()["last_pgno"] + 1) * page)
