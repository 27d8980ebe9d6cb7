"""What a definition says of rows holds over shards, a restart, an archive, a back-up and a restore as of before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_client import calls

import headrace
from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_running
from headrace.embedding import Embedded
from headrace.errors import ConstraintViolation

SCHEMA = """
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, n INT, double_n INT AS (n * 2) STORED,
  label VARCHAR(20) AS (CONCAT('n', n)),
  seen DATETIME DEFAULT '2000-01-01' ON UPDATE CURRENT_TIMESTAMP, KEY (double_n),
  CONSTRAINT small CHECK (double_n < 100));
CREATE EXT VIEW by_double AS SELECT id, label FROM t WHERE double_n = ?
"""


def opened(path: Path, shards: int, archive: str | None) -> Embedded:
    return headrace.embedded(path, shards=shards, read_your_writes=True, archive=archive, archive_interval=3600)


@pytest.fixture(params=[1, 3], ids=["one", "sharded"])
def shards(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def db(tmp_path: Path, shards: int) -> Iterator[Embedded]:
    made = opened(tmp_path / "data", shards, str(tmp_path / "archive"))
    yield made
    made.close()


def moment() -> str:
    """Of now, as ``as_of`` takes it, with a moment around it in which nothing happens."""
    time.sleep(0.01)
    now = time.time()
    time.sleep(0.01)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"


def rows(db: Embedded, sql: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in db.execute(sql).rows)


def check_rules(db: Embedded) -> None:
    db.execute("INSERT INTO t (id, n) VALUES (50, 7)")
    assert rows(db, "SELECT double_n, label, seen > '2020-01-01' FROM t WHERE id = 50") == [(14, "n7", 0)]
    db.execute("UPDATE t SET n = 8 WHERE id = 50")
    assert rows(db, "SELECT double_n, label, seen > '2020-01-01' FROM t WHERE id = 50") == [(16, "n8", 1)]
    assert [dict(row) for row in db.view("by_double").lookup(double_n=16)] == [{"id": 50, "label": "n8"}]
    for write in ("INSERT INTO t (id, n) VALUES (51, 50)", "UPDATE t SET n = 50 WHERE id = 50"):
        with pytest.raises(ConstraintViolation, match='check "small" of table "t" does not hold'):
            db.execute(write)
    db.execute("DELETE FROM t WHERE id = 50")


def test_computed_columns_and_checks(db: Embedded, tmp_path: Path, shards: int) -> None:
    db.execute(SCHEMA)
    db.execute("INSERT INTO t (id, n) VALUES (1, 10), (2, NULL), (3, 30), (4, -5)")
    check_rules(db)
    db.send(calls.archive())
    kept = rows(db, "SELECT * FROM t")
    then = moment()
    db.execute("UPDATE t SET n = 1")
    db.execute("DELETE FROM t WHERE id = 3")
    back_up_running(db, str(tmp_path / "backup"))
    now = rows(db, "SELECT * FROM t")
    for number, (as_of, expected) in enumerate(((then, kept), (None, now))):
        restore(str(tmp_path / "backup"), tmp_path / f"restored{number}", as_of=as_of)
        for _ in range(2):  # The second time out of its own store.
            with opened(tmp_path / f"restored{number}", shards, None) as again:
                assert rows(again, "SELECT * FROM t") == expected
                check_rules(again)
