"""A standalone cluster out of PySpark's own programs, as ``docs/spark.md`` shows it: one master, two workers."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from migrations.backfill.spark.launching import SparkJob
from migrations.backfill.spark.settings import SparkSettings
from tests.migrations.spark.conftest import SMALL, until
from tests.migrations.spark.test_fold import VOTES
from tests.migrations.spark.written_archive import WrittenShard

HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"


@contextmanager
def program(name: str, *arguments: str, log: Path) -> Iterator[Path]:
    """One of Spark's programs; ``log`` is what it says."""
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(log.parent / f"{log.stem}-work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOG_LEVEL": "INFO",
    }
    command = [str(HOME / "bin" / "spark-class"), f"{DEPLOY}.{name}", *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
    try:
        yield log
    finally:
        process.terminate()
        process.wait()


def said(log: Path, pattern: str) -> str:
    """Waits for a line and gives what the pattern finds."""
    until(lambda: re.search(pattern, log.read_text(errors="replace")), lambda: log.read_text(errors="replace")[-3000:])
    found = re.search(pattern, log.read_text(errors="replace"))
    assert found is not None
    return found[1]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """Ports are Spark's choice, so that nothing else is in the way."""
    spread = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with program("master.Master", *spread, log=tmp_path / "master.log") as log:
        url = said(log, r"(spark://127\.0\.0\.1:[1-9]\d*)")
        own = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "700m", url)
        logs = (tmp_path / "one.log", tmp_path / "other.log")
        with program("worker.Worker", *own, log=logs[0]), program("worker.Worker", *own, log=logs[1]):
            for each in logs:
                said(each, r"(Successfully registered with master)")
            yield url


def on(master: str) -> SparkSettings:
    return replace(SMALL, master=master, conf=(*SMALL.conf, ("spark.executor.memory", "512m")))


def finished(name: str, what: dict[str, object], settings: SparkSettings) -> object:
    with SparkJob(name, what, settings) as job:
        until(lambda: job.wait(0.2), lambda: f"{name}: {job.progress}")
        return job.result()


@pytest.mark.long
def test_jobs_run_on_the_workers_with_the_code_that_was_sent_along(master: str, tmp_path: Path) -> None:
    found = finished("probe", {"tasks": 4, "seconds": 0.2}, on(master))
    assert isinstance(found, dict)
    assert found["master"] == master
    assert all("headrace-code.zip" in place for place in found["code"]), found
    written = WrittenShard(tmp_path / "archive", VOTES)
    written.log(1, 3, [(i, (i, 7), 1) for i in (1, 2, 3)])
    counted = finished("count", {"archive": str(tmp_path / "archive"), "clock": {"votes": 3}}, on(master))
    assert isinstance(counted, dict)
    assert counted["rows"] == {"votes": 3}
