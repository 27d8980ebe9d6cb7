"""The files of jobs, below the archive: whose they are, and who removes them.

::

    ARCHIVE/_bulk/ID/     states, from when the job begins until they are loaded     (building.py)
    ARCHIVE/_rebuild/ID/  runs, from when it begins until the shards are made        (lost_shards/rebuild_way.py)

No two jobs ever have the same id, and in a cluster it begins with an epoch of the leader that began it: ``17-3-1``. A
directory is its *owner's*, the operation that had the job begun. It is removed

* by its owner, once the job has ended and what it made is loaded, or is of no use. An owner that ends while a decision
  names its runs, or may, leaves them to the leader, who removes them once it is known that none does;
* by a leader that took over in a later epoch than that of the id, unless a decision names it.

Nobody else removes anything. What excludes that somebody needs it still: a leader's take-over is a write to ZooKeeper,
and has the workers refuse what is of before it. So whatever an owner of an earlier epoch loads or decides from then on
is refused: its build has failed, it only may not know yet. Of what it had decided, all that counts is in the state that
was taken over, and no later decision names an earlier leader's runs again. A leader that has been succeeded and does
not know it goes by the same rule: its own, and those before it; its successor's have a later epoch.

What is left where an owner was killed, or could not reach the archive, goes with a later try
(``cluster/leader/building.py``). One process without a cluster has its data directory alone, and so the archive, and
builds one thing at a time: before it begins a job, all that is there is nobody's any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from domains.archive.manifest import ShardManifest, url_below
from domains.errors import HeadraceError, StorageFailure
from domains.plan.packets import Clock
from migrations.backfill.job import StateFile, read_frames

if TYPE_CHECKING:
    from worker.archive.archiver import Archiver

STAGING, RUNS = "_bulk", "_rebuild"
"""Below the archive's URL, since whoever runs the tasks reaches that. Spark, DuckDB and others pass over names that
begin like this."""

_log = logging.getLogger("headrace.controller")


class JobFiles:
    """The files of bulk jobs, as one owner removes them: a leader in its term, or a process that has no other."""

    def __init__(self) -> None:
        self._left: set[str] = set()
        """To be removed, and not yet known to be."""
        self.left_to_decisions: set[str] = set()
        """Ids of runs whose owner has ended, and which a decision names, or may."""

    async def remove(self, url: str) -> None:
        """A directory that is nobody's any more. What cannot be removed now is tried again with what comes next: what
        was built is as good with it."""
        self._left.add(url)
        await self.remove_left()

    async def remove_left(self) -> None:
        for url in sorted(self._left):
            try:
                await asyncio.to_thread(delete_all, url)
            except HeadraceError as error:
                _log.warning("the files below %s are left for now: %s", url, error)
            else:
                self._left.discard(url)

    async def clear(self, archive: str, kind: str, is_forsaken: Callable[[str], bool]) -> None:
        """Remove the directories of this kind that have no owner any more, judged by their ids."""
        try:
            ids = await asyncio.to_thread(ids_of, archive, kind)
        except HeadraceError as error:
            _log.warning("it is not known which jobs have left files below %s/%s: %s", archive, kind, error)
            return
        for id in filter(is_forsaken, ids):
            _log.info("removing %s/%s, which a job has left", kind, id)
            await self.remove(url_of(archive, kind, id))


def url_of(archive: str, kind: str, id: str) -> str:
    """The URL of a job's directory."""
    return url_below(archive, f"{kind}/{id}")


def id_of(url: str) -> str:
    """The id of the job whose directory it is."""
    path = url.partition("?")[0] if "://" in url else url
    return path.rstrip("/").rpartition("/")[2]


def epoch_of(id: str) -> int | None:
    """The epoch of the leader that began the job; None where no leader of a cluster did."""
    epoch, dash, _ = id.partition("-")
    return int(epoch) if dash and epoch.isdecimal() else None


# --- files --------------------------------------------------------------------------------------------------------


def ids_of(archive: str, kind: str) -> list[str]:
    """The ids of jobs of which something is there. Raises ArchiveUnreachable."""
    from worker.archive.place import Place  # Late: it loads pyarrow.

    return Place(archive).directories(kind)


def delete_all(url: str) -> None:
    """Raises ArchiveUnreachable."""
    from worker.archive.place import Place

    Place(url).delete_all()


# Where a bulk job reads and writes: the archive, with what it has staged below it, and who brings it up to date.


class BulkSource(Protocol):
    """Raises ArchiveError."""

    url: str
    files: JobFiles

    async def archive_now(self, hold: str, epoch: int) -> Clock:
        """Archive all base shards up to now; their positions. The log after them is kept until ``release``."""

    async def release(self, hold: str) -> None: ...


class LocalSource:
    """See :class:`BulkSource`: the archiver of this process."""

    def __init__(self, archiver: Archiver) -> None:
        self.url = archiver.options.url
        self.files = JobFiles()
        self._archiver = archiver

    async def archive_now(self, hold: str, epoch: int) -> Clock:
        await self.files.clear(self.url, STAGING, lambda id: True)  # Of an earlier process: nothing is under way here.
        taken = await asyncio.wrap_future(self._archiver.archive_now(hold=hold, epoch=epoch))
        return taken.positions

    async def release(self, hold: str) -> None:
        self._archiver.release(hold)


def manifests_of(url: str, shards: Iterable[tuple[str, int]]) -> list[ShardManifest]:
    """The manifests of (table, shard)s that were archived a moment ago. Reads files: not for an event loop's thread."""
    from worker.archive.manifests import load_manifest
    from worker.archive.place import Place

    place = Place(url)
    found: list[ShardManifest] = []
    for table, shard in shards:
        manifest = load_manifest(place, table, shard)
        if manifest is None:
            raise StorageFailure(f'the archive has no shard {shard} of table "{table}", which was archived just now')
        found.append(manifest)
    return found


def blocks_of_file(url: str, file: StateFile) -> Iterator[bytes]:
    """The blocks of a staged state, one at a time; the caller goes through all of them, and with the last one knows
    that the file is whole. Reads files: not for an event loop's thread."""
    from worker.archive.place import Place

    with Place(url).source(file.file) as source:
        yield from read_frames(source, file.file, file.digest)
