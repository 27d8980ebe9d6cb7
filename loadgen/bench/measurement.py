"""The parts of every bench: progress, watches, a comparison by turns, the table and the JSON file."""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Self

import psutil
from rich.table import Table
from rich.text import Text

from headrace import __version__
from headrace.errors import BadRequest
from headrace.render import console
from loadgen.pace.processes import processor

Tell = Callable[[str], None]
TELL_SECONDS = 30.0
"""Seconds between two lines of progress: ten million rows take minutes."""


def seldom(tell: Tell) -> Tell:
    """Passes one text on in ``TELL_SECONDS``, with the seconds since this was called."""
    began = told = time.perf_counter()

    def tell_now(text: str) -> None:
        nonlocal told
        if time.perf_counter() - told > TELL_SECONDS:
            told = time.perf_counter()
            tell(f"  {told - began:.0f} s: {text}")

    return tell_now


# What a bench does in a thread of its own beside what it measures.


class Beside(ABC):
    """A thread that runs while the ``with`` block lasts."""

    def __enter__(self) -> Self:
        self._over = Event()
        self._begin()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._end()

    @abstractmethod
    def _begin(self) -> None:
        """Before the thread runs."""

    @abstractmethod
    def _run(self) -> None:
        """The thread's work, until ``_over`` is set."""

    @abstractmethod
    def _end(self) -> None:
        """Once the thread has ended."""


# What processes take while something is measured.

SAMPLE_SECONDS = 0.2


@dataclass(slots=True)
class ProcessUse:
    """Bytes resident at most, and seconds of a processor. Processes that end between two looks are as of the last."""

    peaks: dict[str, int] = field(default_factory=dict)
    """Keyed by part, a restarted one together with its successor."""
    cpu: dict[str, float] = field(default_factory=dict)
    bulk_peak: int = 0
    """All processes that parts have started, together: a job's driver, its JVM, the JVM's Python workers."""
    bulk_largest: dict[str, int] = field(default_factory=dict)
    """Keyed by program, the most that one process had."""
    bulk_cpu: float = 0.0


class Processes(Beside):
    """Watches processes while the block lasts. ``pids`` gives the present ones by part, as parts may restart."""

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


def p99_ms(seconds: Iterable[float]) -> float:
    """The 99th percentile, in milliseconds; 0 of nothing."""
    ordered = sorted(seconds)
    return ordered[int(len(ordered) * 0.99)] * 1000 if ordered else 0.0


def check_ways(ways: Sequence[str], known: Iterable[str], example: str) -> None:
    """Raises BadRequest unless each is known, and named once."""
    if not ways or not set(ways) <= set(known) or len(set(ways)) < len(ways):
        raise BadRequest(f"a way is one of {', '.join(known)}", hint=f"--ways {example}")


def measure_ways(
    name: str,
    ways: Sequence[str],
    measure: Callable[[Path, str, Tell], None],
    *,
    figures: Any,
    tables: Callable[[], Iterable[Table]],
    out: Path | None,
    folder: Path | None,
) -> None:
    """Measure each way, which adds to the figures, a dataclass; and print the tables. The JSON file is written after
    each way, so that an error in a later one loses nothing. What is made on disk stays only in ``folder``."""
    printer = console(stderr=True)

    def tell(text: str) -> None:
        printer.print(text, markup=False, highlight=False)

    with TemporaryDirectory(prefix=f"headrace-{name}-") if folder is None else nullcontext(folder) as where:
        for way in ways:
            measure(Path(where), way, tell)
            if out is not None:
                write(out, asdict(figures))
    for each in tables():
        console().print(each)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row of the table. ``ratio`` is what the goal speaks of; ``details`` are further figures for the JSON."""

    name: str
    what: str
    against: str
    ours: str
    theirs: str
    ratio: float
    goal: float
    at_most: bool = False
    """Whether the ratio is to stay below the goal instead of reaching it."""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        return self.ratio <= self.goal if self.at_most else self.ratio >= self.goal

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": self.what,
            "against": self.against,
            "ours": self.ours,
            "theirs": self.theirs,
            "ratio": round(self.ratio, 3),
            "goal": self.goal,
            "goal_is": "at most" if self.at_most else "at least",
            "met": self.met,
            "details": self.details,
        }


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast one side was: units a second by the clock, and a second of processor time."""

    wall: float
    cpu: float


def rate(units: int, work: Callable[[], object]) -> Rate:
    """Rate of work in this process, all threads counted. Garbage is collected before, not during."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Rate(units / (time.perf_counter() - wall), units / max(1e-9, time.process_time() - cpu))


def ratio(ours: list[Rate], theirs: list[Rate]) -> tuple[float, float]:
    """Medians over rounds of ours ÷ theirs, by the clock and by processor time.

    Each round has both sides one after the other, so that what slows the machine for a while slows both.
    """
    pairs = list(zip(ours, theirs, strict=True))
    return median(a.wall / b.wall for a, b in pairs), median(a.cpu / b.cpu for a, b in pairs)


def typical(rates: list[Rate]) -> float:
    return median(each.wall for each in rates)


def thousands(number: float) -> str:
    return f"{number / 1000:.1f} k/s" if number < 100_000 else f"{number / 1000:.0f} k/s"


# The measurements as a table on a terminal and as JSON, with the machine that they were taken on.


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "cpu": processor(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def document(measurements: Sequence[Measurement], quick: bool) -> dict[str, Any]:
    return {
        "headrace": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "headrace " + " ".join(sys.argv[1:] or ["bench"]),
        "quick": quick,
        "machine": machine(),
        "measurements": [each.as_json() for each in measurements],
    }


def write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, texts: int = 1, group: int = 0
) -> Table:
    """Figures are aligned to the right, the first ``texts`` columns to the left. A line follows each ``group`` rows."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    for number, name in enumerate(columns):
        shown.add_column(name, justify="left" if number < texts else "right")
    for number, row in enumerate(rows, 1):
        shown.add_row(*row, end_section=group > 0 and number % group == 0)
    return shown


def yes_or_no(held: bool) -> Text:
    return Text("yes", style="green") if held else Text("no", style="red")


def results(measurements: Sequence[Measurement]) -> Table:
    rows = (
        (
            each.what,
            each.against,
            each.ours,
            each.theirs,
            f"{each.ratio:.2f}",
            f"{'≤' if each.at_most else '≥'} {each.goal:g}",
            yes_or_no(each.met),
        )
        for each in measurements
    )
    shown = table("", ("what", "against", "ours", "theirs", "ratio", "goal", "met?"), rows, texts=2)
    shown.show_lines = True
    return shown
