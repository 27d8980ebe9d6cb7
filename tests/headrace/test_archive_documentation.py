"""docs/archive.md: what it shows of DuckDB, pandas and Spark reads a table as it was."""

from __future__ import annotations

import base64
import datetime
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
from headrace_client import calls
from serving_process import ROOT

import headrace
from headrace.cli import app
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
    "ALTER TABLE t DROP COLUMN share, ADD COLUMN hits INT NOT NULL DEFAULT 7, ADD COLUMN day DATE DEFAULT '2026-01-31',"
    " ADD COLUMN fee DECIMAL(6, 2) DEFAULT 1.5, ADD COLUMN note TEXT, ADD COLUMN raw BLOB DEFAULT 'ä\\\\x',"
    " ADD COLUMN seen DATETIME(6) DEFAULT '2026-01-31 08:00:00.000001', ADD COLUMN part DOUBLE DEFAULT -0.25",
    "UPDATE t SET price = price + 1, at = '9999-12-31 23:59:59.999999' WHERE id = 1",
    "INSERT INTO t (id, name) VALUES (2, 'again')",
    "DELETE FROM t WHERE id = 3",
)
"""Each is a position, but for the ALTER TABLE: what stands before it is retracted after it with its defaults."""

Rows = Counter[tuple[Any, ...]]


def shown() -> dict[str, Any]:
    """The functions that the page defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.S):
        exec(compile(block, "docs/archive.md", "exec"), names)
    return names


def plain(value: Any) -> Any:
    """A value as the server answers it in JSON."""
    if isinstance(value, datetime.date | Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return None if value is None or value != value else value


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Embedded]:
    with headrace.embedded(tmp_path / "data", archive=str(tmp_path / "archive"), archive_interval=3600) as opened:
        opened.execute(
            "CREATE TABLE t (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(20), price DECIMAL(8, 2), at DATETIME(6),"
            " share DOUBLE)"
        )
        yield opened


def written(db: Embedded) -> list[Rows]:
    """The table's rows at each position, all of which are archived."""
    states: list[Rows] = [Counter()]
    for write in WRITES:
        db.execute(write)
        if not write.startswith("ALTER"):
            found = db.execute("SELECT * FROM t", token=db.token).rows
            states.append(Counter(tuple(plain(value) for value in row) for row in found))
            if len(states) % 2:
                db.send(calls.archive())
    db.send(calls.archive())
    return states


def live(columns: Iterable[str], rows: Iterable[Any]) -> Rows:
    """Rows, the last value of which is how often they are there, without what was dropped."""
    there = [not name.startswith("_dropped_") for name in columns][:-1]
    return Counter({tuple(map(plain, compress(row[:-1], there))): row[-1] for row in rows})


def test_duckdb_and_pandas_read_the_table_as_it_was(db: Embedded, tmp_path: Path) -> None:
    root, names = str(tmp_path / "archive"), shown()
    states = written(db)

    def check(begin: int) -> None:
        for position in range(begin, len(states)):
            by_duckdb = names["with_duckdb"](root, "t", position)
            assert live(by_duckdb.columns, by_duckdb.fetchall()) == states[position], position
            frame = names["with_pandas"](root, "t", position)
            by_pandas = frame.astype(object).where(frame.notna(), None).itertuples(index=False)
            assert live(frame.columns, by_pandas) == states[position], position

    check(1)
    place = Place(root)
    manifest = load_manifest(place, "t", 0)
    assert manifest is not None
    compact_now(place, manifest, manifest.segments[1].closed)
    check(4)
    last = names["with_duckdb"](root, "t")
    assert live(last.columns, last.fetchall()) == states[-1], "without a position it is the last"
    for position in (3, len(states)):
        with pytest.raises(LookupError, match=f"t, shard 0.*{position}"):
            names["with_duckdb"](root, "t", position)


def test_a_table_without_rows_says_so(db: Embedded, tmp_path: Path) -> None:
    db.send(calls.archive())
    for read in ("with_duckdb", "with_pandas"):
        with pytest.raises(LookupError, match="there is nothing at position 0"):
            shown()[read](str(tmp_path / "archive"), "t")
    db.execute("INSERT INTO t (id) VALUES (1)")
    db.execute("DELETE FROM t")
    db.send(calls.archive())
    assert shown()["with_duckdb"](str(tmp_path / "archive"), "t").fetchall() == []
    assert shown()["with_pandas"](str(tmp_path / "archive"), "t").empty


def test_a_table_of_several_shards_is_the_union_of_them(tmp_path: Path) -> None:
    root, names = str(tmp_path / "archive"), shown()
    with headrace.embedded(tmp_path / "data", shards=3, archive=root, archive_interval=3600) as db:
        db.execute("CREATE TABLE bag (n INT, name TEXT)")
        db.table("bag").insert([{"n": n % 5, "name": None} for n in range(40)])
        db.table("bag").delete({"n": 2})
        db.send(calls.archive())
    found: Rows = Counter()
    for shard in range(3):
        rows = names["with_duckdb"](root, "bag", shard=shard)
        found += live(rows.columns, rows.fetchall())
    assert found == {(n, None): 8 for n in (0, 1, 3, 4)}


@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")
def test_spark_reads_the_table_as_it_was(db: Embedded, tmp_path: Path, spark: Any) -> None:
    states = written(db)
    for position in (3, len(states) - 1):
        found = shown()["with_spark"](spark, str(tmp_path / "archive"), "t", position)
        assert live(found.columns, found.collect()) == states[position], position


def test_settings_and_commands_are_those_that_there_are() -> None:
    for name in re.findall(r"`(archive\w*)`", TEXT):
        assert name in Settings.model_fields or name == "archive", name
    commands = {each.name or getattr(each.callback, "__name__", "") for each in app.registered_commands}
    groups = {each.name for each in app.registered_groups}
    for name in re.findall(r"^headrace (\w+)", TEXT, re.M):
        assert name in commands | groups, name
