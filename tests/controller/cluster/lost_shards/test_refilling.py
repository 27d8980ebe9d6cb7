"""Full state after a rebuild by Spark: built in bulk, or in slices where that fails; what is read is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from controller.cluster.leader.building import BulkSettings
from controller.cluster.lost_shards.rebuild_way import Rebuilding
from controller.cluster.lost_shards.refilling import Refill
from controller.migrating.bulk import building, job_files
from domains.errors import HeadraceError
from domains.language.types import Delta, TableSchema
from migrations.backfill.job import BulkJob, JobProgress, StateFile
from migrations.backfill.runner import BulkFailed
from tests.controller.cluster.lost_shards.test_rebuilding_by_spark import Folder
from tests.kit.lost_worker import Lost
from tests.kit.memory_workers import simulated
from tests.kit.voting_program import placement
from tests.migrations.backfill.in_process import run_locally


class Run:
    def __init__(self, runner: Runner, job: BulkJob) -> None:
        self._runner, self._job = runner, job

    def progress(self) -> JobProgress:
        return JobProgress(7, 60, 0, len(self._job.stages), ui="http://spark:4040")

    def results(self) -> tuple[StateFile, ...] | None:
        if self._runner.error is not None:
            raise self._runner.error
        return self._runner.computed(self._job) if self._runner.due else None

    def cancel(self) -> None:
        self._runner.running -= 1


class Runner:
    """Spark, by hand: our domains in this process, over what the workers had archived."""

    name = "spark"

    def __init__(self) -> None:
        self.due = True
        self.error: HeadraceError | None = None
        self.begun: list[BulkJob] = []
        self.running = 0
        self.folds: dict[str, tuple[int, list[Delta]]] = {}
        self.staged: dict[str, list[bytes]] = {}

    def check(self, tables: Sequence[TableSchema]) -> None:
        """It can be begun."""

    def start(self, job: BulkJob) -> Run:
        self.begun.append(job)
        self.running += 1
        return Run(self, job)

    def computed(self, job: BulkJob) -> tuple[StateFile, ...]:
        for table in job.tables:
            assert self.folds[table.base][0] == table.position
        files = []
        for (domain, node), blocks in run_locally(job.stages, lambda base: self.folds[base][1]).items():
            self.staged[f"{domain}-{node}"] = blocks
            files.append(StateFile(domain, node, f"{domain}-{node}", len(blocks), sum(map(len, blocks)), ""))
        return tuple(files)

    def blocks(self, url: str, file: StateFile) -> Iterator[bytes]:
        del url
        yield from self.staged[file.file]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Runner:
    made = Runner()
    monkeypatch.setattr(job_files, "delete_all", lambda url: None)
    monkeypatch.setattr(job_files, "ids_of", lambda archive, kind: [])
    monkeypatch.setattr(building, "manifests_of", lambda url, shards: [None] * len(shards))
    monkeypatch.setattr(building, "blocks_of_file", made.blocks)
    return made


def losing(runner: Runner, scenario: Any, threshold: int = 10) -> None:
    async def run() -> None:
        lost = Lost()
        lost.cluster.bulk = BulkSettings("archive", (runner,), threshold, Folder())
        runner.folds = lost.cluster.archive.folds
        await lost.start()
        runner.begun.clear()  # Of the views' own migrations.
        await scenario(lost)
        assert not runner.running, "a job runs on"
        await lost.cluster.close()

    simulated(run())


def begun(lost: Lost, by: Any = "spark") -> Rebuilding:
    return lost.cluster.led.rebuild_operations.start((), {}, by)


async def rebuilt(lost: Lost, one: Rebuilding) -> None:
    """It ends well, and everything is as the oracle has it, then and after further writes."""
    await one.ended.wait()
    assert (one.state, one.error) == ("done", None)
    lost.forget()
    await lost.cluster.calm()
    await lost.program.check()
    await lost.program.vote(20)
    await lost.program.check()


def test_full_state_is_built_in_bulk_while_writes_go_on(runner: Runner) -> None:
    async def scenario(lost: Lost) -> None:
        runner.due = False
        one = begun(lost)
        await lost.cluster.until(lambda: runner.running)
        lost.forget()
        await lost.program.vote(15)
        await asyncio.sleep(0.3)
        shown = one.status()
        assert shown.step.startswith("build full states in bulk (spark")
        assert "compute full states from the archive (spark)" in shown.step
        assert shown.backfill is not None
        assert (shown.backfill.rows, shown.backfill.rows_total, shown.backfill.ui) == (7, 60, "http://spark:4040")
        runner.due = True
        await one.ended.wait()
        assert one.status().steps[-1].startswith("build full states in bulk (spark")
        await lost.cluster.calm()
        await lost.program.check()
        await lost.program.vote(20)
        await lost.program.check()

    losing(runner, scenario)


def test_only_what_is_void_is_computed(runner: Runner) -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        runner.due = False
        one = begun(lost)
        await cluster.until(lambda: runner.running)
        kept = {
            (vertex.index, domain)
            for worker in ("w1", "w3")
            for domain, host in cluster.workers[worker].hosted.hosts.items()
            for vertex in host.domain.vertices.values()
            if vertex.indexes and not vertex.building
        }
        assert kept, "nothing has survived"
        runner.due = True
        await rebuilt(lost, one)
        (job,) = runner.begun
        given = {
            (node, task.domain)
            for stage in job.stages
            for task in stage.tasks
            for node in (*task.full, *(sink.node for sink in task.sinks))
        }
        assert given
        assert given.isdisjoint(kept), "state that serves was computed again"
        assert {domain for _, domain in given} >= set(lost.shards)

    losing(runner, scenario)


def test_few_rows_are_fed_in_slices(runner: Runner) -> None:
    async def scenario(lost: Lost) -> None:
        one = begun(lost)
        await rebuilt(lost, one)
        assert not runner.begun
        assert one.status().steps[-1].startswith("feed full states in slices (")
        assert "not more than the threshold" in one.status().steps[-1]

    losing(runner, scenario, threshold=100_000)


def test_by_the_worker_it_is_fed_in_slices(runner: Runner) -> None:
    async def scenario(lost: Lost) -> None:
        await rebuilt(lost, begun(lost, "worker"))
        assert not runner.begun

    losing(runner, scenario)


def test_a_job_that_fails_is_made_good_in_slices(runner: Runner) -> None:
    async def scenario(lost: Lost) -> None:
        runner.error = BulkFailed("the Spark job was killed")
        one = begun(lost)
        await rebuilt(lost, one)
        assert len(runner.begun) == 1
        assert one.status().steps[-1] == "feed full states in slices (the Spark job was killed)"

    losing(runner, scenario)


def test_a_cancel_has_it_fed_in_slices(runner: Runner) -> None:
    async def scenario(lost: Lost) -> None:
        runner.due = False
        one = begun(lost)
        await lost.cluster.until(lambda: runner.running)
        lost.cluster.led.rebuild_operations.cancel(one.id)
        await rebuilt(lost, one)
        assert len(runner.begun) == 1
        assert "was cancelled" in one.status().steps[-1]

    losing(runner, scenario)


def test_a_cancel_before_the_job_is_begun_has_it_fed_in_slices(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(lost: Lost) -> None:
        chosen = Refill.planned

        async def planned(self: Refill, *given: Any) -> Any:
            todo = await chosen(self, *given)
            if self.way:
                lost.cluster.led.rebuild_operations.cancel(one.id)
            return todo

        monkeypatch.setattr(Refill, "planned", planned)
        runner.due = False
        one = begun(lost)
        await rebuilt(lost, one)
        assert not runner.begun
        assert "was cancelled" in one.status().steps[-1]

    losing(runner, scenario)


def test_a_loss_meanwhile_ends_the_job_and_the_next_round_begins_another(runner: Runner) -> None:
    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        runner.due = False
        one = begun(lost)
        await cluster.until(lambda: runner.running)
        assert placement(cluster)["w3"]
        cluster.workers["w3"].die()
        await cluster.until(lambda: not runner.running)
        runner.due = True
        await cluster.start_worker("w3", "/w3")
        await rebuilt(lost, one)
        assert len(runner.begun) == 2

    losing(runner, scenario)


def test_the_next_leader_feeds_in_slices(runner: Runner) -> None:
    async def scenario(lost: Lost) -> None:
        cluster, first = lost.cluster, lost.cluster.led
        runner.due = False
        one = begun(lost)
        await cluster.until(lambda: runner.running)
        await cluster.start_controller("c2")
        cluster.kill_controller("c1")
        await cluster.until(lambda: cluster.led is not first and cluster.led.calm)
        assert one.state == "failed"
        assert "the next one goes on with it" in str(one.error)
        lost.forget()
        await lost.program.check()
        assert len(runner.begun) == 1

    losing(runner, scenario)


@pytest.mark.parametrize("at", range(1, 50, 4))
def test_broken_off_anywhere_no_row_is_lost_or_doubled(runner: Runner, at: int) -> None:
    """A survivor is lost and comes back at the leader's n-th message since the job was begun."""

    async def scenario(lost: Lost) -> None:
        cluster = lost.cluster
        runner.due = False
        one = begun(lost)
        await cluster.until(lambda: runner.running)

        async def lose(_: Any) -> None:
            cluster.workers["w3"].die()
            await asyncio.sleep(0.3)
            await cluster.start_worker("w3", "/w3")

        cluster.at_message(at, lose)
        runner.due = True
        await one.ended.wait()
        if cluster.broken is not None:
            await cluster.broken
        await rebuilt(lost, one)

    losing(runner, scenario)
