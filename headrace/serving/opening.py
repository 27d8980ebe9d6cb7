"""The one place that chooses the deployment that settings ask for: the embedded one."""

from __future__ import annotations

import asyncio
from importlib import import_module

from controller.access.keeper import Keeper
from controller.deployment import Deployment
from controller.embedded.opening import Opening
from controller.statements.evaluating import SparkSelects
from headrace.serving.access import begin_audit, begin_tokens
from headrace.settings import Settings
from migrations.backfill.runner import BulkRunner, Folder
from worker.adhoc.pool import Budget
from worker.archive.options import ArchiveOptions
from zookeeper.accounts import FileAccounts

NO_SPARK = "none"
"""The setting ``spark_master`` where full state is never computed by Spark."""


def bulk_runners(settings: Settings) -> tuple[BulkRunner, ...]:
    """The runner that computes full state from the archive: Spark, or where that cannot or must not be, a process
    without it."""
    from controller.migrating.bulk.local_runner import LocalRunner  # Late, for the same reason.
    from migrations.backfill.spark.runner import SparkRunner

    local = LocalRunner()
    return (local,) if settings.spark_master == NO_SPARK else (SparkRunner(settings.spark()), local)


def rebuild_folder(settings: Settings) -> Folder | None:
    """The runner that folds the archive of a cluster's lost shards, where that is much."""
    from migrations.backfill.spark.runner import SparkFolder  # Late, for the same reason.

    return None if settings.spark_master == NO_SPARK else SparkFolder(settings.spark())


def spark_selects(settings: Settings) -> SparkSelects | None:
    """The one that answers SELECTs that read many rows: Spark, where a master is given."""
    if settings.spark_master in (None, NO_SPARK):
        return None
    from migrations.backfill.spark.launching import SparkJob

    return SparkSelects(lambda what: SparkJob("select", what, settings.spark()), settings.spark_threshold)


async def open_deployment(settings: Settings, opening: Opening | None = None) -> Deployment:
    """Raises StorageFailure, or OSError where the data directory cannot be made.

    ``opening`` hears how far it is; then full state is built when this has returned, and reads of it wait.
    """
    # Late: it loads the storage libraries, which a client has no use for. In a thread, since others are answered.
    runners = await asyncio.to_thread(bulk_runners, settings)
    await asyncio.to_thread(import_module, "controller.embedded.local")
    from controller.embedded.local import LocalDeployment

    deployment = await LocalDeployment.open(
        settings.data,
        memory_limit=settings.memory_limit,
        disk_reserve=settings.disk_reserve,
        domains=settings.domains,
        shards=settings.shards,
        collation=settings.collation,
        read_timeout=settings.read_timeout,
        ad_hoc=settings.ad_hoc,
        budget=Budget.of(settings),
        partial=settings.state == "partial",
        archive=ArchiveOptions.of(settings),
        runners=runners,
        spark_threshold=settings.spark_threshold,
        opening=opening,
    )
    keeper = Keeper(FileAccounts(settings.data))
    try:
        keeper.tokens = await begin_tokens(settings)
        await keeper.start()
        keeper.audit = begin_audit(settings)
    except BaseException:
        await keeper.close()
        await deployment.close()
        raise
    deployment.accounts = keeper
    deployment.selects.kept_bytes = settings.max_automatic_size
    deployment.snapshots.take_every(settings.snapshot_every)
    if settings.archive is not None:
        deployment.selects.by_spark = spark_selects(settings)
    return deployment
