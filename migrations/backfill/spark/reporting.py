"""What a job says while it runs: lines of JSON on what was its standard output.

The JVM and the workers inherit the standard output as well, so it is set aside before they start: the lines go to a
duplicate that only we have, and whatever else is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, TextIO

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from domains.errors import HeadraceError
from migrations.backfill.spark.launching import PROGRESS, SparkFailed, error_of_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# What went wrong inside Spark, as an error of ours: the cause, not the hundred lines around it.
#
# An error of ours that is raised in a task comes back as the text of a Python traceback, or (where SQL's
# ``raise_error`` raised it) as Spark's message. Either has its code and message between marks, by which it is known
# again here.

OPENING, CLOSING = "⟦headrace:", "⟧"

_MARKED = re.compile(re.escape(OPENING) + r"(.*?)" + re.escape(CLOSING), re.S)

_NO_FILE_SYSTEM = re.compile(r'No FileSystem for scheme "(.+?)"|Class org\.apache\.hadoop\.fs\.(\w+)\.\w+ not found')
"""What Hadoop says of a scheme that it does not know, and of one whose class it knows and whose jar it has not got."""

_QUERY = "\n== "
"""What Spark writes before it shows the place in the query's text, which is text of ours that nobody has written."""

LONGEST = 400
"""Characters of a message of Spark's own that are shown; its first line has what it is about."""


def marked(error: HeadraceError) -> str:
    """The error as text that :func:`error_of` finds again."""
    return OPENING + json.dumps([error.code, error.message, error.hint]) + CLOSING


class Marked(Exception):
    """An error of ours on its way out of a task."""

    def __init__(self, error: HeadraceError) -> None:
        super().__init__(marked(error))


def error_of(error: BaseException) -> HeadraceError:
    """The error of ours that is the cause, else SparkFailed with the line that says most."""
    text = str(error)
    found = _MARKED.search(text)
    if found is not None:
        return error_of_code(*json.loads(found[1]))
    found = _NO_FILE_SYSTEM.search(text)
    if found is not None:
        return _no_file_system(found[1] or found[2])
    if isinstance(error, PySparkException) and error.getCondition():
        return SparkFailed(f"Spark: {' '.join(text.partition(_QUERY)[0].split())[:LONGEST]}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Java's stack names classes like ``QueryExecution$.withInternalError``: where it was, not what it was.
    causes = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    return SparkFailed(f"Spark: {(causes or lines or [type(error).__name__])[-1][:LONGEST]}")


def _no_file_system(scheme: str) -> SparkFailed:
    if scheme == "s3a":
        jars = f"--spark-conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{_hadoops_version()} brings it"
    else:
        jars = "its jar goes into --spark-conf spark.jars.packages=GROUP:NAME:VERSION, or spark.jars=FILE"
    return SparkFailed(f"Spark has no file system for {scheme}:// in its jars", hint=f"{jars}: see docs/spark.md")


def _hadoops_version() -> str:
    """The version of the Hadoop that PySpark brings along; hadoop-aws must be of the same."""
    jars = Path(pyspark.__file__).parent / "jars"
    return next((file.stem.rpartition("-")[2] for file in jars.glob("hadoop-client-api-*.jar")), "VERSION")


# How many rows running tasks have read and fed, while they run: Spark's tracker tells of tasks that are done, and of
# a stage with one task nothing until its end.
#
# What is read Spark's status store knows by its executors' heartbeats. Of what is fed a task sends a datagram every
# now and then, and the driver looks what has come whenever somebody asks. One that is lost, or that no firewall lets
# through, costs nothing but a number that stands still; what a task that is done has fed is counted by Spark's
# accumulator. A datagram without the job's secret is passed over.

_DATAGRAM = struct.Struct(">16sIIQ")
"""Secret, stage, task, rows fed by it so far."""

SECONDS = 0.5
"""Seconds between two datagrams of a task."""


@dataclass(frozen=True, slots=True)
class ReportAddress:
    """The address that tasks report to, and the secret. ``port`` is 0 where nobody listens."""

    host: str
    port: int
    secret: bytes


class Tally:
    """The driver's end. It listens at ``bound``, which tasks reach as ``host``; it is to be closed."""

    def __init__(self, bound: str, host: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._fed: dict[tuple[int, int], int] = {}
        port = 0
        with suppress(OSError):
            self._socket.bind((bound, 0))
            port = self._socket.getsockname()[1]
        self.address = ReportAddress(host, port, os.urandom(16))

    def rows(self) -> int:
        """Rows of all tasks, as far as they have told; of one that was tried twice, the more."""
        with suppress(OSError):
            while self.address.port:
                self._take(self._socket.recv(_DATAGRAM.size + 1))
        return sum(self._fed.values())

    def _take(self, data: bytes) -> None:
        if len(data) != _DATAGRAM.size:
            return
        secret, stage, task, rows = _DATAGRAM.unpack(data)
        if secret == self.address.secret:
            self._fed[stage, task] = max(rows, self._fed.get((stage, task), 0))

    def close(self) -> None:
        self._socket.close()


def tally_of(spark: SparkSession) -> Tally:
    """The tally at the address where executors reach this driver."""
    conf = spark.sparkContext.getConf()
    host = conf.get("spark.driver.host") or "127.0.0.1"
    return Tally(conf.get("spark.driver.bindAddress") or host, host)


class FilesRead:
    """Rows that Spark has read of files since this was made. The store has no interface in Python: what it does not
    tell is 0."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._read: dict[int, int] = {}
        """Keyed by stage."""
        self._done = self._stages()

    def rows(self) -> int:
        with suppress(Exception):
            store = self._context._jsc.sc().statusStore()
            for stage in self._stages() - self._done:
                with suppress(Exception):  # One that is only planned.
                    found = store.lastStageAttempt(stage)
                    self._read[stage] = int(found.inputRecords())
                    if found.status().toString() not in ("ACTIVE", "PENDING"):
                        self._done.add(stage)
        return sum(self._read.values())

    def _stages(self) -> set[int]:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup()]
        return {stage for job in jobs if job is not None for stage in job.stageIds}


class TaskReporter:
    """A task's end."""

    def __init__(self, address: ReportAddress, stage: int, task: int) -> None:
        self._address, self._place = address, (stage, task)
        self._rows, self._told = 0, time.monotonic()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def fed(self, rows: int) -> None:
        self._rows += rows
        if self._address.port and time.monotonic() - self._told >= SECONDS:
            self._told = time.monotonic()
            with suppress(OSError):
                data = _DATAGRAM.pack(self._address.secret, *self._place, self._rows)
                self._socket.sendto(data, (self._address.host, self._address.port))

    def close(self) -> None:
        self._socket.close()


INTERVAL = 0.5
"""Seconds between two looks at how far Spark is."""


class Reporter:
    """Writes lines. ``facts`` are sent with each progress."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = Lock()
        self._started = time.monotonic()
        self.facts: dict[str, Any] = {}

    def say(self, kind: str, content: Any) -> None:
        with self._lock:
            self._out.write(json.dumps({kind: content}, ensure_ascii=False) + "\n")
            self._out.flush()

    def progress(self, **facts: Any) -> None:
        self.facts.update(facts)
        self.say(PROGRESS, {**self.facts, "seconds": round(time.monotonic() - self._started, 1)})


def set_output_aside() -> TextIO:
    """A file for our lines that goes where standard output went; that itself goes to standard error from now on."""
    ours = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return ours


class StageWatch:
    """A thread that tells how many tasks are done of the stages that have run, while the block lasts."""

    def __init__(self, spark: SparkSession, reporter: Reporter, extra: Callable[[], dict[str, Any]] = dict) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._reporter = reporter
        self._extra = extra
        self._stages: dict[int, tuple[int, int]] = {}
        """Tasks that are done and all tasks, of each stage that was seen."""
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> StageWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        told = None
        while not self._over.wait(INTERVAL):
            found = {**self._tasks(), **self._extra()}
            if found != told:
                self._reporter.progress(**found)
                told = found

    def _tasks(self) -> dict[str, Any]:
        active = self._tracker.getActiveStageIds()
        for stage, (_, total) in self._stages.items():
            if stage not in active:
                self._stages[stage] = total, total
        for stage in active:
            info = self._tracker.getStageInfo(stage)
            if info is not None:
                self._stages[stage] = info.numCompletedTasks, info.numTasks
        done, total = (sum(each[place] for each in self._stages.values()) for place in range(2))
        return {"tasks_done": done, "tasks": total}
