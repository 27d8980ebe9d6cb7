"""Where a bulk job reads and writes: the archive, with what it has staged below it, and who brings it up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Protocol

from controller.bulk.job_files import STAGING, JobFiles
from domains.archive import ShardManifest
from domains.errors import StorageFailure
from domains.packets import Clock
from migrations.backfill.frames import read_frames
from migrations.backfill.job import StateFile
from worker.archive.archiver import Archiver
from worker.archive.manifests import load_manifest
from worker.archive.place import Place


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
    """Of (table, shard)s that were archived a moment ago. Reads files: not for an event loop's thread."""
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
    with Place(url).source(file.file) as source:
        yield from read_frames(source, file.file, file.digest)
