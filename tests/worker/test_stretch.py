"""A sliced command that goes on by itself: with a clock of its own, and in a dataflow with its threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domains.errors import Unavailable
from domains.plan.commands import CreateTable, Feed, Progress
from domains.plan.graph import DomainIndex
from domains.plan.packets import Failed, Insert
from domains.store.memory_store import MemoryStore
from migrations.change import change_of, entries_of
from migrations.flow.plan import State, one_domain, plan_start
from migrations.recipe import RecipeEntry
from worker.dataflow import inbox as inbox_module
from worker.dataflow.batch import Batch
from worker.dataflow.inbox import Inbox, Input, Stopping
from worker.dataflow.pacing import REST_SECONDS, STRETCH_SECONDS, Stretch
from worker.dataflow.thread import DataflowThread
from worker.protocol.messages import StaleEpoch

BASE = DomainIndex(0)
SQL = "CREATE TABLE t (a INT); CREATE EXT VIEW V AS SELECT a, COUNT(*) AS n FROM t GROUP BY a ORDER BY n LIMIT 9"
ROWS = 3_000
SLICE = 0.001


class Stage:
    """One stretch over so many slices of ten rows each, and everything around it."""

    def __init__(self, slices: int) -> None:
        self.time = 0.0
        self.left = slices
        self.wanted = False
        self.outbound = 0
        self.told: list[Any] = []
        self.inbox = Inbox(lambda: self.outbound, now=lambda: self.time)
        self.inbox.put(Input(Stretch(self.perform, lambda: self.wanted, self.inbox).run, self.told.append))

    def perform(self, _: Batch) -> tuple[Progress, float]:
        self.left -= 1
        self.time += SLICE
        return Progress(10, self.left == 0), REST_SECONDS

    def go_on(self) -> list[Any]:
        """Let the rest pass, take what waits, and answer what is to be answered."""
        self.time += REST_SECONDS
        batch = Batch()
        for one in self.inbox.take():
            one.run(batch, one.answer)
        for answer, outcome in batch.answers:
            answer(outcome)
        return self.told


def test_it_goes_on_until_it_is_finished() -> None:
    stage = Stage(3)
    assert [len(stage.go_on()), len(stage.go_on())] == [0, 0]
    assert stage.go_on() == [Progress(30, True)]
    assert len(stage.inbox) == 0


def test_it_tells_how_far_it_is_when_it_has_gone_on_for_long_enough() -> None:
    stage = Stage(1_000)
    while not stage.told:
        stage.go_on()
    slices, each = 1_000 - stage.left, SLICE + REST_SECONDS
    assert stage.told == [Progress(10 * slices, False)]
    assert STRETCH_SECONDS / each - 1 <= slices <= STRETCH_SECONDS / each + 2


def test_no_slice_is_begun_once_its_leader_wants_something_else() -> None:
    stage = Stage(3)
    stage.go_on()
    stage.wanted = True
    assert stage.go_on() == [Progress(10, False)]
    assert stage.left == 2
    never_begun = Stage(3)
    never_begun.wanted = True
    assert never_begun.go_on() == [Progress(0, False)]
    assert never_begun.left == 3


def test_it_leaves_off_while_others_are_behind() -> None:
    stage = Stage(3)
    stage.go_on()
    stage.outbound = inbox_module.OUTBOUND_MAX + 1
    assert stage.go_on() == [Progress(20, False)]


def test_one_goes_on_at_a_time_and_behind_the_requests() -> None:
    taken: list[str] = []

    def named(name: str) -> Input:
        return Input(lambda _batch, _answer: taken.append(name), lambda _: None)

    time = [0.0]
    inbox = Inbox(now=lambda: time[0])
    for name in ("first", "second"):
        inbox.rest(named(name), 1.0)
    inbox.put(named("a request"))
    for name in ("a packet", "the rest is not over", "a command"):
        inbox.put(named(name), always=True)
    for one in inbox.take():
        one.run(Batch(), one.answer)
    assert taken == ["a packet", "the rest is not over", "a command", "a request"]
    time[0] = 1.0
    inbox.put(named("another request"))
    for one in inbox.take():
        one.run(Batch(), one.answer)
    assert taken[4:] == ["another request", "first"]
    assert len(inbox) == 1
    inbox.stop()
    time[0] = 0.0
    assert len(inbox.take()) == 1, "who stops waits for no rest"
    assert inbox.take() == []
    with pytest.raises(Stopping):
        inbox.put(named("too late"))


def test_what_rests_when_a_step_fails_is_told() -> None:
    stage = Stage(3)
    stage.go_on()
    error = Unavailable("the worker stopped")
    for one in stage.inbox.fail(error):
        one.answer(Failed(error))
    assert stage.told == [Failed(error)]


# --- with its threads ---------------------------------------------------------------------------------------------


@pytest.fixture
def backfilling(tmp_path: Path) -> Iterator[tuple[DataflowThread, State]]:
    """A full view over rows that are there, of which nothing has been fed."""
    state = State(partial=False)
    for entry in entries_of(RecipeEntry((SQL,))):
        state = change_of(state, entry, one_domain).state
    own = DataflowThread(tmp_path / "readers", memory_limit=2**30)
    own.hosted.open(BASE, MemoryStore(), linked=True)
    own.start()
    try:
        own.command(BASE, CreateTable(state.catalog.table("t")), epoch=1).result(60)
        own.write(BASE, Insert("t", tuple((number,) for number in range(ROWS)))).result(60)
        for step in plan_start(state.flow).steps:
            if not isinstance(step.command, Feed):
                own.command(step.domain, step.command, epoch=1).result(60)
            else:
                break
        yield own, state
    finally:
        own.close()


def test_one_command_feeds_it_all(backfilling: tuple[DataflowThread, State], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.dataflow.pacing.STRETCH_SECONDS", 60.0)
    own, _ = backfilling
    assert own.command(BASE, Feed(20), epoch=1).result(60) == Progress(ROWS, True)


def test_another_leader_ends_it(backfilling: tuple[DataflowThread, State]) -> None:
    own, _ = backfilling
    go = threading.Event()
    own.call(lambda: go.wait(60))
    fed = own.command(BASE, Feed(1), epoch=1)
    own.hosted.fence(2)
    go.set()
    with pytest.raises(StaleEpoch):
        fed.result(60)
