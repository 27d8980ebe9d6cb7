"""``headrace bench replay``: base logs read back. The fold, and full state built from it, each by all ways there are.

::

    base rows ──load──► server ──POST /v1/archive──► archive
       fold          in this process  ·  by a Spark job
       CREATE VIEW   in slices in the worker  ·  in bulk by a child process  ·  in bulk by Spark
                     while one client writes and another reads a view that is there, as they do when it is quiet

The view joins three tables, aggregates and ranks, so it is full. What counts is rows a second from the CREATE VIEW to
its first answer, with the start of the JVM; what the others notice: writes a second and the 99th percentile of reads,
as ratios to the quiet server just before and after; and what the processes took of processor and memory, the server's
and those beside it. All ways are measured in one run on one machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event, Thread

import psutil
from headrace_client.calls import Call
from headrace_client.connection import Connection, Migration
from headrace_client.results import Progress
from rich.table import Table

from controller.embedded.local import LocalDeployment
from domains.language.types import Row
from headrace.errors import BadRequest, Unavailable
from headrace.render import console
from headrace.sizes import format_size
from loadgen.bench.measurement import Beside, p99_ms
from loadgen.bench.program import load
from migrations.backfill.spark.launching import ABOUT, SparkJob
from migrations.backfill.spark.settings import SparkSettings

# The rows are made from a seed and written without HTTP, into a folder that may be kept.

Tell = Callable[[str], None]

PROGRAM = """
CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE stories (id INT PRIMARY KEY, author INT, INDEX (author));
CREATE TABLE votes (user INT, story INT, INDEX (story));
CREATE EXT VIEW Counted AS SELECT COUNT(*) AS n FROM votes WHERE story = ?;
"""

TELL_SECONDS = 30.0
"""Between two lines of how far something is: what is done with ten million rows takes minutes."""
TELL_ROWS = 1_000
"""Between two looks at the clock."""
BYTES_PER_ROW = 600
"""Of the disk at the peak: 180 in RocksDB, 20 archived, 100 of what is folded; RocksDB needs as much again while it
compacts, and what a bulk job spools."""


def ready(folder: Path, rows: int, tell: Tell) -> float | None:
    """See to it that ``folder/data`` has so many rows: of a hundred, 94 are votes, five stories and one is a user. The
    seconds that it took, None where they were there. What a run left that was broken off meanwhile is made anew."""
    mark = folder / "rows"
    if mark.exists() and mark.read_text("utf-8") == str(rows):
        tell(f"the {rows:,} rows in {folder} are there")
        return None
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise BadRequest(f'"{folder}" is not empty, and not of a former run', hint="name a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text("", "utf-8")
    for each in ("data", "archive"):
        shutil.rmtree(folder / each, ignore_errors=True)
    free, needed = shutil.disk_usage(folder).free, rows * BYTES_PER_ROW
    if free < needed:
        raise BadRequest(f'"{folder}" has {format_size(free)} free of some {format_size(needed)}', hint="--folder DIR")
    tell(f"loading {rows:,} rows …")
    began = time.perf_counter()
    asyncio.run(_fill(folder / "data", rows, tell))
    mark.write_text(str(rows), "utf-8")
    return time.perf_counter() - began


async def _fill(path: Path, rows: int, tell: Tell) -> None:
    stories, users, random = rows // 20, rows // 100, Random(1)
    votes, told = rows - stories - users, seldom(tell)

    def counted(table: str, of: int, each: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(each):
            if number % TELL_ROWS == 0:
                told(f"{table}: {number:,} of {of:,}")
            yield row

    deployment = await LocalDeployment.open(path)
    try:
        await deployment.execute(PROGRAM)
        await load(deployment, "users", counted("users", users, ((i, f"user{i}") for i in range(users))))
        made = ((i, random.randrange(users)) for i in range(stories))
        await load(deployment, "stories", counted("stories", stories, made))
        cast = ((random.randrange(10**9), random.randrange(stories)) for _ in range(votes))
        await load(deployment, "votes", counted("votes", votes, cast))
    finally:
        await deployment.close()


def seldom(tell: Tell) -> Tell:
    """Tells of what it is told once in ``TELL_SECONDS``, with the seconds since this was called."""
    began = told = time.perf_counter()

    def tell_now(text: str) -> None:
        nonlocal told
        if time.perf_counter() - told > TELL_SECONDS:
            told = time.perf_counter()
            tell(f"  {told - began:.0f} s: {text}")

    return tell_now


# The server that ``replay.py`` measures: ``headrace serve``, watched as it grows.

SAMPLE_SECONDS = 0.2
START_SECONDS = 120.0


@dataclass(slots=True)
class Used:
    """By a server's process, and by those below it together: a job's, a JVM's, its workers'. Bytes, and seconds of a
    processor. Processes that end between two looks are counted as of the last look."""

    server_peak: int = 0
    others_peak: int = 0
    largest: dict[str, int] = field(default_factory=dict)
    """By the name of a program, the most that one process of it had."""
    server_cpu: float = 0.0
    others_cpu: float = 0.0


class Watched:
    """A server's process: where it answers, and what it and all below it have used since ``begin``."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        self._process = psutil.Process(process.pid)
        self.begin()
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._used, self._spent = Used(), dict[int, float]()
        self._before = _seconds(self._process)

    def used(self) -> Used:
        self._look()
        return self._used

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        used = self._used
        with suppress(psutil.Error):
            used.server_peak = max(used.server_peak, self._process.memory_info().rss)
            used.server_cpu = _seconds(self._process) - self._before
            below = 0
            for child in self._process.children(recursive=True):
                with suppress(psutil.Error):
                    resident, name = child.memory_info().rss, child.name()
                    below += resident
                    used.largest[name] = max(used.largest.get(name, 0), resident)
                    self._spent[child.pid] = _seconds(child)
            used.others_peak, used.others_cpu = max(used.others_peak, below), sum(self._spent.values())


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def serving(folder: Path, threshold: int, environment: Mapping[str, str]) -> Iterator[Watched]:
    """``headrace serve`` on ``folder/data`` with the archive and the scratch files of bulk jobs beside it."""
    command = [sys.executable, "-m", "headrace", "serve", "--port", "0", "--data", str(folder / "data")]
    command += ["--archive", str(folder / "archive"), "--spark-threshold", str(threshold)]
    env = {**os.environ, "TMPDIR": str(folder), **environment, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    watched = None
    try:
        watched = Watched(process, _address(process))
        yield watched
    finally:
        if watched is not None:
            watched.end()
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    for line in process.stdout:
        found = re.search(r"answers at (http://\S+)", line)
        if found:
            return found[1]
        if time.monotonic() > deadline:
            break
    raise Unavailable("the server that is to be measured did not start", hint="headrace serve says why")


# What others notice while ``replay.py`` has a view built: one client that writes, and reads a view that is there.

KEYS_READ = 1000
"""Of the view, all of them filled before: what is measured is how long a read that hits takes."""


class Noticed(Beside):
    """One client that writes and reads by turns, in a thread, while the block lasts."""

    def __init__(self, url: str, rows: int) -> None:
        self._url, self._random, self._stories = url, Random(rows), max(1, rows // 20)
        self.writes = 0.0
        """A second."""
        self.reads = array("d")
        """Seconds of each."""

    def warm(self) -> None:
        """Fill the keys that are read: of a quiet server too many reads would miss, and look like its tail."""
        with Connection(self._url) as db:
            for story in range(min(self._stories, KEYS_READ)):
                db.view("Counted").lookup(story=story)

    def _begin(self) -> None:
        self.reads, self._written = array("d"), 0
        self._began = time.perf_counter()

    def _end(self) -> None:
        self.writes = self._written / (time.perf_counter() - self._began)

    def _run(self) -> None:
        random = self._random
        with Connection(self._url) as db:
            votes, counts = db.table("votes"), db.view("Counted")
            while not self._over.is_set():
                votes.insert({"user": random.randrange(10**9, 2 * 10**9), "story": random.randrange(self._stories)})
                self._written += 1
                began = time.perf_counter()
                counts.lookup(story=random.randrange(min(self._stories, KEYS_READ)))
                self.reads.append(time.perf_counter() - began)


ROWS = 1_000_000
QUIET_SECONDS = 10.0
"""Before each way and again after it, since a shared machine is another one some minutes later."""
POLL_SECONDS = 0.05
STEPS = {"compute full states": "computed", "load full states": "loaded", "domain 0: replay it": "caught up"}
"""The beginnings of steps of a bulk migration whose ends are reported (``controller/migrating/bulk/building.py``)."""

VIEW = """CREATE EXT VIEW Ranking{number} AS
SELECT u.name, COUNT(*) AS votes FROM votes v JOIN stories s ON s.id = v.story JOIN users u ON u.id = s.author
GROUP BY u.name ORDER BY votes DESC, u.name LIMIT 50"""

WAYS = {"slices": {}, "local": {"PATH": "", "JAVA_HOME": ""}, "spark": {}}
"""And what a server's environment has so that it chooses it: without Java there is no Spark."""


@dataclass(slots=True)
class ReplayMethod:
    """How the view was built in one way, and what others noticed."""

    way: str
    seconds: float
    rows_per_second: float
    writes_per_second: float
    read_p99_ms: float
    quiet_writes_per_second: float
    quiet_read_p99_ms: float
    """Of the same server, before and after."""
    used: Used
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds from the start to the state's being computed, loaded, and caught up with the log."""
    load: float = 0.0
    """Of the machine before it began, as ``uptime`` has it: what else ran."""


@dataclass(slots=True)
class ReplayFigures:
    rows: int
    load_rows_per_second: float = 0.0
    archive_rows_per_second: float = 0.0
    fold_here: float = 0.0
    """Rows a second."""
    fold_spark: float = 0.0
    """With the start of the JVM."""
    fold_spark_warm: float = 0.0
    load: float = 0.0
    """Of the machine at the start."""
    ways: list[ReplayMethod] = field(default_factory=list)


def run(
    *, rows: int, out: Path | None, spark: SparkSettings, ways: Sequence[str] = tuple(WAYS), folder: Path | None = None
) -> None:
    """Measure, print, and write the JSON file if one is named: after each way, so that a later one's end takes nothing
    along that was measured. In ``folder`` the rows stay for the next run of as many."""
    if rows < 10_000:
        raise BadRequest("fewer than 10,000 rows say nothing", hint="--rows 200000")
    if not ways or not set(ways) <= WAYS.keys():
        raise BadRequest(f"a way is one of {', '.join(WAYS)}", hint="--ways slices,spark")
    printer, figures = console(stderr=True), None
    with TemporaryDirectory(prefix="headrace-replay-") if folder is None else nullcontext(folder) as where:
        for figures in _measure(Path(where), rows, ways, spark, lambda text: printer.print(text, highlight=False)):
            if out is not None:
                out.write_text(json.dumps(asdict(figures), indent=2) + "\n", "utf-8")
    assert figures is not None
    for table in tables(figures):
        console().print(table)


def _measure(folder: Path, rows: int, ways: Sequence[str], spark: SparkSettings, tell: Tell) -> Iterator[ReplayFigures]:
    """The same figures again and again, with one way more each time."""
    figures = ReplayFigures(rows, load=os.getloadavg()[0])
    loaded = ready(folder, rows, tell)
    figures.load_rows_per_second = rows / loaded if loaded else 0.0
    for number, way in enumerate(ways):
        threshold = 2**40 if way == "slices" else 0
        with serving(folder, threshold, WAYS[way]) as server, Connection(server.url, timeout=3600) as db:
            tell("archiving …")
            began = time.perf_counter()
            archived = db.send(Call("POST", "/v1/archive", dict))
            if number == 0:
                figures.archive_rows_per_second = rows / (time.perf_counter() - began) if loaded else 0.0
                _fold(folder, figures, archived, spark if "spark" in ways else None, tell)
            tell(f"building the view: {way} …")
            figures.ways.append(_build(server, db, way, number, rows, tell))
        yield figures


def _fold(
    folder: Path, figures: ReplayFigures, archived: dict[str, object], spark: SparkSettings | None, tell: Tell
) -> None:
    from worker.archive.folding import fold  # Late: they load pyarrow.
    from worker.archive.manifests import load_manifest
    from worker.archive.place import Place

    positions = archived["positions"]
    assert isinstance(positions, dict)
    place, count, told = Place(str(archived["url"])), 0, seldom(tell)
    tell("folding …")
    began = time.perf_counter()
    for base, position in positions.items():
        manifest = load_manifest(place, base, 0)
        assert manifest is not None
        for part in fold(place, manifest, position, scratch=folder):
            count += sum(weight for _, weight in part)  # Of votes, fifty million random ones have some twice.
            told(f"{count:,} of {figures.rows:,} rows")
    figures.fold_here = count / (time.perf_counter() - began)
    if spark is None:
        return
    tell("folding by Spark …")
    began = time.perf_counter()
    with SparkJob("count", {"archive": archived["url"], "clock": positions, ABOUT: figures.rows}, spark) as job:
        while not job.wait(0.2):
            continue
        answer = job.result()
    assert sum(answer["rows"].values()) == count, "both folds have the same rows"
    figures.fold_spark = count / (time.perf_counter() - began)
    figures.fold_spark_warm = count / answer["seconds"]


def _build(server: Watched, db: Connection, way: str, number: int, rows: int, tell: Tell) -> ReplayMethod:
    name = f"Ranking{number}"
    db.execute(f"DROP VIEW IF EXISTS {name}")  # Of a run in this folder that was broken off.
    load, before = os.getloadavg()[0], _quiet(server, rows)
    noticed = Noticed(server.url, rows)
    noticed.warm()
    server.begin()
    began = time.perf_counter()
    with noticed:
        progress, phases = _followed(db.migrate(VIEW.format(number=number)), tell)
        db.view(name).lookup()
    seconds, used = time.perf_counter() - began, server.used()
    server.begin()  # What comes now is not of it.
    db.execute(f"DROP VIEW {name}")  # The next is not to find its state.
    tell(f"{way}: {seconds:.1f} s, {rows / seconds:,.0f} rows a second")
    if progress.backfill != way:
        raise BadRequest(f"the view was built by {progress.backfill} and not by {way}: {progress.why}")
    after = _quiet(server, rows)
    writes, p99 = (before.writes + after.writes) / 2, p99_ms(before.reads + after.reads)
    return ReplayMethod(
        way, seconds, rows / seconds, noticed.writes, p99_ms(noticed.reads), writes, p99, used, phases, load
    )


def _quiet(server: Watched, rows: int) -> Noticed:
    quiet = Noticed(server.url, rows)
    quiet.warm()
    with quiet:
        time.sleep(QUIET_SECONDS)
    return quiet


def _followed(migration: Migration, tell: Tell) -> tuple[Progress, dict[str, float]]:
    """To its end; and after how many seconds the steps were done that a bulk migration has. Steps are done in order, so
    one that was too short to be seen was done when a later one is under way."""
    began, phases, told = time.perf_counter(), dict[str, float](), seldom(tell)
    while True:
        progress = migration.status()
        left = "" if progress.seconds_left is None else f", about {progress.seconds_left:.0f} s left"
        told(f"{progress.step}, {progress.progress:.0%}{left}")
        under_way = progress.steps.index(progress.step) if progress.step in progress.steps else 0
        done = progress.steps if progress.finished else progress.steps[:under_way]
        for step in done:
            name = next((name for start, name in STEPS.items() if step.startswith(start)), None)
            if name is not None:
                phases.setdefault(name, round(time.perf_counter() - began, 2))
        if progress.error is not None:
            raise progress.error
        if progress.finished:
            return progress, phases
        time.sleep(POLL_SECONDS)


def tables(figures: ReplayFigures) -> Iterator[Table]:
    first = Table(title=f"{figures.rows:,} base rows", title_justify="left")
    for name in ("", "rows a second"):
        first.add_column(name, justify="right" if name else "left")
    for name, value in (
        ("load", figures.load_rows_per_second),
        ("archive", figures.archive_rows_per_second),
        ("fold, one process", figures.fold_here),
        ("fold, Spark with its start", figures.fold_spark),
        ("fold, Spark without", figures.fold_spark_warm),
    ):
        first.add_row(name, f"{value:,.0f}" if value else "–")
    yield first
    second = Table(title="a view of two joins, an aggregate and a ranking", title_justify="left")
    for name in ("way", "seconds", "rows/s", "writes/s (of quiet)", "p99 of reads (of quiet)", "CPU s", "peak", "load"):
        second.add_column(name, justify="left" if name == "way" else "right")
    for way in figures.ways:
        writes = way.writes_per_second / max(way.quiet_writes_per_second, 1e-9)
        p99 = way.read_p99_ms / max(way.quiet_read_p99_ms, 1e-9)
        second.add_row(
            way.way,
            f"{way.seconds:.1f}",
            f"{way.rows_per_second:,.0f}",
            f"{way.writes_per_second:,.0f} ({writes:.2f})",
            f"{way.read_p99_ms:.1f} ms ({p99:.1f})",
            f"{way.used.server_cpu:.1f} + {way.used.others_cpu:.1f}",
            f"{format_size(way.used.server_peak)} + {format_size(way.used.others_peak)}",
            f"{way.load:.1f}",
        )
    yield second
