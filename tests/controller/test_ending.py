"""How a migration ends, and a rebuild: by what its task ends, and always so that whoever waits hears of it."""

from __future__ import annotations

import asyncio
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cluster.lost_shards.rebuild_way import LAST, TRANSITIONS, Rebuilding, RebuildMethod, RebuildStage
from controller.migrating.execution import Migration
from controller.migrating.executor import Interrupted
from controller.migrating.migrator import Migrator
from domains.errors import BadRequest, Cancelled, HeadraceError, Unavailable
from migrations.backfill.job import JobProgress
from migrations.flow.plan import one_domain
from migrations.recipe import Recipe, RecipeEntry

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


class Executor:
    """Of a cluster that is calm."""

    async def ready(self) -> None:
        """It is."""


async def test_a_migration_that_waits_for_its_turn_ends_with_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    migrator, migration = waiting(monkeypatch)
    async with migrator._turn:
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
    change: Any = SimpleNamespace(tables=("a step",), entry=entry, state=None, views=SimpleNamespace(undo=()))
    migration = Migration("7-1", "DROP VIEW v", "running")
    with migration.ending():
        await Migrator(executor, book, one_domain)._attempt(migration, change)
    assert migration.state == state


def waiting(monkeypatch: pytest.MonkeyPatch) -> tuple[Migrator, Migration]:
    """A migration that is begun, and has not been heard of yet."""
    nothing: Any = type("Change", (), {"steps": ()})()
    monkeypatch.setattr(Migrator, "_plan", lambda *_: nothing)
    executor: Any = Executor()
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
