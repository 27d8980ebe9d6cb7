"""docs/archive.md: what it shows of DuckDB, pandas and Spark reads a table as it was."""

from __future__ import annotations

import datetime
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from serving_process import ROOT

import headrace
from headrace.cli import app
from headrace.client import calls
from headrace.embedding import Embedded
from headrace.settings import Settings
from worker.archive.compacting import compact_now
from worker.archive.manifests import load_manifest
from worker.archive.place import Place

TEXT = (ROOT / "docs" / "archive.md").read_text()
WRITES = (
    "INSERT INTO t (id, name, price, at, share)"
    " VALUES (1, 'a', 1.50, '2026-01-31 08:00:00', 0.25), (2, NULL, NULL, NULL, NULL)",
    "UPDATE t SET name = 'b' WHERE id = 1",
    "INSERT INTO t (id, name) VALUES (3, 'ÿ€')",
    "DELETE FROM t WHERE id = 2",
    "UPDATE t SET price = price + 1, at = '9999-12-31 23:59:59.999999' WHERE id = 1",
    "INSERT INTO t (id, name) VALUES (2, 'again')",
)


def shown() -> dict[str, Any]:
    """The functions that the page defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.S):
        exec(compile(block, "docs/archive.md", "exec"), names)
    return names


def plain(value: Any) -> Any:
    """A value as the server answers it in JSON."""
    if isinstance(value, datetime.datetime):
        return str(value)
    if isinstance(value, Decimal):
        return str(value)
    return None if value is None or value != value else value


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Embedded]:
    with headrace.embedded(tmp_path / "data", archive=str(tmp_path / "archive"), archive_interval=3600) as opened:
        opened.execute(
            "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20), price DECIMAL(8, 2), at DATETIME(6),"
            " share DOUBLE)"
        )
        yield opened


def rows_of(db: Embedded) -> Counter[tuple[Any, ...]]:
    token = db.token
    found = db.execute("SELECT id, name, price, at, share FROM t", token=token).rows
    return Counter(tuple(plain(value) for value in row) for row in found)


def test_duckdb_and_pandas_read_the_table_as_it_was(db: Embedded, tmp_path: Path) -> None:
    root, names = str(tmp_path / "archive"), shown()
    states: list[Counter[tuple[Any, ...]]] = [Counter()]
    for number, write in enumerate(WRITES):
        db.execute(write)
        states.append(rows_of(db))
        if number % 2:
            db.send(calls.archive())

    def check(begin: int) -> None:
        for position in range(begin, len(states)):
            by_duckdb = names["with_duckdb"](root, "t", position).fetchall()
            assert Counter({tuple(map(plain, row[:-1])): row[-1] for row in by_duckdb}) == states[position], position
            frame = names["with_pandas"](root, "t", position)
            by_pandas = frame.astype(object).where(frame.notna(), None).itertuples(index=False)
            assert Counter({tuple(map(plain, row[:-1])): row[-1] for row in by_pandas}) == states[position], position

    check(1)
    place = Place(root)
    manifest = load_manifest(place, "t", 0)
    assert manifest is not None
    compact_now(place, manifest, manifest.segments[1].closed)
    check(4)
    last = {tuple(map(plain, row[:-1])) for row in names["with_duckdb"](root, "t").fetchall()}
    assert last == set(states[-1]), "without a position it is the last"


@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")
def test_spark_reads_the_table_as_it_was(db: Embedded, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    from migrations.backfill.spark.session import JAVA_OPTIONS

    states: list[Counter[tuple[Any, ...]]] = [Counter()]
    for number, write in enumerate(WRITES):
        db.execute(write)
        states.append(rows_of(db))
        if number % 2:
            db.send(calls.archive())
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", JAVA_OPTIONS)
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    try:
        for position in (3, len(WRITES)):
            found = shown()["with_spark"](spark, str(tmp_path / "archive"), "t", position).collect()
            assert Counter({tuple(map(plain, row[:-1])): row[-1] for row in found}) == states[position], position
    finally:
        spark.stop()


def test_settings_and_commands_are_those_that_there_are() -> None:
    for name in re.findall(r"`(archive\w*)`", TEXT):
        assert name in Settings.model_fields or name == "archive", name
    commands = {each.name or getattr(each.callback, "__name__", "") for each in app.registered_commands}
    groups = {each.name for each in app.registered_groups}
    for name in re.findall(r"^headrace (\w+)", TEXT, re.M):
        assert name in commands | groups, name
