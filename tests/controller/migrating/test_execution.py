"""A migration that is carried out: how far it says that it is, how it ends, and who hears of that."""

from __future__ import annotations

import asyncio
from itertools import pairwise, product
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.cluster.lost_shards.rebuild_way import LAST, TRANSITIONS, Rebuilding, RebuildMethod, RebuildStage
from controller.deployment import BackfillStatus, MigrationStatus
from controller.migrating import execution
from controller.migrating.bulk import building
from controller.migrating.bulk.local_runner import LocalRun
from controller.migrating.execution import Feeding, Migration, carry_out, expected
from controller.migrating.executor import Executor, Interrupted
from controller.migrating.migrator import Migrator
from domains.errors import BadRequest, Cancelled, HeadraceError, NotFound, Unavailable
from domains.plan.commands import Activate, Command, Feed, Progress
from domains.plan.graph import DomainIndex
from migrations.backfill.job import BulkJob, JobProgress
from migrations.change import Change
from migrations.flow.plan import PlanStep, State, one_domain
from migrations.recipe import Recipe, RecipeEntry
from tests.controller.migrating.test_bulk import RANKING, Watched, ended, fill, opened

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


@pytest.mark.parametrize("killed", [True, False])
async def test_kill_cancels_the_migration_that_a_statement_waits_for_and_a_client_that_leaves_does_not(
    tmp_path: Path, killed: bool
) -> None:
    deployment = await opened(tmp_path, Watched())
    try:
        await fill(deployment)
        statement = asyncio.create_task(deployment.execute(RANKING.split(";")[0]))
        async with asyncio.timeout(20):
            while (await deployment.migrations())[0].state != "running":
                await asyncio.sleep(0.005)
            if killed:
                (one,) = deployment.running()
                await deployment.execute(f"KILL {one.id}")
                with pytest.raises(Cancelled, match="KILL"):
                    await statement
            else:
                statement.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await statement
                assert (await deployment.migrations())[0].state == "running"
                await deployment.cancel_migration((await deployment.migrations())[0].id)
            assert (await ended(deployment, (await deployment.migrations())[0].id)).state == "cancelled"
    finally:
        await deployment.close()


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
        listed = await deployment.migrations()
        assert [(each.id, each.state) for each in listed[:2]] == [(waits, "cancelled"), (runs, "cancelled")]
        with pytest.raises(NotFound):
            await deployment.cancel_migration("nothing")
    finally:
        await deployment.close()


# --- how a migration ends, and a rebuild --------------------------------------------------------------------------


OF_KINDS = pytest.mark.parametrize("made", [Migration, Rebuilding])


@OF_KINDS
@pytest.mark.parametrize(
    ("error", "state", "told"),
    [
        (BadRequest("no such thing"), "failed", "no such thing"),
        (Cancelled("it was cancelled"), "cancelled", "it was cancelled"),
        (ZeroDivisionError("by zero"), "failed", "failed on an internal error: by zero"),
    ],
)
def test_an_error_is_told_and_goes_no_further(made: Any, error: Exception, state: str, told: str) -> None:
    one = made("7-1", "CREATE VIEW v", "running", "a step")
    with one.ending():
        raise error
    assert (one.state, one.ended.is_set()) == (state, True)
    assert isinstance(one.error, HeadraceError)
    assert told in one.error.message


@OF_KINDS
def test_what_ends_well_has_no_error(made: Any) -> None:
    one = made("7-1", "CREATE VIEW v", "running", "a step")
    with one.ending():
        assert not one.ended.is_set()
    assert (one.state, one.step, one.error, one.ended.is_set()) == ("done", "", None, True)


@OF_KINDS
async def test_whoever_waits_hears_of_a_task_that_is_cancelled(made: Any) -> None:
    one = made("7-1", "CREATE VIEW v", "running", "a step")

    async def carry_out() -> None:
        with one.ending():
            await asyncio.Event().wait()

    task = asyncio.create_task(carry_out())
    await asyncio.sleep(0)
    task.cancel()
    await one.ended.wait()
    assert (one.state, type(one.error)) == ("failed", Unavailable)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("stage", RebuildStage)
def test_a_rebuild_that_is_broken_off_says_what_becomes_of_it(stage: RebuildStage) -> None:
    decided = stage in (RebuildStage.LOADING, RebuildStage.FILLING)
    what = "the next one goes on with it" if decided else "nothing is given up"
    assert what in Rebuilding("7-r1", "", "running", stage=stage).broken_off().message


def test_a_rebuild_has_these_transitions_and_no_others() -> None:
    choosing, _, deciding, loading, filling = RebuildStage
    by_spark, by_worker = pairwise(RebuildStage), pairwise((choosing, deciding, loading))
    possible = {*by_spark, *by_worker, (loading, loading), (filling, filling)}
    assert TRANSITIONS.keys() == {*RebuildStage}
    for before, after in product(RebuildStage, RebuildStage):
        one = Rebuilding("7-r1", "", "running", stage=before)
        if (before, after) in possible:
            one.to(after)
            assert one.stage is after
        else:
            with pytest.raises(AssertionError, match=f"from {before.value} to {after.value}"):
                one.to(after)


class CalmExecutor:
    """Of a cluster that is calm."""

    async def ready(self) -> None:
        """It is."""


async def test_a_migration_that_waits_for_its_turn_ends_with_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    migrator, migration = waiting(monkeypatch)
    async with migrator.turn:
        await asyncio.sleep(0)
        migrator._tasks[migration.id].cancel()
        async with asyncio.timeout(30):
            await migration.ended.wait()
    assert migration.state == "failed"


async def test_what_begins_again_begins_at_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    _, migration = waiting(monkeypatch)
    seen: list[tuple[int, float]] = []

    async def attempt(self: Migrator, migration: Migration, change: Any) -> None:
        seen.append((migration.done, migration.within))
        migration.done, migration.within = 1, 0.7
        if len(seen) == 1:
            raise Interrupted("a worker was lost")

    monkeypatch.setattr(Migrator, "_attempt", attempt)
    await migration.ended.wait()
    assert seen == [(0, 0.0), (0, 0.0)]


class Book:
    """Whose first entry is written, and the answer to that is lost."""

    def __init__(self, is_written: bool) -> None:
        self.recipe, self.state = Recipe(), None
        self.is_written = is_written
        self.written = self.recipe

    async def enter(self, recipe: Recipe, state: Any) -> None:
        self.written = recipe if self.is_written else self.recipe
        raise Unavailable("ZooKeeper does not answer")

    async def take_back(self, steps: Any) -> None:
        """By a recovery, which has found out."""
        self.recipe = self.written


@pytest.mark.parametrize(("is_written", "state"), [(True, "done"), (False, "failed")])
async def test_what_the_recovery_found_decided_is_done(is_written: bool, state: str) -> None:
    book: Any = Book(is_written)
    executor: Any = SimpleNamespace(take_back=book.take_back)
    entry = RecipeEntry(("DROP VIEW v",))
    change = Change(State(), entry, tables=[PlanStep(DomainIndex(0), Activate(), "a step")])
    migration = Migration("7-1", "DROP VIEW v", "running")
    with migration.ending():
        await Migrator(executor, book, one_domain)._attempt(migration, change)
    assert migration.state == state


def waiting(monkeypatch: pytest.MonkeyPatch) -> tuple[Migrator, Migration]:
    """A migration that is begun, and has not been heard of yet."""
    nothing: Any = type("Change", (), {"steps": ()})()
    monkeypatch.setattr(Migrator, "_plan", lambda *_: nothing)
    executor: Any = CalmExecutor()
    book: Any = type("Book", (), {"state": None})()
    migrator = Migrator(executor, book, one_domain)
    return migrator, migrator.start(RecipeEntry(("CREATE VIEW v AS SELECT 1",)), "CREATE VIEW v")


def test_a_rebuild_is_not_shown_behind_where_it_was() -> None:
    one = Rebuilding("7-r1", "", "running")
    one.begin(RebuildMethod("spark", "as was asked", 100, folder=object()))  # type: ignore[arg-type]
    shares = []
    for rows, total in ((50, 100), (10, 100), (60, 200), (0, 0)):
        one.show(JobProgress(rows, total))
        shares.append(one.share())
    assert shares == sorted(shares)
    one.folded()
    one.to(RebuildStage.LOADING)
    assert one.share() == 1 / 3
    one.fill("build full states")
    assert (one.done, one.within) == (LAST, 0.0)
