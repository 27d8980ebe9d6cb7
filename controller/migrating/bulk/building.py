"""A migration's full part built in bulk, step after step. Until ``Activate`` all of it can be taken back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from controller.migrating.bulk.choice import Choice
from controller.migrating.bulk.job_files import STAGING, BulkSource, blocks_of_file, manifests_of, url_of
from controller.migrating.execution import Migration, carry_out
from controller.migrating.executor import Executor
from domains.archive.manifest import ShardManifest
from domains.plan.commands import Activate, AddNodes, Feed, Follow, LoadState, StartReplay
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from domains.plan.sharding import table_of
from migrations.backfill.job import BulkJob, JobProgress, StateFile, TableShard
from migrations.backfill.runner import BulkRunner
from migrations.backfill.stages import bases_fed, bulk_domains, stages_of
from migrations.change import Change
from migrations.flow.plan import PlanStep

# Beginning a job in a thread, so that whoever is cancelled meanwhile leaves nothing that runs on.


class BulkBuilding(Protocol):
    def cancel(self) -> None: ...


AnyRun = TypeVar("AnyRun", bound=BulkBuilding)


async def started(start: Callable[[], AnyRun]) -> AnyRun:
    """The answer of ``start``, or its error. It cannot be broken off: what it began is cancelled with its caller."""
    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        if starting.exception() is None:
            await asyncio.to_thread(starting.result().cancel)
        raise


ARCHIVE = "archive the base tables up to now"
COMPUTE = "compute full states from the archive"
LOAD = "load full states"
COMPUTE_WEIGHT, LOAD_WEIGHT = 100.0, 5.0
"""How many times as long as other steps: of a million rows 31 s of 32, of 20,000 three of four."""
PREPARING = 0.3
"""The share of a small Spark job's time before it reads its first row: Java's start, as far as tasks tell of it."""
POLL_SECONDS = 0.1
"""Seconds between two looks at a job: a bar that moves smoothly, and a cancel that is felt to be at once."""
REPLAY_ROWS = 500
"""Log rows of a slice of the replay, some 10 ms of work: unlike a backfill's insertions, most of them change what is
there, and what is made of that."""


class BulkBuilder:
    """See :class:`controller.migrating.bulk.choice.Builder`."""

    def __init__(self, executor: Executor, source: BulkSource, runners: Sequence[BulkRunner]) -> None:
        self._executor = executor
        self._source = source
        self._numbers = itertools.count(1)
        self.runners = runners

    async def build(self, change: Change, choice: Choice, migration: Migration) -> None:
        runner = choice.runner
        assert runner is not None, "it is not to be built in bulk"
        after = tuple(step.text for step in (*change.removal.steps, *change.drops))
        migration.steps = (*migration.steps[: migration.done], *bulk_steps(change, runner.name), *after)
        await self._build(change, choice, migration).carry_out()

    async def fill(self, change: Change, choice: Choice, migration: Migration) -> None:
        assert choice.runner is not None, "it is not to be built in bulk"
        migration.steps = filling_steps(change, choice.runner.name)
        await self._build(change, choice, migration).fill()

    def _build(self, change: Change, choice: Choice, migration: Migration) -> _Build:
        assert choice.runner is not None, "it is not to be built in bulk"
        migration.weights = {f"{COMPUTE} ({choice.runner.name})": COMPUTE_WEIGHT, LOAD: LOAD_WEIGHT}
        # A migration that begins again has another directory: of the first job something may still be there.
        staging = url_of(self._source.url, STAGING, f"{migration.id}-{next(self._numbers)}")
        return _Build(self._executor, self._source, staging, choice.runner, change, choice, migration)


def bulk_steps(change: Change, way: str) -> tuple[str, ...]:
    """The steps, for showing."""
    steps = change.views.steps
    return (
        *(step.text for step in steps if not isinstance(step.command, (Feed, Activate))),
        *filling_steps(change, way),
        *(step.text for step in steps if isinstance(step.command, Activate)),
    )


def filling_steps(change: Change, way: str) -> tuple[str, ...]:
    """The steps between the nodes and their activation."""
    domains = bulk_domains(change.state.flow, change.views)
    replaying = (f"domain {domain}: {what}" for what in ("read the log since", "replay it") for domain in domains)
    return (ARCHIVE, f"{COMPUTE} ({way})", LOAD, *replaying)


class _Build:
    def __init__(
        self,
        executor: Executor,
        source: BulkSource,
        staging: str,
        runner: BulkRunner,
        change: Change,
        choice: Choice,
        migration: Migration,
    ) -> None:
        self._executor, self._source, self._staging, self._runner = executor, source, staging, runner
        self._change, self._choice, self._migration = change, choice, migration
        self._flow, self._plan = change.state.flow, change.views

    async def carry_out(self) -> None:
        steps, migration = self._plan.steps, self._migration
        first = [_in_bulk(step) for step in steps if not isinstance(step.command, (Feed, Activate))]
        await carry_out(self._executor, first, migration)
        await self.fill()
        await carry_out(self._executor, [s for s in steps if isinstance(s.command, Activate)], migration)

    async def fill(self) -> None:
        """Fill the nodes, which are all there: from the archive to the end of the replay."""
        migration = self._migration
        migration.step = ARCHIVE
        migration.check()
        try:  # From here on: a worker may hold its log when another one cannot archive.
            positions = await self._source.archive_now(migration.id, self._executor.epoch)
            self._executor.check()  # Before they are used: a shard that moved meanwhile has been asked nowhere.
            migration.done += 1
            await self._load(await self._computed(positions))
            await self._replay(positions)
        finally:
            try:
                await self._source.release(migration.id)
            finally:
                await self._source.files.remove(self._staging)

    # --- the job ------------------------------------------------------------------------------------------------

    async def _computed(self, positions: Clock) -> Sequence[StateFile]:
        migration = self._migration
        migration.step = f"{COMPUTE} ({self._runner.name})"
        job = await self._job(positions)
        run = await started(lambda: self._runner.start(job))
        try:
            while (files := run.results()) is None:
                progress = run.progress()
                self._show(progress)
                migration.within = max(migration.within, _share(progress))
                await asyncio.sleep(POLL_SECONDS)
                migration.check()
                self._executor.check()
            # What a runner told last may be from before its end.
            last = run.progress()
            rows = last.total or last.rows
            self._show(replace(last, rows=rows, total=rows, stages_done=last.stages, seconds_left=0.0))
        finally:
            await asyncio.to_thread(run.cancel)
        migration.within = 0.0
        migration.done += 1
        return files

    def _show(self, progress: JobProgress) -> None:
        self._migration.show_job(self._choice.way, self._choice.why, progress)

    async def _job(self, positions: Clock) -> BulkJob:
        flow, rows = self._flow, self._choice.rows
        schemas = {schema.name: schema for schema in self._change.state.catalog.tables.values()}
        bases = sorted(bases_fed(flow, self._plan))
        named = [(table_of(base, flow.shards), shard_of_base(base, flow.shards)) for base in bases]
        manifests: list[ShardManifest] = await asyncio.to_thread(manifests_of, self._source.url, named)
        tables = tuple(
            TableShard(base, schemas[table], positions[base], manifest, rows.get(base, 0))
            for base, (table, _), manifest in zip(bases, named, manifests, strict=True)
        )
        stages = stages_of(flow, self._plan, schemas, rows)
        return BulkJob(self._migration.id, self._source.url, self._staging, tables, stages)

    # --- its states ---------------------------------------------------------------------------------------------

    async def _load(self, files: Sequence[StateFile]) -> None:
        migration = self._migration
        migration.step = LOAD
        total = max(1, sum(file.bytes for file in files))
        loaded = 0
        for file in files:
            blocks = blocks_of_file(self._staging, file)
            while (block := await asyncio.to_thread(next, blocks, None)) is not None:
                migration.check()
                await self._executor.command(file.domain, LoadState(file.node, block))
                loaded += len(block)
                migration.within = min(1.0, loaded / total)
        migration.within = 0.0
        migration.done += 1

    async def _replay(self, positions: Clock) -> None:
        flow, fed = self._flow, bases_fed(self._flow, self._plan)
        domains = bulk_domains(flow, self._plan)
        starts = {
            domain: {table_of(base, flow.shards): positions[base] for base, at in fed.items() if at == domain}
            for domain in domains
        }
        await self._sliced({d: StartReplay(starts[d], REPLAY_ROWS) for d in domains}, "read the log since")
        await self._sliced({domain: Follow(REPLAY_ROWS) for domain in domains}, "replay it")

    async def _sliced(self, commands: Mapping[DomainIndex, StartReplay | Follow], what: str) -> None:
        steps = [PlanStep(domain, each, f"domain {domain}: {what}", sliced=True) for domain, each in commands.items()]
        await carry_out(self._executor, steps, self._migration)


def _share(progress: JobProgress) -> float:
    """The share of a job that is done: base rows that were fed, and with Spark whether they are ready to be fed."""
    fed = progress.rows / progress.total if progress.total else progress.stages_done / max(1, progress.stages)
    if not progress.tasks:
        return fed
    ready = 1.0 if progress.rows else progress.tasks_done / progress.tasks
    return PREPARING * ready + (1 - PREPARING) * fed


def _in_bulk(step: PlanStep) -> PlanStep:
    return replace(step, command=replace(step.command, bulk=True)) if isinstance(step.command, AddNodes) else step


def shard_of_base(base: str, shards: int) -> int:
    """The number in a base shard's name."""
    return 0 if shards == 1 else int(base.rpartition("@")[2])
