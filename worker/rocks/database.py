"""The only module that imports rocksdict: how a RocksDB is opened, walked, written and synced, and its errors.

RocksDB reports everything as a plain ``Exception`` with a text, so each door here catches ``Exception`` and raises
:class:`~domains.errors.StorageFailure`. After a failed write or sync the database takes no more writes until it is
opened again: what reached the disk is then unknown, and RocksDB itself refuses further writes too. Look-ups go on.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from math import inf
from os import statvfs
from pathlib import Path
from sys import maxsize
from threading import Lock
from time import monotonic
from typing import Any, NoReturn, TypeVar
from weakref import WeakSet

from rocksdict import (
    AccessType,
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from domains.errors import StorageFailure
from worker.rocks.iterating import FoundEntries, KeyRange, walk_back, walk_prefixes, walk_ranges

RESTORE = "restore it from a back-up, or rebuild the shard from its archive: see docs/operations.md"

OPENED_AGAIN = "make room or repair the disk: it is opened again by itself then"

BLOCK_CACHE_BYTES = 8 * 2**20
"""More gains little: the engine keeps hot rows in its own state, and the operating system caches files besides."""

WRITE_BUFFER_BYTES = 8 * 2**20
WRITE_BUFFERS = 4
"""The write buffers, which with the cache are below 64 MiB. One buffer is sorted to disk while the next ones fill;
fewer would stall writers, larger ones make a restart replay a longer WAL."""

BLOOM_BITS = 10
"""A bit of 1 % false positives: a primary-key check of a new row then touches no disk."""

OPEN_FILES = 256
"""Below the usual limit of 1,024 descriptors a process, with room for sockets."""

OPENING_THREADS = 4
"""The threads that open files. RocksDB's 16 cost more than they gain where the files are few or cached (3.7 ms of
processor time, 2.9 with these); where they are neither, four wait for the disk at once."""


FEW = 16
"""Entries that are read one by one, with the iterator that can be asked how it ended. Of more, the rest is read by the
binding's faster one, which cannot (0.2 µs an entry, against 0.3), and the first is asked what it has left out."""

ROOM_SECONDS = 0.1
"""Between two looks at how much is free, while it is enough."""

AT_ONCE, PART = 10_000, 500
"""Changes that are one batch of RocksDB, and those of a part of a longer write. The binding holds Python's lock
meanwhile, for 2 to 3 µs each: everybody would wait for half a second of the 160,000 that an INSERT may have."""
INTENDED = b"u"
"""The key that says that a longer write is whole; the keys of its parts begin with it. See :meth:`Database.write`."""
Change = tuple[bytes, bytes | None]


def _options(create: bool) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(BLOCK_CACHE_BYTES))
    blocks.set_bloom_filter(BLOOM_BITS, False)
    blocks.set_cache_index_and_filter_blocks(True)  # else they come on top of the cache, without limit
    # In parts: whole, those of a million rows are larger than a shard of the cache, and were read anew by each iterator
    # (470 µs, against 18).
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
    blocks.set_partition_filters(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(WRITE_BUFFERS)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_open_files(OPEN_FILES)
    options.set_max_file_opening_threads(OPENING_THREADS)
    options.set_keep_log_file_num(2)
    return options


class StorageInUse(StorageFailure):
    """Another process has the directory, or another store of this one."""


Found = TypeVar("Found")


class DatabaseView:
    """The entries from ``start`` on, below ``end``, as they were when it was made: one iterator.

    Not a snapshot of the binding: that is held for single keys only, and what iterates over it sees later writes. An
    iterator keeps what it stands on (also on disk) until ``close``, which the database's own ``close`` calls, since
    RocksDB gives no directory up while it is iterated. It may be made in one thread and read in another.
    """

    def __init__(self, of: Database, database: Any, start: bytes, end: bytes) -> None:
        self._of = of
        self._start = start
        self._end = end  # Kept for as long as the iterator is: see ``_below``.
        self._cursor = database.iter(_below(end))
        self._reading = Lock()

    def slices(self, limit: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Keys and values, so many at a time."""
        after = self._start
        while part := self.items(after, self._end, limit):
            yield part
            if len(part) < limit:
                return
            after = part[-1][0] + b"\x00"

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._read(lambda cursor: [_walk(cursor, key, 1, key + b"\x00") for key in keys])
        return [some[0][1] if some else None for some in found]

    def items(self, start: bytes, end: bytes, limit: int | None = None) -> list[tuple[bytes, bytes]]:
        return self._read(lambda cursor: _walk(cursor, start, maxsize if limit is None else limit, end))

    def before(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self._read(lambda cursor: walk_back(cursor, start, end, limit))

    def prefixed(self, prefixes: Sequence[bytes], end: bytes, most: float = inf) -> list[list[tuple[bytes, bytes]]]:
        return self._read(lambda cursor: walk_prefixes(cursor, prefixes, most))

    def ranges(self, ranges: Sequence[KeyRange], most: int) -> FoundEntries:
        """The entries of each range, at most so many; fewer ranges where all of it would be more than is read at
        once."""
        return self._read(lambda cursor: walk_ranges(cursor, ranges, most))

    @property
    def is_closed(self) -> bool:
        return self._cursor is None

    def cannot_read(self, error: Exception | str) -> StorageFailure:
        return self._of.cannot_read(error)

    def _read(self, read: Callable[[Any], Found]) -> Found:
        with self._reading:
            if self._cursor is None:
                raise StorageFailure(f"cannot read from {self._of.path}: it was closed meanwhile")
            try:
                return read(self._cursor)
            except Exception as error:
                failure = self.cannot_read(error)
        raise failure

    def close(self) -> None:
        """Let go of what it keeps. Any thread."""
        with self._reading:
            self._cursor = None


class Database:
    """A RocksDB of raw keys and values. One thread reads and writes; ``sync`` may be called from another."""

    def __init__(self, path: Path, *, create: bool, read_only: bool = False, logs: Path | None = None) -> None:
        """``read_only`` changes no file, and shows what can be reached of the log, or of the one in the directory
        ``logs``; it takes no lock."""
        self.path = path
        self._read_only = read_only
        self.lost: StorageFailure | None = None
        """Why it takes no writes before it is opened again."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called once that is so, by whichever thread has found it."""
        self._unreadable: StorageFailure | None = None
        self._since = ""
        """When it was first noticed that something cannot be read."""
        self.reserve = 0
        """Bytes that are to stay free on its disk: with less, nothing is written."""
        self._looked = -inf
        self._flushing = Lock()
        """The binding refuses to close what is being flushed."""
        self.closed = False
        self._views: WeakSet[DatabaseView] = WeakSet()
        try:
            if create:
                path.mkdir(parents=True, exist_ok=True)
            options = _options(create)
            if logs is not None:
                options.set_wal_dir(str(logs))
            # Said for the one family, too: else what is there gets the options of its own file, which has neither the
            # cache's size nor the Bloom filter.
            access = AccessType.read_only() if read_only else AccessType.read_write()
            self._db = Rdict(str(path), options, column_families={"default": options}, access_type=access)
            if not read_only:
                self._finish_write()
        except Exception as error:
            raise _failure_of_open(path, error) from error
        self._get: Callable[[Any], Any] = self._db.get
        self.sequence: Callable[[], int] = self._db.latest_sequence_number
        """How many changes of keys there have been since the database was made, those of this moment's writes aside."""

    # --- reading ------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        try:
            return self._get(key)  # type: ignore[no-any-return]
        except Exception as error:
            raise self.cannot_read(error) from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of all keys in their order: 1.25 µs a key, against 1.45 for one at a time."""
        try:
            return self._get(keys)  # type: ignore[no-any-return]
        except Exception as error:
            raise self.cannot_read(error) from error

    def items(self, start: bytes, end: bytes, limit: int | None = None) -> list[tuple[bytes, bytes]]:
        """The next keys and values, at most ``limit``, from ``start`` on, below ``end``.

        :raises StorageFailure: not all of them can be read.
        """
        most = maxsize if limit is None else limit
        cursor: Any = None
        rest: Any = None
        try:
            bounds = _below(end)
            cursor = self._db.iter(bounds)
            found = _walk(cursor, start, min(FEW, most))
            if len(found) == FEW < most:
                rest = self._db.items(from_key=found[-1][0] + b"\x00", read_opt=bounds)
                found.extend(islice(rest, most - FEW))
                if len(found) < most:
                    found += _walk(cursor, found[-1][0] + b"\x00", most - len(found))
            return found
        except Exception as error:
            failure = self.cannot_read(error)
        cursor = rest = None
        raise failure  # Not from the error: its traceback holds the iterators, and these the directory's lock.

    def before(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The last keys and values, at most ``limit``, from ``start`` on, below ``end``: the greatest first."""
        cursor: Any = None
        try:
            # Without a lower bound, with which the binding (0.3.29) stands elsewhere: at a1 for what is below a5.
            cursor = self._db.iter(_below(end))
            return walk_back(cursor, start, end, limit)
        except Exception as error:
            failure = self.cannot_read(error)
        cursor = None
        raise failure

    def view(self, start: bytes, end: bytes) -> DatabaseView:
        """What is there now from ``start`` on, below ``end``, to be read from any thread while it is written on.

        Views that are made between the same two writes show the same state.
        """
        try:
            view = DatabaseView(self, self._db, start, end)
        except Exception as error:
            raise self.cannot_read(error) from error
        self._views.add(view)
        return view

    def prefixed(self, prefixes: Sequence[bytes], end: bytes, most: float = inf) -> list[list[tuple[bytes, bytes]]]:
        """``items`` of each prefix, at most so many, with one iterator, which halves the cost of a look-up. All lie
        below ``end``."""
        cursor: Any = None
        try:
            cursor = self._db.iter(_below(end))
            return walk_prefixes(cursor, prefixes, most)
        except Exception as error:
            failure = self.cannot_read(error)
        cursor = None
        raise failure

    def cannot_read(self, error: Exception | str) -> StorageFailure:
        """The error to be raised. It is remembered, since what is damaged stays so."""
        self._since = self._since or datetime.now(UTC).isoformat(timespec="seconds")
        self._unreadable = StorageFailure(f"cannot read from {self.path}: {error}", hint=RESTORE)
        return self._unreadable

    # --- how it is ----------------------------------------------------------------------------------------------

    @property
    def failure(self) -> StorageFailure | None:
        """Why not all of it can be read, or it takes no writes before it is opened again."""
        return self._unreadable or self.lost

    def opened_after(self, before: Database) -> None:
        """Keep the alarm of an unreadable file from the life before this one: it is still damaged."""
        if before._unreadable is not None:
            self._unreadable, self._since = before._unreadable, before._since

    def alarms(self) -> list[dict[str, str]]:
        """JSON-ready: what is wrong. Any thread."""
        if self.closed:
            return []
        found = [] if self.failure is None else [{"since": self._since, "error": str(self.failure)}]
        if background := self._db.property_int_value("rocksdb.background-errors"):
            found.append({"since": "", "error": f"{background} merges or flushes in {self.path} failed: see its LOG"})
        try:
            self.check_room()
        except StorageFailure as error:
            found.append({"since": "", "error": str(error)})
        return found

    # --- writing ------------------------------------------------------------------------------------------------

    def write(
        self, changes: Mapping[bytes, bytes | None], *, delete_ranges: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        """Ranges, then puts and deletions (None), as one atomic write that is not synced.

        What deletes ranges makes room, and is done whether there is any or not. More than ``AT_ONCE`` changes are
        written down first and then made, both part by part, between which other threads have their turn::

            u ‖ 0, u ‖ 1, …   the changes     ─►  u   all of them are there     ─►  the changes are made, and u… goes
            a crash here: as if nothing was          here: whoever opens the database makes them

        Where it fails in between, look-ups show a part of it until then.
        """
        self._refuse_after_failure()
        if not delete_ranges:
            self.check_room()
        try:
            if len(changes) > AT_ONCE and not delete_ranges:
                rest = iter(changes.items())
                parts = list(iter(lambda: list(islice(rest, PART)), []))
                for number, part in enumerate(parts):
                    self._write([(INTENDED + number.to_bytes(4, "big"), marshal.dumps(part))])
                self._write([(INTENDED, b"")])
                self._make(parts)
            else:
                self._write(changes.items(), delete_ranges)
        except Exception as error:
            self._fail("write", error)

    def _make(self, parts: Sequence[Sequence[Change]]) -> None:
        for part in parts:
            self._write(part)
        self._write([(INTENDED, None), *((INTENDED + number.to_bytes(4, "big"), None) for number in range(len(parts)))])

    def _write(self, changes: Iterable[Change], delete_ranges: Sequence[tuple[bytes, bytes]] = ()) -> None:
        batch = WriteBatch(raw_mode=True)
        for start, end in delete_ranges:
            batch.delete_range(start, end)
        put, delete = batch.put, batch.delete
        for key, value in changes:
            if value is None:
                delete(key)
            else:
                put(key, value)
        self._db.write(batch)

    def _finish_write(self) -> None:
        """What a crash has left of a long write is made, or is as if it were not."""
        left = self.items(INTENDED, INTENDED + b"\xff")
        if left and left[0][0] == INTENDED:
            self._make([marshal.loads(part) for _, part in left[1:]])
        elif left:
            self._write([(key, None) for key, _ in left])

    def sync(self) -> None:
        """Return when every write so far is on disk. Any thread; a write meanwhile is not blocked by it."""
        self._refuse_after_failure()
        try:
            self._db.flush_wal(True)
        except Exception as error:
            self._fail("sync", error)

    def flush(self) -> None:
        """Sort what is in memory to a file, as closing does: 50 to 200 ms where it was full and the disk busy. Any
        thread; writes go on meanwhile, and a close waits."""
        self._refuse_after_failure()
        try:
            with self._flushing:
                if not self.closed:
                    self._db.flush(True)
        except Exception as error:
            self._fail("flush", error)

    def checkpoint(self, path: Path) -> None:
        """The database as it is, in a directory that is not there yet, by links to its files: on disk when this
        returns, here as well as there.

        :raises StorageFailure: the directory is not to be used."""
        self._refuse_after_failure()
        self.check_room()
        try:
            Checkpoint(self._db).create_checkpoint(str(path))
        except Exception as error:
            raise StorageFailure(f"cannot make a checkpoint of {self.path}: {error}") from error

    def close(self) -> bool:
        """Sync what was written, unless writing has failed, and release the directory; answers whether it was
        synced."""
        failed_before = self.lost is not None
        try:
            with self._flushing:
                self.closed = True
                for view in list(self._views):
                    view.close()
                try:
                    if not self._read_only:
                        self._db.flush_wal(True)
                finally:
                    self._db.close()
        except Exception as error:
            # After a failure RocksDB says the same again, and whoever closes has been told.
            if not failed_before:
                self._fail("close", error)
        return not failed_before

    def _refuse_after_failure(self) -> None:
        if self.lost is not None:
            raise StorageFailure(
                f"storage at {self.path} takes no writes since it failed: {self.lost.message}",
                hint=OPENED_AGAIN,
            )

    def fail(self, what: str, error: Exception) -> NoReturn:
        """Take no more writes: something that belongs to the database has failed beside it."""
        self._fail(what, error)

    def check_room(self) -> None:
        """Refuse before RocksDB fails for want of room, which it does not recover from until it is opened again."""
        now = monotonic()
        if not self.reserve or now - self._looked < ROOM_SECONDS:
            return
        disk = statvfs(self.path)
        free = disk.f_bavail * disk.f_frsize
        if free < self.reserve:
            raise StorageFailure(
                f"the disk of {self.path} has {free:,} bytes left, and {self.reserve:,} are kept free",
                hint="make room: writes are taken again by themselves then, and reads go on; or lower disk_reserve",
            )
        self._looked = now

    def _fail(self, what: str, error: Exception) -> NoReturn:
        full = "No space left" in str(error)
        self._since = self._since or datetime.now(UTC).isoformat(timespec="seconds")
        why = "the disk is full" if full else error
        self.lost = StorageFailure(f"cannot {what} to {self.path}: {why}", hint=OPENED_AGAIN)
        self.on_lost()
        raise self.lost from error


def _walk(cursor: Any, start: bytes, limit: int, end: bytes | None = None) -> list[tuple[bytes, bytes]]:
    """The next entries, at most so many, from ``start`` on, below ``end``, or as far as the iterator is bound."""
    found: list[tuple[bytes, bytes]] = []
    add, valid, key, value, forward = found.append, cursor.valid, cursor.key, cursor.value, cursor.next
    cursor.seek(start)
    while len(found) < limit and valid() and (end is None or key() < end):
        add((key(), value()))
        forward()
    cursor.status()
    return found


def _below(end: bytes) -> ReadOptions:
    """The bound is given to RocksDB, which else reads on through whatever was deleted behind it.

    The binding keeps no copy of it: these very bytes must live as long as what iterates, else it ends anywhere.
    """
    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(end)
    return bounds


def in_use(path: Path) -> StorageInUse:
    return StorageInUse(f"{path} is in use by another process", hint="stop it, or choose another data directory")


def _failure_of_open(path: Path, error: Exception) -> StorageFailure:
    text = str(error)
    if "lock file" in text or "lock hold" in text:
        return in_use(path)
    if "create_if_missing is false" in text:
        return StorageFailure(f"no database in {path}")
    if "Corruption" in text:
        return StorageFailure(f"the database in {path} is corrupt: {text}", hint="restore it from its archive")
    return StorageFailure(f"cannot open the database in {path}: {text}")
