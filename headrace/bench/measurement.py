"""What a measurement answers, and how two sides are compared fairly on a machine that does other things too."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any


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
