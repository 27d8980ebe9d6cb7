"""The only module that imports lmdb: how the environment is opened, how it grows, and which errors mean "again".

Format and engine are those of LMDB 0.9 (511-byte keys). Writes go through the map (``writemap``) and are never synced:
a step that changes one key takes 1.7 µs so, against 5.7 with ``write``, and one of 256 scattered keys 0.29 ms against
0.50. What that would cost, a signal that kills the process where the disk is full, is avoided by reserving the
file's blocks: the map is never larger than what is reserved, and reserving fails by an error.
"""

from __future__ import annotations

import os
from errno import ENOSPC
from pathlib import Path
from typing import Any, TypeAlias

import lmdb

from domains.errors import StorageFailure, Unavailable

Environment = lmdb.Environment
Transaction: TypeAlias = "lmdb.Transaction[bytes]"
Cursor: TypeAlias = "lmdb.Cursor[bytes]"

Error = lmdb.Error
MapFull = lmdb.MapFullError

INITIAL_SIZE = 2**26
"""64 MiB on disk. Less would make the first minutes a series of doublings, each of which costs open reads a second try;
more would be reserved on the smallest machine for nothing."""

READER_SLOTS = 510
"""Read transactions open at once, over all processes. Not fewer: a slot costs 64 bytes, and
a read without one fails."""

LMDB_0_9 = 0

SPARE_SHARE = 16
"""Evictions take pages too, before they free any: a sixteenth of the file is for that."""

BLOCK = 512
"""Bytes that ``st_blocks`` counts by."""

_FILES = ("data.mdb", "lock.mdb")


class CannotGrow(StorageFailure):
    """The disk has no room for a larger map. What there is goes on, and what is deleted makes room in it."""


def create(path: Path, size: int) -> Environment:
    """A new, empty environment; what an earlier process left at ``path`` is deleted. Its readers must open anew."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            (path / name).unlink(missing_ok=True)
        environment = lmdb.open(
            str(path),
            map_size=size - size // SPARE_SHARE,
            sync=False,
            metasync=False,
            writemap=True,
            readahead=False,
            max_readers=READER_SLOTS,
            max_spare_txns=1,
            lib_version=LMDB_0_9,
        )
        try:
            _reserve(path, size)
        except OSError:
            environment.close()
            raise
    except (lmdb.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        hint = f"its {size >> 20} MiB are reserved at the start: make room, or choose another data directory"
        raise StorageFailure(f"cannot make the reader map in {path}: {reason}", hint=hint) from error
    return environment


def _reserve(path: Path, size: int) -> None:
    """Take the blocks of the first ``size`` bytes of the file; OSError where the disk has not so many. It is asked
    first, since some file systems have taken what there was when they say so."""
    with open(path / _FILES[0], "rb+") as file:
        disk = os.fstatvfs(file.fileno())
        if size - os.fstat(file.fileno()).st_blocks * BLOCK > disk.f_bavail * disk.f_frsize:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        os.posix_fallocate(file.fileno(), 0, size)


def attach(path: Path) -> Environment:
    """The environment that another process writes."""
    try:
        return lmdb.open(
            str(path), readonly=True, create=False, readahead=False, max_readers=READER_SLOTS, max_spare_txns=1
        )
    except (lmdb.Error, OSError) as error:
        raise Unavailable(f"no reader map in {path}: {error}") from error


def grow(environment: Environment, size: int) -> None:
    """Make it a map of so many bytes, after taking back what dead readers hold. Open reads of this process fail and try
    again.

    CannotGrow where the disk is too full; the map is then as it was.
    """
    environment.reader_check()
    try:
        _reserve(Path(environment.path()), size)
    except OSError as error:
        why = f"cannot grow the reader map in {environment.path()}: {error.strerror or error}"
        raise CannotGrow(why, hint="make room: it grows by itself then, and keys are evicted until it does") from error
    environment.set_mapsize(size - size // SPARE_SHARE)


def use_spare(environment: Environment, size: int) -> None:
    """Let what makes room in a map of so many bytes have all of them. Raises CannotGrow where they are not there."""
    if int(environment.info()["map_size"]) < size:
        try:
            _reserve(Path(environment.path()), size)  # Whoever sets the size cuts the file to it.
        except OSError as error:
            raise CannotGrow(f"cannot use all of the reader map in {environment.path()}: {error}") from error
        environment.set_mapsize(size)


def again(environment: Environment, error: Exception) -> bool:
    """Whether a read that failed by this error is to be tried again, because the map has grown beneath it."""
    if isinstance(error, lmdb.MapResizedError):
        environment.set_mapsize(0)
        return True
    if isinstance(error, lmdb.ReadersFullError):
        return environment.reader_check() > 0
    return was_interrupted(error)


def was_interrupted(error: Exception) -> bool:
    """Whether this process let the map grow, which ends all transactions that it has open."""
    return "dropped object" in str(error)


def room(environment: Environment) -> tuple[int, int]:
    """Bytes of the map, and of these what entries do not take."""
    stat, size = environment.stat(), int(environment.info()["map_size"])
    pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    return size, size - int(pages * stat["psize"])


def used_bytes(environment: Environment) -> int:
    """Bytes of the file's pages that are in use, or were and are free for use again."""
    page: Any = environment.stat()["psize"]
    return int((environment.info()["last_pgno"] + 1) * page)
