"""The cluster that ``rebuild.py`` measures: ``headrace up``, each of two workers with a disk of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

from headrace_client.connection import Connection

from headrace.errors import HeadraceError, Unavailable
from loadgen.bench.measurement import Beside, Tell, p99_ms, seldom
from loadgen.bench.program import SITE, ranking, site, stories_of
from loadgen.drills.cluster import ClusterShape, DrillCluster, missing, placement
from loadgen.drills.disk_loss import NEVER
from zookeeper.secret import Secret

# The clients during a rebuild: those that read other shards, and those that wait for the lost one.

READS_PER_SECOND = 50
"""Few enough to take no processor from what is measured, and so many that some seconds have a 99th percentile."""
AGAIN_SECONDS = 0.02
"""Seconds between two tries of a waiting client; the server holds a request and answers as soon as it can."""
KEPT_ERRORS = 5


class Reads(Beside):
    """A client that reads counts one at a time, while the block lasts. Reads that fall due during a slow one are left
    out: on a busy machine they would queue up, and their times would tell how long it has been busy."""

    def __init__(self, url: str, stories: Sequence[int]) -> None:
        self._url, self._stories = url, stories
        self.count = self.errors = 0
        self.p99_ms = self.max_ms = 0.0
        self.max_at = 0.0
        """When the longest began, by ``time.perf_counter``."""
        self.said: list[str] = []
        """The most frequent errors."""

    def warm(self) -> None:
        """Fill the keys that are read: what is measured are hits."""
        with Connection(self._url) as db:
            db.view("Counted").lookup_many([[story] for story in self._stories])

    def _begin(self) -> None:
        self._taken, self._errors = array("d"), Counter[str]()

    def _end(self) -> None:
        self.count, self.errors = len(self._taken), self._errors.total()
        self.said = [text for text, _ in self._errors.most_common(KEPT_ERRORS)]
        self.p99_ms = p99_ms(self._taken)

    def _run(self) -> None:
        due, number = time.perf_counter(), 0
        with Connection(self._url) as db:
            view = db.view("Counted")
            while not self._over.wait(max(0.0, due - time.perf_counter())):
                began = time.perf_counter()
                try:
                    view.lookup(story=self._stories[number % len(self._stories)])
                except HeadraceError as error:
                    self._errors[str(error)] += 1
                taken = time.perf_counter() - began
                if taken * 1000 > self.max_ms:
                    self.max_ms, self.max_at = taken * 1000, began
                self._taken.append(taken)
                due, number = max(due + 1 / READS_PER_SECOND, time.perf_counter()), number + 1


class WaitingClient:
    """A client that asks a view until it answers: what, and when, by ``time.perf_counter``."""

    def __init__(self, url: str, view: str, **key: Any) -> None:
        self._url, self._view, self._key = url, view, key
        self.at: float | None = None
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it has answered by then."""
        self._thread.join(seconds)
        return self.at is not None

    def end(self) -> None:
        self._over.set()

    def _run(self) -> None:
        with Connection(self._url) as db:
            view = db.view(self._view)
            while not self._over.is_set():
                try:
                    view.lookup(**self._key)
                except HeadraceError:  # Its shard is not there yet, which is what is waited for.
                    self._over.wait(AGAIN_SECONDS)
                else:
                    self.at = time.perf_counter()
                    return


# Rows posted as a client posts them, and all answers that have to be the same again afterwards.

ROWS_TOGETHER = 1_000
"""Rows and keys to a request."""
CLIENTS = 4
POST_SECONDS = 600.0
"""Limit of a request's time."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answers:
    """All rows of both views: each vote is counted in either."""

    counted: list[list[Record]]
    ranking: list[Record]


def fill(url: str, rows: int, tell: Tell) -> None:
    told = seldom(tell)
    with Connection(url, timeout=POST_SECONDS) as db, ThreadPoolExecutor(CLIENTS) as clients:
        db.execute_all(f"{SITE}{ranking('Ranking')};")
        for name, columns, count, rest in site(rows):
            made = (dict(zip(columns, row, strict=True)) for row in rest)
            table, done = db.table(name), 0
            while parts := [part for _ in range(CLIENTS) if (part := list(islice(made, ROWS_TOGETHER)))]:
                list(clients.map(table.insert, parts))
                done += sum(map(len, parts))
                told(f"{name}: {done:,} of {count:,}")


def answers(url: str, rows: int) -> Answers:
    with Connection(url, timeout=POST_SECONDS) as db:
        counted, view, stories = list[list[Record]](), db.view("Counted"), range(stories_of(rows))
        for first in stories[::ROWS_TOGETHER]:
            counted += view.lookup_many([[story] for story in stories[first : first + ROWS_TOGETHER]])
        return Answers(counted, db.view("Ranking").lookup())


SHAPE = ClusterShape(workers=2, shards=2, controllers=1)
SECONDS = 120.0
"""Until a part that is started anew is there. A busy machine needs some ten."""
LOOK_AGAIN = 0.05


class OnDisks:
    """A cluster that runs."""

    def __init__(self, cluster: DrillCluster, runner: asyncio.Runner) -> None:
        self._cluster, self._runner = cluster, runner
        self.url = cluster.url

    @property
    def secret(self) -> Secret | None:
        return self._cluster.secret

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
    cluster = DrillCluster(data, SHAPE, special)
    with asyncio.Runner() as runner:
        try:
            runner.run(cluster.start())
            yield OnDisks(cluster, runner)
        finally:
            tell("stopping the cluster …")
            runner.run(cluster.stop())
