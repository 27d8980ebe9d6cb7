"""Building full state in bulk in a cluster: the workers archive what they host, the leader has the rest done.

The job runs where the leader is (or on Spark's cluster), reads the archive that all workers write to, and the leader
hands the states to the workers, block by block, as commands. So a worker needs to know nothing of jobs, and a worker
that is lost on the way interrupts the migration like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from controller.bulk.choice import Builder
from controller.bulk.job_files import JobFiles
from controller.cluster.fleet import Fleet
from controller.cluster.ledger import Ledger
from controller.cluster.together import together
from controller.executor import Executor
from domains.errors import Unavailable
from domains.packets import Clock
from domains.sharding import physical
from migrations.backfill.runner import BulkRunner, Folder
from migrations.backfill.threshold import SPARK_THRESHOLD
from migrations.change import BASES
from worker.archive_messages import ArchivePositions, ArchiveRequest, LogRelease

_log = logging.getLogger("headrace.controller")


@dataclass(frozen=True, slots=True)
class BulkSettings:
    """``archive`` is the URL under which all workers archive; without one, or without runners, nothing is built in
    bulk."""

    archive: str | None = None
    runners: tuple[BulkRunner, ...] = ()
    threshold: int = SPARK_THRESHOLD
    folder: Folder | None = None
    """Who folds lost shards that have more archived rows than the threshold; see ``rebuild_way.py``."""


class ClusterSource:
    """See :class:`controller.bulk.source.BulkSource`: the archivers of the workers that have base tables."""

    def __init__(self, url: str, fleet: Fleet, ledger: Ledger, files: JobFiles) -> None:
        self.url = url
        self.files = files
        self._fleet = fleet
        self._ledger = ledger

    def _workers(self) -> Sequence[str]:
        decided = self._ledger.decided
        bases = (physical(BASES, shard, decided.shards) for shard in range(decided.shards))
        return sorted({decided.placement[base].worker for base in bases})

    async def archive_now(self, hold: str, epoch: int) -> Clock:
        """Raises Interrupted where a worker is lost meanwhile, Unavailable where one archives elsewhere."""
        positions: Clock = {}
        request, workers = ArchiveRequest(hold, epoch), self._workers()  # Others may have the domains by the answers.
        # All of them: a release that went before an archiving that is under way would leave its hold.
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
        """A worker that is gone holds nothing; one that cannot be asked now ends its hold with this leader's epoch."""
        told = await asyncio.gather(
            *(self._fleet.ask(worker, LogRelease(hold)) for worker in self._workers()), return_exceptions=True
        )
        for error in told:
            if isinstance(error, Exception):
                _log.info("a worker was not told to release its log: %s", error)


def builder_of(settings: BulkSettings, executor: Executor, source: ClusterSource | None) -> Builder | None:
    """``source`` is None where there is no archive."""
    if source is None or not settings.runners:
        return None
    from controller.bulk.building import BulkBuilder  # Late: it loads pyarrow.

    return BulkBuilder(executor, source, settings.runners)
