"""``headrace bench rebuild``: a worker's disk is lost with half of all base rows, and a full view stands on them.

::

    base rows ──HTTP──► cluster of two workers ──POST /v1/archive──► archive
       reads of the other shard, quiet  ·  a worker's directory is deleted, kill -9  ·  headrace rebuild --lost --by …
           base: a count of the lost shard is answered, a partial view's
           full: a ranking over two joins is answered
       judged: the ranking, and the count of each story's votes, are those of before

All of it once for each way, with a cluster of its own. Everything is archived, so nothing may be missing. Seconds are
from the order to rebuild; that nobody answers before is made sure of. Meanwhile one client reads counts of the shard
that is there. Where Spark folds, it builds the full state, too, however few the rows are; else it is fed in slices.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace_client.calls import Call
from headrace_client.connection import Connection
from headrace_client.encoding import to_json
from headrace_client.results import Progress
from rich.table import Table

from domains.plan.sharding import shard_of
from headrace.cli.rebuild import Operation, at_leader
from headrace.errors import BadRequest, ServerFault, Unavailable
from headrace.sizes import format_size
from loadgen.bench import measurement
from loadgen.bench.measurement import Processes, ProcessUse, Tell, check_ways, measure_ways, seldom
from loadgen.bench.program import stories_of
from loadgen.bench.recovery.rebuild_cluster import (
    SHAPE,
    Answers,
    OnDisks,
    Reads,
    WaitingClient,
    answers,
    fill,
    on_disks,
)
from migrations.backfill.spark.launching import check_java
from zookeeper.errors import ServerFailed
from zookeeper.java import java_at_once

WAYS = ("worker", "spark")
ROWS = 1_000_000
ROWS_LEAST = 1_000
QUIET_SECONDS = 10.0
CLOSED_SECONDS = 1.0
"""How long a request for lost rows must stay unanswered before the rebuild."""
NOTICE_SECONDS = 60.0
ANSWER_SECONDS = 3600.0
KEYS_READ = 1_000
AGAIN_SECONDS = 0.05


@dataclass(slots=True)
class SeenByClient:
    """Times of a client that reads counts of the remaining shard."""

    reads: int
    errors: int
    p99_ms: float
    max_ms: float
    max_at: float
    """When it began, in seconds from the order to rebuild."""
    said: list[str]

    @classmethod
    def of(cls, reads: Reads, ordered: float) -> SeenByClient:
        at = round(reads.max_at - ordered, 2)
        return cls(reads.count, reads.errors, round(reads.p99_ms, 2), round(reads.max_ms, 1), at, reads.said)


@dataclass(slots=True)
class MeasuredRebuild:
    way: str
    base_rows: int
    """Base rows of the lost shard."""
    base_seconds: float
    full_seconds: float
    """Both from the order to rebuild."""
    noticed_seconds: float
    """The time from the kill to the order to rebuild: the worker restarts, and the leader notices the lost shard."""
    phases: dict[str, float]
    """After how many seconds each step of the rebuild began, as its status has it."""
    told: list[dict[str, Any]]
    """The output of ``headrace rebuild --json``."""
    before: SeenByClient
    meanwhile: SeenByClient
    taken: ProcessUse
    load_rows_per_second: float
    archive_seconds: float
    load: float
    """The machine's load average when the worker was killed."""


@dataclass(slots=True)
class RebuildFigures:
    rows: int
    ways: list[MeasuredRebuild] = field(default_factory=list)


def run(
    *, rows: int, out: Path | None, ways: Sequence[str] = WAYS, folder: Path | None = None, master: str = ""
) -> None:
    """Measure, print, and write the JSON file if one is named. In ``folder`` the clusters stay, with what they logged.

    :raises BadRequest: too few rows, no such way, or the folder is not empty.
    :raises Unavailable: there is no Java, for Spark or for ZooKeeper; nothing is begun.
    :raises ServerFault: an answer is another one after the rebuild.
    """
    if rows < ROWS_LEAST:
        raise BadRequest(f"fewer than {ROWS_LEAST:,} rows say nothing", hint="--rows 100000")
    check_ways(ways, WAYS, "worker,spark")
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise BadRequest(f'"{folder}" is not empty', hint="name a folder that is not there yet")
    if "spark" in ways and master == "none":
        raise BadRequest("Spark is turned off (--spark-master none)", hint="--ways worker")
    _check_java(ways)
    figures = RebuildFigures(rows)

    def measure(folder: Path, way: str, tell: Tell) -> None:
        figures.ways.append(_measure(folder / way, rows, way, master, tell))

    measure_ways("rebuild", ways, measure, figures=figures, tables=lambda: [table(figures)], out=out, folder=folder)


def _check_java(ways: Sequence[str]) -> None:
    if "spark" in ways:
        check_java()
        return
    try:
        java_at_once(otherwise="as each cluster has a ZooKeeper of its own")
    except ServerFailed as error:
        raise Unavailable(error.message, hint=error.hint) from error


def _measure(data: Path, rows: int, way: str, master: str, tell: Tell) -> MeasuredRebuild:
    tell(f"{way}: starting a cluster of {SHAPE.workers} workers …")
    with on_disks(data, master, threshold=0, tell=tell) as cluster:
        tell(f"loading {rows:,} rows …")
        began = time.perf_counter()
        fill(cluster.url, rows, tell)
        loaded = time.perf_counter()
        tell("archiving …")
        with Connection(cluster.url, timeout=ANSWER_SECONDS) as db:
            db.send(Call("POST", "/v1/archive", dict))
        archived = time.perf_counter() - loaded
        before = answers(cluster.url, rows)
        found = _lose(cluster, rows, way, tell)
        found.load_rows_per_second, found.archive_seconds = rows / (loaded - began), archived
        tell("comparing the answers with those of before …")
        judge(before, answers(cluster.url, rows))
    tell(f"{way}: base shard after {found.base_seconds:.1f} s, full view after {found.full_seconds:.1f} s")
    return found


def _lose(cluster: OnDisks, rows: int, way: str, tell: Tell) -> MeasuredRebuild:
    """A worker's disk and have it made anew."""
    lost = SHAPE.shards - 1
    of_lost, of_other = (
        [story for story in range(stories_of(rows)) if (shard_of(story, SHAPE.shards) == lost) is gone]
        for gone in (True, False)
    )
    quiet, meanwhile = (Reads(cluster.url, of_other[:KEYS_READ]) for _ in range(2))
    quiet.warm()
    with quiet:
        time.sleep(QUIET_SECONDS)
    worker, load = cluster.worker_of(lost), os.getloadavg()[0]
    with Processes(cluster.pids) as processes, meanwhile:
        tell(f"losing {worker} and its disk, with shard {lost} …")
        killed = time.perf_counter()
        cluster.lose(worker)
        with _waiting(cluster.url, of_lost[-1]) as waiting:
            ordered, told, phases = _rebuilt(cluster, way, tell)
            base, full = (_answered(each, ordered) for each in waiting)
    return MeasuredRebuild(
        way=way,
        base_rows=sum(each["rows"] for each in told),
        base_seconds=base,
        full_seconds=full,
        noticed_seconds=ordered - killed,
        phases=phases,
        told=told,
        before=SeenByClient.of(quiet, ordered),
        meanwhile=SeenByClient.of(meanwhile, ordered),
        taken=processes.taken,
        load_rows_per_second=0.0,
        archive_seconds=0.0,
        load=load,
    )


@contextmanager
def _waiting(url: str, story: int) -> Iterator[tuple[WaitingClient, WaitingClient]]:
    """Clients that wait for a count of the lost shard, and for the full view. Neither is answered yet."""
    waiting = WaitingClient(url, "Counted", story=story), WaitingClient(url, "Ranking")
    try:
        if any(each.wait(CLOSED_SECONDS) for each in waiting):
            raise ServerFault("a view answered whose shard is lost")
        yield waiting
    finally:
        for each in waiting:
            each.end()


def _answered(waiting: WaitingClient, ordered: float) -> float:
    if not waiting.wait(ANSWER_SECONDS):
        raise Unavailable(f"a view does not answer {ANSWER_SECONDS:g} s after the rebuild")
    assert waiting.at is not None
    return waiting.at - ordered


def _rebuilt(cluster: OnDisks, way: str, tell: Tell) -> tuple[float, list[dict[str, Any]], dict[str, float]]:
    """Rebuild as ``headrace rebuild --lost`` does: when it was ordered, what it tells, and when each step began."""
    deadline = time.perf_counter() + NOTICE_SECONDS
    while True:
        try:
            with at_leader((cluster.status() or {}).get("cluster", {}), cluster.secret) as controller:
                return _ordered(controller, way, tell)
        except BadRequest as error:  # The leader has not noticed yet.
            if "no shard is lost" not in error.message or time.perf_counter() > deadline:
                raise
            time.sleep(AGAIN_SECONDS)


def _ordered(controller: Connection, way: str, tell: Tell) -> tuple[float, list[dict[str, Any]], dict[str, float]]:
    ordered, phases, told = time.perf_counter(), dict[str, float](), seldom(tell)

    def follow(progress: Progress) -> None:
        step = progress.step.partition(" (")[0]
        if step and not progress.finished and step not in phases:
            phases[step] = round(time.perf_counter() - ordered, 2)
            tell(f"  {phases[step]:.1f} s: {progress.step}")
        told(f"{progress.step}, {progress.progress:.0%}")

    body = {"shards": [], "known": {}, "by": way, "wait": False}
    operation = Operation(controller, controller.send(Call("POST", "/v1/rebuild", dict, to_json(body))))
    operation.wait(follow)
    return ordered, operation.rebuilt, phases


def judge(before: Answers, after: Answers) -> None:
    """Raises ServerFault where an answer is another one after the rebuild."""
    others = sum(one != other for one, other in zip(before.counted, after.counted, strict=True))
    if others or before.ranking != after.ranking:
        counts = "1 count is another one" if others == 1 else f"{others:,} counts are others"
        ranking = "as it was" if before.ranking == after.ranking else "another one"
        raise ServerFault(f"{counts} than before, and the ranking is {ranking}")


def table(figures: RebuildFigures) -> Table:
    names = ["by Spark" if way.way == "spark" else f"by {way.way}" for way in figures.ways]
    columns = [dict(_column(way, figures.rows)) for way in figures.ways]
    rows = ((name, *(column[name] for column in columns)) for name in columns[0])
    return measurement.table(f"a disk lost, {figures.rows:,} base rows, all archived", ("", *names), rows)


def _column(way: MeasuredRebuild, rows: int) -> Iterator[tuple[str, str]]:
    taken, before, meanwhile = way.taken, way.before, way.meanwhile
    yield "base rows that are lost", f"{way.base_rows:,}"
    yield "seconds until their shard answers", f"{way.base_seconds:.1f}"
    yield "… rows a second", f"{way.base_rows / way.base_seconds:,.0f}"
    yield "seconds until the full view answers", f"{way.full_seconds:.1f}"
    yield "… rows a second, of all", f"{rows / way.full_seconds:,.0f}"
    yield "p99 of reads of the other shard (of quiet)", f"{meanwhile.p99_ms:.1f} ms ({_ratio(meanwhile, before):.1f})"
    yield "… the longest, after how many seconds", f"{meanwhile.max_ms:.0f} ms, {meanwhile.max_at:.1f}"
    yield "… errors, of reads", f"{meanwhile.errors:,} of {meanwhile.reads:,}"
    for part in sorted(taken.peaks):
        if part.startswith(("worker", "controller")):
            cpu = taken.cpu.get(part, 0.0)
            yield f"{part}: peak, processor seconds", f"{format_size(taken.peaks[part])}, {cpu:.1f}"
    bulk = f"{format_size(taken.bulk_peak)}, {taken.bulk_cpu:.1f}" if taken.bulk_peak else "–"
    yield "bulk processes: peak, processor seconds", bulk
    yield "load before", f"{way.load:.1f}"


def _ratio(meanwhile: SeenByClient, before: SeenByClient) -> float:
    return meanwhile.p99_ms / max(before.p99_ms, 1e-9)
