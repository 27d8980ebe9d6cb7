"""Building full state in bulk in a cluster: the workers archive what they host, and the leader runs the job.

The job runs beside the leader (or on Spark's cluster) and reads the archive that all workers write to. The leader sends
the states to the workers, block by block, as commands. So workers know nothing of jobs, and a lost worker interrupts
the migration as usual.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from controller.cluster.leader.fleet import Fleet, together
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.state import ClusterState
from controller.migrating.bulk.choice import Builder
from controller.migrating.bulk.job_files import RUNS, STAGING, JobFiles, epoch_of, id_of
from controller.migrating.executor import Executor
from domains.errors import HeadraceError, Unavailable
from domains.plan.packets import Clock
from domains.plan.sharding import physical
from migrations.backfill.runner import BulkRunner, Folder
from migrations.backfill.spark.settings import SPARK_THRESHOLD
from migrations.change import BASES
from worker.protocol.operations import ArchivePositions, ArchiveRequest, LogRelease
from zookeeper.errors import AuthorityError

PAUSE_SECONDS = 600.0
"""Seconds between two looks for files without an owner. Each lists two directories; such files only take room."""


async def keep_clear(files: JobFiles, archive: str, since: int, ledger: StateLedger) -> None:
    """Clear away files of jobs that have no owner any more (``bulk/job_files.py``), for ever, as the leader that took
    over in epoch ``since``. Again and again, since an owner that was killed may have been writing a moment ago, the
    archive may be away, and the last shard that is made from runs may not be open yet."""

    def is_forsaken(id: str) -> bool:
        epoch = epoch_of(id)
        is_of_before = epoch is not None and epoch < since
        return (is_of_before or id in files.left_to_decisions) and id not in map(id_of, named_runs(ledger.decided))

    while True:
        try:
            await files.remove_left()
            if await is_settled(ledger):
                for kind in (STAGING, RUNS):
                    await files.clear(archive, kind, is_forsaken)
        except Exception:
            _log.exception("the files that jobs have left were not cleared away")
        await asyncio.sleep(PAUSE_SECONDS)


async def is_settled(ledger: StateLedger) -> bool:
    """Whether this leader's last decision is known: a write may have been done although its answer was lost."""
    try:
        await ledger.settle()
    except (AuthorityError, HeadraceError) as error:
        _log.info("nobody knows which files are needed: %s", error)
        return False
    return True


def named_runs(decided: ClusterState) -> set[str]:
    """The URLs of runs in the decision."""
    placement = decided.placement.values()
    return {given.rebuild.runs for given in placement if given.rebuild is not None and given.rebuild.runs}


_log = logging.getLogger("headrace.controller")


@dataclass(frozen=True, slots=True)
class BulkSettings:
    """``archive`` is the URL of the archive that all workers write to. Without one, or without runners, nothing is
    built in bulk."""

    archive: str | None = None
    runners: tuple[BulkRunner, ...] = ()
    threshold: int = SPARK_THRESHOLD
    folder: Folder | None = None
    """Folds lost shards that have more archived rows than the threshold; see ``rebuild_way.py``."""


@dataclass(slots=True)
class ClusterSource:
    """See :class:`controller.migrating.bulk.job_files.BulkSource`: the archivers of the workers that have base
    tables."""

    url: str
    _fleet: Fleet
    _ledger: StateLedger
    files: JobFiles

    def _workers(self) -> Sequence[str]:
        decided = self._ledger.decided
        bases = (physical(BASES, shard, decided.shards) for shard in range(decided.shards))
        return sorted({decided.placement[base].worker for base in bases})

    async def archive_now(self, hold: str, epoch: int) -> Clock:
        """Raises Interrupted if a worker is lost meanwhile, Unavailable if one archives elsewhere."""
        positions: Clock = {}
        request, workers = ArchiveRequest(hold, epoch), self._workers()  # The domains may move before the answers.
        # Wait for all: a release that comes before the end of an archiving would leave its hold.
        answers: list[ArchivePositions] = await together(self._fleet.ask(name, request) for name in workers)
        for worker, answer in zip(workers, answers, strict=True):
            if answer.url != self.url:
                raise Unavailable(
                    f'worker "{worker}" archives under "{answer.url}", and the controller reads "{self.url}"',
                    hint="start all of them with the same --archive",
                )
            positions.update(answer.positions)
        return positions

    async def release(self, hold: str) -> None:
        """A lost worker holds nothing; one that cannot be asked now ends its hold with this leader's epoch."""
        told = await asyncio.gather(
            *(self._fleet.ask(worker, LogRelease(hold)) for worker in self._workers()), return_exceptions=True
        )
        for error in told:
            if isinstance(error, Exception):
                _log.info("a worker was not told to release its log: %s", error)


def builder_of(settings: BulkSettings, executor: Executor, source: ClusterSource | None) -> Builder | None:
    """``source`` is None without an archive."""
    if source is None or not settings.runners:
        return None
    from controller.migrating.bulk.building import BulkBuilder  # Late: it loads pyarrow.

    return BulkBuilder(executor, source, settings.runners)
