"""Opening one shard of the base tables: a RocksDB that several workers may be able to reach.

RocksDB's lock lets one process open it at a time. That is not enough if this process is *superseded*: it hangs, the
leader has given its domains to others, and it would go on writing when it wakes up. So a worker that opens a shard for
a later incarnation of its domain, and finds it locked by a process of the same machine, kills that process first.
``owner.json`` says whose the lock is. It is written when the shard was opened, before anything else::

    DIR/shards/0003/base          the RocksDB
    DIR/shards/0003/owner.json    {"incarnation": 12, "worker": "b", "machine": …, "pid": 4711, "started": 8812331}

The incarnation in it may only grow: so the command of a deposed leader cannot open a shard that has gone on elsewhere.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from domains.archive.manifest import opened, sealed
from domains.errors import StorageFailure
from domains.store.storage import DISK_RESERVE
from worker.embedded import shard_directory
from worker.rocks.database import StorageInUse
from worker.rocks.store import RocksStore
from worker.service.system import allow_open_files

OPEN_SECONDS = 5.0
"""How long a shard may stay locked while it is closed, or after its owner was killed: that takes until the system has
written out the process's data, mostly some milliseconds."""
OPEN_AGAIN = 0.01
"""Seconds between two tries."""

_log = logging.getLogger("headrace.worker")


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that opened a shard last."""

    incarnation: int
    """The incarnation of the domain that stands on it."""
    worker: str
    machine: str
    """The machine where ``pid`` is valid: the host since its start, and its PID namespace."""
    pid: int
    started: int
    """When the process started, in ticks since the host's start, since a pid may be used again."""

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, running or stopped. Valid on its own machine only."""
        return started_at(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard that this process has open."""

    store: RocksStore
    directory: Path
    owner: Owner

    def close(self) -> None:
        """Sync and close it. Before the lock is released the owner is cleared: else a later worker might kill this
        process for a shard that it closed long ago. That need not be on disk: if the machine stops, so do its
        processes."""
        try:
            _write_owner(self.directory, replace(self.owner, pid=0, started=0), durable=False)
        finally:
            self.store.close()


def this_process(worker: str, incarnation: int) -> Owner:
    return Owner(incarnation, worker, machine(), os.getpid(), started_at(os.getpid()) or 0)


def machine() -> str:
    """Processes with the same answer see each other under their pids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        return socket.gethostname()
    return f"{boot} {numbers}"


def started_at(pid: int) -> int | None:
    """In ticks since the host's start; None if there is no such process, or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()  # The name in brackets may hold spaces.
    return None if state in ("Z", "X") else int(rest[18])


def open_shard(
    data: Path,
    shard: int,
    worker: str,
    incarnation: int,
    *,
    kept: bool = False,
    reserve: int = DISK_RESERVE,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Shard:
    """Open shard number ``shard`` below the data directory, for this incarnation of its domain; it may take a while. A
    missing shard is created, unless it must have been ``kept`` here.

    :raises StorageFailure: it is missing; it went on in a later incarnation; another machine, this process itself or an
        unknown process has it; it is damaged, or cannot be written; too few files may be open.
    """
    allow_open_files(1)
    directory = shard_directory(data, shard)
    own = this_process(worker, incarnation)
    deadline = clock() + OPEN_SECONDS
    while True:
        try:
            store = RocksStore(directory / "base", create=not kept, reserve=reserve)
            break
        except StorageInUse as error:
            _make_way(directory, own)
            if clock() >= deadline:
                raise StorageFailure(
                    error.message, hint="see owner.json beside it for who has opened it last"
                ) from error
            pause(OPEN_AGAIN)
    try:
        _check_later(directory, own)
        _write_owner(directory, own)
    except BaseException:
        store.close()
        raise
    return Shard(store, directory, own)


def _make_way(directory: Path, own: Owner) -> None:
    """Kill the process that holds the lock, if it is superseded and on this machine. If it is not known yet, or already
    dead, the caller tries the lock again."""
    owner = read_owner(directory)
    if owner is None or (owner.pid, owner.started) == (own.pid, own.started):
        return
    _check_later(directory, own)
    if owner.machine != own.machine:
        raise StorageFailure(
            f'{directory} is open on another machine, by worker "{owner.worker}" (process {owner.pid})',
            hint="stop that process; the shard is then opened by itself",
        )
    if owner.incarnation == own.incarnation or not owner.is_alive:
        return
    _log.warning(
        'worker "%s" (process %d) holds %s for incarnation %d, which is over: it is killed',
        owner.worker,
        owner.pid,
        directory,
        owner.incarnation,
    )
    try:
        os.kill(owner.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise StorageFailure(
            f'{directory} is held by worker "{owner.worker}" (process {owner.pid}), which this one may not kill',
            hint="run all workers of a machine as one user",
        ) from error


def _check_later(directory: Path, own: Owner) -> None:
    owner = read_owner(directory)
    if owner is not None and owner.incarnation > own.incarnation:
        raise StorageFailure(
            f"{directory} went on in incarnation {owner.incarnation}, and is not opened again for {own.incarnation}",
            hint="a later leader has decided otherwise",
        )


def read_owner(directory: Path) -> Owner | None:
    """The process that opened the shard last; None if that is not known, or nobody has."""
    try:
        given = opened(json.loads((directory / "owner.json").read_text("utf-8")))
        return Owner(**{field.name: given[field.name] for field in fields(Owner)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_owner(directory: Path, owner: Owner, *, durable: bool = True) -> None:
    """Atomically, since a later process may kill by it."""
    beside = directory / "owner.new"
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump(sealed(asdict(owner)), file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        beside.replace(directory / "owner.json")
    except OSError as error:
        raise StorageFailure(f"cannot write to {directory}: {error.strerror or error}") from error
