"""Migrations whose full part is computed in bulk, in one process: chosen, carried out, cancelled, failed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from controller.access.session import OPEN, Caller
from controller.deployment import MigrationStatus, RequestMoment
from controller.embedded.local import LocalDeployment
from controller.migrating.bulk.job_files import STAGING
from controller.migrating.bulk.local_runner import LocalRun, LocalRunner
from domains.errors import Cancelled, HeadraceError, Unavailable
from domains.language.types import TableSchema
from migrations.backfill.job import BulkJob
from migrations.backfill.runner import BulkFailed, BulkRunner
from migrations.backfill.spark.launching import NICENESS
from migrations.backfill.spark.runner import SparkRunner
from migrations.backfill.spark.settings import SparkSettings
from worker.archive.options import ArchiveOptions

TABLES = """
CREATE TABLE stories (id BIGINT PRIMARY KEY, title TEXT, price DECIMAL(20, 2));
CREATE TABLE votes (user_id BIGINT, story_id BIGINT);
"""
RANKING = """
CREATE EXT VIEW ranking AS
SELECT title, COUNT(*) AS votes, MAX(user_id) AS last, SUM(price) AS paid
FROM stories JOIN votes ON stories.id = votes.story_id GROUP BY title;
CREATE EXT VIEW busiest AS SELECT story_id, COUNT(DISTINCT user_id) AS users FROM votes GROUP BY story_id
ORDER BY users DESC, story_id LIMIT 3
"""


class Watched(LocalRunner):
    """Keeps its runs, and calls ``begun`` as one begins."""

    def __init__(self) -> None:
        self.runs: list[LocalRun] = []

    def start(self, job: BulkJob) -> LocalRun:
        self.runs.append(super().start(job))
        return self.runs[-1]


async def opened(path: Path, *runners: BulkRunner, **options: Any) -> LocalDeployment:
    return await LocalDeployment.open(
        path / "data", archive=ArchiveOptions(str(path / "archive")), runners=runners, spark_threshold=50, **options
    )


@pytest.fixture(params=[{}, {"shards": 3}, {"domains": 3, "shards": 2}], ids=["one", "shards", "groups"])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    deployment = await opened(tmp_path, Watched(), **request.param)
    await fill(deployment)
    yield deployment
    await deployment.close()


async def fill(deployment: LocalDeployment) -> None:
    await deployment.execute(TABLES)
    for story in range(20):
        await deployment.execute(f"INSERT INTO stories VALUES ({story}, 'title {story % 7}', {story}.25)")
    await deployment.execute("INSERT INTO votes VALUES " + ", ".join(f"({n}, {n % 19})" for n in range(400)))


async def write_on(deployment: LocalDeployment, until: asyncio.Event) -> int:
    """Writes of all kinds, as long as the migration goes on."""
    number = 0
    while not until.is_set():
        number += 1
        await deployment.execute(f"INSERT INTO votes VALUES ({1000 + number}, {number % 19})")
        await deployment.execute(f"DELETE FROM votes WHERE user_id = {number} AND story_id = {number % 19}")
        await deployment.execute(f"UPDATE stories SET title = 'title {number % 5}' WHERE id = {number % 20}")
    return number


async def ended(deployment: LocalDeployment, id: str) -> MigrationStatus:
    async with asyncio.timeout(60):
        while (status := await deployment.migration(id)).state in ("queued", "running"):
            await asyncio.sleep(0.02)
    return status


async def answer(deployment: LocalDeployment, sql: str) -> list[Any]:
    results, _ = await deployment.execute(sql)
    return sorted(results[-1].rows)


async def check_ranking(deployment: LocalDeployment) -> None:
    """What the views hold is what is computed anew from the rows."""
    rows = {table: await answer(deployment, f"SELECT * FROM {table}") for table in ("stories", "votes")}
    titles = {story: title for story, title, _ in rows["stories"]}
    counts: dict[str, list[int]] = {}
    for user, story in rows["votes"]:
        if story in titles:
            counts.setdefault(titles[story], []).append(user)
    page = json.loads(b"[" + await deployment.page("ranking", {}) + b"]")
    assert {row["title"]: (row["votes"], row["last"]) for row in page} == {
        title: (len(users), max(users)) for title, users in counts.items()
    }


async def test_writes_during_a_bulk_migration_count_once(deployment: LocalDeployment) -> None:
    done = asyncio.Event()
    writer = asyncio.create_task(write_on(deployment, done))
    status = await ended(deployment, (await deployment.migrate(RANKING)).id)
    done.set()
    written = await writer
    assert status.error is None
    assert status.backfill is not None
    assert (status.backfill.way, status.backfill.stages_done) == ("local", status.backfill.stages)
    assert "more than the threshold of 50" in status.backfill.why
    assert status.backfill.rows == status.backfill.rows_total > 400
    assert status.progress == 1.0
    assert written > 0
    await check_ranking(deployment)
    await write_on_for(deployment, 5)
    await check_ranking(deployment)
    assert deployment.archiver is not None
    assert deployment.archiver.status()["holds"] == {}
    assert os.listdir(Path(deployment.archiver.options.url) / STAGING) == []


async def test_a_column_that_nothing_was_archived_with_has_its_default(deployment: LocalDeployment) -> None:
    assert deployment.archiver is not None
    await asyncio.wrap_future(deployment.archiver.archive_now())
    await deployment.execute("ALTER TABLE votes ADD COLUMN kind VARCHAR(10) DEFAULT 'up'")
    sql = "CREATE EXT VIEW kinds AS SELECT kind, COUNT(*) AS n FROM votes GROUP BY kind ORDER BY n DESC LIMIT 3"
    status = await ended(deployment, (await deployment.migrate(sql)).id)
    assert status.error is None
    assert status.backfill is not None
    assert status.backfill.way == "local"
    assert json.loads(b"[" + await deployment.page("kinds", {}) + b"]") == [{"kind": "up", "n": 400}]


async def write_on_for(deployment: LocalDeployment, times: int) -> None:
    for number in range(times):
        await deployment.execute(f"INSERT INTO votes VALUES ({5000 + number}, {number})")


async def test_below_the_threshold_it_is_fed_in_slices(tmp_path: Path) -> None:
    deployment = await opened(tmp_path, Watched())
    try:
        await deployment.execute(TABLES)
        await deployment.execute("INSERT INTO votes VALUES (1, 2)")
        status = await ended(deployment, (await deployment.migrate(RANKING)).id)
        assert status.backfill is not None
        assert status.backfill.way == "slices"
        assert "not more than the threshold of 50" in status.backfill.why
        assert status.backfill.rows == 1
    finally:
        await deployment.close()


async def test_a_view_over_state_that_runs_is_fed_in_slices(deployment: LocalDeployment) -> None:
    await ended(deployment, (await deployment.migrate(RANKING)).id)
    status = await ended(
        deployment,
        (await deployment.migrate("CREATE EXT VIEW top AS SELECT title, votes FROM ranking ORDER BY votes LIMIT 2")).id,
    )
    assert status.error is None
    assert status.backfill is not None
    assert status.backfill.way == "slices"
    assert "has state already" in status.backfill.why


async def test_a_partial_view_has_nothing_to_backfill(deployment: LocalDeployment) -> None:
    sql = "CREATE VIEW by_story AS SELECT story_id, COUNT(*) AS n FROM votes WHERE story_id = ? GROUP BY story_id"
    status = await ended(deployment, (await deployment.migrate(sql)).id)
    assert status.state == "done"
    assert status.backfill is None


# --- what goes wrong ------------------------------------------------------------------------------------------------


class Stalled(Watched):
    """Its child is stopped as it begins, so that there is time to do something to it."""

    def start(self, job: BulkJob) -> LocalRun:
        run = super().start(job)
        os.kill(run.process.pid, signal.SIGSTOP)
        return run


async def begun(deployment: LocalDeployment, runner: Watched) -> str:
    id = (await deployment.migrate(RANKING)).id
    async with asyncio.timeout(60):
        while not runner.runs:
            await asyncio.sleep(0.02)
    return id


async def check_nothing_happened(deployment: LocalDeployment) -> None:
    assert "ranking" not in deployment.state.flow.readers
    assert deployment.archiver is not None
    assert deployment.archiver.status()["holds"] == {}
    assert all(domain.backfill is None for domain in deployment.dataflow.domains.values())
    assert len(await answer(deployment, "SELECT * FROM votes WHERE story_id = 3")) == 21
    status = await ended(deployment, (await deployment.migrate(RANKING)).id)
    assert status.state == "done"
    await check_ranking(deployment)


async def test_cancelling_stops_the_job_and_leaves_the_old_graph(tmp_path: Path) -> None:
    runner = Stalled()
    deployment = await opened(tmp_path, runner)
    try:
        await fill(deployment)
        id = await begun(deployment, runner)
        os.kill(runner.runs[0].process.pid, signal.SIGCONT)
        await deployment.cancel_migration(id)
        status = await ended(deployment, id)
        assert status.state == "cancelled"
        assert status.error is not None
        assert status.error[0] == Cancelled.code
        assert runner.runs[0].process.poll() is not None
        deployment.migrator.builder.runners = [Watched()]  # type: ignore[union-attr]
        await check_nothing_happened(deployment)
    finally:
        await deployment.close()


async def test_rows_that_nobody_tells_of_may_be_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that did not answer counted as one without rows: millions of them were fed in slices."""
    deployment = await opened(tmp_path, Watched(), domains=3)
    try:
        await fill(deployment)
        deployment.migrator.threshold = 10**6

        async def nothing(domain: int) -> dict[str, int]:
            del domain
            return {}

        monkeypatch.setattr(deployment.migrator._executor, "table_rows", nothing)
        status = await ended(deployment, (await deployment.migrate(RANKING.split(";")[0])).id)
        assert status.backfill is not None
        assert (status.state, status.backfill.way) == ("done", "local"), status
        assert "does not tell how many base rows it has" in status.backfill.why
    finally:
        await deployment.close()


async def test_a_job_that_dies_fails_the_migration_and_leaves_the_old_graph(tmp_path: Path) -> None:
    runner = Stalled()
    deployment = await opened(tmp_path, runner)
    try:
        await fill(deployment)
        id = await begun(deployment, runner)
        os.kill(runner.runs[0].process.pid, signal.SIGKILL)
        status = await ended(deployment, id)
        assert status.state == "failed"
        assert status.error is not None
        assert status.error[0] == BulkFailed.code
        assert "was killed by SIGKILL" in status.error[1]
        deployment.migrator.builder.runners = [Watched()]  # type: ignore[union-attr]
        await check_nothing_happened(deployment)
    finally:
        await deployment.close()


async def test_a_damaged_segment_fails_the_migration_by_name(deployment: LocalDeployment) -> None:
    assert deployment.archiver is not None
    await asyncio.wrap_future(deployment.archiver.archive_now())
    (segment, *_) = sorted(Path(deployment.archiver.options.url).glob("table=votes/**/log-*.parquet"))
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    segment.write_bytes(damaged)
    status = await ended(deployment, (await deployment.migrate(RANKING)).id)
    assert status.state == "failed"
    assert status.error is not None
    assert status.error[0] == "segment_corrupt"
    assert segment.name in status.error[1]


class Absent(LocalRunner):
    name = "spark"

    def check(self, tables: Sequence[TableSchema]) -> None:
        raise Unavailable("there is no Java", hint="install it")


async def test_without_a_runner_that_can_begin_it_is_fed_in_slices(tmp_path: Path) -> None:
    deployment = await opened(tmp_path, Absent())
    try:
        await fill(deployment)
        status = await ended(deployment, (await deployment.migrate(RANKING)).id)
        assert status.backfill is not None
        assert (status.state, status.backfill.way) == ("done", "slices")
        assert "there is no Java (install it)" in status.backfill.why
        await check_ranking(deployment)
    finally:
        await deployment.close()


async def test_another_runner_does_what_the_first_cannot_begin(tmp_path: Path) -> None:
    deployment = await opened(tmp_path, Absent(), Watched())
    try:
        await fill(deployment)
        status = await ended(deployment, (await deployment.migrate(RANKING)).id)
        assert status.backfill is not None
        assert (status.state, status.backfill.way) == ("done", "local")
        assert "not by spark: there is no Java (install it)" in status.backfill.why
    finally:
        await deployment.close()


async def test_what_spark_has_no_type_for_is_done_beside(tmp_path: Path) -> None:
    deployment = await opened(tmp_path, SparkRunner(SparkSettings()), LocalRunner())
    try:
        await deployment.execute("CREATE TABLE wide (id INT PRIMARY KEY, price DECIMAL(40, 2))")
        await deployment.execute("INSERT INTO wide VALUES " + ", ".join(f"({n}, {n}.25)" for n in range(60)))
        view = "CREATE EXT VIEW paid AS SELECT SUM(price) AS paid FROM wide"
        status = await ended(deployment, (await deployment.migrate(view)).id)
        assert status.backfill is not None
        assert (status.state, status.backfill.way) == ("done", "local"), status.error
        assert 'not by spark: column "price" of table "wide" is DECIMAL(40,2), and' in status.backfill.why
        assert await answer(deployment, "SELECT paid FROM paid") == [("1785.00",)]
    finally:
        await deployment.close()


async def test_a_restart_in_the_middle_leaves_the_old_graph(tmp_path: Path) -> None:
    runner = Stalled()
    deployment = await opened(tmp_path, runner)
    await fill(deployment)
    await begun(deployment, runner)
    os.kill(runner.runs[0].process.pid, signal.SIGCONT)
    await deployment.close()
    assert runner.runs[0].process.poll() is not None
    deployment = await opened(tmp_path, Watched())
    try:
        await check_nothing_happened(deployment)
    finally:
        await deployment.close()


def test_errors_of_the_child_come_as_what_they_are() -> None:
    from controller.migrating.bulk.local_runner import error_of

    assert type(error_of("segment_missing", "no such file", None)).__name__ == "SegmentMissing"
    assert isinstance(error_of("something else", "odd", None), BulkFailed)
    assert isinstance(error_of("bulk_failed", "odd", None), HeadraceError)


def failed(run: LocalRun) -> HeadraceError:
    """What it says of how it ended."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            assert run.results() is None
        except HeadraceError as error:
            return error
        time.sleep(0.02)
    raise AssertionError("it does not notice that its child is gone")


def test_a_child_that_is_killed_while_it_tells_something_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = subprocess.Popen
    told = "import os, sys; print('{\"results\": [{\"fi', end='', flush=True); os.kill(os.getpid(), 9)"
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: begin([sys.executable, "-c", told], **options))
    run = LocalRun(BulkJob("1", str(tmp_path / "archive"), str(tmp_path / "staging"), (), ()))
    assert "was killed by SIGKILL" in failed(run).message
    run.cancel()


def test_a_child_has_the_time_that_nobody_else_wants(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "controller.migrating.bulk.child", str(tmp_path / "spool")], stdin=subprocess.PIPE
    ) as child:
        deadline = time.monotonic() + 60
        while psutil.Process(child.pid).nice() < min(19, os.nice(0) + NICENESS):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        child.kill()


async def test_of_a_child_that_is_killed_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no time to remove the rows between its tasks, which may be as large as the tables."""
    spools = tmp_path / "spools"
    spools.mkdir()
    monkeypatch.setenv("TMPDIR", str(spools))
    monkeypatch.setattr(tempfile, "tempdir", None)
    runner = Watched()
    deployment = await opened(tmp_path, runner)
    try:
        await fill(deployment)
        id = await begun(deployment, runner)
        async with asyncio.timeout(60):
            while not list(spools.iterdir()):
                await asyncio.sleep(0.001)
        runner.runs[0].process.kill()
        assert (await ended(deployment, id)).state == "failed"
        assert not list(spools.iterdir())
    finally:
        await deployment.close()


async def test_what_an_earlier_process_left_goes_before_the_first_job(tmp_path: Path) -> None:
    left = tmp_path / "archive" / STAGING / "0123456789ab-1"
    left.mkdir(parents=True)
    (left / "state-0-1").write_bytes(b"rows")
    deployment = await opened(tmp_path, Watched())
    try:
        await fill(deployment)
        assert (await ended(deployment, (await deployment.migrate(RANKING)).id)).state == "done"
        assert not list(left.parent.iterdir())
    finally:
        await deployment.close()


def test_a_child_whose_job_is_done_ends_cleanly(tmp_path: Path) -> None:
    """Its input is still open then, and somebody in it waits for the end of that."""
    run = LocalRun(BulkJob("1", str(tmp_path / "archive"), str(tmp_path / "staging"), (), ()))
    assert run.process.wait(60) == 0
    run.cancel()
    assert run.results() == ()


async def test_a_build_in_bulk_holds_what_policies_show_to_any(tmp_path: Path) -> None:
    """Whoever makes the view: what it holds was left to no one's policies, and each reader's decide what is shown."""
    runner = Watched()
    deployment = await opened(tmp_path, runner)
    await fill(deployment)
    await deployment.execute("CREATE POLICY below ON votes USING (user_id < CURRENT_CLAIM('below'))")
    made = "CREATE EXT VIEW cast_votes AS SELECT user_id, story_id FROM votes ORDER BY user_id LIMIT 1000"
    for maker in (Caller("maker", None, claims={"below": 5}, claimed=True), Caller("maker", None, claimed=True), OPEN):
        await deployment.execute(made, session=maker)
        for below in (5, 300, 0):
            moment = RequestMoment(asker=Caller("reader", None, claims={"below": below}, claimed=True))
            (page,) = await deployment.pages("cast_votes", [{}], moment=moment)
            assert [row["user_id"] for row in json.loads(b"[" + page + b"]")] == list(range(below)), (maker, below)
        await deployment.execute("DROP VIEW cast_votes")
    assert len(runner.runs) == 3
    await deployment.close()
