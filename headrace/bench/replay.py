"""``headrace bench replay``: base logs read back. The fold, and full state built from it, each by all ways there are.

::

    base rows ──load──► server ──POST /v1/archive──► archive
       fold          in this process  ·  by a Spark job
       CREATE VIEW   in slices in the worker  ·  in bulk by a child process  ·  in bulk by Spark
                     while one client writes and another reads a view that is there, as they do when it is quiet

The view joins three tables, aggregates and ranks, so it is full. What counts is rows a second from the CREATE VIEW to
its first answer, with the start of the JVM; what the others notice: writes a second and the 99th percentile of reads,
as ratios to the quiet server; and what the processes took of processor and memory, the server's and those beside it.
All ways are measured in one run on one machine.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event, Thread

from rich.table import Table

from headrace.bench.replay_server import Used, Watched, filled, serving
from headrace.client.calls import Call
from headrace.client.connection import Connection, Migration
from headrace.client.results import Progress
from headrace.errors import BadRequest
from headrace.render import console
from headrace.sizes import format_size
from migrations.backfill.spark.launching import SparkJob
from migrations.backfill.spark.settings import SparkSettings

ROWS = 1_000_000
QUIET_SECONDS = 5.0
POLL_SECONDS = 0.05
TELL_SECONDS = 30.0
"""Between two lines of how far a build is: a build of ten million rows takes minutes."""
STEPS = {"compute full states": "computed", "load full states": "loaded", "domain 0: replay it": "caught up"}
"""How the steps of a bulk migration begin whose ends are told (``controller/bulk/building.py``)."""

VIEW = """CREATE EXT VIEW Ranking{number} AS
SELECT u.name, COUNT(*) AS votes FROM votes v JOIN stories s ON s.id = v.story JOIN users u ON u.id = s.author
GROUP BY u.name ORDER BY votes DESC, u.name LIMIT 50"""

WAYS = {"slices": {}, "local": {"PATH": "", "JAVA_HOME": ""}, "spark": {}}
"""And what a server's environment has so that it chooses it: without Java there is no Spark."""


@dataclass(slots=True)
class Way:
    """How the view was built in one way, and what others noticed."""

    way: str
    seconds: float
    rows_per_second: float
    writes_per_second: float
    read_p99_ms: float
    used: Used
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds from the start to the state's being computed, loaded, and caught up with the log."""
    load: float = 0.0
    """Of the machine before it began, as ``uptime`` has it: what else ran."""


@dataclass(slots=True)
class Figures:
    rows: int
    load_rows_per_second: float = 0.0
    archive_rows_per_second: float = 0.0
    fold_here: float = 0.0
    """Rows a second."""
    fold_spark: float = 0.0
    """With the start of the JVM."""
    fold_spark_warm: float = 0.0
    quiet_writes_per_second: float = 0.0
    quiet_read_p99_ms: float = 0.0
    load: float = 0.0
    """Of the machine at the start."""
    ways: list[Way] = field(default_factory=list)


def run(*, rows: int, out: Path | None, spark: SparkSettings, ways: Sequence[str] = tuple(WAYS)) -> None:
    """Measure, print, and write the JSON file if one is named: after each way, so that a later one's end takes nothing
    along that was measured."""
    if rows < 10_000:
        raise BadRequest("fewer than 10,000 rows say nothing", hint="--rows 200000")
    if not ways or not set(ways) <= WAYS.keys():
        raise BadRequest(f"a way is one of {', '.join(WAYS)}", hint="--ways slices,spark")
    printer, figures = console(stderr=True), None
    with TemporaryDirectory(prefix="headrace-replay-") as folder:
        for figures in _measure(Path(folder), rows, ways, spark, lambda text: printer.print(text)):
            if out is not None:
                out.write_text(json.dumps(asdict(figures), indent=2) + "\n", "utf-8")
    assert figures is not None
    for table in tables(figures):
        console().print(table)


def _measure(
    folder: Path, rows: int, ways: Sequence[str], spark: SparkSettings, tell: Callable[[str], None]
) -> Iterator[Figures]:
    """The same figures again and again, with one way more each time."""
    figures = Figures(rows, load=os.getloadavg()[0])
    tell(f"loading {rows:,} rows …")
    began = time.perf_counter()
    filled(folder / "data", rows)
    figures.load_rows_per_second = rows / (time.perf_counter() - began)
    for number, way in enumerate(ways):
        threshold = 2**40 if way == "slices" else 0
        with serving(folder, threshold, WAYS[way]) as server, Connection(server.url, timeout=3600) as db:
            began = time.perf_counter()
            archived = db.send(Call("POST", "/v1/archive", dict))
            if number == 0:
                figures.archive_rows_per_second = rows / (time.perf_counter() - began)
                tell("folding …")
                _fold(figures, archived, spark if "spark" in ways else None)
                quiet = _noticed(server, rows)
                with quiet:
                    time.sleep(QUIET_SECONDS)
                figures.quiet_writes_per_second, figures.quiet_read_p99_ms = quiet.writes, quiet.p99
            tell(f"building the view: {way} …")
            figures.ways.append(_build(server, db, way, number, rows, tell))
        yield figures


def _fold(figures: Figures, archived: dict[str, object], spark: SparkSettings | None) -> None:
    from worker.archive.folding import fold  # Late: they load pyarrow.
    from worker.archive.manifests import load_manifest
    from worker.archive.place import Place

    positions = archived["positions"]
    assert isinstance(positions, dict)
    place, count = Place(str(archived["url"])), 0
    began = time.perf_counter()
    for base, position in positions.items():
        manifest = load_manifest(place, base, 0)
        assert manifest is not None
        count += sum(len(part) for part in fold(place, manifest, position))
    figures.fold_here = count / (time.perf_counter() - began)
    if spark is None:
        return
    began = time.perf_counter()
    with SparkJob("count", {"archive": archived["url"], "clock": positions}, spark) as job:
        while not job.wait(0.2):
            pass
        answer = job.result()
    assert sum(answer["rows"].values()) == count, "both folds have the same rows"
    figures.fold_spark = count / (time.perf_counter() - began)
    figures.fold_spark_warm = count / answer["seconds"]


def _build(server: Watched, db: Connection, way: str, number: int, rows: int, tell: Callable[[str], None]) -> Way:
    name = f"Ranking{number}"
    noticed, load = _noticed(server, rows), os.getloadavg()[0]
    server.begin()
    began = time.perf_counter()
    with noticed:
        progress, phases = _followed(db.migrate(VIEW.format(number=number)), tell)
        db.view(name).lookup()
    seconds, used = time.perf_counter() - began, server.used()
    db.execute(f"DROP VIEW {name}")  # The next is not to find its state.
    tell(f"{way}: {seconds:.1f} s, {rows / seconds:,.0f} rows a second")
    if progress.backfill != way:
        raise BadRequest(f"the view was built by {progress.backfill} and not by {way}: {progress.why}")
    return Way(way, seconds, rows / seconds, noticed.writes, noticed.p99, used, phases, load)


def _followed(migration: Migration, tell: Callable[[str], None]) -> tuple[Progress, dict[str, float]]:
    """To its end; and after how many seconds the steps were done that a bulk migration has. Steps are done in order, so
    one that was too short to be seen was done when a later one is under way."""
    began, phases = time.perf_counter(), dict[str, float]()
    told = began
    while True:
        progress = migration.status()
        if time.perf_counter() - told > TELL_SECONDS:
            told = time.perf_counter()
            tell(f"  {told - began:.0f} s: {progress.step}, {progress.progress:.0%}")
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


def _noticed(server: Watched, rows: int) -> Noticed:
    return Noticed(server.url, Random(rows), max(1, rows // 20))


class Noticed:
    """One client that writes and reads by turns, in a thread, while the block lasts."""

    def __init__(self, url: str, random: Random, stories: int) -> None:
        self._url, self._random, self._stories = url, random, stories
        self.writes = self.p99 = 0.0

    def __enter__(self) -> Noticed:
        self._over, self._reads, self._written = Event(), list[float](), 0
        self._began = time.perf_counter()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        spent = time.perf_counter() - self._began
        self.writes = self._written / spent
        ordered = sorted(self._reads)
        self.p99 = ordered[int(len(ordered) * 0.99)] * 1000 if ordered else 0.0

    def _run(self) -> None:
        random = self._random
        with Connection(self._url) as db:
            votes, counts = db.table("votes"), db.view("Counted")
            while not self._over.is_set():
                votes.insert({"user": random.randrange(10**9, 2 * 10**9), "story": random.randrange(self._stories)})
                self._written += 1
                began = time.perf_counter()
                counts.lookup(story=random.randrange(min(self._stories, 1000)))
                self._reads.append(time.perf_counter() - began)


def tables(figures: Figures) -> Iterator[Table]:
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
        first.add_row(name, f"{value:,.0f}")
    yield first
    second = Table(title="a view of two joins, an aggregate and a ranking", title_justify="left")
    for name in ("way", "seconds", "rows/s", "writes/s (of quiet)", "p99 of reads (of quiet)", "CPU s", "peak", "load"):
        second.add_column(name, justify="left" if name == "way" else "right")
    for way in figures.ways:
        writes = way.writes_per_second / max(figures.quiet_writes_per_second, 1e-9)
        p99 = way.read_p99_ms / max(figures.quiet_read_p99_ms, 1e-9)
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
