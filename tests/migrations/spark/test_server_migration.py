"""A server's migration by Spark: the whole way of ``CREATE VIEW``, with the session's own JVM in place of the child's.

``tests/cluster/test_bulk_migration.py`` has the real child for a cluster; it takes a minute.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from controller.deployment import MigrationStatus
from controller.embedded.local import LocalDeployment
from controller.migrating.bulk.job_files import STAGING
from domains.errors import Unavailable
from domains.language.types import TableSchema
from migrations.backfill.job import BulkJob, JobProgress, StateFile
from migrations.backfill.spark import bulk
from migrations.backfill.spark.launching import SparkJob
from migrations.backfill.spark.reporting import Reporter
from migrations.backfill.spark.runner import SparkRunner, order_of
from tests.controller.migrating.test_bulk import RANKING, check_ranking, fill, write_on_for
from tests.migrations.spark.conftest import SMALL, Patience, until
from worker.archive.options import ArchiveOptions

VIEW, *_ = RANKING.split(";")


class SessionRun:
    def __init__(self, job: BulkJob, files: Future[list[dict[str, Any]]]) -> None:
        self._job, self._files = job, files

    def progress(self) -> JobProgress:
        return JobProgress(self._job.rows, self._job.rows, 0, len(self._job.stages))

    def results(self) -> tuple[StateFile, ...] | None:
        return tuple(StateFile(**file) for file in self._files.result()) if self._files.done() else None

    def cancel(self) -> None:
        self._files.exception()


class SessionRunner(SparkRunner):
    """What the child does with the order that it is given, in a thread; the first order is a killed child's."""

    def __init__(self, spark: SparkSession, thread: ThreadPoolExecutor) -> None:
        super().__init__(SMALL)
        self._spark, self._thread = spark, thread
        self.killed: SparkJob | None = None
        self.begun, self.written = Future[None](), Event()
        """The job goes on once there are writes that it does not know of."""

    def check(self, tables: Sequence[TableSchema]) -> None:
        if self.begun.done():
            raise Unavailable("only one view is built so, and what a SELECT of the test needs is not")

    def start(self, job: BulkJob) -> Any:
        if self.killed is None:
            run = super().start(job)
            self.killed = run.child
            self.killed.process.kill()
            return run
        self.begun.set_result(None)
        return SessionRun(job, self._thread.submit(self._run, order_of(job)))

    def _run(self, order: dict[str, str]) -> list[dict[str, Any]]:
        until(self.written.is_set, "nobody has written")
        return bulk.run(self._spark, order, Reporter(io.StringIO()))


async def ended(deployment: LocalDeployment, id: str) -> MigrationStatus:
    patience = Patience(lambda: "the migration did not end")
    while (status := await deployment.migration(id)).state in ("queued", "running"):
        patience.check()
        await asyncio.sleep(0.1)
    return status


async def test_a_view_is_built_by_spark_while_the_server_writes_once_no_driver_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as thread:
        archive = ArchiveOptions(str(tmp_path / "archive"))
        runner = SessionRunner(spark, thread)
        deployment = await LocalDeployment.open(
            tmp_path / "data", archive=archive, runners=(runner,), spark_threshold=50
        )
        try:
            await fill(deployment)
            killed = await ended(deployment, (await deployment.migrate(VIEW)).id)
            assert killed.error is not None
            assert killed.error[0] == "bulk_failed", killed.error
            assert "was killed by SIGKILL" in killed.error[1]
            migration = await deployment.migrate(VIEW)
            patience = Patience(lambda: "the second driver never began")
            while not runner.begun.done():
                patience.check()
                await asyncio.sleep(0.1)
            await write_on_for(deployment, 5)
            runner.written.set()
            status = await ended(deployment, migration.id)
            assert status.error is None
            assert status.backfill is not None
            assert status.backfill.way == "spark"
            await check_ranking(deployment)
            await write_on_for(deployment, 5)
            await check_ranking(deployment)
            assert not list((Path(archive.url) / STAGING).iterdir())
        finally:
            await deployment.close()
