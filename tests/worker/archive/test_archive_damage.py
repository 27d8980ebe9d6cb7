"""What is missing, damaged or somebody else's is named and refused, never skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archived_tables import ADDED, BAG, ArchivedTable, time_of

from domains.archive.manifest import (
    ArchiveAhead,
    ArchiveError,
    ArchiveFenced,
    ArchiveGap,
    ArchiveUnreachable,
    ManifestDamaged,
    OtherTable,
    Segment,
    SegmentCorrupt,
    SegmentMissing,
    SegmentTruncated,
    ShardManifest,
)
from domains.language.types import Row
from worker.archive import shard
from worker.archive.checking import check_archive
from worker.archive.compacting import COMPACT_SEGMENTS, compact, worth_compacting
from worker.archive.folding import fold
from worker.archive.lost_shard import rebuild_table
from worker.archive.manifests import all_manifests, change_manifest, load_manifest
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook, RecipeRecord
from worker.archive.shard import ShardArchive
from worker.rocks.store import RocksStore


def row(number: int) -> Row:
    return (number, "a", None, None)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ArchivedTable]:
    """Three segments of two positions each."""
    made = ArchivedTable(tmp_path)
    for number in range(6):
        made.write([(row(number), 1)])
        if number % 2:
            made.archive()
    yield made
    made.store.close()


def segments_of(table: ArchivedTable) -> tuple[Segment, ...]:
    manifest = load_manifest(table.place, "t", 0)
    assert manifest is not None
    return manifest.segments


def path_of(table: ArchivedTable, segment: Segment) -> Path:
    return Path(table.place.at(segment.file))


def damage(table: ArchivedTable, how: str) -> Segment:
    """Do it to the second of the three segments."""
    segment = segments_of(table)[1]
    path = path_of(table, segment)
    data = path.read_bytes()
    match how:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(data[:-1])
        case "empty":
            path.write_bytes(b"")
        case "a bit":
            path.write_bytes(data[:100] + bytes((data[100] ^ 1,)) + data[101:])
        case "longer":
            path.write_bytes(data + b"\x00")
        case "another's":
            path.write_bytes(path_of(table, segments_of(table)[0]).read_bytes())
    return segment


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("missing", SegmentMissing),
        ("truncated", SegmentTruncated),
        ("empty", SegmentTruncated),
        ("a bit", SegmentCorrupt),
        ("longer", SegmentCorrupt),
        ("another's", SegmentCorrupt),
    ],
)
def test_a_damaged_segment_is_named_by_whoever_reads_it(table: ArchivedTable, how: str, kind: type[Exception]) -> None:
    segment = damage(table, how)
    manifest = load_manifest(table.place, "t", 0)
    assert manifest is not None
    with pytest.raises(kind) as raised:
        list(fold(table.place, manifest, 6))
    assert segment.file in str(raised.value)
    with pytest.raises(kind):
        compact(table.place, manifest, 4)
    assert len(list(fold(table.place, manifest, 2))) == 1, "what is before it is not concerned"
    (checked,) = check_archive(table.place)
    assert [type(problem) for problem in checked.problems] == [kind]
    assert segment.file in str(checked.problems[0])


def test_an_archive_without_damage(table: ArchivedTable) -> None:
    (checked,) = check_archive(table.place)
    assert checked.problems == ()
    assert checked.rows == 6
    assert checked.bytes == sum(path_of(table, segment).stat().st_size for segment in segments_of(table))


def rewritten(table: ArchivedTable, change: Any) -> Segment:
    """A second segment that is another table's, with the digest of what it is now."""
    segment = segments_of(table)[1]
    path = path_of(table, segment)
    pq.write_table(change(pq.read_table(path)), path)
    new = replace(segment, bytes=path.stat().st_size, digest=table.place.digest(segment.file))
    manifest = load_manifest(table.place, "t", 0)
    assert manifest is not None
    change_manifest(
        table.place,
        manifest,
        lambda there: replace(there, segments=tuple(new if each == segment else each for each in there.segments)),
    )
    return new


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found.drop_columns(["Name"]), "other columns"),
        (lambda found: found.slice(0, 1), "1 rows, its manifest says 2"),
    ],
)
def test_columns_and_rows_are_what_the_manifest_says(table: ArchivedTable, change: Any, said: str) -> None:
    rewritten(table, change)
    manifest = load_manifest(table.place, "t", 0)
    assert manifest is not None
    with pytest.raises(SegmentCorrupt, match=said):
        list(fold(table.place, manifest, 6))


def test_rows_of_other_positions_are_found_by_the_check(table: ArchivedTable) -> None:
    def moved(found: Any) -> Any:
        return found.set_column(0, found.schema.field(0), pa.array([1, 99], pa.int64()))

    segment = rewritten(table, moved)
    (checked,) = check_archive(table.place)
    assert [segment.file in str(problem) for problem in checked.problems] == [True]


def test_a_row_that_is_retracted_too_often_is_damage(table: ArchivedTable) -> None:
    def negated(found: Any) -> Any:
        return found.set_column(1, found.schema.field(1), pa.array([-1, -1], pa.int32()))

    rewritten(table, negated)
    manifest = load_manifest(table.place, "t", 0)
    assert manifest is not None
    with pytest.raises(SegmentCorrupt, match="more often than it holds it"):
        list(fold(table.place, manifest, 6))


def test_a_manifest_that_lacks_a_segment_says_which_log_lacks(table: ArchivedTable) -> None:
    manifest = load_manifest(table.place, "t", 0)
    assert manifest is not None
    lacking = replace(manifest, segments=(manifest.segments[0], manifest.segments[2]))
    with pytest.raises(ArchiveGap, match="lacks the log from 3 to 4"):
        list(fold(table.place, lacking, 6))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 99}'])
def test_a_damaged_manifest_is_named(table: ArchivedTable, text: str) -> None:
    path = Path(table.place.at("table=t/shard=0/manifest.json"))
    path.write_text(text)
    for act in (table.open, lambda: list(check_archive(table.place))):
        with pytest.raises(ManifestDamaged, match=r"manifest\.json"):
            act()


def test_a_manifest_is_readable_by_a_person(table: ArchivedTable) -> None:
    document = json.loads(Path(table.place.at("table=t/shard=0/manifest.json")).read_text())
    assert (document["table"], document["position"], document["shards"]) == ("t", 6, 1)
    assert [segment["kind"] for segment in document["segments"]] == ["log"] * 3


# --- who may write ------------------------------------------------------------------------------------------------


def test_an_earlier_epoch_is_refused_once_a_later_one_has_taken_over(table: ArchivedTable) -> None:
    before = table.open(epoch=4)
    after = table.open(epoch=5)
    table.write([(row(7), 1)])
    cut = table.store.cut("t")
    with pytest.raises(ArchiveFenced, match="taken over in epoch 5, this is 4"):
        before.append(cut, time_of(9))
    with pytest.raises(ArchiveFenced):
        table.open(epoch=4)
    after.append(cut, time_of(9))
    assert after.manifest.position == 7
    assert after.manifest.segments[-1].epoch == 5
    table.check(after)


def test_a_copy_of_the_data_directory_does_not_mix_in_its_own_writes(table: ArchivedTable) -> None:
    """It has the same identity and the same epoch: only that the archive has moved on tells."""
    copy = table.open()
    table.write([(row(7), 1)])
    cut = table.store.cut("t")
    table.archive()
    before = segments_of(table)
    with pytest.raises(ArchiveFenced, match="somebody else has archived"):
        copy.append(cut, time_of(9))
    assert segments_of(table) == before


def test_a_table_of_the_same_name_is_another_one(table: ArchivedTable) -> None:
    before = table.open()
    table.store.drop_table("t")
    table.create(BAG)
    table.write([(row(1), 2)])
    after = table.archive()
    assert after.manifest.position == 1
    assert table.check(after) == 2
    with pytest.raises(OtherTable, match="was dropped"):
        before.expire(time_of(99))
    former = [each for each in all_manifests(table.place, former=True) if each.identity == before.manifest.identity]
    assert former == [before.manifest]
    assert sum(len(part) for part in fold(table.place, former[0], 6)) == 6, "it can still be folded"
    after.forget_former(time_of(2))
    assert len(all_manifests(table.place, former=True)) == 2, "it was archived after that"
    after.forget_former(time_of(3))
    assert all_manifests(table.place, former=True) == [after.manifest]
    assert table.check(after) == 2


@pytest.mark.parametrize("entries", [0, 3])
def test_what_was_in_force_since_is_kept_however_long_nobody_wrote_to_it(tmp_path: Path, entries: int) -> None:
    table = ArchivedTable(tmp_path)
    for at in range(entries):
        table.write([(row(at), 1)])
    former, book = table.archive().manifest, RecipeBook(table.place)
    book.keep(RecipeRecord(time_of(9), {}, {former.base: former.identity}, 1, "with the former one"))
    table.store.drop_table("t")
    table.create(BAG)
    after = table.archive()
    book.keep(RecipeRecord(time_of(15), {}, {former.base: after.manifest.identity}, 1, "with the other one"))
    after.forget_former(time_of(14))
    assert former in all_manifests(table.place, former=True)
    after.forget_former(time_of(15))
    assert all_manifests(table.place, former=True) == [after.manifest]
    table.store.close()


def test_an_archive_that_is_ahead_of_the_table_is_refused(table: ArchivedTable, tmp_path: Path) -> None:
    """The data directory is an older copy: what it would archive under the same positions is something else."""
    older = RocksStore(tmp_path / "older")
    older.create_table(BAG, table.store.cut("t").identity)
    with pytest.raises(ArchiveAhead, match="is at 6, the table at 0"):
        ShardArchive.open(table.place, older.cut("t"), 0, 1, 1)
    older.close()


def test_an_archive_of_another_number_of_shards_is_refused(table: ArchivedTable) -> None:
    with pytest.raises(OtherTable, match="of a deployment of 1 shards, not 2"):
        ShardArchive.open(table.place, table.store.cut("t"), 0, 2, 1)


def test_files_that_nobody_names_are_swept_away(table: ArchivedTable) -> None:
    directory = path_of(table, segments_of(table)[0]).parent
    for name in (f"log-{7:020}-{8:020}-1-ffff.parquet", f"snapshot-{9:020}-1-ffff.parquet", "manifest.json.new-1"):
        (directory / name).write_bytes(b"half a file")
    table.archive()
    assert {path.name for path in directory.iterdir()} == {
        ".lock",
        "manifest.json",
        *(segment.file.rpartition("/")[2] for segment in segments_of(table)),
    }


def test_a_url_that_is_none_and_a_directory_that_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(ArchiveUnreachable, match="nonsense://x"):
        Place("nonsense://x")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveUnreachable, match="file"):
        Place(str(tmp_path / "file")).replace("a", b"")


def test_a_url_of_a_directory(tmp_path: Path) -> None:
    made = ArchivedTable(tmp_path, place=Place(f"file://{tmp_path}/by-url"))
    made.write([(row(1), 1)])
    made.check(made.archive())
    assert (tmp_path / "by-url" / "table=t" / "shard=0" / "manifest.json").exists()
    made.store.close()


# --- growing and shrinking ----------------------------------------------------------------------------------------


def test_segments_are_cut_by_their_rows(table: ArchivedTable) -> None:
    for number in range(10):
        table.write([(row(100 + number), 1)])
    archive = table.archive(segment_rows=4)
    assert [(each.first, each.last) for each in archive.manifest.segments[3:]] == [(7, 10), (11, 14), (15, 16)]
    table.check(archive)


def test_nothing_new_is_no_segment(table: ArchivedTable) -> None:
    before = table.open().manifest
    assert table.archive().manifest == before


def test_a_log_that_was_trimmed_before_goes_on_with_a_snapshot(table: ArchivedTable) -> None:
    for number in range(3):
        table.write([(row(10 + number), 1)])
    table.store.trim_log("t", 8)
    archive = table.open()
    with pytest.raises(ArchiveGap, match="begins at 9, and is archived up to 6"):
        archive.append(table.store.cut("t"), time_of(9))
    after = table.archive()
    assert [each.kind for each in after.manifest.segments] == ["log", "log", "log", "snapshot"]
    assert after.manifest.gaps() == [(7, 9)]
    table.check(after)
    (checked,) = check_archive(table.place)
    assert [str(problem) for problem in checked.problems] == ['the archive of "t" lacks the log from 7 to 9']


def test_what_is_folded_is_let_go_once_it_is_too_old(table: ArchivedTable) -> None:
    archive = table.open()
    archive.replace_by(compact(table.place, archive.manifest, 4))
    assert archive.manifest.begin == 0
    assert archive.expire(time_of(1)) == [], "the snapshot is of a later time"
    gone = archive.expire(time_of(2))
    assert len(gone) == 2
    assert archive.manifest.begin == 4
    for file in gone:
        table.place.delete(file)
    assert table.check(archive) == 3
    with pytest.raises(ArchiveGap, match="from 1 to 3"):
        archive.manifest.fold_of(3)


def test_who_compacts_writes_over_no_file_that_counts(table: ArchivedTable) -> None:
    """Two may be at the same position: the server's own process, and somebody's ``headrace archive compact``."""
    archive = table.open()
    before = archive.manifest
    archive.replace_by(compact(table.place, before, 4))
    archive.expire(time_of(2))
    snapshot = next(each for each in archive.manifest.segments if each.kind == "snapshot")
    written = path_of(table, snapshot).stat()
    other = compact(table.place, before, 4)
    archive.replace_by(other)
    assert path_of(table, snapshot).stat().st_mtime_ns == written.st_mtime_ns
    assert [each for each in archive.manifest.segments if each.kind == "snapshot"] == [snapshot], "one is enough"
    assert table.check(archive) == 3
    table.open()
    assert not path_of(table, other).exists(), "the other one is swept away"


def test_when_compacting_is_worth_it() -> None:
    def made(logs: int, rows: int, snapshot: int = 0) -> ShardManifest:
        segments = [
            Segment(f"l{at}", "log", 1000 + at, 1000 + at, rows, 1, "", 0, 1, time_of(at)) for at in range(logs)
        ]
        if snapshot:
            segments.append(Segment("s", "snapshot", 1, 999, snapshot, 1, "", 0, 1, time_of(0)))
        return ShardManifest("t", 0, 1, "i", (BAG,), tuple(segments))

    late = time_of(5000)
    assert worth_compacting(made(COMPACT_SEGMENTS - 1, 1), late) is None
    assert worth_compacting(made(COMPACT_SEGMENTS, 1), late) == 999 + COMPACT_SEGMENTS
    assert worth_compacting(made(COMPACT_SEGMENTS + 9, 1), time_of(COMPACT_SEGMENTS - 1)) == 999 + COMPACT_SEGMENTS
    assert worth_compacting(made(COMPACT_SEGMENTS, 1, 10_000), late) is None, "few rows for a large table"
    assert worth_compacting(made(COMPACT_SEGMENTS, 100, 10_000), late) is not None
    assert worth_compacting(made(1000, 1, 1_000_000), late) is not None, "many segments are folded all the same"


# --- a table from its archive -------------------------------------------------------------------------------------


def test_a_rebuilt_table_is_the_table(table: ArchivedTable, tmp_path: Path) -> None:
    for column in ADDED:
        table.add_column(column)
    table.store.table("t").raise_auto_increment(41)
    table.write([((7, *table.schema_defaults()), 3)])
    archive = table.archive()
    store = RocksStore(tmp_path / "rebuilt", keep_log=False)
    rows = rebuild_table(store, table.place, archive.manifest, 7, schema=table.schema)
    store.close()
    store = RocksStore(tmp_path / "rebuilt")
    rebuilt = store.table("t")
    assert (rows, rebuilt.row_count, store.position("t")) == (9, 9, 7)
    assert dict(rebuilt.find((), ())) == table.rows
    assert rebuilt.next_auto_increment(1) == 42
    assert store.log("t", 0, 10) == []
    assert store.cut("t").identity != archive.manifest.identity, "what goes on from here is another table"
    store.close()


def test_an_older_schema_is_given_back_as_it_was(table: ArchivedTable, tmp_path: Path) -> None:
    table.add_column(ADDED[0])
    table.write([((9, "z", None, None, "2026-02-01"), 1)])
    archive = table.archive()
    store = RocksStore(tmp_path / "rebuilt", keep_log=False)
    rebuild_table(store, table.place, archive.manifest, 7, schema=BAG)
    assert dict(store.table("t").find((), ())) == {each[:4]: weight for each, weight in table.rows.items()}
    store.close()


def test_a_damaged_archive_rebuilds_nothing(table: ArchivedTable, tmp_path: Path) -> None:
    damage(table, "a bit")
    manifest = load_manifest(table.place, "t", 0)
    assert manifest is not None
    store = RocksStore(tmp_path / "rebuilt", keep_log=False)
    with pytest.raises(ArchiveError):
        rebuild_table(store, table.place, manifest, 6)
    assert store.table("t").row_count == 0
    store.close()


def test_a_snapshot_that_is_taken_beside_writes_is_of_its_position(
    table: ArchivedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged at every position by what the table held there."""
    monkeypatch.setattr(shard, "SLICE_ROWS", 1)
    table.write([(row(20 + number), 1) for number in range(9)])
    table.store.trim_log("t", 100)
    written = iter(range(100, 1_000))

    def write() -> None:
        number = next(written)
        table.write([(row(number), 1), (row(20 + number % 9), -1)] if number < 109 else [(row(number), 1)])

    table.open().begin(table.store.cut("t", rows=True), time_of(50), pause=write)
    assert next(written) > 105, "writes were made beside it"
    table.check(table.archive())


def test_a_row_of_a_later_position_that_was_changed_since_is_found_by_its_key(tmp_path: Path) -> None:
    table = ArchivedTable(tmp_path, replace(BAG, primary_key=(0,)))
    table.write([(row(-1), 1), (row(-2), 1)])
    table.write([(row(2), 1)])
    table.open().begin(replace(table.store.cut("t", rows=True), position=1), time_of(1))
    (checked,) = check_archive(table.place)
    assert checked.problems == ()
    table.write([(row(2), -1), ((2, "b", None, None), 1)])
    table.archive()
    (checked,) = check_archive(table.place)
    assert ["has a key twice at 3" in str(problem) for problem in checked.problems] == [True]


@pytest.mark.parametrize("change", ["insert", "update", "delete"])
def test_a_snapshot_with_rows_of_later_positions_is_found_by_its_fold(tmp_path: Path, change: str) -> None:
    table = ArchivedTable(tmp_path, replace(BAG, primary_key=(0,)))
    changed = (1, "b", None, None)
    table.write([(row(1), 1)])
    table.write({"insert": [(row(2), 1)], "update": [(row(1), -1), (changed, 1)], "delete": [(row(1), -1)]}[change])
    # As archives are that were begun while it was written: the rows are of 2, and called those of 1.
    early = replace(table.store.cut("t", rows=True), position=1)
    table.open().begin(early, time_of(1))
    (checked,) = check_archive(table.place)
    assert checked.problems == (), "alone it cannot be known"
    if change == "insert":
        table.write([((-1, "a", None, None), 1), ((-2, "a", None, None), 1)])
    table.archive()
    (checked,) = check_archive(table.place)
    assert [type(problem) for problem in checked.problems] == [SegmentCorrupt]
    assert "a key twice" in str(checked.problems[0]) or "more often than it holds it" in str(checked.problems[0])
    (tmp_path / "archive" / "table=t" / "shard=0").rename(tmp_path / "away")
    table.archive()
    (checked,) = check_archive(table.place)
    assert checked.problems == ()
