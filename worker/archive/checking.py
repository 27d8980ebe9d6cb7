"""Everything that an archive has, read and compared with what its manifests say."""

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
    """Shard by shard: each file's size, digest, columns and rows, each row's sequence, that no log lacks, and that
    the fold is one that a table can have.

    :raises ArchiveUnreachable, ManifestDamaged: nothing can be said at all.
    """
    for manifest in all_manifests(place):
        yield CheckedShard(manifest, tuple(problems_of(place, manifest)))


def problems_of(place: Place, manifest: ShardManifest) -> Iterator[ArchiveError]:
    found = list(_problems_of_files(place, manifest))
    yield from found or _problems_of_fold(place, manifest)


def _problems_of_fold(place: Place, manifest: ShardManifest) -> Iterator[ArchiveError]:
    """A snapshot with rows of later positions than its own has them once more in the log behind it."""
    key = manifest.schemas[-1].primary_key
    keys: set[int] = set()
    types = RowTypes(manifest.schema_at(manifest.position))
    try:
        for part in fold(place, manifest, manifest.position):
            check_rows(types, manifest.shard, [row for row, _ in part])
            for row, weight in part if key else ():
                # Its hash alone, of 64 bits, to hold the keys of a large table: that two are equal by chance is damage
                # where none is, once in 10⁷ checks of a million rows.
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
