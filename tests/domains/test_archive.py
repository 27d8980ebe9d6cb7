"""Which segments give a shard as of a position, what is named where one lacks, and manifests as JSON."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from domains.archive.manifest import (
    ArchiveGap,
    ManifestDamaged,
    NotArchivedYet,
    Segment,
    ShardManifest,
    log_file,
    manifest_from_json,
    manifest_to_json,
    sealed,
    shard_directory,
)
from domains.archive.rows import archived_names, archiver_of, arrow_type_of, restorer_of
from domains.language.types import BIGINT, DATE, DATETIME, Kind, SqlType, TableColumn, TableSchema
from domains.store.widening import widening

SCHEMA = TableSchema("votes", (TableColumn("story_id", BIGINT), TableColumn("user_id", BIGINT)))


def segment(kind: Any, first: int, last: int, closed: str = "2026-01-01T00:00:00Z") -> Segment:
    return Segment(f"{kind}-{first}-{last}", kind, first, last, 1, 100, "00", 0, 1, closed)


def manifest(*segments: Segment, shards: int = 2) -> ShardManifest:
    return ShardManifest("votes", 1, shards, "1f", (SCHEMA,), segments, epoch=1)


LOGS = (segment("log", 1, 10), segment("log", 11, 20), segment("log", 21, 30))
SNAPSHOT = segment("snapshot", 1, 20)


@pytest.mark.parametrize(
    ("segments", "position", "files"),
    [
        (LOGS, 0, []),
        (LOGS, 1, ["log-1-10"]),
        (LOGS, 10, ["log-1-10"]),
        (LOGS, 11, ["log-1-10", "log-11-20"]),
        ((*LOGS, SNAPSHOT), 19, ["log-1-10", "log-11-20"]),
        ((*LOGS, SNAPSHOT), 20, ["snapshot-1-20"]),
        ((*LOGS, SNAPSHOT), 25, ["snapshot-1-20", "log-21-30"]),
        ((SNAPSHOT, LOGS[2]), 30, ["snapshot-1-20", "log-21-30"]),
        ((*reversed(LOGS), SNAPSHOT, segment("snapshot", 1, 10)), 19, ["snapshot-1-10", "log-11-20"]),
        (
            (segment("log", 1, 15), segment("log", 16, 30), segment("snapshot", 1, 20)),
            21,
            ["snapshot-1-20", "log-16-30"],
        ),
    ],
)
def test_fold_of(segments: tuple[Segment, ...], position: int, files: list[str]) -> None:
    assert [each.file for each in manifest(*segments).fold_of(position)] == files


@pytest.mark.parametrize(
    ("segments", "position", "named"),
    [
        ((LOGS[0], LOGS[2]), 25, '"votes@1" lacks the log from 11 to 20'),
        ((LOGS[0], LOGS[2]), 15, '"votes@1" lacks the log from 11 to 15'),
        ((LOGS[1],), 12, '"votes@1" lacks the log from 1 to 10'),
        ((SNAPSHOT, LOGS[2]), 19, '"votes@1" lacks the log from 1 to 19'),
        ((LOGS[0], segment("snapshot", 1, 30)), 20, '"votes@1" lacks the log from 11 to 20'),
    ],
)
def test_a_gap_is_named(segments: tuple[Segment, ...], position: int, named: str) -> None:
    with pytest.raises(ArchiveGap, match=named):
        manifest(*segments).fold_of(position)


def test_a_position_that_is_not_archived_yet() -> None:
    with pytest.raises(NotArchivedYet, match='"votes" ends at 30, before 31'):
        manifest(*LOGS, shards=1).fold_of(31)


@pytest.mark.parametrize(
    ("segments", "begin", "gaps"),
    [
        ((), 0, []),
        (LOGS, 0, []),
        ((*LOGS, SNAPSHOT), 0, []),
        ((SNAPSHOT,), 20, []),
        ((SNAPSHOT, LOGS[2]), 20, []),
        ((LOGS[0], LOGS[2]), 0, [(11, 20)]),
        ((LOGS[1],), 0, [(1, 10)]),
        ((LOGS[0], segment("snapshot", 1, 30)), 0, [(11, 30)]),
    ],
)
def test_begin_and_gaps(segments: tuple[Segment, ...], begin: int, gaps: list[tuple[int, int]]) -> None:
    assert manifest(*segments).begin == begin
    assert manifest(*segments).gaps() == gaps


def test_every_position_from_begin_on_is_folded() -> None:
    for segments in (LOGS, (*LOGS, SNAPSHOT), (SNAPSHOT, LOGS[2])):
        one = manifest(*segments)
        for position in range(one.begin, one.position + 1):
            one.fold_of(position)


def test_a_time_is_the_position_that_was_archived_by_then() -> None:
    one = manifest(segment("log", 1, 10, "2026-01-01T00:00:00Z"), segment("log", 11, 20, "2026-01-01T00:01:00Z"))
    assert one.position_at("2025-12-31T00:00:00Z") == 0
    assert one.position_at("2026-01-01T00:00:59Z") == 10
    assert one.position_at("2026-01-01T00:01:00Z") == 20


def test_a_manifest_is_the_same_after_json() -> None:
    price = TableColumn("price", SqlType(Kind.DECIMAL, "DECIMAL(10,2)", 10, 2), default=Decimal("1.50"))
    icon = TableColumn("icon", SqlType(Kind.BLOB, "BLOB"), default=b"\xff", dropped=True)
    wider = replace(SCHEMA, columns=(*SCHEMA.columns, price, icon), indexes=((0,),), index_names=("by_story",))
    one = replace(manifest(*LOGS, SNAPSHOT), schemas=(SCHEMA, wider), auto_increment=7)
    assert manifest_from_json(manifest_to_json(one), "m") == one
    assert widening(SCHEMA, wider).constants == (Decimal("1.50"), b"\xff")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"position": 31},
        {"schemas": []},
        {"segments": [{"file": "x"}]},
        {"segments": 3},
    ],
)
def test_a_damaged_manifest_is_named(change: dict[str, Any]) -> None:
    document = manifest_to_json(manifest(*LOGS)) | change
    with pytest.raises(ManifestDamaged, match=r"manifest\.json"):
        manifest_from_json(document, "table=votes/shard=1/manifest.json")
    for nothing in (None, [], {}):
        with pytest.raises(ManifestDamaged, match=r"manifest\.json"):
            manifest_from_json(nothing, "table=votes/shard=1/manifest.json")


def test_places() -> None:
    assert shard_directory("a/b c", 3) == "table=a%2Fb%20c/shard=3"
    one = manifest()
    assert log_file(one, 1, 2, 5) == f"table=votes/shard=1/log-{1:020}-{2:020}-5-1f.parquet"
    assert log_file(one, 1, 2, 5) != log_file(replace(one, identity="2f"), 1, 2, 5)


def test_the_names_of_columns_never_meet() -> None:
    columns = ("_seq", "_WEIGHT", "a", "_dropped_2", "b")
    schema = TableSchema("t", tuple(TableColumn(name, BIGINT, dropped=name == "a") for name in columns))
    assert archived_names(schema) == ("_column_0", "_column_1", "_dropped_2", "_column_3", "b")


@pytest.mark.parametrize(
    ("type", "arrow"),
    [
        (BIGINT, "int64"),
        (SqlType(Kind.INTEGER, "BIGINT UNSIGNED", low=0, high=2**64 - 1), "uint64"),
        (SqlType(Kind.DECIMAL, "DECIMAL(10,2)", 10, 2), "decimal128(10, 2)"),
        (SqlType(Kind.DECIMAL, "DECIMAL(65,30)", scale=30), "decimal256(65, 30)"),
        (DATE, "date32"),
        (DATETIME, "timestamp[us]"),
    ],
)
def test_arrow_types(type: SqlType, arrow: str) -> None:
    assert arrow_type_of(type) == arrow


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (DATE, "0001-01-01"),
        (DATE, "9999-12-31"),
        (DATETIME, "0001-01-01 00:00:00"),
        (DATETIME, "2026-01-31 08:00:00"),
        (DATETIME, "9999-12-31 23:59:59.999999"),
        (DATETIME, "2026-01-31 08:00:00.000001"),
    ],
)
def test_moments_go_in_and_come_out(type: SqlType, text: str) -> None:
    archive, restore = archiver_of(type), restorer_of(type)
    assert archive is not None
    assert restore is not None
    assert restore(archive(text)) == text


@pytest.mark.parametrize("file", ["../other/log.parquet", "/etc/passwd", "table=votes/../../x", "table=votes//x", "."])
def test_a_manifest_names_no_file_outside_of_its_archive(file: str) -> None:
    document = manifest_to_json(manifest(*LOGS))
    document["segments"][0]["file"] = file
    with pytest.raises(ManifestDamaged, match="checksum"):
        manifest_from_json(document, "table=votes/shard=1/manifest.json")
    del document["checksum"]
    with pytest.raises(ManifestDamaged, match="outside"):
        manifest_from_json(sealed(document), "table=votes/shard=1/manifest.json")
