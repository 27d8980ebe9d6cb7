"""Which thread flushes a batch: the dataflow's own where nothing else waits, and never one batch before another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, cast

import pytest

from domains.errors import NotFound, StorageFailure
from domains.plan.commands import CreateTable
from domains.plan.graph import DomainIndex
from domains.plan.packets import Filled, Insert
from domains.store.memory_store import MemoryStore
from tests.kit.leading_workers import planned
from worker.dataflow.batch import Batch
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.group_commit import GroupCommit
from worker.dataflow.thread import DataflowThread, nowhere
from worker.reader_map import ReaderMap

BASE = DomainIndex(0)
PATIENCE = 10.0


@pytest.mark.parametrize(
    ("given", "thread"),
    [({}, "headrace-dataflow"), ({"deliver": lambda sends: None}, "headrace-flusher")],
    ids=["alone", "in a cluster"],
)
def test_a_lone_request_is_flushed_by_the_thread_that_took_it(tmp_path: Path, given: Any, thread: str) -> None:
    """Where others may ask something of the dataflow thread meanwhile, it does not wait for a disk."""
    own, syncs = DataflowThread(tmp_path / "readers", memory_limit=2**30, **given), list[str]()
    own.hosted.open(BASE, MemoryStore(), linked=True, sync=lambda: syncs.append(threading.current_thread().name))
    own.start()
    try:
        table = planned("CREATE TABLE t (a INT)", 1, 1).catalog.table("t")
        own.command(BASE, CreateTable(table)).result(PATIENCE)
        own.write(BASE, Insert("t", ((1,),))).result(PATIENCE)
    finally:
        own.close()
    assert set(syncs) == {thread}


def test_no_batch_is_flushed_before_one_that_was_handed_over_earlier() -> None:
    flusher = GroupCommit(cast(ReaderMap, None), nowhere, [])
    flusher.start()
    begun, go_on, done = threading.Event(), threading.Event(), list[str]()

    def first(_: object) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        done.append("first")

    flusher.hand(Batch(answers=[(first, Filled())]))
    assert begun.wait(PATIENCE)
    flusher.hand(Batch(answers=[(lambda _: done.append("second"), Filled())]), at_once=True)
    assert done == []
    go_on.set()
    flusher.stop()
    assert done == ["first", "second"]


def test_after_a_failed_sync_no_thread_performs_anything() -> None:
    flusher = GroupCommit(cast(ReaderMap, None), nowhere, [])
    told: list[Any] = []

    def fails() -> None:
        raise StorageFailure("the disk is gone")

    flusher.hand(Batch(syncs={fails: None}, answers=[(told.append, Filled())]), at_once=True)
    flusher.hand(Batch(answers=[(told.append, Filled())]), at_once=True)
    assert [type(each).__name__ for each in told] == ["Failed", "Failed"]
    assert isinstance(flusher.failed, StorageFailure)


def test_what_another_thread_asks_between_two_batches_shows_only_what_is_synced(tmp_path: Path) -> None:
    """A SELECT over few rows is evaluated by its caller, unless a batch is under way, or waits for the disk."""
    own = DataflowThread(tmp_path / "readers", memory_limit=2**30, deliver=lambda sends: None)
    syncing, may_sync, stepping, may_step = (threading.Event() for _ in range(4))

    def slow() -> None:
        syncing.set()
        assert may_sync.wait(PATIENCE)

    def rows(hosted: DomainHost) -> int:
        return hosted.hosts[BASE].domain.store.table("t").row_count

    own.hosted.open(BASE, MemoryStore(), linked=True, sync=slow)
    may_sync.set()
    own.start()
    try:
        table = planned("CREATE TABLE t (a INT)", 1, 1).catalog.table("t")
        own.command(BASE, CreateTable(table)).result(PATIENCE)
        assert _once_idle(own, rows) == 0
        may_sync.clear()
        syncing.clear()
        written = own.write(BASE, Insert("t", ((1,),)))
        assert syncing.wait(PATIENCE)
        assert own.between(rows) is None, "the row is not synced"
        may_sync.set()
        written.result(PATIENCE)
        assert _once_idle(own, rows) == 1
        step = own.control(lambda *_: (stepping.set(), may_step.wait(PATIENCE)))
        assert stepping.wait(PATIENCE)
        assert own.between(rows) is None, "a step is under way"
        may_step.set()
        step.result(PATIENCE)
        with pytest.raises(NotFound):
            _once_idle(own, lambda hosted: hosted.hosts[BASE].domain.store.table("gone").row_count)
        assert _once_idle(own, rows) == 1, "what failed holds nobody up"
    finally:
        may_sync.set()
        may_step.set()
        own.close()
    assert own.between(rows) is None, "the stores are closed"


def _once_idle(own: DataflowThread, question: Callable[[DomainHost], int]) -> int:
    """The thread ends its batch a moment after the answer."""
    deadline = monotonic() + PATIENCE
    while (found := own.between(question)) is None:
        assert monotonic() < deadline, "it is never idle"
    return found
