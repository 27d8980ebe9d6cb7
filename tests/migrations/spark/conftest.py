"""What is small of Spark here, and that its tests are skipped where there is no Java."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import psutil
import pytest

from migrations.backfill.spark.settings import SparkSettings

SMALL = SparkSettings(
    "local[2]",
    (
        ("spark.ui.enabled", "false"),
        ("spark.sql.shuffle.partitions", "2"),
        # Of a small job most of the time would go into compiling: Java for it, and that to machine code twice over.
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        ("spark.sql.adaptive.enabled", "false"),
    ),
    512 * 2**20,
)

STANDSTILL = 300.0
"""Seconds. Beside other sessions that are busy, a job, which gives way to them, has a hundredth of a core."""


class Patience:
    """Waits for what a test's processes do for as long as they do anything: a fixed time would tell of the machine."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what
        self._spent, self._since = _processor_time(), time.monotonic()

    def check(self) -> None:
        """:raises AssertionError: they have stood still."""
        spent, now = _processor_time(), time.monotonic()
        if spent != self._spent:
            self._spent, self._since = spent, now
        assert now - self._since < STANDSTILL, self._what()


def until(condition: Callable[[], object], what: Callable[[], object] | str) -> None:
    patience = Patience(what if callable(what) else lambda: what)
    while not condition():
        patience.check()
        time.sleep(0.1)


def _processor_time() -> float:
    """That of all processes below this one; it changes also when one of them comes or goes."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "migrations/spark" in item.path.as_posix():
            item.add_marker(pytest.mark.spark)
            if shutil.which("java") is None:
                item.add_marker(pytest.mark.skip(reason="there is no java on PATH"))
