"""The Spark session of a job: the only place that starts one, and every setting of it with its reason.

It is a job's own and lives as long as the job: a session that is shared would keep a JVM of some hundred megabytes
beside the servers for nothing. In local mode nothing of it can be reached from another machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from migrations.backfill.spark.settings import SparkSettings

# Our code as a zip, for the workers of a cluster: they run what the driver runs, whatever is installed there.
#
# A function goes to a worker as the name of its module, which the worker imports. In local mode that is the same
# installation. On other machines the packages that tasks use are sent along, in front of what the worker's Python
# has; what they need in turn (``pyarrow``, ``orjson``, ``sqlglot``: see ``requirements.lock``) must be installed
# there, in the Python that ``spark.pyspark.python`` names (else the same path as the driver's).

PACKAGES = ("domains", "migrations", "headrace_client")
"""What tasks import. They are pure, so nothing else of ours comes along; of the client they have the errors."""

ARCHIVE = "headrace-code.zip"


def ship(context: SparkContext, folder: Path) -> None:
    """Send the packages to every worker of this context, before its first task.

    Workers fetch them when they begin, also those that begin late: the zip stays in ``folder`` while the session lasts.
    """
    path = folder / ARCHIVE
    pack(path)
    context.addPyFile(str(path))


def pack(path: Path) -> None:
    """Write the packages' modules into a zip that Python imports from."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for package in PACKAGES:
            found = find_spec(package)
            assert found is not None
            for folder in found.submodule_search_locations or ():
                root = Path(folder)
                for module in sorted(root.rglob("*.py")):
                    target.write(module, str(package / module.relative_to(root)))


ARROW_BATCH_ROWS = 8_192
"""Rows that go to and from Python at once. Spark's own 10,000 are about the same; what counts is that a batch of wide
rows (1 KB each) stays below 10 MB, since several are on their way in each worker."""

PARTITIONS_A_CORE = 2
"""Shuffle partitions: so that no core waits long for the last one. Spark's 200 cost more in starting tasks than a small
job takes in all (each some 10 ms with a Python worker); where there is much data, Spark splits what is too large."""

WORKERS_PYTHON = "spark.pyspark.python"

JAVA_OPTIONS = "-XX:+UseSerialGC"
"""Options of the JVM in local mode, which does all of the work: Java's parallel collectors want more cores than a job
has."""

QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
"""Java's second compiler took half of a small job's processor time (52 s, 27 without, for 20,000 rows on a busy
machine; 35 and 27 for a million)."""

MANY_ROWS = 10_000_000
"""The number of rows from which on it is worth its time: the sums of 47 million rows take 109 processor seconds instead
of 184."""

HEARTBEAT = "1s"
"""The executor's heartbeat in local mode; Spark's ten are long for who looks at a bar."""

LISTED_FILES = 256
"""Files that the driver looks for by itself, in local mode; Spark has a job with a task for each of more than 32."""

STOP_SECONDS = 10
"""Seconds for the JVM to end by itself; then it is killed."""


def cores_here() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settings_of(settings: SparkSettings, rows: int = 0) -> dict[str, str]:
    """Spark's settings for a job over about so many rows, those that the user gave last."""
    cores = cores_here()
    conf = {
        "spark.master": settings.master or f"local[{cores}]",
        "spark.app.name": "headrace",
        "spark.driver.memory": f"{max(settings.memory // 2**20, 512)}m",
        "spark.executor.memory": f"{max(settings.memory // 2**20, 512)}m",
        # Times are UTC in the archive and everywhere else here.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        # An overflow or a cast that fails is to fail the job: without it Spark would wrap round, or answer NULL, and a
        # judge that miscounts is worse than none. What MySQL answers NULL for is written as try_… in the SQL.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
        "spark.sql.shuffle.partitions": str(PARTITIONS_A_CORE * cores),
        # The archive's files name their columns as SQL does, in any case; two that differ by case only are not made.
        "spark.sql.caseSensitive": "false",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
        # The workers' Python, so that our modules mean the same there; on other machines it is at the same path, or
        # where this setting says.
        WORKERS_PYTHON: sys.executable,
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # A task that fails by our own code fails again; what it said is wanted once.
        "spark.task.maxFailures": "1" if settings.is_local else "4",
    }
    if settings.is_local:
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.defaultJavaOptions": JAVA_OPTIONS
            if rows >= MANY_ROWS
            else f"{QUICK_COMPILER} {JAVA_OPTIONS}",
            # How many rows a task has read so far comes with them.
            "spark.executor.heartbeatInterval": HEARTBEAT,
            "spark.sql.sources.parallelPartitionDiscovery.threshold": str(LISTED_FILES),
            # Its workers are forked from a process that has our modules already.
            "spark.python.daemon.module": "migrations.backfill.spark.daemon",
        }
    return conf | dict(settings.conf)


@contextmanager
def session(settings: SparkSettings, rows: int = 0) -> Iterator[SparkSession]:
    """A session for a job over about so many rows, until the block ends: then its JVM has ended too, however the block
    ended."""
    if settings.is_local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # The UI listens there too.
    conf, wanted = SparkConf(), settings_of(settings, rows)
    for name, value in wanted.items():
        conf.set(name, value)
    os.environ["PYSPARK_PYTHON"] = wanted[WORKERS_PYTHON]  # What a session goes by that no shell has started.
    spark = None
    with TemporaryDirectory(prefix="headrace-spark-") as folder:
        try:
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
            if not settings.is_local:
                ship(spark.sparkContext, Path(folder))
            yield spark
        finally:
            _end(spark)


def _end(spark: SparkSession | None) -> None:
    """Stop the session and its JVM; one that does not end is killed."""
    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None and process.poll() is not None:
        spark = None  # It has died; whatever is asked of it now would only wait.
    with suppress(Exception):
        if spark is not None:
            spark.stop()
    with suppress(Exception):
        if gateway is not None:
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if process is not None:
        end_process(process)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """The JVM ends when its input does; what does not is killed."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
