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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import psutil
from headrace_client.connection import Connection

from headrace.errors import HeadraceError, Unavailable
from loadgen.bench.measurement import Beside, p99_ms
from loadgen.bench.replay import Tell, seldom
from loadgen.drills.cluster import ClusterShape, DrillCluster, missing, placement
from loadgen.drills.disk_loss import NEVER

# The clients during a rebuild: those that read other shards, and those that wait for the lost one.

READS_PER_SECOND = 50
"""Few enough to take no processor from what is measured, and so many that some seconds have a 99th percentile."""
AGAIN_SECONDS = 0.02
"""Between two tries of who waits: a request is held by the server, which answers at once when it can."""
KEPT_ERRORS = 5


class Reads(Beside):
    """A client that reads counts by turns, while the block lasts, one at a time. Those that would have been due behind
    a slow one are not read: on a busy machine they would queue up, and their times say how long it has been busy."""

    def __init__(self, url: str, stories: Sequence[int]) -> None:
        self._url, self._stories = url, stories
        self.count = self.errors = 0
        self.p99_ms = self.max_ms = 0.0
        self.max_at = 0.0
        """When the longest began, by ``time.perf_counter``."""
        self.said: list[str] = []
        """By errors, the most frequent."""

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


# What the processes of a cluster take while ``rebuild.py`` has a shard rebuilt: its parts, and what they start.

SAMPLE_SECONDS = 0.2


@dataclass(slots=True)
class ProcessUse:
    """Bytes resident at most, and seconds of a processor. Processes that end between two looks are as of the last."""

    peaks: dict[str, int] = field(default_factory=dict)
    """By part; one that was started anew is counted with its successor."""
    cpu: dict[str, float] = field(default_factory=dict)
    bulk_peak: int = 0
    """All that parts have started, together: a job's driver, its JVM, that one's Python workers."""
    bulk_largest: dict[str, int] = field(default_factory=dict)
    """By the name of a program, the most that one process of it had."""
    bulk_cpu: float = 0.0


class Processes(Beside):
    """Watched while the block lasts. ``pids`` says which there are by part, as they are started anew."""

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self._pids, self.taken = pids, ProcessUse()

    def _begin(self) -> None:
        self._spent: dict[str, dict[psutil.Process, float]] = {}
        self._bulk: dict[psutil.Process, float] = {}
        self._before: dict[psutil.Process, float] = {}
        self._look()
        for each in (*self._spent.values(), self._bulk):
            self._before |= each

    def _end(self) -> None:
        self._look()
        self.taken.cpu = {part: self._since(spent) for part, spent in sorted(self._spent.items())}
        self.taken.bulk_cpu = self._since(self._bulk)

    def _since(self, spent: Mapping[psutil.Process, float]) -> float:
        return round(sum(seconds - self._before.get(process, 0.0) for process, seconds in spent.items()), 2)

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        taken, below = self.taken, 0
        for part, pid in self._pids().items():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                resident, self._spent.setdefault(part, {})[process] = _of(process)
                taken.peaks[part] = max(taken.peaks.get(part, 0), resident)
                for child in process.children(recursive=True):
                    with suppress(psutil.Error):
                        resident, self._bulk[child] = _of(child)
                        below += resident
                        name = child.name()
                        taken.bulk_largest[name] = max(taken.bulk_largest.get(name, 0), resident)
        taken.bulk_peak = max(taken.bulk_peak, below)


def _of(process: psutil.Process) -> tuple[int, float]:
    with process.oneshot():
        times = process.cpu_times()
        return process.memory_info().rss, float(times.user + times.system)


# What the cluster of ``rebuild.py`` holds: rows from a seed, posted as a client posts them, and all that is to be the
# same again afterwards.
#
# Votes and their stories stand by story, and so does the count of a story's votes: a story is of one shard, whose
# disk is lost or is not. The ranking needs rows of all shards.

PROGRAM = """
CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE stories (id INT PRIMARY KEY, author INT, INDEX (author)) SHARD BY (id);
CREATE TABLE votes (user INT, story INT, INDEX (story)) SHARD BY (story);
CREATE EXT VIEW Counted AS SELECT COUNT(*) AS n FROM votes WHERE story = ?;
CREATE EXT VIEW Ranking AS
SELECT u.name, COUNT(*) AS votes FROM votes v JOIN stories s ON s.id = v.story JOIN users u ON u.id = s.author
GROUP BY u.name ORDER BY votes DESC, u.name LIMIT 50;
"""
ROWS_TOGETHER = 1_000
"""Rows and keys to a request."""
CLIENTS = 4
POST_SECONDS = 600.0
"""That a request of this may take."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answers:
    """Of both views, whole: each vote is counted in either."""

    counted: list[list[Record]]
    ranking: list[Record]


def stories_of(rows: int) -> int:
    return rows // 20


def tables(rows: int) -> Iterator[tuple[str, int, Iterator[Record]]]:
    """Each table's name, how many rows, and these: of a hundred, 94 are votes, five stories and one is a user."""
    stories, users, random = stories_of(rows), rows // 100, Random(1)
    votes = rows - stories - users
    yield "users", users, ({"id": number, "name": f"user{number}"} for number in range(users))
    yield "stories", stories, ({"id": number, "author": random.randrange(users)} for number in range(stories))
    cast = ({"user": random.randrange(10**9), "story": random.randrange(stories)} for _ in range(votes))
    yield "votes", votes, cast


def fill(url: str, rows: int, tell: Tell) -> None:
    told = seldom(tell)
    with Connection(url, timeout=POST_SECONDS) as db, ThreadPoolExecutor(CLIENTS) as clients:
        db.execute_all(PROGRAM)
        for name, count, made in tables(rows):
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
