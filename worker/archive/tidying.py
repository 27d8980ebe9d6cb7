"""Compaction, retention: old segments are folded into snapshots, and files that no kept position needs are removed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from domains.archive.manifest import ArchiveError, Segment, ShardManifest
from worker.archive.compacting import command, worth_compacting
from worker.archive.place import Place, time_text
from worker.archive.shard import ShardArchive, expired

# The one compaction that a process has under way: a child that folds, and what has come of it.


@dataclass(frozen=True, slots=True)
class Compacted:
    identity: str
    snapshot: Segment


class Compaction:
    """One thread calls all methods."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._manifest: ShardManifest | None = None

    @property
    def running(self) -> str | None:
        """The base shard that is folded now."""
        return None if self._manifest is None else self._manifest.base

    def begin(self, place: Place, manifests: Iterable[ShardManifest], boundary: str) -> None:
        """Start with one of the shards that have enough which is older than ``boundary``, unless one is under way."""
        if self._child is not None:
            return
        for manifest in manifests:
            position = worth_compacting(manifest, boundary)
            if position is not None:
                self._child, self._manifest = _started(command(place, manifest, position)), manifest
                return

    def done(self) -> Compacted | None:
        """The compaction that has ended since the last call. Raises ArchiveError where it went wrong."""
        if self._child is None or self._child.poll() is None:
            return None
        child, manifest = self._child, self._manifest
        self._child = self._manifest = None
        assert manifest is not None
        told, complaint = child.communicate()
        if child.returncode:
            lines = complaint.strip().splitlines() or [f"exit code {child.returncode}"]
            raise ArchiveError(f'compacting "{manifest.base}" failed: {lines[-1]}')
        return Compacted(manifest.identity, Segment(**json.loads(told)))

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = self._manifest = None


def _started(program: list[str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        raise ArchiveError(f"no process can be started to compact: {error}") from error


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
