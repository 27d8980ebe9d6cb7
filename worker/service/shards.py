"""Opening one shard of the base tables, of which there is one RocksDB that several workers can reach.

RocksDB's lock lets one process open it at a time. That is not enough where the one that has it is *superseded*: it
hangs, the leader has given its domains to others, and it would write on when it wakes up. So whoever opens a shard for
a later incarnation of its domain, and finds it locked by a process of the same machine, kills that process first; it is
a worker that nobody asks any more. Whose the lock is says ``owner.json``, which is written when the shard was opened
and before anything else is done with it::

    DIR/shards/0003/base          the RocksDB
    DIR/shards/0003/owner.json    {"incarnation": 12, "worker": "b", "machine": …, "pid": 4711, "started": 8812331}

The incarnation in it is also what keeps a command of a leader that was deposed from opening a shard again that has gone
on elsewhere: it may only grow.
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
from worker.service.open_files import allow_open_files

OPEN_SECONDS = 5.0
"""How long a shard may stay locked after its owner was killed or while it is closed. A kill takes as long as the
system needs to write out what the process had, mostly some milliseconds."""
OPEN_AGAIN = 0.01
"""Seconds between two tries."""

_log = logging.getLogger("headrace.worker")


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that opened a shard last."""

    incarnation: int
    """Of the domain that stands on it."""
    worker: str
    machine: str
    """Where ``pid`` means something: the host since its start, and the space of its process numbers."""
    pid: int
    started: int
    """When the process started, in ticks since the host's: a number that was used again is another process."""

    @property
    def is_alive(self) -> bool:
        """Whether the process is there, be it stopped. Only to be asked on its own machine."""
        return started_at(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard that this process has open."""

    store: RocksStore
    directory: Path
    owner: Owner

    def close(self) -> None:
        """Sync and close it. Before the lock goes, it is noted that nobody has it: else whoever comes next but one
        might kill this process, which has long done with it. Who comes reads what the system has: this need not be on
        disk, and nobody waits for it: where the machine stops the processes end too, and none is killed."""
        try:
            _write_owner(self.directory, replace(self.owner, pid=0, started=0), durable=False)
        finally:
            self.store.close()


def this_process(worker: str, incarnation: int) -> Owner:
    return Owner(incarnation, worker, machine(), os.getpid(), started_at(os.getpid()) or 0)


def machine() -> str:
    """Two processes with the same answer see each other under their process numbers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        return socket.gethostname()
    return f"{boot} {numbers}"


def started_at(pid: int) -> int | None:
    """In ticks since the host's start; None where there is no such process (or it has ended and nobody has noticed)."""
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
    """Open shard number ``shard`` below the data directory, for this incarnation of its domain. It may take a while.
    Where it is not there it is made, unless it is one that was ``kept`` here.

    :raises StorageFailure: it is missing; it went on in a later incarnation; another machine has it, or this process
        itself, or somebody who did not say so; it is damaged, or cannot be written; too few files may be open.
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
    """Kill who holds the lock, if it is superseded and can be reached. Who has just opened it may not have said so yet,
    and who has died may still be on its way: then the lock is tried again."""
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
    """The process that opened the shard last; None where nobody has, or where it is not known."""
    try:
        given = opened(json.loads((directory / "owner.json").read_text("utf-8")))
        return Owner(**{field.name: given[field.name] for field in fields(Owner)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_owner(directory: Path, owner: Owner, *, durable: bool = True) -> None:
    """Replaced whole, since a later process kills by it."""
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
