"""What keeps an archive small: old segments are folded into snapshots, and what no kept position needs is deleted."""

from __future__ import annotations

from collections.abc import Callable, Collection

from worker.archive.compaction import Compaction
from worker.archive.place import Place
from worker.archive.shard import ShardArchive, expired
from worker.archive.times import time_text

DELETE_AFTER = 600.0
"""Seconds that a file stays which no manifest names any more: somebody may have read the manifest just before."""


class Tidying:
    """One thread calls all methods. ``retention``: seconds for which every archived position can be gone back to."""

    def __init__(self, retention: float) -> None:
        self.retention = retention
        self.compaction = Compaction()
        self._deletions: list[tuple[float, str]] = []

    def boundary(self, now: float) -> str:
        """The time back to which everything is kept."""
        return time_text(now - self.retention)

    def tidy(self, place: Place, archives: Collection[ShardArchive], now: float, reach: Callable[[str], str]) -> None:
        """Take up what was folded meanwhile, let go what is too old, begin to fold what has become enough, and delete
        what was let go some time ago. ``reach`` is the book's, by which the last cut stays, however old it is.

        Raises ArchiveError; what it was about is tried again the next time.
        """
        boundary = reach(self.boundary(now))
        done = self.compaction.done()
        for archive in archives:
            if done is not None and archive.manifest.identity == done.identity:
                archive.replace_by(done.snapshot)
            if expired(archive.manifest, boundary)[1]:
                self._deletions += [(now + DELETE_AFTER, file) for file in archive.expire(boundary)]
        self.compaction.begin(place, (archive.manifest for archive in archives), boundary)
        while self._deletions and self._deletions[0][0] <= now:
            place.delete(self._deletions[0][1])
            del self._deletions[0]
