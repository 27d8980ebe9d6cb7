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
import os
import re
import shutil
import subprocess
import sys
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from headrace_client.calls import Call
from headrace_client.connection import Connection, Migration
from headrace_client.results import Progress
from rich.table import Table

from controller.embedded.local import LocalDeployment
from domains.language.types import Row
from headrace.errors import BadRequest, Unavailable
from headrace.sizes import format_size
from loadgen.bench.measurement import (
    Beside,
    Processes,
    ProcessUse,
    Tell,
    check_ways,
    measure_ways,
    p99_ms,
    seldom,
    table,
)
from loadgen.bench.program import SITE, load, ranking, site
from migrations.backfill.spark.launching import ABOUT, SparkJob
from migrations.backfill.spark.settings import SparkSettings

# The rows are made from a seed and written without HTTP, into a folder that may be kept.

TELL_ROWS = 1_000
"""Rows between two looks at the clock."""
BYTES_PER_ROW = 600
"""Bytes of disk at the peak: 180 in RocksDB, 20 archived, 100 of what is folded; RocksDB needs as much again while it
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
    told = seldom(tell)

    def counted(table: str, of: int, each: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(each):
            if number % TELL_ROWS == 0:
                told(f"{table}: {number:,} of {of:,}")
            yield row

    deployment = await LocalDeployment.open(path)
    try:
        await deployment.execute(SITE)
        for table, _, count, made in site(rows):
            await load(deployment, table, counted(table, count, made))
    finally:
        await deployment.close()


# The server that is measured.

START_SECONDS = 120.0


@contextmanager
def serving(folder: Path, threshold: int, environment: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """``headrace serve`` on ``folder/data``, with the archive and the scratch files of bulk jobs beside it: its URL and
    process number."""
    command = [sys.executable, "-m", "headrace", "serve", "--port", "0", "--data", str(folder / "data")]
    command += ["--archive", str(folder / "archive"), "--spark-threshold", str(threshold)]
    env = {**os.environ, "TMPDIR": str(folder), **environment, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield _address(process), process.pid
        finally:
            process.terminate()


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
"""Keys of the view that are read. All are filled before, so that every read is a hit."""


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

WAYS = {"slices": {}, "local": {"PATH": "", "JAVA_HOME": ""}, "spark": {}}
"""Ways to build the view, each with the server's environment that makes it choose this way: no Java, no Spark."""


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
    """The same figures of the quiet server, before and after."""
    taken: ProcessUse
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds from the start to the state's being computed, loaded, and caught up with the log."""
    load: float = 0.0
    """The machine's load average before the build: what else ran."""


@dataclass(slots=True)
class ReplayFigures:
    rows: int
    load_rows_per_second: float = 0.0
    archive_rows_per_second: float = 0.0
    fold_here: float = 0.0
    """Rows a second."""
    fold_spark: float = 0.0
    """The seconds of Spark's folding with the start of the JVM."""
    fold_spark_warm: float = 0.0
    load: float = 0.0
    """The machine's load average at the start."""
    ways: list[ReplayMethod] = field(default_factory=list)


def run(
    *, rows: int, out: Path | None, spark: SparkSettings, ways: Sequence[str] = tuple(WAYS), folder: Path | None = None
) -> None:
    """Measure, print, and write the JSON file if one is named. In ``folder`` the rows stay, for a run of as many."""
    if rows < 10_000:
        raise BadRequest("fewer than 10,000 rows say nothing", hint="--rows 200000")
    check_ways(ways, WAYS, "slices,spark")
    figures = ReplayFigures(rows, load=os.getloadavg()[0])

    def measure(folder: Path, way: str, tell: Tell) -> None:
        number = ways.index(way)
        loaded = ready(folder, rows, tell) if number == 0 else None
        if loaded:
            figures.load_rows_per_second = rows / loaded
        threshold = 2**40 if way == "slices" else 0
        with serving(folder, threshold, WAYS[way]) as (url, pid), Connection(url, timeout=3600) as db:
            tell("archiving …")
            began = time.perf_counter()
            archived = db.send(Call("POST", "/v1/archive", dict))
            if loaded:
                figures.archive_rows_per_second = rows / (time.perf_counter() - began)
            if number == 0:
                _fold(folder, figures, archived, spark if "spark" in ways else None, tell)
            tell(f"building the view: {way} …")
            figures.ways.append(_build(url, pid, db, way, number, rows, tell))

    measure_ways("replay", ways, measure, figures=figures, tables=lambda: tables(figures), out=out, folder=folder)


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


def _build(url: str, pid: int, db: Connection, way: str, number: int, rows: int, tell: Tell) -> ReplayMethod:
    name = f"Ranking{number}"
    db.execute(f"DROP VIEW IF EXISTS {name}")  # Of a run in this folder that was broken off.
    load, before = os.getloadavg()[0], _quiet(url, rows)
    noticed = Noticed(url, rows)
    noticed.warm()
    with Processes(lambda: {"server": pid}) as processes, noticed:
        began = time.perf_counter()
        progress, phases = _followed(db.migrate(ranking(name)), tell)
        db.view(name).lookup()
        seconds = time.perf_counter() - began
    db.execute(f"DROP VIEW {name}")  # The next is not to find its state.
    tell(f"{way}: {seconds:.1f} s, {rows / seconds:,.0f} rows a second")
    if progress.backfill != way:
        raise BadRequest(f"the view was built by {progress.backfill} and not by {way}: {progress.why}")
    after = _quiet(url, rows)
    writes, p99 = (before.writes + after.writes) / 2, p99_ms(before.reads + after.reads)
    return ReplayMethod(
        way, seconds, rows / seconds, noticed.writes, p99_ms(noticed.reads), writes, p99, processes.taken, phases, load
    )


def _quiet(url: str, rows: int) -> Noticed:
    quiet = Noticed(url, rows)
    quiet.warm()
    with quiet:
        time.sleep(QUIET_SECONDS)
    return quiet


def _followed(migration: Migration, tell: Tell) -> tuple[Progress, dict[str, float]]:
    """The migration at its end, and after how many seconds each step of a bulk migration was done. Steps are done in
    order, so one that was too short to be seen was done when a later one is under way."""
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
    rates = (
        ("load", figures.load_rows_per_second),
        ("archive", figures.archive_rows_per_second),
        ("fold, one process", figures.fold_here),
        ("fold, Spark with its start", figures.fold_spark),
        ("fold, Spark without", figures.fold_spark_warm),
    )
    shown = [(name, f"{value:,.0f}" if value else "–") for name, value in rates]
    yield table(f"{figures.rows:,} base rows", ("", "rows a second"), shown)
    columns = ("way", "seconds", "rows/s", "writes/s (of quiet)", "p99 of reads (of quiet)", "CPU s", "peak", "load")
    yield table("a view of two joins, an aggregate and a ranking", columns, map(_row, figures.ways))


def _row(way: ReplayMethod) -> tuple[str, ...]:
    writes = way.writes_per_second / max(way.quiet_writes_per_second, 1e-9)
    p99 = way.read_p99_ms / max(way.quiet_read_p99_ms, 1e-9)
    taken = way.taken
    return (
        way.way,
        f"{way.seconds:.1f}",
        f"{way.rows_per_second:,.0f}",
        f"{way.writes_per_second:,.0f} ({writes:.2f})",
        f"{way.read_p99_ms:.1f} ms ({p99:.1f})",
        f"{taken.cpu['server']:.1f} + {taken.bulk_cpu:.1f}",
        f"{format_size(taken.peaks['server'])} + {format_size(taken.bulk_peak)}",
        f"{way.load:.1f}",
    )
