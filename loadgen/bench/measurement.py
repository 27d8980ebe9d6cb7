"""The result of a measurement, and a fair comparison of two sides on a machine that does other things too."""

from __future__ import annotations

import gc
import json
import os
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any, Self

import psutil
from rich.table import Table
from rich.text import Text

from headrace import __version__

# What a bench does in a thread of its own beside what it measures.


class Beside(ABC):
    """It runs while the block lasts."""

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
        """In the thread, until ``_over`` is set."""

    @abstractmethod
    def _end(self) -> None:
        """Once the thread has ended."""


def p99_ms(seconds: Iterable[float]) -> float:
    """The 99th percentile, in milliseconds; 0 of nothing."""
    ordered = sorted(seconds)
    return ordered[int(len(ordered) * 0.99)] * 1000 if ordered else 0.0


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
    """Of work in this process, all its threads counted. Garbage is collected before, not during."""
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
        "cpu": _cpu_model(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu_model() -> str:
    """As the system names it; Python's own answer on Linux is only the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


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


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, texts: int = 1) -> Table:
    """Figures are aligned to the right, the first ``texts`` columns to the left."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    for number, name in enumerate(columns):
        shown.add_column(name, justify="left" if number < texts else "right")
    for row in rows:
        shown.add_row(*row)
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
