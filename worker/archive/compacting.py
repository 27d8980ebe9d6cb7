"""Folding a shard's old segments into a snapshot, in a process of its own.

It takes long, and would take the interpreter's time from the dataflow thread. So the archiver starts ``python -m
worker.archive.compacting`` beside itself, at the lowest priority, which writes the snapshot and prints what it is; the
archiver, who alone writes the manifest, then names it there. A process that is killed leaves a file that nobody names.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

from domains.archive.manifest import ArchiveError, OtherTable, Segment, ShardManifest, snapshot_file
from worker.archive.folding import fold
from worker.archive.manifests import change_manifest, load_manifest
from worker.archive.place import Place
from worker.archive.segments import Entries, write_segment
from worker.archive.shard import expired, with_snapshot

COMPACT_SEGMENTS = 64
"""Old log segments that are worth to be folded: an hour's, at the usual interval."""
COMPACT_SHARE = 0.1
"""… if they have this share of the snapshot's rows: with less, a large table would be written anew for a few rows."""
COMPACT_SEGMENTS_MAX = 1_000
"""… however few rows they have: the manifest names them all, and is written at each interval."""

NICENESS = 10
"""The process is to have the time that nobody else wants."""


def worth_compacting(manifest: ShardManifest, before: str) -> int | None:
    """Up to which position there is enough, not archived after ``before`` (a time), to be folded; None: too little."""
    old = [each for each in manifest.segments if each.closed <= before]
    have = max((each.last for each in old if each.kind == "snapshot"), default=0)
    rows = max((each.rows for each in old if each.kind == "snapshot" and each.last == have), default=0)
    logs = [each for each in old if each.kind == "log" and each.last > have]
    enough = len(logs) >= COMPACT_SEGMENTS and sum(each.rows for each in logs) >= COMPACT_SHARE * rows
    return max(each.last for each in logs) if enough or len(logs) >= COMPACT_SEGMENTS_MAX else None


def compact(place: Place, manifest: ShardManifest, position: int, scratch: Path | None = None) -> Segment:
    """Write the snapshot at a position, unless there is one; the manifest does not name it yet.

    :raises ArchiveError: what it is made of is missing or damaged.
    """
    last = manifest.fold_of(position)[-1]
    if last.kind == "snapshot" and last.last == position:
        return last
    schema = manifest.schemas[last.schema]

    def entries() -> Iterator[Entries]:
        for rows in fold(place, manifest, position, scratch=scratch):
            yield [(position, rows)]

    # Nobody else's, also where two are at it at once: the one who is behind would write over what is named already.
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
    """Fold all that was archived not after ``before`` (a time), delete what it was folded from; answers the manifest.

    The archiver may go on meanwhile. Who reads what is deleted is told that it is missing.
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
    """The process that does it, for ``subprocess``."""
    given = (place.url, manifest.table, str(manifest.shard), manifest.identity, str(position))
    return [sys.executable, "-m", "worker.archive.compacting", *given]


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
