"""A table as of a position, out of an archive written by hand: sums, paddings, snapshots, what is refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from domains.archive.manifest import ArchiveGap, NotArchivedYet, SegmentCorrupt, SegmentMissing, SegmentTruncated
from domains.archive.rows import WEIGHT
from domains.errors import HeadraceError
from domains.language.durations import micros_of
from domains.language.types import (
    BIGINT,
    BLOB,
    DATE,
    DATETIME,
    DOUBLE,
    TEXT,
    Kind,
    Row,
    SqlType,
    TableColumn,
    TableSchema,
)
from domains.store.widening import widening
from migrations.backfill.spark import segments
from migrations.backfill.spark.fold import ShardAt, as_relation, fold, stored_names
from migrations.backfill.spark.reporting import error_of
from migrations.backfill.spark.segments import ArchiveFiles
from migrations.catalog import Catalog
from tests.migrations.spark.written_archive import WrittenShard
from tests.migrations.statement_catalog import perform

PRICE = SqlType(Kind.DECIMAL, "DECIMAL(6,2)", length=6, scale=2)
VOTES = TableSchema("votes", (TableColumn("user", BIGINT), TableColumn("story", BIGINT)), primary_key=(0, 1))
BAG = TableSchema("Bag é", (TableColumn("_seq", BIGINT), TableColumn("Text", TEXT)))


def rows_at(spark: SparkSession, root: Path, *shards: tuple[WrittenShard, int]) -> list[tuple[object, ...]]:
    at = [ShardAt(written.manifest, position) for written, position in shards]
    folded = fold(spark, ArchiveFiles(str(root)), at)
    schema = at[0].manifest.schemas[-1]
    try:
        return sorted((tuple(row) for row in as_relation(folded, schema).collect()), key=repr)
    except HeadraceError:
        raise
    except Exception as error:
        raise error_of(error) from error


@pytest.fixture
def votes(tmp_path: Path) -> WrittenShard:
    """Three segments of a log: five votes, of which two are taken back."""
    written = WrittenShard(tmp_path, VOTES)
    written.log(1, 3, [(1, (1, 7), 1), (2, (2, 7), 1), (3, (3, 8), 1)])
    written.log(4, 6, [(4, (1, 7), -1), (5, (4, 8), 1), (6, (1, 9), 1)])
    written.log(7, 7, [(7, (3, 8), -1)])
    return written


def test_each_position(spark: SparkSession, votes: WrittenShard) -> None:
    assert rows_at(spark, votes.root, (votes, 0)) == []
    assert rows_at(spark, votes.root, (votes, 3)) == [(1, 7), (2, 7), (3, 8)]
    assert rows_at(spark, votes.root, (votes, 4)) == [(2, 7), (3, 8)]
    assert rows_at(spark, votes.root, (votes, 7)) == [(1, 9), (2, 7), (4, 8)]


def test_a_snapshot_stands_for_the_log_before_it(spark: SparkSession, votes: WrittenShard) -> None:
    votes.snapshot(4, [((2, 7), 1), ((3, 8), 1)])
    assert rows_at(spark, votes.root, (votes, 4)) == [(2, 7), (3, 8)]
    # The segment 4 … 6 begins before the snapshot's position; its entry 4 is in the snapshot already.
    assert rows_at(spark, votes.root, (votes, 6)) == [(1, 9), (2, 7), (3, 8), (4, 8)]


def test_shards_each_at_its_own_position(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (WrittenShard(tmp_path, VOTES, shard, 2) for shard in range(2))
    one.log(1, 2, [(1, (2, 7), 1), (2, (4, 7), 1)])
    other.log(1, 2, [(1, (1, 7), 1), (2, (1, 7), -1)])
    assert rows_at(spark, tmp_path, (one, 1), (other, 1)) == [(1, 7), (2, 7)]
    assert rows_at(spark, tmp_path, (one, 2), (other, 2)) == [(2, 7), (4, 7)]


def test_a_bag_has_its_rows_as_often_as_they_stand(spark: SparkSession, tmp_path: Path) -> None:
    written = WrittenShard(tmp_path, BAG)
    written.log(1, 3, [(1, (1, "é"), 2), (2, (None, None), 1), (3, (1, "é"), 1)])
    assert rows_at(spark, tmp_path, (written, 3)) == [(1, "é"), (1, "é"), (1, "é"), (None, None)]


def test_columns_that_come_and_go(spark: SparkSession, tmp_path: Path) -> None:
    written = WrittenShard(tmp_path, VOTES)
    written.log(1, 2, [(1, (1, 7), 1), (2, (2, 7), 1)])
    note = TableColumn("note", TEXT, default="none", has_default=True)
    price = TableColumn("price", PRICE, default=Decimal("1.50"), has_default=True)
    day = TableColumn("day", DATE, default="2026-01-31", has_default=True)
    added = TableSchema("votes", (*VOTES.columns, note, price, day), primary_key=(0, 1))
    written.alter(added)
    # The row of before the change is retracted in its new width.
    old: Row = (1, 7, "none", Decimal("1.50"), "2026-01-31")
    written.log(3, 4, [(3, old, -1), (4, (1, 7, "hello", None, "2026-02-01"), 1)])
    found = rows_at(spark, tmp_path, (written, 4))
    assert [(a, b, c, d, str(e)) for a, b, c, d, e in found] == [
        (1, 7, "hello", None, "2026-02-01"),
        (2, 7, "none", Decimal("1.50"), "2026-01-31"),
    ]
    gone = TableSchema("votes", (*VOTES.columns, replace(note, dropped=True), price, day), (0, 1))
    written.alter(gone)
    written.log(5, 5, [(5, (2, 7, "none", Decimal("1.50"), "2026-01-31"), -1)])
    assert [row[:3] for row in rows_at(spark, tmp_path, (written, 5))] == [(1, 7, None)]


def test_every_type(spark: SparkSession, tmp_path: Path) -> None:
    unsigned = SqlType(Kind.INTEGER, "BIGINT UNSIGNED", low=0, high=2**64 - 1)
    types = (unsigned, DOUBLE, PRICE, TEXT, BLOB, DATE, DATETIME)
    written = WrittenShard(tmp_path, TableSchema("t", tuple(TableColumn(f"x{i}", t) for i, t in enumerate(types))))
    row: Row = (2**64 - 1, -0.5, Decimal("-7.25"), "a\0\\'", b"\x00\xff", "0001-01-01", "9999-12-31 23:59:59.000001")
    written.log(1, 2, [(1, row, 1), (2, (None,) * 7, 1)])
    empty, found = rows_at(spark, tmp_path, (written, 2))[::-1]
    assert empty == (None,) * 7
    assert found[:5] == (Decimal(2**64 - 1), -0.5, Decimal("-7.25"), "a\0\\'", bytearray(b"\x00\xff"))
    assert [str(value) for value in found[5:]] == ["0001-01-01", "9999-12-31 23:59:59.000001"]


# --- some of the columns ------------------------------------------------------------------------------------------


def columns_at(spark: SparkSession, written: WrittenShard, position: int, *columns: int) -> list[tuple[object, ...]]:
    """With the weight behind them."""
    at = ShardAt(written.manifest, position)
    rows = fold(spark, ArchiveFiles(str(written.root)), [at], written.manifest.schemas[-1], columns=columns)
    return sorted((tuple(row) for row in rows.select(*stored_names(columns), WEIGHT).collect()), key=repr)


def test_rows_that_agree_in_what_is_read_are_one(spark: SparkSession, votes: WrittenShard) -> None:
    assert columns_at(spark, votes, 3, 1) == [(7, 2), (8, 1)]
    assert columns_at(spark, votes, 7, 1) == [(7, 1), (8, 1), (9, 1)]
    assert columns_at(spark, votes, 7) == [(3,)]
    assert columns_at(spark, votes, 0) == []
    votes.snapshot(3, [((1, 7), 1), ((2, 7), 1), ((3, 8), 1)])
    assert columns_at(spark, votes, 3, 1) == [(7, 2), (8, 1)], "a snapshot's rows may agree in them too"
    assert columns_at(spark, votes, 3, 0, 1) == [(1, 7, 1), (2, 7, 1), (3, 8, 1)]


def test_a_column_that_came_later_is_read_with_its_default(spark: SparkSession, votes: WrittenShard) -> None:
    note = TableColumn("note", TEXT, default="none", has_default=True)
    votes.alter(TableSchema("votes", (*VOTES.columns, note), primary_key=(0, 1)))
    votes.log(8, 8, [(8, (5, 9, "new"), 1)])
    assert columns_at(spark, votes, 8, 2) == [("new", 1), ("none", 3)]
    assert columns_at(spark, votes, 8, 1) == [(7, 1), (8, 1), (9, 2)]


# --- refused ------------------------------------------------------------------------------------------------------


def test_missing_segment(spark: SparkSession, votes: WrittenShard) -> None:
    segment = votes.manifest.segments[1]
    (votes.root / segment.file).unlink()
    with pytest.raises(SegmentMissing, match=segment.file):
        rows_at(spark, votes.root, (votes, 7))
    assert rows_at(spark, votes.root, (votes, 3)) == [(1, 7), (2, 7), (3, 8)], "what does not need it is read"


def test_truncated_segment(spark: SparkSession, votes: WrittenShard) -> None:
    path = votes.root / votes.manifest.segments[2].file
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(SegmentTruncated, match=path.name):
        rows_at(spark, votes.root, (votes, 7))


@pytest.mark.parametrize("by", ["the driver", "tasks"])
def test_changed_segment(spark: SparkSession, votes: WrittenShard, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "tasks":
        monkeypatch.setattr(segments, "CHECKED_HERE", 0)
    assert len(rows_at(spark, votes.root, (votes, 7))) == 3, "a sound one is taken"
    path = votes.root / votes.manifest.segments[0].file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentCorrupt, match=path.name):
        rows_at(spark, votes.root, (votes, 7))


def test_a_retraction_without_its_row(spark: SparkSession, tmp_path: Path) -> None:
    written = WrittenShard(tmp_path, VOTES)
    written.log(1, 2, [(1, (1, 7), 1), (2, (9, 9), -1)])
    with pytest.raises(SegmentCorrupt, match=r'table "votes" retracts a row that it does not have: .*9'):
        rows_at(spark, tmp_path, (written, 2))


def test_gap_and_position_beyond(spark: SparkSession, tmp_path: Path) -> None:
    written = WrittenShard(tmp_path, VOTES)
    written.log(1, 2, [(1, (1, 7), 1)])
    written.log(5, 6, [(5, (2, 7), 1)])
    with pytest.raises(ArchiveGap, match='"votes" lacks the log from 3 to 4'):
        rows_at(spark, tmp_path, (written, 6))
    with pytest.raises(NotArchivedYet, match="ends at 6, before 7"):
        rows_at(spark, tmp_path, (written, 7))


def test_a_column_that_came_later_is_computed_as_the_engine_computes_it(spark: SparkSession, tmp_path: Path) -> None:
    """Also of rows that had no such value, and are gone; of every type that Spark has in another way."""
    text = """CREATE TABLE t (a VARCHAR(30), d VARCHAR(30));
        ALTER TABLE t MODIFY a BIGINT UNSIGNED, ADD COLUMN b DECIMAL(22,2) AS (a / 4), MODIFY d DATETIME;
        ALTER TABLE t ADD COLUMN e DATE AS (DATE(d)), ADD COLUMN f TIME AS (TIME(d)), ADD g TEXT AS (CONCAT(a, d))"""
    before = perform(text.split(";")[0], Catalog()).table("t")
    after = perform(text, Catalog()).table("t")
    written = WrittenShard(tmp_path, before)
    short: list[Row] = [("x", "never"), ("18446744073709551615", "2020-01-31 05:06:07"), ("3", None), (None, None)]
    written.log(1, 5, [(at, row, 1) for at, row in enumerate(short, 1)])
    written.log(6, 6, [(6, short[0], -1)])
    written.alter(after)
    widen = widening(before, after)
    written.log(7, 8, [(7, widen(short[2]), -1), (8, widen(("7", "2020-02-01")), 1)])
    expected = [widen(short[1]), widen(short[3]), widen(("7", "2020-02-01 00:00:00"))]
    live = [tuple(row[at] for at in after.live()) for row in expected]

    def shown(found: Iterable[tuple[object, ...]]) -> list[tuple[str, ...]]:
        return sorted(tuple(_told(value) for value in row) for row in found)

    assert shown(rows_at(spark, tmp_path, (written, 8))) == shown(live)
    for columns in ((5,), (0, 6), (4, 7)):
        found = columns_at(spark, written, 8, *columns)
        assert shown(found) == shown([(*[row[at] for at in columns], 1) for row in expected]), columns


def _told(value: object) -> str:
    """A TIME is its microseconds to Spark."""
    return str(micros_of(value) if isinstance(value, timedelta) else value)
