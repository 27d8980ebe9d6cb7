"""The archive of one base shard, for its writer.

::

    append    the log after the archive's end ──► log segments            each counts once the manifest names it
    begin     all rows of a cut ──► a snapshot                            if the log does not reach back far enough
    compact   snapshot + log up to a position ──► a snapshot              in ``compacting.py``, by anybody
    expire    segments that no kept position needs ──► deleted
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from domains.archive.manifest import (
    ArchiveAhead,
    ArchiveFenced,
    ArchiveGap,
    Segment,
    SegmentMissing,
    ShardManifest,
    former_manifest_file,
    log_file,
    shard_directory,
    snapshot_file,
)
from domains.language.types import TableSchema
from worker.archive.manifests import change_manifest, former_manifests, take_over
from worker.archive.options import SEGMENT_ROWS
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook, RecipeRecord
from worker.archive.segments import Entries, WrittenSegment, write_segment
from worker.rocks.cut import TableCut

SLICE_ROWS = 500
"""About how many rows are read at once, with a pause between: one to two milliseconds of work, less than the five for
which Python lets a thread run on."""
SLICE_ENTRIES = 250
"""The most log entries that are read at once."""
FIRST_ENTRIES = 4
"""Entries of the first slice, when it is not known how many rows an entry has."""

Pause = Callable[[], None]


class ShardArchive:
    """All methods raise ArchiveError."""

    def __init__(self, place: Place, manifest: ShardManifest) -> None:
        self.place = place
        self.manifest = manifest

    @classmethod
    def open(cls, place: Place, cut: TableCut, shard: int, shards: int, epoch: int) -> ShardArchive:
        """Take the shard's archive over, and delete files of a crash that no manifest names.

        :raises ArchiveAhead: it has entries that the table does not have.
        """
        new = ShardManifest(cut.schema.name, shard, shards, cut.identity, (cut.schema,), (), epoch, cut.auto_increment)
        self = cls(place, take_over(place, new))
        if self.manifest.position > cut.position:
            raise ArchiveAhead(
                f'the archive of "{self.manifest.base}" is at {self.manifest.position}, the table at {cut.position}',
                hint="the data directory is an older copy: restore it from the archive, or give another archive",
            )
        self._sweep()
        return self

    def _sweep(self) -> None:
        manifest = self.manifest
        directory = shard_directory(manifest.table, manifest.shard)
        with self.place.locked(directory):
            kept = {segment.file.rpartition("/")[2] for segment in manifest.segments}
            for former in former_manifests(self.place, manifest.table, manifest.shard):
                kept |= {segment.file.rpartition("/")[2] for segment in former.segments}
            for name in self.place.files(directory):
                if (name.endswith(".parquet") and name not in kept) or ".json.new-" in name:
                    self.place.delete(f"{directory}/{name}")

    # --- growing ------------------------------------------------------------------------------------------------

    def lacks_log(self, cut: TableCut) -> bool:
        """Whether the cut's log does not reach back to the end of the archive: then it goes on with a snapshot."""
        behind = self.manifest.position
        if behind == cut.position:
            return False
        oldest = cut.log(behind, 1)
        return not oldest or oldest[0][0] > behind + 1

    def append(
        self, cut: TableCut, closed: str, *, segment_rows: int = SEGMENT_ROWS, pause: Pause = lambda: None
    ) -> None:
        """Archive the rest of the cut's log. ``closed`` is the time of the cut; ``pause`` is called between slices of
        work of a millisecond or so.

        :raises ArchiveGap: the log does not begin at the end of the archive.
        """
        while self.manifest.position < cut.position:
            first = self.manifest.position + 1
            last = self._last_of_segment(cut, first, segment_rows)
            schema = self._schema_index(cut.schema)
            file = log_file(self.manifest, first, last, self.manifest.epoch)
            entries = self._entries(cut, first, last, pause)
            written = write_segment(self.place, file, cut.schema, self.manifest.epoch, entries)
            self._name(self._segment(file, "log", first, last, written, schema, closed), cut)

    def begin(self, cut: TableCut, closed: str, *, pause: Pause = lambda: None) -> None:
        """Archive all rows of the cut, if its log does not reach back far enough."""

        def entries() -> Iterator[Entries]:
            for rows in cut.rows(SLICE_ROWS):
                yield [(cut.position, rows)]
                pause()

        schema = self._schema_index(cut.schema)
        file = snapshot_file(self.manifest, cut.position, self.manifest.epoch)
        written = write_segment(self.place, file, cut.schema, self.manifest.epoch, entries())
        self._name(self._segment(file, "snapshot", 1, cut.position, written, schema, closed), cut)

    def _last_of_segment(self, cut: TableCut, first: int, segment_rows: int) -> int:
        """Estimated from the rows of the first entries."""
        sample = cut.log(first - 1, FIRST_ENTRIES)
        if not sample or sample[0][0] != first:
            raise ArchiveGap(
                f'the log of "{self.manifest.base}" begins at {sample[0][0] if sample else cut.position + 1}, '
                f"and is archived up to {first - 1} only"
            )
        rows = sum(len(deltas) for _, deltas in sample)
        return min(cut.position, first - 1 + max(1, segment_rows * len(sample) // max(1, rows)))

    def _entries(self, cut: TableCut, first: int, last: int, pause: Pause) -> Iterator[Entries]:
        after, count = first - 1, FIRST_ENTRIES
        while after < last:
            entries = cut.log(after, min(count, last - after))
            for sequence, _ in entries or [(0, [])]:
                if sequence != after + 1:
                    raise ArchiveGap(f'the log of "{self.manifest.base}" lacks {after + 1}')
                after = sequence
            yield entries
            rows = sum(len(deltas) for _, deltas in entries)
            count = max(1, min(SLICE_ENTRIES, SLICE_ROWS * len(entries) // max(1, rows)))
            pause()

    def _schema_index(self, schema: TableSchema) -> int:
        """The schema's place in the manifest; its first segment adds it there."""
        known = self.manifest.schemas
        return len(known) - 1 if known[-1] == schema else len(known)

    def _segment(
        self, file: str, kind: str, first: int, last: int, written: WrittenSegment, schema: int, closed: str
    ) -> Segment:
        epoch = self.manifest.epoch
        assert kind in ("log", "snapshot")
        return Segment(file, kind, first, last, written.rows, written.bytes, written.digest, schema, epoch, closed)  # type: ignore[arg-type]

    def _name(self, segment: Segment, cut: TableCut) -> None:
        behind = self.manifest.position

        def change(there: ShardManifest) -> ShardManifest:
            if there.position != behind:
                raise ArchiveFenced(
                    f'somebody else has archived "{there.base}" up to {there.position}, this is at {behind}',
                    hint="two processes archive copies of one table: stop one, or give it an archive of its own",
                )
            schemas = there.schemas if segment.schema < len(there.schemas) else (*there.schemas, cut.schema)
            return replace(
                there,
                schemas=schemas,
                segments=(*there.segments, segment),
                auto_increment=max(there.auto_increment, cut.auto_increment),
                transactions=tuple(id for id, at in cut.transactions.items() if at <= segment.last),
            )

        self.manifest = change_manifest(self.place, self.manifest, change)

    # --- shrinking ----------------------------------------------------------------------------------------------

    def replace_by(self, snapshot: Segment) -> None:
        """Take up a snapshot that was folded from this archive. What it stands for is kept until it ``expires``."""

        def change(there: ShardManifest) -> ShardManifest:
            return with_snapshot(self.place, there, snapshot)

        self.manifest = change_manifest(self.place, self.manifest, change)

    def expire(self, before: str) -> list[str]:
        """Remove segments from the manifest that no position archived after ``before`` (a time) needs.

        Answers their files. Readers of the former manifest may still need them, so delete them some minutes later.
        """
        gone: list[str] = []

        def change(there: ShardManifest) -> ShardManifest:
            kept, dropped = expired(there, before)
            gone.extend(segment.file for segment in dropped)
            return kept

        self.manifest = change_manifest(self.place, self.manifest, change)
        return gone

    def forget_former(self, before: str) -> None:
        """Delete the archives of tables of this name that were dropped before ``before`` (a time).

        A table existed while a recipe that names it was in force. The time of its last segment does not tell, since
        perhaps nobody wrote to it.
        """
        formers = former_manifests(self.place, self.manifest.table, self.manifest.shard)
        records = RecipeBook(self.place).records() if formers else []
        for former in formers:
            if in_force_since(records, former, before) or any(each.closed > before for each in former.segments):
                continue
            for segment in former.segments:
                self.place.delete(segment.file)
            self.place.delete(former_manifest_file(former))


def in_force_since(records: list[RecipeRecord], manifest: ShardManifest, time: str) -> bool:
    """Whether a recipe that was in force at a time or later names the table."""
    older = [number for number, each in enumerate(records) if each.time <= time]
    since = records[older[-1] if older else 0 :]
    return any(each.identities.get(manifest.base) == manifest.identity for each in since)


def with_snapshot(place: Place, manifest: ShardManifest, snapshot: Segment) -> ShardManifest:
    """The manifest with a snapshot, unless it has one of the same position, from another process that compacted.

    :raises SegmentMissing: its file was swept away meanwhile.
    """
    if any(each.kind == "snapshot" and each.last == snapshot.last for each in manifest.segments):
        return manifest
    if place.size(snapshot.file) is None:
        raise SegmentMissing(f'snapshot "{place.shown(snapshot.file)}" is missing', hint="compact once more")
    return replace(manifest, segments=(*manifest.segments, snapshot))


def expired(manifest: ShardManifest, before: str) -> tuple[ShardManifest, list[Segment]]:
    """The manifest without the segments up to its newest snapshot of at or before a time, and these segments."""
    snapshots = [each for each in manifest.segments if each.kind == "snapshot" and each.closed <= before]
    newest = max(snapshots, key=lambda each: each.last, default=None)
    if newest is None:
        return manifest, []
    dropped = [each for each in manifest.segments if each.last <= newest.last and each is not newest]
    kept = tuple(each for each in manifest.segments if each not in dropped)
    return replace(manifest, segments=kept), dropped
