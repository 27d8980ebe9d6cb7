"""How many files this process may have open: asked before shards are opened, and raised as far as it is ours to raise.

RocksDB says "Too many open files" wherever it happens to meet the limit, which may be in the middle of a write. So what
shards need is compared with the limit first. The soft limit is the process's own to raise, up to the hard one.
"""

from __future__ import annotations

import logging
import os
import resource

from domains.errors import StorageFailure
from worker.rocks.database import OPEN_FILES

_log = logging.getLogger("headrace.start")

STORE_FILES = 16
"""What one shard needs to be opened and written: its directory twice, log, manifest, lock, RocksDB's own log and the
record of what was acknowledged are 7; the rest is for a flush and for the first files of rows."""

LARGE_STORE_FILES = OPEN_FILES + STORE_FILES
"""Open files of a shard with many rows."""

BESIDE = 24
"""For the reader map, a few connections and files that are opened for a moment."""

ENOUGH = 65_536
"""As in the service files of ``deploy/``. The soft limit is raised no further, since children inherit it, and some
programs close every number up to it when they start."""


def allow_open_files(stores: int) -> None:
    """Let this process open so many shards more.

    :raises StorageFailure: they need more open files than it may have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = _used(soft)
    needed = used + BESIDE + stores * STORE_FILES
    wanted = used + BESIDE + stores * LARGE_STORE_FILES
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
        return limit  # Not one more can be opened, not even to look.
