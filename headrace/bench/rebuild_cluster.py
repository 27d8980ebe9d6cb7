"""The cluster that ``rebuild.py`` measures: ``headrace up``, each of two workers with a disk of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.bench.replay_data import Tell
from headrace.drills.cluster import Cluster, Shape, missing, placement
from headrace.drills.disk_loss import NEVER
from headrace.errors import Unavailable

SHAPE = Shape(workers=2, shards=2, controllers=1)
SECONDS = 120.0
"""Until a part that is started anew is there. A busy machine needs some ten."""
LOOK_AGAIN = 0.05


class OnDisks:
    """A cluster that runs."""

    def __init__(self, cluster: Cluster, runner: asyncio.Runner) -> None:
        self._cluster, self._runner = cluster, runner
        self.url = cluster.url

    def pids(self) -> Mapping[str, int]:
        return self._cluster.pids()

    def status(self) -> dict[str, Any] | None:
        return self._runner.run(self._cluster.status())

    def worker_of(self, shard: int) -> str:
        status = self.until(lambda status: shard in placement(status))
        return placement(status)[shard]

    def lose(self, worker: str) -> None:
        """Its directory first and then the process: what the supervisor starts in its place finds nothing. Returns when
        that one is there, as an operator would have the machine back before anything is given up."""
        disk, pid = disk_of(self._cluster.data, worker), self.pids()[worker]
        gone = disk.with_name(f"{worker}-gone")
        disk.rename(gone)
        os.kill(pid, signal.SIGKILL)
        shutil.rmtree(gone)

        def is_back(status: dict[str, Any]) -> bool:
            lacking = missing(status, SHAPE)
            return bool(lacking) and not any("workers are away" in words for words in lacking)

        self.until(lambda status: is_back(status) and self.pids().get(worker, pid) != pid)

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first status of which this holds."""
        deadline = time.monotonic() + SECONDS
        while True:
            status = self.status()
            if status is not None and holds(status):
                return status
            if time.monotonic() > deadline:
                said = "nothing" if status is None else ", ".join(missing(status, SHAPE)) or "that all is there"
                raise Unavailable(f"the cluster did not come so far in {SECONDS:g} s; it says {said}")
            time.sleep(LOOK_AGAIN)


def disk_of(data: Path, worker: str) -> Path:
    return data / "disks" / worker


@contextmanager
def on_disks(data: Path, master: str, threshold: int, tell: Tell) -> Iterator[OnDisks]:
    """Until the end of the block. What it logs is below ``data``. It archives when it is asked to and never else; what
    needs more base rows than the threshold is built in bulk. Raises DrillFailed."""
    data = data.absolute()
    archive = {"HEADRACE_ARCHIVE": str(data / "archive"), "HEADRACE_ARCHIVE_INTERVAL": str(NEVER)}
    spark = {"HEADRACE_SPARK_THRESHOLD": str(threshold), **({"HEADRACE_SPARK_MASTER": master} if master else {})}
    special: dict[str, Mapping[str, Any]] = {
        name: {"environment": {**archive, "HEADRACE_DATA": str(disk_of(data, name))}}
        for name in (f"worker-{number}" for number in range(1, SHAPE.workers + 1))
    }
    special["controller-1"] = {"environment": {**archive, **spark}}
    cluster = Cluster(data, SHAPE, special)
    with asyncio.Runner() as runner:
        try:
            runner.run(cluster.start())
            yield OnDisks(cluster, runner)
        finally:
            tell("stopping the cluster …")
            runner.run(cluster.stop())
