"""Shards that are being rebuilt from the archive, each by a thread, while the worker serves its other shards.

The leader asks for the progress in each of its rounds, and does not wait for the end. If the process ends, so do its
threads, and nothing is left of the rebuild.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from pathlib import Path
from threading import Thread

from domains.archive.redo import copies_file
from domains.errors import BadRequest, HeadraceError, StorageFailure
from worker.protocol.messages import Done
from worker.protocol.operations import ArchivedShard, LeaveCopies, RebuildShard, RebuildUnderWay, ShardRebuilt

REST_MAX = 0.05
"""Seconds between two parts of some thousand rows. A rest is as long as the part took, so that half of the
interpreter's time is left for serving."""


class UnderWay:
    """One rebuild in its thread; ``outcome`` is None until it has ended."""

    def __init__(self, data: Path, url: str, asked: RebuildShard) -> None:
        self.asked = asked
        self.rows = 0
        self.outcome: ShardRebuilt | HeadraceError | None = None
        self._data, self._url = data, url
        self._part_began = time.monotonic()
        Thread(target=self._run, name=f"headrace-rebuild-{asked.shard}", daemon=True).start()

    def _run(self) -> None:
        from worker.archive.lost_shard import rebuild_shard  # Late: it loads pyarrow.

        try:
            self.outcome = rebuild_shard(self._data, self._url, self.asked, self._loaded)
        except HeadraceError as error:
            self.outcome = error
        except Exception as error:  # The caller gets an error instead of waiting for ever.
            self.outcome = StorageFailure(f"shard {self.asked.shard} cannot be rebuilt: {error!r}")

    def _loaded(self, rows: int) -> None:
        self.rows += rows
        time.sleep(min(REST_MAX, time.monotonic() - self._part_began))
        self._part_began = time.monotonic()


class ShardRebuilds:
    """All methods are for the event loop's thread."""

    def __init__(self, name: str, data: Path, url: str | None) -> None:
        """``url`` is the archive's, if the worker has one."""
        self._name, self._data, self._url = name, data, url
        self._under_way: dict[int, UnderWay] = {}

    async def archived(self, shard: int) -> ArchivedShard:
        """Raises BadRequest without an archive, ArchiveError."""
        url = self._archive()
        from worker.archive.lost_shard import archived_shard
        from worker.archive.place import Place

        return await asyncio.to_thread(lambda: archived_shard(Place(url), shard))

    async def leave(self, asked: LeaveCopies, kept: Awaitable[bytes]) -> Done:
        """See ``LeaveCopies``. Raises BadRequest without an archive, NotHere, ArchiveError."""
        url, document = self._archive(), await kept
        from worker.archive.place import Place

        file = copies_file(asked.decided, asked.lost, asked.domain)
        await asyncio.to_thread(lambda: Place(url).replace(file, document))
        return Done()

    async def rebuild(self, asked: RebuildShard) -> ShardRebuilt | RebuildUnderWay:
        """See ``RebuildShard``."""
        found = self._under_way.get(asked.shard)
        if found is not None and found.outcome is not None and found.asked.decided != asked.decided:
            found = None
        if found is None:
            found = self._under_way[asked.shard] = self._begun(asked)
        match found.outcome:
            case None:
                return RebuildUnderWay(found.rows)
            case ShardRebuilt():
                return found.outcome
            case error:
                del self._under_way[asked.shard]  # Asked again, it begins anew.
                raise error

    def _begun(self, asked: RebuildShard) -> UnderWay:
        return UnderWay(self._data, self._archive(), asked)

    def _archive(self) -> str:
        if self._url is None:
            raise BadRequest(f'worker "{self._name}" has no archive', hint="start all workers with the same --archive")
        return self._url
