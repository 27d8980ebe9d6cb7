"""A rebuild by Spark: the archive is folded before anything is given up; whatever ends that leaves all as it was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.cluster.leader.building import BulkSettings
from controller.cluster.lost_shards.rebuild_way import FOLD, choose_way
from controller.cluster.lost_shards.rebuilding import lost_shards
from controller.cluster.state import Assignment, ClusterState, Rebuild
from controller.migrating.bulk import job_files
from domains.errors import BadRequest, Cancelled, HeadraceError, NotFound, Unavailable
from domains.plan.graph import DomainIndex
from migrations.backfill.job import Folding, JobProgress
from migrations.backfill.runner import BulkFailed
from migrations.backfill.spark.launching import SparkUnavailable
from tests.kit.lost_worker import Lost, rebuilt
from tests.kit.memory_workers import simulated
from worker.protocol.operations import ArchivedShard


class Run:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def progress(self) -> JobProgress:
        return JobProgress(30, 60, 1, 4, seconds_left=7.0, ui="http://spark:4040")

    def is_done(self) -> bool:
        if self._folder.error is not None:
            raise self._folder.error
        return self._folder.due

    def cancel(self) -> None:
        self._folder.running -= 1


class Folder:
    """Spark, by hand."""

    name = "spark"

    def __init__(self) -> None:
        self.due = True
        self.error: HeadraceError | None = None
        self.missing: HeadraceError | None = None
        self.begun: list[Folding] = []
        self.running = 0

    def check(self) -> None:
        if self.missing is not None:
            raise self.missing

    def start(self, folding: Folding) -> Run:
        self.begun.append(folding)
        self.running += 1
        return Run(self)


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(job_files, "delete_all", found.append)
    monkeypatch.setattr(job_files, "ids_of", lambda archive, kind: [])
    return found


@pytest.fixture
def folder(deleted: list[str]) -> Folder:
    del deleted
    return Folder()


def losing(folder: Folder, scenario: Any) -> None:
    async def run() -> None:
        lost = Lost()
        lost.cluster.bulk = BulkSettings("archive", (), 10, folder)
        await (await lost.start()).noticed()
        await scenario(lost)
        assert not folder.running, "a job runs on"
        await lost.cluster.close()

    simulated(run())


def test_the_tail_is_named_as_by_the_worker_and_the_runs_are_deleted(folder: Folder, deleted: list[str]) -> None:
    async def scenario(lost: Lost) -> None:
        told = await rebuilt(lost.cluster.led, by="auto")
        (folding,) = folder.begun
        assert {(table, shard) for table, shard, _ in folding.shards} == {
            (each["base"].partition("@")[0], each["shard"]) for each in told if each["position"]
        }
        assert {(f"{table}@{shard}", at) for table, shard, at in folding.shards} == {
            (each["base"], each["position"]) for each in told if each["position"]
        }
        assert {asked.runs for asked in lost.cluster.archive.asked} == {folding.out}
        assert {each["by"] for each in told} == {"spark"}
        assert sum(each["lost"] for each in told) == lost.forget()
        await lost.cluster.calm()
        await lost.program.check()
        assert deleted == [folding.out]

    losing(folder, scenario)


def test_how_far_it_is_can_be_seen(folder: Folder) -> None:
    async def scenario(lost: Lost) -> None:
        folder.due = False
        operations = lost.cluster.led.rebuild_operations
        one = operations.start((), {}, "spark")
        await lost.cluster.until(lambda: folder.begun and one.within)
        shown = one.status()
        assert (shown.state, shown.step, shown.steps[0]) == ("running", FOLD, FOLD)
        assert shown.backfill is not None
        assert (shown.backfill.way, shown.backfill.why) == ("spark", "as was asked")
        assert (shown.backfill.rows, shown.backfill.rows_total) == (30, 60)
        assert (shown.backfill.stages_done, shown.backfill.stages) == (1, 4)
        assert (shown.backfill.seconds_left, shown.backfill.ui) == (7.0, "http://spark:4040")
        assert operations.running == [one.id]
        folder.due = True
        await one.ended.wait()
        assert (one.status().state, one.status().progress) == ("done", 1.0)
        assert operations.get(one.id).rebuilt
        with pytest.raises(NotFound):
            operations.get("7-r7")

    losing(folder, scenario)


def left_as_it_was(lost: Lost, epoch: int) -> None:
    assert lost_shards(lost.cluster.led) == lost.shards
    assert all(given.rebuild is None for given in lost.cluster.decided.placement.values())
    assert lost.cluster.decided.epoch == epoch


def test_a_job_that_is_killed_gives_nothing_up_and_can_be_asked_for_again(folder: Folder) -> None:
    async def scenario(lost: Lost) -> None:
        epoch = lost.cluster.decided.epoch
        folder.error = BulkFailed("the Spark job was killed")
        with pytest.raises(BulkFailed, match="was killed") as caught:
            await rebuilt(lost.cluster.led, by="auto")
        assert "nothing is given up" in (caught.value.hint or "")
        assert "--by worker" in (caught.value.hint or "")
        left_as_it_was(lost, epoch)
        folder.error = None
        await rebuilt(lost.cluster.led, by="auto")
        lost.forget()
        await lost.cluster.calm()
        await lost.program.check()

    losing(folder, scenario)


def test_a_cancel_gives_nothing_up(folder: Folder) -> None:
    async def scenario(lost: Lost) -> None:
        epoch, operations = lost.cluster.decided.epoch, lost.cluster.led.rebuild_operations
        folder.due = False
        one = operations.start((), {}, "spark")
        await lost.cluster.until(lambda: folder.running)
        with pytest.raises(Unavailable, match=f'rebuild "{one.id}" folds the archive already'):
            await rebuilt(lost.cluster.led, by="spark")
        operations.cancel(one.id)
        await one.ended.wait()
        assert (one.state, type(one.error)) == ("cancelled", Cancelled)
        left_as_it_was(lost, epoch)

    losing(folder, scenario)


def test_what_a_job_has_written_that_comes_to_nothing_is_removed(folder: Folder, deleted: list[str]) -> None:
    async def scenario(lost: Lost) -> None:
        operations = lost.cluster.led.rebuild_operations
        folder.due = False
        cancelled = operations.start((), {}, "spark")
        await lost.cluster.until(lambda: folder.running)
        operations.cancel(cancelled.id)
        await cancelled.ended.wait()
        assert deleted == [folder.begun[0].out]
        folder.error = BulkFailed("the Spark job was killed")
        with pytest.raises(BulkFailed):
            await rebuilt(lost.cluster.led, by="spark")
        assert deleted[1:] == [folder.begun[1].out]
        folder.error = None
        over = operations.start((), {}, "spark")
        await lost.cluster.until(lambda: folder.running)
        await operations.close()
        assert (over.state, folder.running) == ("failed", 0)
        assert deleted[2:] == [folder.begun[2].out]

    losing(folder, scenario)


def test_a_decision_that_is_not_made_has_no_state_built_in_bulk(folder: Folder, deleted: list[str]) -> None:
    async def scenario(lost: Lost) -> None:
        async def refused(decide: Any, *, patience: float) -> None:
            raise Unavailable("ZooKeeper does not answer")

        leader = lost.cluster.led
        leader.ledger.amend = refused  # type: ignore[assignment,method-assign]
        with pytest.raises(Unavailable, match="does not answer"):
            await rebuilt(leader, by="spark")
        assert not leader.rebuilds.refills.due
        assert deleted == [folder.begun[0].out]

    losing(folder, scenario)


def test_the_disk_that_comes_back_meanwhile_is_kept(folder: Folder) -> None:
    async def scenario(lost: Lost) -> None:
        folder.due = False
        asked = asyncio.ensure_future(rebuilt(lost.cluster.led, by="spark"))
        await lost.cluster.until(lambda: folder.running)
        await lost.cluster.start_worker("w2", "/w2")
        with pytest.raises(Unavailable, match="not lost any more"):
            await asked
        await lost.cluster.calm()
        await lost.program.check()

    losing(folder, scenario)


def test_a_leader_that_goes_before_it_is_decided_leaves_nothing(folder: Folder) -> None:
    async def scenario(lost: Lost) -> None:
        cluster, first = lost.cluster, lost.cluster.led
        folder.due = False
        one = first.rebuild_operations.start((), {}, "auto")
        await cluster.until(lambda: folder.running)
        await cluster.start_controller("c2")
        cluster.kill_controller("c1")
        await cluster.until(lambda: cluster.led is not first and set(lost.shards) <= cluster.led.closed.keys())
        assert one.state == "failed"
        assert "nothing is given up" in str(one.error)
        assert all(given.rebuild is None for given in cluster.decided.placement.values())
        folder.due = True
        await rebuilt(cluster.led, by="auto")
        lost.forget()
        await cluster.calm()
        await lost.program.check()

    losing(folder, scenario)


def test_the_next_leader_goes_on_with_what_is_decided(folder: Folder) -> None:
    async def scenario(lost: Lost) -> None:
        cluster, first = lost.cluster, lost.cluster.led
        cluster.archive.looks = 10**6
        first.rebuild_operations.start((), {}, "auto")
        await cluster.until(lambda: cluster.archive.asked)
        await cluster.start_controller("c2")
        cluster.kill_controller("c1")
        cluster.archive.looks = 0
        await cluster.until(lambda: cluster.led is not first and cluster.led.calm)
        assert {(asked.decided, asked.runs) for asked in cluster.archive.asked} == {
            (cluster.archive.asked[0].decided, folder.begun[0].out)
        }
        lost.forget()
        await lost.program.check()

    losing(folder, scenario)


def test_without_java_it_says_what_to_install_and_what_else_to_do(folder: Folder) -> None:
    async def scenario(lost: Lost) -> None:
        folder.missing = SparkUnavailable("Spark needs Java 17", hint="install openjdk-17-jre")
        with pytest.raises(SparkUnavailable, match="needs Java 17") as caught:
            await rebuilt(lost.cluster.led, by="auto")
        assert "openjdk-17-jre" in caught.value.hint
        assert "--by worker" in caught.value.hint
        told = await rebuilt(lost.cluster.led, by="worker")
        assert {each["by"] for each in told} == {"worker"}
        lost.forget()

    losing(folder, scenario)


ROWS = {DomainIndex(1): ArchivedShard({"votes@1": 7}, "archive", 11)}


@pytest.mark.parametrize(
    ("settings", "by", "way"),
    [
        (BulkSettings("archive", (), 10, Folder()), "auto", "spark"),
        (BulkSettings("archive", (), 11, Folder()), "auto", "worker"),
        (BulkSettings("archive", (), 11, Folder()), "spark", "spark"),
        (BulkSettings("archive", (), 10, Folder()), "worker", "worker"),
        (BulkSettings("archive", (), 10, None), "auto", "worker"),
        (BulkSettings(None, (), 10, Folder()), "auto", "worker"),
    ],
)
async def test_who_folds_it(settings: BulkSettings, by: Any, way: str) -> None:
    assert (await choose_way(settings, by, ROWS)).by == way


async def test_spark_cannot_be_had() -> None:
    with pytest.raises(BadRequest, match="the controller has no archive"):
        await choose_way(BulkSettings(None, (), 10, Folder()), "spark", ROWS)
    with pytest.raises(BadRequest, match="Spark is turned off"):
        await choose_way(BulkSettings("archive", (), 10, None), "spark", ROWS)
    with pytest.raises(Unavailable, match='archives under "archive", and the controller reads "other"'):
        await choose_way(BulkSettings("other", (), 10, Folder()), "auto", ROWS)


def test_the_runs_are_part_of_the_state() -> None:
    assignments = {DomainIndex(0): Assignment("a", 3, "disk", Rebuild(3, {"votes@0": 17}, "archive/_rebuild/3-r1"))}
    state = ClusterState("main", 1, 1, 3, assignments)
    assert ClusterState.decode(state.encode(), "main") == state
