"""A check of an archive: all is read, and compared with the manifests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from domains.archive.manifest import ArchiveError, ArchiveGap, SegmentCorrupt, ShardManifest, check_rows
from domains.store.row_types import RowTypes
from worker.archive.folding import fold, reader_of
from worker.archive.manifests import all_manifests
from worker.archive.place import Place
from worker.archive.segments import read_segment


@dataclass(frozen=True, slots=True)
class CheckedShard:
    """One shard of one table."""

    manifest: ShardManifest
    problems: tuple[ArchiveError, ...]

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.manifest.segments)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.manifest.segments)


def check_archive(place: Place) -> Iterator[CheckedShard]:
    """Check shard by shard each file's size, digest, columns and rows, each row's sequence, that no part of the log is
    missing, and that the fold is a possible state of the table.

    :raises ArchiveUnreachable, ManifestDamaged: nothing can be said at all.
    """
    for manifest in all_manifests(place):
        yield CheckedShard(manifest, tuple(problems_of(place, manifest)))


def problems_of(place: Place, manifest: ShardManifest) -> Iterator[ArchiveError]:
    found = list(_problems_of_files(place, manifest))
    yield from found or _problems_of_fold(place, manifest)


def _problems_of_fold(place: Place, manifest: ShardManifest) -> Iterator[ArchiveError]:
    """The problems of a fold. For instance, a snapshot may have rows of later positions than its own, which the log
    then repeats."""
    key = manifest.schemas[-1].primary_key
    keys: set[int] = set()
    types = RowTypes(manifest.schema_at(manifest.position))
    try:
        for part in fold(place, manifest, manifest.position):
            check_rows(types, manifest.shard, [row for row, _ in part])
            for row, weight in part if key else ():
                # Only the keys' hashes, of 64 bits, to save memory. Two that are equal by chance are a false alarm,
                # once in 10⁷ checks of a million rows.
                known = len(keys)
                keys.add(hash(repr([row[column] for column in key])))  # Hashes of -1 and -2 are equal, of texts not.
                if weight > 1 or len(keys) == known:
                    yield SegmentCorrupt(
                        f'the archive of "{manifest.base}" has a key twice at {manifest.position}: {row!r}',
                        hint="move the shard's directory away while the server is stopped: it is archived anew",
                    )
                    return
    except ArchiveError as error:
        yield error


def _problems_of_files(place: Place, manifest: ShardManifest) -> Iterator[ArchiveError]:
    for first, last in manifest.gaps():
        yield ArchiveGap(f'the archive of "{manifest.base}" lacks the log from {first} to {last}')
    for segment in manifest.segments:
        schema = manifest.schemas[segment.schema]
        least = segment.last if segment.kind == "snapshot" else segment.first
        try:
            inside = 0
            for part in read_segment(place, segment, reader_of(schema, schema), least - 1, segment.last):
                inside += len(part)
            if inside != segment.rows:
                yield ArchiveGap(f'segment "{place.shown(segment.file)}" has rows of other positions than it says')
        except ArchiveError as error:
            yield error
