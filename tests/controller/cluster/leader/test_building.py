"""Bulk builds of a leader: archiving for them while domains move, and clearing away what nobody names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.cluster.leader.building import PAUSE_SECONDS, ClusterSource, keep_clear
from controller.cluster.lost_shards.rebuild_way import Rebuilding, RebuildStage, runs_of
from controller.cluster.state import Assignment, ClusterState, Rebuild
from controller.migrating.bulk import job_files
from controller.migrating.bulk.job_files import RUNS, STAGING, JobFiles, url_of
from domains.archive.manifest import ArchiveUnreachable
from domains.plan.graph import DomainIndex
from tests.kit.memory_workers import simulated
from worker.protocol.operations import ArchivePositions
from zookeeper.errors import AuthorityUnavailable

ARCHIVE = "archive"


class Book:
    """A ledger."""

    def __init__(self, *named: str) -> None:
        self.is_in_doubt = False
        self.name(*named)

    def name(self, *named: str) -> None:
        """Have decided that shards are made from these runs."""
        given = {
            DomainIndex(n): Assignment("w", 1, "disk", Rebuild(1, {}, url_of(ARCHIVE, RUNS, id)))
            for n, id in enumerate(named)
        }
        self.decided = ClusterState("main", 1, 1, 9, given)

    async def settle(self) -> None:
        if self.is_in_doubt:
            raise AuthorityUnavailable("ZooKeeper does not answer")


class Files:
    """Below the archive, by their URLs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there: set[str] = set()
        monkeypatch.setattr(job_files, "delete_all", self.there.discard)
        monkeypatch.setattr(job_files, "ids_of", self._ids_of)

    def _ids_of(self, archive: str, kind: str) -> list[str]:
        return sorted(job_files.id_of(url) for url in self.there if f"/{kind}/" in url)

    def put(self, kind: str, *ids: str) -> None:
        self.there |= {url_of(ARCHIVE, kind, id) for id in ids}

    def ids(self, kind: str) -> list[str]:
        return self._ids_of(ARCHIVE, kind)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(monkeypatch)


class Leader:
    """As far as files are cleared away by one."""

    def __init__(self, book: Book) -> None:
        self.files = JobFiles()
        self.ledger = book


def clearing(book: Book, scenario: Any) -> None:
    """Within the scenario a leader clears away that took over in epoch 8."""

    async def run() -> None:
        leader: Any = Leader(book)
        task = asyncio.create_task(keep_clear(leader.files, ARCHIVE, 8, leader.ledger))
        await scenario(leader)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    simulated(run())


def test_what_earlier_leaders_left_goes_unless_it_is_named(files: Files) -> None:
    async def scenario(_: Any) -> None:
        await asyncio.sleep(1.0)
        assert files.ids(STAGING) == ["10-full1-1", "8-1-1", "lost"]
        assert files.ids(RUNS) == ["7-r2", "8-r1"]

    files.put(STAGING, "7-1-1", "3-full2-1", "8-1-1", "10-full1-1", "lost")
    files.put(RUNS, "7-r1", "7-r2", "8-r1")
    clearing(Book("7-r2"), scenario)


def test_runs_go_once_the_shard_is_made(files: Files) -> None:
    book = Book("7-r2")

    async def scenario(_: Any) -> None:
        await asyncio.sleep(1.0)
        assert files.ids(RUNS) == ["7-r2"]
        book.name()
        await asyncio.sleep(PAUSE_SECONDS)
        assert not files.ids(RUNS)

    files.put(RUNS, "7-r2")
    clearing(book, scenario)


def test_what_is_written_after_the_take_over_goes_too(files: Files) -> None:
    async def scenario(_: Any) -> None:
        await asyncio.sleep(1.0)
        files.put(STAGING, "7-1-1")
        await asyncio.sleep(PAUSE_SECONDS)
        assert not files.ids(STAGING)

    clearing(Book(), scenario)


def test_nothing_goes_while_nobody_knows_what_is_decided(files: Files) -> None:
    book = Book()
    book.is_in_doubt = True

    async def scenario(leader: Any) -> None:
        shown = Rebuilding("8-r1", "", "running", stage=RebuildStage.LOADING)
        async with runs_of(ARCHIVE, leader.files, leader.ledger, shown):
            files.put(RUNS, "8-r1")
        await asyncio.sleep(1.0)
        assert files.ids(RUNS) == ["7-r1", "8-r1"], "the write whose answer was lost may have named them"
        book.is_in_doubt = False
        book.name("8-r1")
        await asyncio.sleep(PAUSE_SECONDS)
        assert files.ids(RUNS) == ["8-r1"]
        book.name()
        await asyncio.sleep(PAUSE_SECONDS)
        assert not files.ids(RUNS)

    files.put(RUNS, "7-r1")
    clearing(book, scenario)


@pytest.mark.parametrize("stage", [RebuildStage.DECIDING, RebuildStage.LOADING])
def test_an_owner_removes_what_no_decision_names(files: Files, stage: RebuildStage) -> None:
    async def broken_off(leader: Any) -> None:
        async with runs_of(ARCHIVE, leader.files, leader.ledger, Rebuilding("8-r1", "", "running", stage=stage)):
            files.put(RUNS, "8-r1", "8-r2", "9-r1")
            raise ZeroDivisionError

    async def scenario(leader: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            await broken_off(leader)
        assert files.ids(RUNS) == ["8-r2", "9-r1"]

    clearing(Book("8-r2"), scenario)


# --- archiving while domains go to other workers ------------------------------------------------------------------


def test_a_domain_that_moves_while_workers_archive_is_no_fault() -> None:
    ledger: Any = SimpleNamespace(decided=None)

    def place(*workers: str) -> None:
        placement = {DomainIndex(shard): Assignment(name, 1) for shard, name in enumerate(workers)}
        ledger.decided = SimpleNamespace(shards=2, placement=placement)

    async def ask(worker: str, message: object) -> ArchivePositions:
        place("a", "a")  # The leader has given up the other meanwhile.
        return ArchivePositions("archive", {f"votes@{worker}": 3})

    place("a", "b")
    fleet: Any = SimpleNamespace(ask=ask)
    found = asyncio.run(ClusterSource("archive", fleet, ledger, JobFiles()).archive_now("1-1", 1))
    assert found == {"votes@a": 3, "votes@b": 3}


def test_a_worker_that_cannot_archive_is_told_when_all_have_ended() -> None:
    """Then the holds of the others are there, and a release takes them away."""
    placement = {DomainIndex(shard): Assignment(name, 1) for shard, name in enumerate("ab")}
    ledger: Any = SimpleNamespace(decided=SimpleNamespace(shards=2, placement=placement))
    ended: list[str] = []

    async def ask(worker: str, message: object) -> ArchivePositions:
        if worker == "a":
            raise ArchiveUnreachable("its disk is full")
        for _ in range(5):
            await asyncio.sleep(0)
        ended.append(worker)
        return ArchivePositions("archive", {})

    async def run() -> None:
        fleet: Any = SimpleNamespace(ask=ask)
        with pytest.raises(ArchiveUnreachable):
            await ClusterSource("archive", fleet, ledger, JobFiles()).archive_now("1-1", 1)
        assert ended == ["b"], "it archives yet"

    asyncio.run(run())
