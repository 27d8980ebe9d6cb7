"""How far a migration says that it is: by how long its steps take, and never backwards."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event
from typing import cast

import pytest

from controller.bulk import building
from controller.bulk.local_runner import LocalRun
from controller.deployment import BackfillStatus, MigrationStatus
from controller.execution import Migration, carry_out
from controller.executor import Executor
from domains.commands import Command, Feed, Progress
from domains.errors import NotFound
from domains.graph import DomainIndex
from migrations.backfill.job import Job
from migrations.plan import PlanStep
from tests.controller.test_bulk import RANKING, Watched, ended, fill, opened

ROWS = 100


class Feeding:
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
    feeding = Feeding()
    steps = [PlanStep(DomainIndex(n), Feed(10), f"domain {n}: backfill", sliced=True) for n in range(2)]
    migration = feeding.migration
    migration.steps = ("add", *(step.text for step in steps), "activate")
    migration.weights = {step.text: 100.0 for step in steps}
    migration.done = 1
    migration.backfill = BackfillStatus("slices", "", rows_total=2 * ROWS)
    await carry_out(cast(Executor, feeding), steps, migration)
    assert feeding.said == sorted(feeding.said)
    assert feeding.said[10] == pytest.approx(0.5, abs=0.06), feeding.said
    assert feeding.said[-1] > 0.9
    assert (migration.done, migration.within) == (3, 0.0)


class Awaited(Watched):
    """A job begins once it was seen that its migration has come so far, however seldom the test has its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = Event()

    def start(self, job: Job) -> LocalRun:
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
