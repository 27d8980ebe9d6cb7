"""Folding a shard's old segments into a snapshot, in a process of its own, and removing files that are too old.

A fold takes long, and would take the interpreter's time from the dataflow thread. So the archiver starts ``python -m
worker.archive.compacting`` at low priority, which writes the snapshot and prints its description. The archiver, which
alone writes the manifest, then names it there. A process that is killed leaves a file that no manifest names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from domains.archive.manifest import ArchiveError, OtherTable, Segment, ShardManifest, snapshot_file
from worker.archive.folding import fold
from worker.archive.manifests import change_manifest, load_manifest
from worker.archive.place import Place, time_text
from worker.archive.segments import Entries, write_segment
from worker.archive.shard import ShardArchive, expired, with_snapshot

COMPACT_SEGMENTS = 64
"""Old log segments that are worth folding: those of an hour at the default interval."""
COMPACT_SHARE = 0.1
"""… if they have this share of the snapshot's rows; else a large table would be rewritten for a few rows."""
COMPACT_SEGMENTS_MAX = 1_000
"""… however few rows they have, since the manifest, which names them all, is written at each interval."""

NICENESS = 10
"""So that it takes only time that is left over."""


def worth_compacting(manifest: ShardManifest, before: str) -> int | None:
    """The position up to which segments that were archived at or before a time are worth folding, if there are
    enough."""
    old = [each for each in manifest.segments if each.closed <= before]
    have = max((each.last for each in old if each.kind == "snapshot"), default=0)
    rows = max((each.rows for each in old if each.kind == "snapshot" and each.last == have), default=0)
    logs = [each for each in old if each.kind == "log" and each.last > have]
    enough = len(logs) >= COMPACT_SEGMENTS and sum(each.rows for each in logs) >= COMPACT_SHARE * rows
    return max(each.last for each in logs) if enough or len(logs) >= COMPACT_SEGMENTS_MAX else None


def compact(place: Place, manifest: ShardManifest, position: int, scratch: Path | None = None) -> Segment:
    """Write the snapshot at a position, unless there is one; the manifest does not name it yet.

    :raises ArchiveError: a segment is missing or damaged.
    """
    last = manifest.fold_of(position)[-1]
    if last.kind == "snapshot" and last.last == position:
        return last
    schema = manifest.schemas[last.schema]

    def entries() -> Iterator[Entries]:
        for rows in fold(place, manifest, position, scratch=scratch):
            yield [(position, rows)]

    # A unique name: a second process that compacts the same must not write over a file that is named already.
    file = snapshot_file(manifest, position, manifest.epoch, uuid4().hex[:8])
    written = write_segment(place, file, schema, manifest.epoch, entries())
    return Segment(
        file,
        "snapshot",
        1,
        position,
        written.rows,
        written.bytes,
        written.digest,
        last.schema,
        manifest.epoch,
        last.closed,
    )


def compact_now(place: Place, manifest: ShardManifest, before: str) -> ShardManifest:
    """Fold all that was archived at or before a time, and delete the old segments; answers the manifest.

    The archiver may go on meanwhile. Readers of deleted segments get an error.
    """
    position = manifest.position_at(before)
    if position <= manifest.begin:
        return manifest
    snapshot = compact(place, manifest, position)
    dropped: list[Segment] = []

    def change(there: ShardManifest) -> ShardManifest:
        kept, gone = expired(with_snapshot(place, there, snapshot), before)
        dropped.extend(gone)
        return kept

    after = change_manifest(place, manifest, change)
    for segment in dropped:
        place.delete(segment.file)
    return after


def command(place: Place, manifest: ShardManifest, position: int) -> list[str]:
    """The command line of a process that compacts."""
    given = (place.url, manifest.table, str(manifest.shard), manifest.identity, str(position))
    return [sys.executable, "-m", "worker.archive.compacting", *given]


@dataclass(frozen=True, slots=True)
class Compacted:
    identity: str
    snapshot: Segment


class Compaction:
    """The one compaction that a process has under way, in a child. For one thread."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._manifest: ShardManifest | None = None

    @property
    def running(self) -> str | None:
        """The base shard that is being folded."""
        return None if self._manifest is None else self._manifest.base

    def begin(self, place: Place, manifests: Iterable[ShardManifest], boundary: str) -> None:
        """Begin to fold one of the shards with enough segments older than ``boundary``, unless one is under way."""
        if self._child is not None:
            return
        for manifest in manifests:
            position = worth_compacting(manifest, boundary)
            if position is not None:
                self._child, self._manifest = _started(command(place, manifest, position)), manifest
                return

    def done(self) -> Compacted | None:
        """The compaction that has ended since the last call. Raises ArchiveError if it failed."""
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
"""Seconds until a file that no manifest names any more is deleted: somebody may have just read the manifest."""


class Tidying:
    """Compaction and retention, for one thread. ``retention``: seconds for which every archived position can be
    restored."""

    def __init__(self, retention: float) -> None:
        self.retention = retention
        self.compaction = Compaction()
        self._deletions: list[tuple[float, str]] = []

    def boundary(self, now: float) -> str:
        """The time since which everything is kept."""
        return time_text(now - self.retention)

    def tidy(self, place: Place, archives: Collection[ShardArchive], now: float, reach: Callable[[str], str]) -> None:
        """Use a finished snapshot, drop what is too old from the manifests, begin the next fold, and delete files that
        were dropped some time ago. ``reach`` is the recipe book's, and keeps the last cut, however old it is.

        Raises ArchiveError; the next call tries again.
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


def main(url: str, table: str, shard: str, identity: str, position: str) -> None:
    os.nice(NICENESS)
    place = Place(url)
    manifest = load_manifest(place, table, int(shard))
    if manifest is None or manifest.identity != identity:
        raise OtherTable(f'"{table}" was dropped meanwhile')
    print(json.dumps(asdict(compact(place, manifest, int(position)))))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except ArchiveError as error:
        sys.exit(str(error))
