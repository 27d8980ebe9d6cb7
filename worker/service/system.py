"""What a process of Headrace arranges with its system: memory that is given back, open files, and signals to stop.

**Memory.** glibc keeps most of what is freed. It has an arena for each thread, up to eight a core, whose free memory no
other thread gets: RocksDB's threads leave some MB each. And once a large block was freed, it takes blocks of that size
from the arenas, where one small block on top keeps all below it. Python's collector of cycles, by default, walks over
young containers at each 700 new ones, and over everything once a quarter has been added. Rows are containers: a warm
server spent two fifths of its time so, mostly in whatever look-up made the 700th. Nothing of ours relies on the
collector to free what is large: a removed vertex drops its state itself (``domains/engine/control.py``), and the cycles
that come of exceptions and tasks are young when they go.

**Open files.** RocksDB fails with "Too many open files" wherever it meets the limit, perhaps in the middle of a write.
So the need is compared with the limit before shards are opened, and the soft limit is raised up to the hard one.

**Files** are for the user of the process alone: a umask for those to come, a look at those that are there.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import re
import resource
import signal
import stat
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType

from domains.errors import StorageFailure

_log = logging.getLogger("headrace.start")

# --- memory -----------------------------------------------------------------------------------------------------

YOUNG = 2_000
"""New containers between two walks over the young ones, 0.2 ms each. With 20,000 each took 1.2 ms, and every hundredth
read beside a backfill waited for one."""
MIDDLE = 200
"""Walks over the young between two over the middle-aged: some 10 ms for each 400,000 new containers. With 5, which is
shorter and more often, every hundredth read waits for those."""
OLD = 1_000
"""Walks over the middle-aged between two over everything, which pause the process for a second or two."""


def expect_long_lives() -> None:
    """Prepare a process that serves, once it has loaded its code, which is no longer walked over.

    Nor is it now, for 0.15 s more until the first answer: what is garbage of it is a fiftieth, and goes with the first
    collection of all that is set apart.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""mallopt's numbers, from malloc.h."""

ARENAS = 2
"""The arenas: as many as threads that work at a time: threads that share an arena wait for each other. 1 saved no more
memory."""
LARGE = 256 * 2**10
"""Bytes from which on a block is mapped by itself, and free room at the end of an arena is given back. Requests and
batches take less, so that pages are not mapped anew for each; 128 KiB saved no more memory."""


def give_back_early() -> None:
    """Prepare a process that serves, before it has other threads. Without glibc nothing is done."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, ARENAS)
        mallopt(_MMAP_THRESHOLD, LARGE)
        mallopt(_TRIM_THRESHOLD, LARGE)


def give_back_now() -> None:
    """Free pages between others, which the allocator keeps. Without glibc nothing is done."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident_bytes(process: int | None = None) -> int:
    """The resident bytes of a process now; if the system does not say, of this one its maximum so far, and of another
    0."""
    try:
        pages = int(Path(f"/proc/{process or 'self'}/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        if process is not None:
            return 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


OWN_BYTES = 250_000_000
"""Bytes of a process without rows and requests: code, libraries, caches of RocksDB."""
OVER = 1.25
"""What accounted bytes take beyond themselves, in an allocator that keeps some."""
COUNT_SECONDS = 1.0
"""Seconds between two looks at what a process takes beside its state."""


def explained_bytes(limit: int) -> int:
    """The size of a process that keeps to its memory limit."""
    return int(OVER * limit) + OWN_BYTES


def bytes_beyond(limit: int) -> int:
    """The bytes by which this process is larger than its memory limit explains: what waits to be done, rows on their
    way, and garbage. State gives way to them as it does to requests. Files that are mapped (the reader map) do not
    count."""
    return max(0, private_bytes() - explained_bytes(limit))


def private_bytes() -> int:
    """The bytes of this process without what it shares with files; 0 if the system does not say."""
    try:
        resident, shared = Path("/proc/self/statm").read_text("ascii").split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * resource.getpagesize()


# --- open files -------------------------------------------------------------------------------------------------

STORE_FILES = 16
"""The files to open and write one shard: its directory twice, log, manifest, lock, RocksDB's own log and the
acknowledged record are 7; the rest is for a flush and for the first files of rows."""

BESIDE = 24
"""The files for the reader map, a few connections and short-lived files."""

ENOUGH = 65_536
"""The files that are enough, as in the service files of ``deploy/``. The soft limit is raised no further: children
inherit it, and some programs close every number up to it when they start."""


def allow_open_files(stores: int) -> None:
    """Let this process open so many more shards.

    :raises StorageFailure: they need more open files than it may have.
    """
    from worker.rocks.database import OPEN_FILES  # Late: it loads RocksDB, and every command loads this module.

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = _used(soft)
    needed = used + BESIDE + stores * STORE_FILES
    wanted = used + BESIDE + stores * (OPEN_FILES + STORE_FILES)
    if _less(soft, wanted):
        soft = max(wanted, ENOUGH) if hard == resource.RLIM_INFINITY else min(max(wanted, ENOUGH), hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    shards = "a shard needs" if stores == 1 else f"{stores} shards need"
    if _less(soft, needed):
        raise StorageFailure(
            f"{shards} {needed:,} open files, and {soft:,} are allowed",
            hint=f"raise the limit, for large tables to {wanted:,}: ulimit -n {wanted}, or LimitNOFILE={ENOUGH} in "
            "the unit of a service",
        )
    if _less(soft, wanted):
        _log.warning(
            "%s up to %d open files once tables are large, and %d are allowed: raise ulimit -n", shards, wanted, soft
        )


def _less(limit: int, number: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < number


def _used(limit: int) -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return limit  # The limit is reached: not even a listing can be opened.


# --- files ------------------------------------------------------------------------------------------------------

PRIVATE = 0o077
"""The umask of every command: what it writes has the rows in it, and is for its own user."""
_OWN = re.compile(r"base.*|shards?|readers.*|recipe\..*|deployment\.json|workers|logs|up\..*|zookeeper.*|automatic.*")
"""The names in a data directory that are Headrace's. A directory in which somebody starts it may have others."""


def make_private(directory: Path) -> None:
    """Take a data directory, and what is Headrace's in it, from other users: earlier versions made it readable. Says so
    in the log where the directory itself was open to them.

    One that is not this user's, or that all write to (``/tmp``), is only warned of."""
    found = directory.stat()
    if not found.st_mode & PRIVATE:
        return
    if found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX:
        _log.warning('the data directory "%s" may be read by other users, and is left so: it is not ours', directory)
        return
    changed = 0
    for each in os.scandir(directory):
        if _OWN.fullmatch(each.name):
            changed += _take_from_others(Path(each.path))
    directory.chmod(stat.S_IMODE(found.st_mode) & ~PRIVATE)  # Last: it says that all in it is done.
    if changed:
        _log.warning(
            'other users could read "%s"; it and %d files and folders in it are private now', directory, changed
        )


def _take_from_others(path: Path) -> int:
    """How many were open to them. Links are left, since what they lead to may be anything."""
    changed = 0
    try:
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            changed += sum([_take_from_others(each) for each in path.iterdir()])
        if (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and mode & PRIVATE:
            path.chmod(stat.S_IMODE(mode) & ~PRIVATE)
            changed += 1
    except FileNotFoundError:
        pass  # Another process has removed it.
    except PermissionError as error:
        _log.warning('"%s" stays readable by other users: %s', path, error.strerror)
    return changed


# --- stopping ---------------------------------------------------------------------------------------------------


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGINT (Ctrl-C), SIGTERM, and SIGHUP (a closed terminal) unless nohup ignores it."""
    closed = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *closed)


def on_hang_up(
    loop: asyncio.AbstractEventLoop, reload: Callable[[], None], stop: Callable[[], None]
) -> Callable[[], None]:
    """What SIGHUP does to a process that has something to read again: that, unless the terminal that it was started on
    is closed. Then it ends, as all that was started there. Call it before the signal can come."""
    started_on_one = _has_terminal()

    def hung_up() -> None:
        loop.call_soon_threadsafe(stop if started_on_one and not _has_terminal() else reload)

    return hung_up


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def end_at_once(number: int, frame: FrameType | None) -> None:
    """The signal handler of a process that has not opened anything yet."""
    del number, frame
    os._exit(0)


def end_with_parent() -> None:
    """Stop this process as by SIGTERM once its standard input ends: its parent, which holds the other end, has ended or
    no longer wants it. Returns at once."""
    threading.Thread(target=_end_with_input, name="supervised", daemon=True).start()


def _end_with_input() -> None:
    # Not sys.stdin: its lock, held here, would abort an interpreter that ends for another reason.
    while os.read(0, 4096):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


async def unless(stop: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Do the work, or cancel it when ``stop`` is set first; answers whether it was done. Raises the work's errors."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
