"""SELECTs over many rows that Spark answers over the archive are those that the server answers by itself."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from controller.embedded.local import LocalDeployment
from controller.statements.evaluating import SparkSelects
from controller.statements.shapes import AdHocMode
from domains.errors import HeadraceError, LimitExceeded, ReadTimeout
from migrations.backfill.spark import small_jobs
from migrations.backfill.spark.launching import ROWS, SparkFailed
from migrations.backfill.spark.reporting import Reporter
from worker.adhoc.pool import Budget
from worker.archive.options import ArchiveOptions

TABLES = """
CREATE TABLE former (id INT PRIMARY KEY, name TEXT);
INSERT INTO former VALUES (1, 'gone');
DROP TABLE former;
CREATE TABLE former (id INT PRIMARY KEY, name VARCHAR(20), born DATE, picture BLOB, wide TEXT);
CREATE TABLE sales (person INT, price DECIMAL(12,2), at DATETIME, KEY (person))
"""
ROWS_MADE = 60
MOST = 20

SELECTS = [
    "SELECT COUNT(*) FROM sales",
    "SELECT COUNT(*) AS n, SUM(price) AS total, AVG(price), MIN(at) FROM sales WHERE price > 3.5",
    "SELECT name, born, picture FROM former WHERE id > 7 ORDER BY born DESC, name LIMIT 9 OFFSET 2",
    "SELECT person, price FROM sales ORDER BY price, person",
    "SELECT DISTINCT person FROM sales WHERE at > '2024-01-05'",
    "SELECT name, COUNT(*), MAX(price) FROM former JOIN sales ON person = id GROUP BY name HAVING COUNT(*) > 1",
    "SELECT id FROM former WHERE id NOT IN (SELECT person FROM sales WHERE price > 8) UNION SELECT person FROM sales",
    "SELECT a.id, b.id FROM former a JOIN former b ON a.born = b.born WHERE a.id < b.id ORDER BY 1 DESC, 2 LIMIT 4",
]


class SessionJob:
    """What the child does, in a thread, in the session of all tests."""

    def __init__(self, out: io.StringIO, done: Future[int]) -> None:
        self._out, self._done = out, done
        self.rows: list[tuple[Any, ...]] = []

    def result(self) -> int | None:
        if not self._done.done():
            return None
        lines = map(json.loads, self._out.getvalue().splitlines())
        self.rows = [tuple(row) for line in lines for row in line.get(ROWS, ())]
        return self._done.result()

    def cancel(self) -> None:
        self._done.cancel()


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.adhoc.cut.FEW_ROWS", 10)


@pytest.fixture
def begun() -> list[str]:
    """The texts that jobs were begun for."""
    return []


@pytest.fixture
def start(spark: SparkSession, begun: list[str]) -> Any:
    with ThreadPoolExecutor(1) as thread:

        def start(what: dict[str, Any]) -> SessionJob:
            begun.append(what["text"])
            out = io.StringIO()
            what = json.loads(json.dumps(what))
            return SessionJob(out, thread.submit(small_jobs.select, spark, what, Reporter(out)))

        yield start


async def opened(path: Path, shards: int, budget: Budget | None = None) -> LocalDeployment:
    deployment = await LocalDeployment.open(
        path / "data",
        shards=shards,
        ad_hoc=AdHocMode.ANSWER,
        archive=ArchiveOptions(str(path / "archive")),
        budget=budget or Budget(),
    )
    await deployment.execute(TABLES)
    dice = random.Random(1)
    people = ", ".join(
        f"({i}, 'p{i % 40}', '2001-02-{1 + i % 9:02}', x'0{i % 10}ff', '{'w' * 200}')" for i in range(ROWS_MADE)
    )
    sales = ", ".join(
        f"({dice.randrange(ROWS_MADE)}, {dice.randrange(1000) / 100}, '2024-01-{1 + dice.randrange(9):02} 10:00:00')"
        for _ in range(ROWS_MADE)
    )
    await deployment.execute(f"INSERT INTO former VALUES {people}; INSERT INTO sales VALUES {sales}, {sales}")
    return deployment


@pytest.mark.parametrize("shards", [1, 2])
async def test_spark_answers_what_reads_more_rows_than_the_threshold(
    start: Callable[..., Any], begun: list[str], tmp_path: Path, shards: int
) -> None:
    deployment = await opened(tmp_path, shards)
    try:
        for select in SELECTS:
            deployment.selects.by_spark = None
            (here,), _ = await deployment.execute(select)
            begun.clear()
            deployment.selects.by_spark = SparkSelects(start, MOST)
            (there,), clock = await deployment.execute(select)
            assert begun, select
            assert there.columns == here.columns
            in_order: Callable[..., Any] = tuple if "ORDER BY" in select else sorted
            assert in_order(there.rows) == in_order(here.rows), select
            assert clock, "the positions are the answer's"
        await deployment.execute("INSERT INTO sales VALUES (1, 500, '2030-01-01')")
        (newest,), _ = await deployment.execute("SELECT MAX(price) FROM sales")
        assert newest.rows == (("500.00",),)
    finally:
        await deployment.close()


async def test_few_rows_and_what_spark_cannot_say_are_answered_here(
    start: Callable[..., Any], begun: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deployment = await opened(tmp_path, 1)
    try:
        deployment.selects.by_spark = SparkSelects(start, MOST)
        (few,), _ = await deployment.execute("SELECT name FROM former WHERE id = 7")
        (unsaid,), _ = await deployment.execute("SELECT COUNT(*) FROM former WHERE LPAD(name, 5, 'x') <> 'xxxp1'")
        assert (few.rows, unsaid.rows) == ((("p7",),), ((58,),))
        assert not begun
        assert "not answered by Spark" in caplog.text

        def fails(what: dict[str, Any]) -> Any:
            raise SparkFailed("the cluster is away")

        deployment.selects.by_spark = SparkSelects(fails, MOST)
        (count,), _ = await deployment.execute("SELECT COUNT(*) FROM former")
        assert count.rows == ((ROWS_MADE,),)
        assert "the cluster is away" in caplog.text
    finally:
        await deployment.close()


async def test_an_answer_of_sparks_has_the_limits_of_any_other(start: Callable[..., Any], tmp_path: Path) -> None:
    deployment = await opened(tmp_path, 1, Budget(rows=30))
    try:
        deployment.selects.by_spark = SparkSelects(start, MOST)
        with pytest.raises(HeadraceError) as raised:
            await deployment.execute("SELECT id, name FROM former")
        assert isinstance(raised.value, LimitExceeded)
    finally:
        await deployment.close()


async def test_a_statement_that_is_stopped_ends_its_job(tmp_path: Path) -> None:
    class Endless:
        def __init__(self) -> None:
            self.rows: list[tuple[Any, ...]] = []
            self.cancelled = 0

        def result(self) -> None:
            return None

        def cancel(self) -> None:
            self.cancelled += 1

    job = Endless()
    deployment = await opened(tmp_path, 1, Budget(seconds=3))
    try:
        deployment.selects.by_spark = SparkSelects(lambda _: job, MOST)
        with pytest.raises(ReadTimeout, match="was stopped after"):
            await deployment.execute("SELECT COUNT(*) FROM former")
        assert job.cancelled == 1
    finally:
        await deployment.close()
