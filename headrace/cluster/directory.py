"""The data directory of a cluster on one machine: one supervisor at a time, and nothing left over from an earlier one.

::

    DIR/up.lock    locked while a supervisor lives; its process number
    DIR/up.json    what it has started: addresses, and each process with the moment of its start
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from controller.cluster.state import ClusterState
from domains.archive.manifest import opened, sealed
from headrace.serving.listening import StartFailed
from headrace.settings import CLUSTER_SHARDS, Settings
from worker.belonging import deployment_of
from worker.service.shards import machine, started_at
from worker.service.system import make_private
from zookeeper.authority import ClusterAuthority
from zookeeper.server import size_of

# What was decided when a cluster was begun: a later start has it as it is, and need not say it again.
#
# A start that says otherwise is refused: the data that is there cannot have it. But for ZooKeeper's address, which may
# be another one later: what is in it says whether it is the same ZooKeeper (``worker/belonging.py``).

ZOOKEEPER = "zookeeper.address"
"""The file beside ``zookeeper/``, the folder of the directory's own servers."""


def servers_in(directory: Path) -> Path:
    """Folder of a data directory's own ZooKeeper servers."""
    return directory / "zookeeper"


def zookeeper_of(directory: Path) -> str | None:
    """The address of the ZooKeeper that is not of the directory's own servers; None where there was none."""
    try:
        return (directory / ZOOKEEPER).read_text("utf-8").strip() or None
    except OSError:
        return None


def whence(directory: Path, address: str | None) -> str:
    """The sources of that address, for the error that nobody answers at it."""
    if address is None or zookeeper_of(directory) != address:
        return ""
    file = directory / ZOOKEEPER
    return f'; "{file}" has it from the last start: name another with --zookeeper, or remove it to have servers here'


def keep_zookeeper(directory: Path, address: str) -> None:
    """Call this once ZooKeeper is known to have the directory's deployment. Raises OSError."""
    if zookeeper_of(directory) != address:
        beside = directory / f"{ZOOKEEPER}.new"
        beside.write_text(f"{address}\n", "utf-8")
        beside.replace(directory / ZOOKEEPER)


def as_begun(settings: Settings, directory: Path) -> Settings:
    """Settings of ``headrace up``, completed by what the data directory records."""
    known: dict[str, Any] = {}
    if "deployment" not in settings.model_fields_set:
        known["deployment"] = deployment_of(directory) or settings.deployment
    if settings.zookeeper is None:
        known["zookeeper"] = zookeeper_of(directory)
    if settings.zookeepers is None:
        known["zookeepers"] = size_of(servers_in(directory))
    return settings.model_copy(update=known)


async def shards_of(settings: Settings, authority: ClusterAuthority) -> int:
    """How many shards the deployment has, or is to have if it is new.

    :raises StartFailed: another number is given. :raises AuthorityError: it cannot be asked.
    """
    data, _ = await authority.read()
    if data is None:
        return settings.shards or CLUSTER_SHARDS
    shards = ClusterState.decode(data, authority.deployment).shards
    if settings.shards not in (None, shards):
        raise StartFailed(
            f'deployment "{authority.deployment}" has {shards} shards since its first start, not {settings.shards}',
            hint="give no number of shards, or begin anew: another data directory, under another --deployment",
        )
    return shards


GONE_SECONDS = 5.0
"""How long a killed process may take to be gone; mostly some milliseconds."""
LOOK_AGAIN = 0.01


class ClusterDirectory:
    """Holds the directory from ``take`` to ``release``."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: IO[str] | None = None

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def take(self) -> list[str]:
        """Make it, lock it, and kill what a supervisor that was killed has left running; the names of those.

        Raises StartFailed.
        """
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
            make_private(self.path)
            lock = (self.path / "up.lock").open("a+")
        except OSError as error:
            raise StartFailed(f'cannot use the data directory "{self.path}": {error.strerror or error}') from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            raise StartFailed(
                f'the data directory "{self.path}" is in use by another headrace up'
                + (f" (process {holder})" if holder else ""),
                hint="stop that one, or choose another directory with --data",
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock
        try:
            if (self.path / "recipe.json").exists():
                raise StartFailed(
                    f'the data in "{self.path}" is that of headrace serve, not of a cluster',
                    hint="choose another directory with --data",
                )
            return self._clear()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def record(self, addresses: Mapping[str, str], pids: Mapping[str, int]) -> None:
        """Remember what runs, so that it is found again, by drills and by the next supervisor."""
        parts = {name: {"pid": pid, "started": started_at(pid)} for name, pid in pids.items()}
        own = {"supervisor": os.getpid(), "started": started_at(os.getpid())}
        content = {"machine": machine(), **own, **addresses, "parts": parts}
        beside = self.path / "up.json.new"
        beside.write_text(json.dumps(sealed(content), indent=1))
        beside.replace(self.path / "up.json")

    def _clear(self) -> list[str]:
        try:
            found = opened(json.loads((self.path / "up.json").read_text()))
            if found["machine"] != machine():
                return []
            supervisor, began = int(found["supervisor"]), found.get("started")
            parts = {str(name): (int(part["pid"]), part["started"]) for name, part in found["parts"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []  # Nothing was started from here, or it cannot be known any more: then locks will tell.
        if supervisor != os.getpid() and began is not None and started_at(supervisor) == began:
            # It would have the lock of the directory in which it started them; so that is another one.
            raise StartFailed(
                f'the data directory "{self.path}" is a copy of one that headrace up is using (process {supervisor})',
                hint="a copy is never to be used beside the original; stop that one first",
            )
        left = {name: part for name, part in parts.items() if part[1] is not None and started_at(part[0]) == part[1]}
        for pid, _ in left.values():
            with suppress(ProcessLookupError):  # It has ended by itself since.
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + GONE_SECONDS
        for name, (pid, started) in left.items():
            while started_at(pid) == started:
                if time.monotonic() > deadline:
                    raise StartFailed(f'"{name}" (process {pid}) of an earlier headrace up cannot be killed')
                time.sleep(LOOK_AGAIN)
        return sorted(left)
