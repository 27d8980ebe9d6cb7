"""What a job says while it runs: lines of JSON on what was its standard output.

The JVM and the workers inherit the standard output as well, so it is set aside before they start: the lines go to a
duplicate that only we have, and whatever else is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Any, TextIO

from pyspark.sql import SparkSession

from migrations.backfill.spark.launching import PROGRESS

INTERVAL = 0.5
"""Seconds between two looks at how far Spark is."""


class Reporter:
    """Writes lines. ``facts`` are told with each progress."""

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


class Watch:
    """A thread that tells how many tasks are done of the stages that have run, while the block lasts."""

    def __init__(self, spark: SparkSession, reporter: Reporter, extra: Callable[[], dict[str, Any]] = dict) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._reporter = reporter
        self._extra = extra
        self._stages: dict[int, tuple[int, int]] = {}
        """Tasks that are done and all tasks, of each stage that was seen."""
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
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
