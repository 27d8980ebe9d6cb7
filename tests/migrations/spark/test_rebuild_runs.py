"""A shard out of Spark's runs is byte for byte the one that a worker folds by itself, with the same tail."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from headrace_client.calls import Call
from pyspark.sql import SparkSession

import headrace
from domains.language.types import TableSchema
from migrations.backfill.spark.rebuild import run
from migrations.backfill.spark.reporting import Reporter
from worker.archive.lost_shard import archived_shard, rebuild_shard
from worker.archive.manifests import all_manifests
from worker.archive.place import Place
from worker.embedded import shard_directory
from worker.protocol.operations import RebuildShard, RebuiltTable
from worker.rocks.layout import ROWS, table_prefix
from worker.rocks.store import RocksStore

SHARD, SHARDS, DECIDED, UNARCHIVED = 1, 2, 9, 5
NUMBER_BYTES = 8

PROGRAM = """
CREATE TABLE items (
  id BIGINT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(40), price DECIMAL(30, 8), day DATE, made DATETIME, share DOUBLE,
  picture BLOB, big BIGINT UNSIGNED, KEY (name)
);
CREATE TABLE log (line TEXT, n DOUBLE);
CREATE TABLE empty (id INT PRIMARY KEY)
"""


def written(path: Path) -> str:
    """An archive of rows of all types, altered and retracted, with the extremes of each; its URL."""
    rows: list[dict[str, Any]] = [
        {"name": None, "price": "-9999999999999999999999.99999999", "day": "0001-01-01", "made": "0001-01-01 00:00:00"},
        {"name": "", "price": "0.00000001", "day": "9999-12-31", "made": "9999-12-31 23:59:59.999999", "share": -0.0},
        {"name": "é\U0001f600\0", "price": "0", "day": "1582-10-10", "made": "1582-10-10 12:00:00.1", "share": 5e-324},
        {"name": "E\u0301", "day": "1900-02-28", "made": "1969-12-31 23:59:59.5", "share": 1.7976931348623157e308},
    ]
    with headrace.embedded(path / "data", archive=str(path / "archive"), shards=SHARDS) as db:
        db.migrate(PROGRAM).wait()
        items, log = db.table("items"), db.table("log")
        for share in range(4):
            items.insert([{**row, "big": 2**64 - 1 - share} for row in rows])
        log.insert([{"line": f"a\0{i % 5}", "n": i % 3 - 0.5} for i in range(60)] + [{"line": None, "n": None}] * 7)
        db.execute("UPDATE items SET name = 'told' WHERE id > 12")
        db.send(Call("POST", "/v1/archive", dict))
        db.migrate("ALTER TABLE log ADD COLUMN kind VARCHAR(10) DEFAULT 'plain'").wait()
        db.execute("DELETE FROM items WHERE id = 6")
        db.execute("DELETE FROM log WHERE line = ?", ["a\0003"])
        log.insert([{"line": f"b{i}", "n": 0.1 + i, "kind": None if i % 2 else "odd"} for i in range(20)])
        db.send(Call("POST", "/v1/archive", dict))
    return str(path / "archive")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="module")
def runs(archive: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The archive's shard as Spark folds and sorts it."""
    out = str(tmp_path_factory.mktemp("runs"))
    shards = [[each.table, each.shard, each.position] for each in manifests(archive)]
    run(spark, {"archive": archive, "out": out, "shards": [each for each in shards if each[2]]}, Reporter(StringIO()))
    return out


def manifests(url: str) -> list[Any]:
    return [each for each in all_manifests(Place(url)) if each.shard == SHARD]


def asked(archive: str, runs: str = "") -> RebuildShard:
    """Of each table there were some writes more."""
    known = {base: at + UNARCHIVED for base, at in archived_shard(Place(archive), SHARD).positions.items()}
    tables: tuple[TableSchema, ...] = tuple(each.schemas[-1] for each in manifests(archive))
    return RebuildShard(12, SHARD, SHARDS, DECIDED, tables, known, runs)


def contents(data: Path) -> Counter[tuple[bytes, bytes]]:
    """All keys and values of the shard's RocksDB. A row of a table without a key has a number of its own at its end, in
    the order in which the table was filled: that is left out."""
    store = RocksStore(shard_directory(data, SHARD) / "base", create=False)
    try:
        bag = table_prefix(ROWS, store.table("log").number)
        items = store._database.items(b"", b"\xff" * 8)
        return Counter((key[:-NUMBER_BYTES] if key.startswith(bag) else key, value) for key, value in items)
    finally:
        store.close()


def told(tables: tuple[RebuiltTable, ...]) -> list[tuple[str, int, int, int, int]]:
    return [(each.base, each.position, each.rows, each.known, each.lost) for each in tables]


def test_both_ways_come_to_the_same_bytes_and_name_the_same_tail(archive: str, runs: str, tmp_path: Path) -> None:
    copied = str(tmp_path / "archive")
    shutil.copytree(archive, copied)
    rows: list[int] = []
    by_spark = rebuild_shard(tmp_path / "spark", copied, asked(copied, runs), rows.append).tables
    by_worker = rebuild_shard(tmp_path / "worker", copied, asked(copied)).tables
    assert told(by_spark) == told(by_worker)
    assert sum(rows) == sum(each.rows for each in by_spark) > 40
    assert {each.lost for each in by_spark} == {UNARCHIVED}
    assert {each.base for each in by_spark if each.run} == {each.base for each in by_spark if each.position}
    assert not any(each.run for each in by_worker)
    assert contents(tmp_path / "spark") == contents(tmp_path / "worker")


@pytest.mark.parametrize("what", ["gone", "cut", "of a former position"])
def test_runs_that_do_not_count_are_not_loaded(archive: str, runs: str, tmp_path: Path, what: str) -> None:
    copied, mine = str(tmp_path / "archive"), tmp_path / "runs"
    shutil.copytree(archive, copied)
    shutil.copytree(runs, mine)
    if what == "gone":
        shutil.rmtree(mine)
    elif what == "cut":
        for file in mine.glob("table=log/*/*.parquet"):
            file.write_bytes(file.read_bytes()[:-100])
    else:
        for file in mine.glob("*/*/manifest.json"):
            _set_back(file)
    by_worker = rebuild_shard(tmp_path / "worker", copied, asked(copied)).tables
    found = rebuild_shard(tmp_path / "spark", copied, asked(copied, str(mine))).tables
    assert found == by_worker
    assert contents(tmp_path / "spark") == contents(tmp_path / "worker")


def _set_back(file: Path) -> None:
    document = json.loads(file.read_text())
    document["position"] -= 1
    for segment in document["segments"]:
        segment["last"] -= 1
    file.write_text(json.dumps(document))
