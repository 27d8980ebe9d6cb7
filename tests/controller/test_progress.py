"""How far a migration says that it is: by how long its steps take, and never backwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from typing import cast

import pytest

from controller.deployment import BackfillStatus, MigrationStatus
from controller.migrating import execution
from controller.migrating.bulk import building
from controller.migrating.bulk.local_runner import LocalRun
from controller.migrating.execution import Feeding, Migration, carry_out, expected
from controller.migrating.executor import Executor
from domains.errors import NotFound
from domains.plan.commands import Command, Feed, Progress
from domains.plan.graph import DomainIndex
from migrations.backfill.job import BulkJob
from migrations.flow.plan import PlanStep
from tests.controller.test_bulk import RANKING, Watched, ended, fill, opened

ROWS = 100


class Fed:
    """Domains with ``ROWS`` rows each, of which a slice takes ten; what the migration says is noted with each."""

    def __init__(self) -> None:
        self.left: dict[int, int] = {}
        self.said: list[float] = []
        self.migration = Migration("m", "")

    async def command(self, domain: DomainIndex, command: Command) -> Progress:
        del command
        await asyncio.sleep(0)
        self.said.append(self.migration.status().progress)
        self.left[domain] = self.left.get(domain, ROWS) - 10
        return Progress(10, self.left[domain] == 0)


async def test_slices_side_by_side_move_the_bar_evenly_and_never_back() -> None:
    feeding = Fed()
    steps = [PlanStep(DomainIndex(n), Feed(10), f"domain {n}: backfill", sliced=True) for n in range(2)]
    migration = feeding.migration
    migration.steps = ("add", *(step.text for step in steps), "activate")
    migration.weights = {step.text: 100.0 for step in steps}
    migration.done = 1
    migration.backfill = BackfillStatus("slices", "", rows_total=2 * ROWS)
    migration.tables = {step.domain: expected([ROWS], joined=False) for step in steps}
    await carry_out(cast(Executor, feeding), steps, migration)
    assert feeding.said == sorted(feeding.said)
    assert feeding.said[10] == pytest.approx(0.5, abs=0.06), feeding.said
    assert feeding.said[-1] > 0.9
    assert (migration.done, migration.within) == (3, 0.0)


class DearAtLast:
    """Rows of a large table, a millisecond each, and then a twentieth as many, each of which takes 200 ms: what a
    migration says of the time left is noted with the time that is."""

    LARGE, SMALL = 2000, 100

    def __init__(self) -> None:
        self.now, self.fed = 0.0, 0
        self.said: list[tuple[int, float, float]] = []
        self.migration = Migration("m", "")

    async def command(self, domain: DomainIndex, command: Command) -> Progress:
        del domain, command
        await asyncio.sleep(0)
        status = self.migration.status()
        if status.backfill is not None and status.backfill.seconds_left is not None:
            self.said.append((self.fed, status.progress, status.backfill.seconds_left))
        rows = 100 if self.fed < self.LARGE else 5
        self.now += rows * (0.001 if self.fed < self.LARGE else 0.2)
        self.fed += rows
        return Progress(rows, self.fed == self.LARGE + self.SMALL)


async def test_what_is_left_goes_by_the_time_that_rows_have_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    feeding = DearAtLast()
    monkeypatch.setattr(execution, "_now", lambda: feeding.now)
    migration, step = feeding.migration, PlanStep(DomainIndex(0), Feed(10), "feed", sliced=True)
    migration.steps = (step.text,)
    migration.backfill = BackfillStatus("slices", "", rows_total=feeding.LARGE + feeding.SMALL)
    migration.tables = {step.domain: expected([feeding.LARGE, feeding.SMALL], joined=True)}
    await carry_out(cast(Executor, feeding), [step], migration)
    total, shares = feeding.now, [share for _, share, _ in feeding.said]
    assert shares == sorted(shares)
    assert next(share for fed, share, _ in feeding.said if fed == feeding.LARGE) < 0.25, "nine tenths of the time"
    dear = [(fed - feeding.LARGE, left) for fed, _, left in feeding.said if fed > feeding.LARGE]
    for fed, left in dear[1:]:
        assert left == pytest.approx((feeding.SMALL - fed) * 0.2, rel=0.2), f"of {total:.0f} s, at {fed}"
    status = migration.status()
    assert status.backfill is not None
    assert status.backfill.seconds_left is None, "it is fed"


@pytest.mark.parametrize(
    ("rows", "joined", "work"),
    [
        ([100, 10, 4], True, [100, 410, 104]),
        ([1, 100, 10, 0], True, [1, 100, 410]),
        ([100, 10], False, [100, 10]),
        ([0], True, []),
        ([], True, []),
    ],
)
def test_what_tables_are_expected_to_take(rows: list[int], joined: bool, work: list[float]) -> None:
    tables = expected(rows, joined=joined)
    assert [table.work for table in tables] == work
    feeding = Feeding(tables)
    assert (feeding.seconds_left, feeding.share) == (None, 0.0)
    feeding.fed(1, 2.0)
    assert (feeding.seconds_left is None) == (not work), "of what is not known nothing is told"


async def test_tables_that_are_joined_are_foreseen(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)  # Nobody builds in bulk.
    try:
        await fill(deployment)
        for sql in RANKING.split(";"):
            id = (await deployment.migrate(sql)).id
            assert (await ended(deployment, id)).state == "done"
            tables = deployment.migrator._migrations[id].tables.values()
            assert [[table.work for table in each] for each in tables] == (
                [[400, 4 * 400 + 20]] if "JOIN" in sql else [[400]]
            )
    finally:
        await deployment.close()


class Awaited(Watched):
    """A job begins once it was seen that its migration has come so far, however seldom the test has its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Event()

    def start(self, job: BulkJob) -> LocalRun:
        assert self.seen.wait(60)
        return super().start(job)


async def test_a_bulk_job_is_most_of_its_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "POLL_SECONDS", 0.005)
    runner = Awaited()
    deployment = await opened(tmp_path, runner)
    try:
        await fill(deployment)
        told: list[MigrationStatus] = []
        id = (await deployment.migrate(RANKING.split(";")[0])).id
        while not told or told[-1].state in ("queued", "running"):
            told.append(await deployment.migration(id))
            if told[-1].step.startswith(building.COMPUTE):
                runner.seen.set()
            await asyncio.sleep(0.005)
        assert (await ended(deployment, id)).error is None
    finally:
        await deployment.close()
    assert [each.progress for each in told] == sorted(each.progress for each in told)
    computing = [each.progress for each in told if each.step.startswith(building.COMPUTE)]
    assert computing[0] < 0.1, "what comes before it is short"


async def test_each_state_of_a_migration_that_is_cancelled(tmp_path: Path) -> None:
    deployment = await opened(tmp_path, Watched())
    try:
        await fill(deployment)
        runs, waits = [(await deployment.migrate(each)).id for each in RANKING.split(";")[:1] * 2]
        assert (await deployment.cancel_migration(waits)).state == "queued"
        while (await deployment.migration(runs)).state == "queued":
            await asyncio.sleep(0)
        deployment.stopping()
        assert [(await ended(deployment, each)).state for each in (runs, waits)] == ["cancelled", "cancelled"]
        assert (await deployment.cancel_migration(runs)).state == "cancelled", "it has ended"
        with pytest.raises(NotFound):
            await deployment.cancel_migration("nothing")
    finally:
        await deployment.close()
