"""Bulk jobs of simulated migrations: run in place when they are due, on the folds of the simulated archive.

A job takes its time, fails, or is too late: the leader is gone by then, or a worker was lost. ``simulated_files`` puts
the archive in place of the files that the controller would read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from controller.cluster.leader.building import BulkSettings, named_runs
from controller.migrating.bulk.job_files import STAGING, id_of
from domains.errors import StorageFailure, Unavailable
from domains.language.types import Delta, TableSchema
from domains.plan.sharding import base_shard, table_of
from migrations.backfill.job import BulkJob, Folding, JobProgress, StateFile
from migrations.backfill.runner import BulkFailed
from tests.cluster_simulation.archive import URL, Manifest, Part, SimulatedArchive
from tests.migrations.backfill.in_process import run_locally

if TYPE_CHECKING:
    from tests.cluster_simulation.cluster import Cluster

CLEARING_SECONDS = 5.0
"""Between two looks of a leader at what jobs have left: in the time of a simulation there are to be some."""


class SimulatedRun:
    """See :class:`migrations.backfill.runner.BulkRun`."""

    def __init__(self, archive: SimulatedArchive, job: BulkJob) -> None:
        random = archive.random
        self._archive, self._job = archive, job
        self._loop = asyncio.get_event_loop()
        self._due = self._loop.time() + random.random() * random.choice((0.01, 0.3, 3.0))
        self._fails = random.random() < 0.15
        self._cancelled = False

    def progress(self) -> JobProgress:
        return JobProgress(total=self._job.rows, stages=len(self._job.stages))

    def results(self) -> tuple[StateFile, ...] | None:
        assert not self._cancelled, "it is asked for its results, and was cancelled"
        if self._loop.time() < self._due:
            return None
        self._archive.jobs["failed" if self._fails else "done"] += 1
        if self._fails:
            raise BulkFailed("the process that computes it was killed")
        staged = self._archive.staging.setdefault(self._job.staging, {})
        files: list[StateFile] = []
        for (domain, node), blocks in run_locally(self._job.stages, self._fold).items():
            file = f"state-{domain}-{node}"
            staged[file] = blocks
            files.append(StateFile(domain, node, file, len(blocks), sum(map(len, blocks)), ""))
        return tuple(files)

    def _fold(self, base: str) -> list[Delta]:
        table = self._job.table(base)
        self._archive.check()
        manifest: Any = table.manifest
        assert isinstance(manifest, Manifest)
        return manifest.fold(table.position, table.schema)

    def cancel(self) -> None:
        if self._loop.time() < self._due:
            self._archive.jobs["cancelled"] += 1
        self._cancelled = True


class SimulatedRunner:
    """See :class:`migrations.backfill.runner.BulkRunner`."""

    name = "simulated"

    def __init__(self, archive: SimulatedArchive) -> None:
        self._archive = archive

    def check(self, tables: Sequence[TableSchema]) -> None:
        if self._archive.random.random() < 0.05:
            raise Unavailable("no job can be begun here")

    def start(self, job: BulkJob) -> SimulatedRun:
        return SimulatedRun(self._archive, job)


class SimulatedFolding:
    """See :class:`migrations.backfill.runner.FoldRun`: some is read when it begins, and all is there when it is due."""

    def __init__(self, archive: SimulatedArchive, folding: Folding) -> None:
        random = archive.random
        self._archive, self._folding = archive, folding
        self._loop = asyncio.get_event_loop()
        self._due = self._loop.time() + random.random() * random.choice((0.01, 0.3, 3.0))
        self._fails = random.random() < 0.15
        self._cancelled = False

    def progress(self) -> JobProgress:
        return JobProgress(total=self._folding.rows, stages=len(self._folding.shards))

    def is_done(self) -> bool:
        assert not self._cancelled, "it is asked whether it is done, and was cancelled"
        if self._loop.time() < self._due:
            return False
        self._archive.jobs["failed foldings" if self._fails else "foldings"] += 1
        if self._fails:
            raise BulkFailed("the process that folds it was killed")
        runs = self._archive.runs.setdefault(self._folding.out, {})
        for table, shard, position in self._folding.shards:
            each = [m for m in self._archive.of_shard(shard) if table in (m.base, table_of(m.base, 2))][-1]
            schema = each.schema_at(position)
            runs[each.base] = Part(position, each.fold(position, schema), schema, whole=True)
        return True

    def cancel(self) -> None:
        if self._loop.time() < self._due:
            self._archive.jobs["cancelled foldings"] += 1
        self._cancelled = True


class SimulatedFolder:
    """See :class:`migrations.backfill.runner.Folder`."""

    name = "spark"

    def __init__(self, archive: SimulatedArchive) -> None:
        self._archive = archive

    def check(self) -> None:
        if self._archive.random.random() < 0.05:
            raise Unavailable("no job can be begun here")

    def start(self, folding: Folding) -> SimulatedFolding:
        return SimulatedFolding(self._archive, folding)


def bulk_settings(archive: SimulatedArchive | None) -> BulkSettings:
    if archive is None:
        return BulkSettings()
    random = archive.random
    return BulkSettings(URL, (SimulatedRunner(archive),), random.choice((0, 0, 3, 20)), SimulatedFolder(archive))


@contextmanager
def simulated_files(cluster: Cluster) -> Iterator[None]:
    """Within the block the controller's bulk builds find their files in the simulated archive."""
    archive = cluster.archive
    if archive is None:
        yield
        return

    def manifests_of(url: str, shards: Iterable[tuple[str, int]]) -> list[Manifest]:
        del url
        found: list[Manifest] = []
        for table, shard in shards:
            named = [m for m in archive.of_shard(shard) if m.base in (table, base_shard(table, 0, shard, 2))]
            if not named:
                raise StorageFailure(f"the archive has no shard {shard} of {table}")
            found += named
        return found

    def blocks_of_file(url: str, file: StateFile) -> Iterator[bytes]:
        yield from archive.block(url, file.file)

    def ids_of(url: str, kind: str) -> list[str]:
        del url
        archive.check()
        return sorted(map(id_of, archive.staging if kind == STAGING else archive.runs))

    def delete_all(url: str) -> None:
        archive.check()
        decided = cluster.decided()
        if decided is not None and url in named_runs(decided):
            cluster.loop.faults.append({"message": f"{url} is removed, and a decision names it"})
        archive.staging.pop(url, None)
        archive.runs.pop(url, None)

    building = mock.patch.multiple(
        "controller.migrating.bulk.building",
        manifests_of=manifests_of,
        blocks_of_file=blocks_of_file,
    )
    files = mock.patch.multiple("controller.migrating.bulk.job_files", ids_of=ids_of, delete_all=delete_all)
    clearing = mock.patch("controller.cluster.leader.building.PAUSE_SECONDS", CLEARING_SECONDS)
    with building, files, clearing:
        yield
