"""Measures the queries one after the other, compares every answer with DuckDB's, and prints a table."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from headrace.errors import BadRequest, HeadraceError
from headrace.sizes import format_size
from loadgen.bench.measurement import Tell, machine, measure_ways, table
from loadgen.bench.tpch.data import TABLES, Recomputed, difference, generate, queries
from loadgen.bench.tpch.kept import Installed, Refreshed, fill, serve
from loadgen.bench.tpch.refresh import Refresh, RefreshStream

ORDERS = {1: 10, 100: 3, 10_000: 1}
"""How many orders a refresh has, and how often it is made."""
MOST = 10
"""A refresh replaces at most one of ten loaded orders."""


class WrongAnswer(HeadraceError):
    """An answer differs from DuckDB's."""

    code = "wrong_answer"


@dataclass(slots=True)
class RefreshFigures:
    """Refreshes of one size; seconds, medians."""

    orders: int
    written: float
    fresh: float
    recomputed: float
    rows_per_second: float
    """Rows inserted and deleted until they were in the answer."""

    @property
    def ratio(self) -> float:
        """How many times sooner the kept answer is fresh than a recomputed one."""
        return self.recomputed / self.fresh


@dataclass(slots=True)
class QueryFigures:
    query: str
    refused: str = ""
    installed: Installed | None = None
    refreshes: list[RefreshFigures] = field(default_factory=list)


@dataclass(slots=True)
class TpchFigures:
    scale: float
    shards: int
    asked: bool = False
    """Whether views have the substitution parameters as ``?``."""
    orders: int = 0
    base_bytes: int = 0
    """Bytes of the base tables' rows as CSV text would have them, without quotes."""
    machine: dict[str, Any] = field(default_factory=machine)
    queries: list[QueryFigures] = field(default_factory=list)


def run(
    *, scale: float, only: str | None, shards: int, out: Path | None, folder: Path | None, together: bool, asked: bool
) -> None:
    """Measure, print the table, and write the JSON file if one is named.

    :raises WrongAnswer: an answer differs from DuckDB's.
    :raises BadRequest: there is no such query.
    """
    numbers = _chosen(only)
    figures = TpchFigures(scale, shards, asked)
    ways = {"together": numbers} if together else {str(number): [number] for number in numbers}

    def measure(where: Path, way: str, tell: Tell) -> None:
        bench = TpchBench(where, figures, tell)
        bench.measure(f"all of {len(ways[way])}" if together else way, ways[way])

    measure_ways("tpch", list(ways), measure, figures=figures, tables=lambda: [shown(figures)], out=out, folder=folder)


def _chosen(only: str | None) -> list[int]:
    known = queries()
    wanted = known if only is None else [int(part) if part.isdigit() else 0 for part in only.split(",")]
    if unknown := [number for number in wanted if number not in known]:
        raise BadRequest(f"there is no query {unknown[0]}", hint="--only 1,3,6: numbers from 1 to 22")
    return list(wanted)


class TpchBench:
    """One way, in a folder whose generated and loaded rows serve the next one too."""

    def __init__(self, folder: Path, figures: TpchFigures, tell: Tell) -> None:
        self._rows = folder / f"rows-{figures.scale:g}"
        self._loaded = folder / f"loaded-{figures.scale:g}-{figures.shards}"
        self._copy = folder / "measured"
        self._figures = figures
        self._tell = tell
        generate(figures.scale, self._rows)
        self.peer = Recomputed(self._rows)
        figures.orders = self.peer.rows("SELECT COUNT(*) FROM orders")[0][0]
        figures.base_bytes = sum(map(self._bytes_of, TABLES))
        if not (self._loaded / "done").exists():
            tell("loading the base tables …")
            shutil.rmtree(self._loaded, ignore_errors=True)
            asyncio.run(fill(self._loaded / "data", figures.shards, self.peer))
            (self._loaded / "done").touch()

    def _bytes_of(self, name: str) -> int:
        columns = [column for column, *_ in self.peer.rows(f"DESCRIBE {name}")]
        lengths = " + ".join(f"strlen(CAST({column} AS VARCHAR)) + 1" for column in columns)
        return int(self.peer.rows(f"SELECT CAST(SUM({lengths}) AS BIGINT) FROM {name}")[0][0])

    def measure(self, name: str, numbers: Sequence[int]) -> None:
        """The queries in one process; ``name`` is what the table calls them."""
        figures = QueryFigures(name)
        self._figures.queries.append(figures)
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._loaded / "data", self._copy)
        with keeping(self._copy, numbers, self._figures.asked) as kept:
            standing: list[int] = []
            for number in numbers:
                told: Installed | str = kept.recv()
                if isinstance(told, str):
                    figures.refused = figures.refused or told
                    self._tell(f"{number}: refused: {told}")
                else:
                    figures.installed = _after(figures.installed, told)
                    standing.append(number)
                    self._tell(f"{number}: installed in {told.seconds:.1f} s, {format_size(told.accounted)} held")
            stream = RefreshStream(self.peer)
            for count, times in ORDERS.items() if standing else ():
                if count * MOST <= self._figures.orders:
                    refreshes = [stream.take(count) for _ in range(times)]
                    figures.refreshes.append(self._refreshed(kept, refreshes, standing))
        shutil.rmtree(self._copy)

    def _refreshed(self, kept: Connection, refreshes: Sequence[Refresh], numbers: Sequence[int]) -> RefreshFigures:
        seen, recomputed = [], []
        for refresh in refreshes:
            kept.send(refresh)
            told: Refreshed = kept.recv()
            changed = refresh.apply(self.peer)
            answers = {number: self.peer.timed(queries()[number]) for number in numbers}
            for number, (_, theirs) in answers.items():
                if differs := difference(told.answers[number], theirs):
                    raise WrongAnswer(f"query {number} after {len(refresh.orders)} orders: {differs}")
            seen.append((told.written, told.fresh, changed / told.fresh))
            recomputed.append(sum(seconds for seconds, _ in answers.values()))
        written, fresh, rate = (median(each) for each in zip(*seen, strict=True))
        figures = RefreshFigures(len(refreshes[0].orders), written, fresh, median(recomputed), rate)
        self._tell(
            f"  {figures.orders} orders: fresh in {fresh * 1000:.1f} ms, anew {figures.recomputed * 1000:.1f} ms, "
            f"ratio {figures.ratio:.2f}"
        )
        return figures


def _after(before: Installed | None, now: Installed) -> Installed:
    """What both views took. Of the first one's process, the second one's is the same: state is told in all."""
    if before is None:
        return now
    return Installed(
        before.seconds + now.seconds, now.accounted, before.resident + now.resident, f"{before.plan}\n{now.plan}"
    )


@contextmanager
def keeping(path: Path, numbers: Sequence[int], asked: bool) -> Iterator[Connection]:
    """A process with these queries' views, as its caller sees it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, path, list(numbers), asked), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join(60)
        process.kill()


def shown(figures: TpchFigures) -> Table:
    """The table of the terminal and of ``docs/performance.md``: times in ms, ratios to DuckDB's recomputation."""
    counts = [count for count in ORDERS if count * MOST <= figures.orders]
    columns = ["query", "install s", "state", "resident"]
    columns += [column for count in counts for column in (f"{count:,}: fresh", "anew", "ratio", "rows/s")]
    rows = []
    for each in figures.queries:
        if each.installed is None:
            rows.append([each.query, "refused", *[""] * (len(columns) - 2)])
            continue
        row = [
            each.query,
            f"{each.installed.seconds:.1f}",
            format_size(each.installed.accounted),
            format_size(max(0, each.installed.resident)),
        ]
        for own in each.refreshes:
            row += [f"{own.fresh * 1000:.1f}", f"{own.recomputed * 1000:.1f}", f"{own.ratio:.2f}"]
            row.append(f"{own.rows_per_second:,.0f}")
        rows.append(row)
    title = (
        f"TPC-H at scale {figures.scale:g}, {format_size(figures.base_bytes)} of base rows, {figures.shards} shard(s)"
        f"{', parameters as ?' if figures.asked else ''}"
    )
    return table(title, columns, rows)
