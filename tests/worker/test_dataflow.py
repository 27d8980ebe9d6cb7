"""Two dataflows with all their threads, connected by nothing but each other's inboxes; and what a dataflow refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from domains.errors import NotFound, OutcomeUnknown, Overloaded, StorageFailure, Unavailable
from domains.language.types import Row
from domains.plan.commands import CreateTable, Feed, Progress
from domains.plan.graph import DomainIndex
from domains.plan.packets import Filled, Insert, LinkUpdate, Operation, Written, link_between
from domains.plan.sharding import physical, shard_of
from domains.store.memory_store import MemoryStore
from migrations.flow.plan import State, plan_start
from tests.kit.leading_workers import planned
from tests.shard_of_key import shard_of_key
from worker.dataflow import inbox as inbox_module
from worker.dataflow import thread as dataflow_module
from worker.dataflow.batch import LinkPacket
from worker.dataflow.hosted_domain import destination
from worker.dataflow.thread import DataflowThread
from worker.embedded import open_embedded, shards_of
from worker.protocol.messages import NotHere, StaleEpoch
from worker.rocks.store import RocksStore

SQL = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL) SHARD BY (id);
CREATE TABLE votes (story INT NOT NULL, user INT NOT NULL) SHARD BY (story);
CREATE VIEW VoteCount AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story;
CREATE VIEW Karma AS SELECT author, COUNT(*) AS n FROM votes JOIN stories ON story = id WHERE author = ? GROUP BY author
"""
SHARDS, GROUPS = 2, 3
BASE = DomainIndex(0)
PATIENCE = 10.0
"""Seconds; nothing here takes so long unless it is wrong."""


class Pair:
    """Domains with even numbers are in one dataflow, those with odd numbers in the other."""

    def __init__(self, directory: Path) -> None:
        self.state = planned(SQL, SHARDS, GROUPS)
        self.both = [
            DataflowThread(directory / f"readers{number}", memory_limit=2**30, deliver=self.deliver)
            for number in range(2)
        ]
        for group in range(GROUPS):
            for shard in range(SHARDS):
                index = physical(DomainIndex(group), shard, SHARDS)
                own = self.of(index)
                if group:
                    own.hosted.open(index, MemoryStore(), shard=shard, shards=SHARDS, linked=True)
                    continue
                store = RocksStore(directory / f"base{shard}")
                own.hosted.open(
                    index, store, shard=shard, shards=SHARDS, linked=True, sync=store.sync, close=store.close
                )
        for own in self.both:
            own.start()
        for shard in range(SHARDS):
            for schema in self.state.catalog.tables.values():
                self.of(DomainIndex(shard)).command(DomainIndex(shard), CreateTable(schema)).result(60)
        for step in plan_start(self.state.flow).steps:
            while not self.of(step.domain).command(step.domain, step.command).result(60).finished:
                pass

    def of(self, index: DomainIndex) -> DataflowThread:
        return self.both[index % 2]

    def deliver(self, sends: Sequence[tuple[DomainIndex, LinkPacket]]) -> None:
        for own in self.both:
            mine = [packet for receiver, packet in sends if self.of(receiver) is own]
            if mine:
                assert all(self.of(destination(packet)) is own for packet in mine)
                own.receive(mine)

    def write(self, operation: Operation, key: Any) -> tuple[DomainIndex, Future[Any]]:
        index = physical(BASE, shard_of(key, SHARDS), SHARDS)
        return index, self.of(index).write(index, operation)

    def page(self, view: str, key: Row, token: dict[str, int]) -> bytes | None:
        node = self.state.flow.readers[view]
        index = physical(self.state.flow.node(node).domain, shard_of_key(self.state.flow, node, key), SHARDS)
        own = self.of(index)
        own.reached(index, node, token).result(60)
        layout, client = own.layouts[index, node], own.client()
        return own.read(index, node, (key,), lambda: client.page(layout, key)).result(60)

    def close(self) -> None:
        """What the last batches of one send would come to the other's inbox, which may be closed already."""
        for own in self.both:
            own.flusher._deliver = lambda sends: None
        for own in self.both:
            own.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    assert [own.failure for own in made.both] == [None, None]
    made.close()


def test_writers_and_readers_of_two_dataflows(pair: Pair) -> None:
    """Each thread reads its own writes by their token, wherever they were made."""
    seed = 3
    print("seed", seed)
    authors = {story: story % 3 for story in range(9)}
    for story, author in authors.items():
        pair.write(Insert("stories", ((story, author),)), story)[1].result(60)
    failures: list[BaseException] = []
    votes: list[int] = []

    def work(number: int) -> None:
        random = Random(f"{seed} {number}")
        try:
            for _ in range(40):
                story = random.randrange(9)
                written = pair.write(Insert("votes", ((story, number),)), story)[1].result(60)
                assert isinstance(written, Written)
                votes.append(story)
                before = votes.count(story)
                page = pair.page("votecount", (story,), written.clock) or b""
                assert int(page.split(b":")[-1][:-1]) >= before
                author = authors[story]
                known = sum(authors[vote] == author for vote in list(votes))
                page = pair.page("karma", (author,), written.clock) or b""
                assert int(page.split(b":")[-1][:-1]) > 0
                assert known > 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    positions = [own.published for own in pair.both]
    token = {base: at for each in positions for clock in each.values() for base, at in clock.items()}
    for author in range(3):
        count = sum(authors[vote] == author for vote in votes)
        assert pair.page("karma", (author,), token) == b'{"author":%d,"n":%d}' % (author, count)


# --- one dataflow -------------------------------------------------------------------------------------------------


@contextmanager
def alone(path: Path, **given: Any) -> Iterator[tuple[DataflowThread, State]]:
    state = planned("CREATE TABLE t (a INT)", 1, 1)
    own = DataflowThread(path / "readers", memory_limit=2**30, **given)
    own.hosted.open(BASE, MemoryStore(), linked=True)
    own.start()
    try:
        own.command(BASE, CreateTable(state.catalog.table("t"))).result(60)
        yield own, state
    finally:
        own.close()


def table(name: str) -> CreateTable:
    return CreateTable(planned(f"CREATE TABLE {name} (a INT)", 1, 1).catalog.table(name))


def insert(number: int) -> Insert:
    return Insert("t", ((number,),))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_what_comes_from_outside_waits_while_others_are_behind(tmp_path: Path) -> None:
    waiting = [0]
    with alone(tmp_path, outbound_waiting=lambda: waiting[0]) as (own, _):
        own.write(BASE, insert(1)).result(60)
        waiting[0] = inbox_module.OUTBOUND_MAX + 1
        writes = [own.write(BASE, insert(2)), own.write(BASE, insert(3))]
        asked = own.call(lambda: len(writes))
        fed = own.command(BASE, Feed(10), epoch=1)
        in_turn = own.command(BASE, table("v"))
        taken = threading.Event()
        own.receive([LinkUpdate(link_between(BASE, DomainIndex(9)), 1, 1, {})], taken.set)
        assert taken.wait(60), "what comes over links is always taken"
        assert own.control(lambda hosted, batch: hosted.counters.unhosted).result(60) == 1
        assert own.command(BASE, table("u"), epoch=1).result(60)
        assert not any(each.done() for each in (*writes, asked, fed, in_turn))
        assert own.waiting_inputs == 5
        waiting[0] = inbox_module.OUTBOUND_MAX
        assert [write.result(60).clock for write in writes] == [{"t": 2}, {"t": 3}]
        assert asked.result(60) == 2
        assert fed.result(60) == Progress(0, False), "its leader has wanted something else meanwhile"
        assert own.command(BASE, Feed(10), epoch=1).result(60).finished
        assert in_turn.result(60).finished


def test_a_full_inbox_refuses_requests_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "INBOX_MAX", 4)
    waiting = [inbox_module.OUTBOUND_MAX + 1]
    with alone(tmp_path, outbound_waiting=lambda: 0) as (own, _):
        own._inbox.outbound_waiting = lambda: waiting[0]
        writes = [own.write(BASE, insert(number)) for number in range(4)]
        with pytest.raises(Overloaded, match="4 requests"):
            own.write(BASE, insert(4))
        command = own.command(BASE, table("u"))
        own.receive([])
        waiting[0] = 0
        assert len([write.result(60) for write in writes]) == 4
        assert command.result(60)


def test_what_waits_is_done_before_it_stops(tmp_path: Path) -> None:
    with alone(tmp_path) as (own, _):
        own._inbox.outbound_waiting = lambda: 2**60
        write = own.write(BASE, insert(1))
    assert isinstance(write.result(0), Written)
    with pytest.raises(Unavailable, match="stopping"):
        own.write(BASE, insert(2))


def test_a_step_that_fails_stops_everything_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()
    state = planned("CREATE TABLE t (a INT); CREATE VIEW V AS SELECT a FROM t WHERE a = ?", 1, 1)
    with alone(tmp_path) as (own, _):
        for step in plan_start(state.flow).steps:
            own.command(step.domain, step.command).result(60)
        own.listeners.append(lambda: told.set() if own.failure is not None else None)
        waiting = own.reached(BASE, state.flow.readers["v"], {"t": 99})
        own.call(lambda: None).result(60)  # A batch of its own: it is not among the inputs that fail.

        def fail(*_: Any) -> None:
            raise ZeroDivisionError("a bug")

        future = own.control(fail)
        with pytest.raises(Unavailable, match="a bug"):
            future.result(60)
        assert told.wait(60)
        with pytest.raises(Unavailable, match="a bug"):
            waiting.result(60)
        for act in (lambda: own.write(BASE, insert(1)), lambda: own.receive([]), lambda: own.call(lambda: 1)):
            with pytest.raises(Unavailable, match="a bug"):
                act()
    assert "a step failed" in caplog.text


def test_a_sync_that_fails_stops_everything_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def full() -> None:
        raise StorageFailure("the disk is full")

    own = DataflowThread(tmp_path / "readers", memory_limit=2**30)
    own.hosted.open(BASE, MemoryStore(), linked=True, sync=full)
    own.start()
    told = threading.Event()
    own.listeners.append(lambda: told.set() if own.failure is not None else None)
    own.command(BASE, table("t")).result(60)
    with pytest.raises(OutcomeUnknown, match="full"):
        own.write(BASE, insert(1)).result(60)
    assert told.wait(60)
    with pytest.raises(StorageFailure, match="full"):
        own.write(BASE, insert(2))
    own.close()
    assert "could not be made durable" in caplog.text


def test_a_refused_request_fails_alone(tmp_path: Path) -> None:
    with alone(tmp_path) as (own, _):
        refused = [
            own.write(DomainIndex(5), insert(1)),
            own.read(DomainIndex(5), 1, ((1,),), lambda: None),  # type: ignore[arg-type]
            own.reached(DomainIndex(5), 1, {}),  # type: ignore[arg-type]
            own.evict(DomainIndex(5), 1, ((1,),)),  # type: ignore[arg-type]
        ]
        for future in refused:
            with pytest.raises(NotHere):
                future.result(60)
        with pytest.raises(NotFound):
            own.write(BASE, Insert("nothing", ((1,),))).result(60)
        assert isinstance(own.write(BASE, insert(1)).result(60), Written)


def test_a_leader_that_was_deposed_while_its_command_waited(tmp_path: Path) -> None:
    with alone(tmp_path) as (own, state):
        holding, held = threading.Event(), threading.Event()
        own.control(lambda hosted, batch: (held.set(), holding.wait(60)))
        assert held.wait(60)
        command = own.command(BASE, table("u"), epoch=3)
        own.hosted.fence(4)
        holding.set()
        with pytest.raises(StaleEpoch):
            command.result(60)
        assert own.call(lambda: len(own.stores[BASE].tables())).result(60) == len(state.catalog.tables)


def test_who_waits_for_a_token_may_give_up(tmp_path: Path) -> None:
    state = planned("CREATE TABLE t (a INT); CREATE VIEW V AS SELECT a FROM t WHERE a = ?", 1, 1)
    with alone(tmp_path) as (own, _):
        for step in plan_start(state.flow).steps:
            own.command(step.domain, step.command).result(60)
        node = state.flow.readers["v"]
        waits = [own.reached(BASE, node, {"t": 1}) for _ in range(2)]
        own.call(lambda: None).result(60)
        assert waits[0].cancel()
        own.write(BASE, insert(1)).result(60)
        with pytest.raises(CancelledError):
            waits[0].result(60)
        assert waits[1].result(60)
        until(lambda: len(own.hosted.waits) == 0)


def test_giving_up_while_the_answer_is_on_its_way_harms_nobody() -> None:
    class Late(Future[Any]):
        """It is cancelled just after it was asked whether it is done."""

        def done(self) -> bool:
            was = super().done()
            self.cancel()
            return was

    late = Late()
    dataflow_module._answerer(late)(Filled())
    assert late.cancelled()


# --- embedded -----------------------------------------------------------------------------------------------------


def test_the_number_of_shards_of_a_directory_is_fixed(tmp_path: Path) -> None:
    for name, shards, others in (("one", 1, (2, 4)), ("several", 3, (1, 2))):
        path = tmp_path / name
        opened = open_embedded(path, groups=2, memory_limit=2**30, shards=shards)
        assert sorted(opened.domains) == list(range(2 * shards))
        opened.start()
        for shard in range(shards):
            opened.command(DomainIndex(shard), table("t")).result(60)
            opened.write(DomainIndex(shard), insert(shard)).result(60)
        bases = ["t"] if shards == 1 else [f"t@{shard}" for shard in range(shards)]
        assert [opened.published[DomainIndex(shard)] for shard in range(shards)] == [{base: 1} for base in bases]
        with pytest.raises(StorageFailure, match="in use"):
            open_embedded(path, groups=2, memory_limit=2**30, shards=shards)
        opened.close()
        for other in others:
            with pytest.raises(StorageFailure, match=f"has {shards} shards?, not {other}"):
                open_embedded(path, groups=2, memory_limit=2**30, shards=other)
        open_embedded(path, groups=1, memory_limit=2**30, shards=shards).close()


def test_a_first_start_that_is_killed_has_decided_for_all_its_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(directory: Path, **_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("worker.embedded.RocksStore", kill)
        with pytest.raises(Killed):
            open_embedded(tmp_path, groups=1, memory_limit=2**30, shards=3)
    assert shards_of(tmp_path) == 3
    opened = open_embedded(tmp_path, groups=1, memory_limit=2**30, shards=3)
    assert sorted(path.name for path in (tmp_path / "shards").glob("[0-9]*")) == ["0000", "0001", "0002"]
    opened.close()


def test_nobody_waits_for_all_that_others_have_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second input begins when the first is answered, though both are taken at once."""
    monkeypatch.setattr(dataflow_module, "BATCH_SECONDS", 0.0)
    dataflow = DataflowThread(tmp_path / "readers", memory_limit=2**30)
    dataflow.start()
    go, answered = threading.Event(), threading.Event()
    try:
        dataflow.control(lambda *_: go.wait(PATIENCE))
        first = dataflow.control(lambda *_: 1)
        second = dataflow.control(lambda *_: answered.wait(PATIENCE))
        go.set()
        assert first.result(PATIENCE) == 1
        answered.set()
        assert second.result(PATIENCE)
    finally:
        go.set()
        answered.set()
        dataflow.close()
