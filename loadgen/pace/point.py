"""What was measured at one rate, and whether it may be believed. Plain values, pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from loadgen.pace.latencies import NO_TIMES, Times
from loadgen.pace.processes import ServerUse
from loadgen.pace.timeline import Second, settled_after

SUSTAINED_MS = 50.0
"""A rate counts as sustained while the mean sojourn time is at most this (the workload's published rule)."""
GENERATOR_BUSY = 0.9
"""Of one core. A generator that is as busy as that sends late, and the times are its own."""
LATE_MS = 10.0
"""Mean lateness, in milliseconds, past which arrivals did not come when they should: a fifth of what ends a sweep."""
ERRORS_PART = 0.01
ACHIEVED_PART = 0.95
"""Of the offered rate, below which a point is not sustained, however quick what was answered: the rest is waiting."""


@dataclass(frozen=True, slots=True)
class Kind:
    sojourn: Times
    service: Times


@dataclass(slots=True)
class Point:
    """One rate."""

    offered: float
    """Units a second that should arrive."""
    arrived: int = 0
    answered: int = 0
    in_time: int = 0
    """Of those, answered before the last arrival. The rest had to be waited for when nothing came any more."""
    unanswered: int = 0
    """Arrived, and not answered when the run ended."""
    failed: int = 0
    seconds: float = 0.0
    """Of the measurement, without warm-up."""
    all: Kind = field(default_factory=lambda: Kind(NO_TIMES, NO_TIMES))
    kinds: dict[str, Kind] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    generator_cpu: float = 0.0
    """Of one core."""
    late: Times = NO_TIMES
    """How long after an arrival the generator noticed it."""
    servers: list[ServerUse] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """Servers whose processes could not be looked at."""
    timeline: list[Second] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """What the target counted of its own, such as stale reads."""
    cut: bool = False
    """Ended before its time, by a person or because it was hopeless."""

    @property
    def achieved(self) -> float:
        return self.in_time / self.seconds if self.seconds else 0.0

    @property
    def server_cpu_s(self) -> float:
        return sum(each.cpu_s for each in self.servers)

    @property
    def cpu_ms_each(self) -> float | None:
        """Processor time of all servers for one unit, in milliseconds; None where nobody could look."""
        return self.server_cpu_s / self.answered * 1000 if self.answered and self.servers and not self.unseen else None

    @property
    def doubts(self) -> list[str]:
        """Why the point is not valid; empty if it is."""
        found = []
        if self.generator_cpu >= GENERATOR_BUSY:
            found.append(
                f"the generator was the bottleneck: it used {self.generator_cpu:.0%} of a core "
                f"(at most {GENERATOR_BUSY:.0%} is valid)"
            )
        if self.late.mean > LATE_MS:
            found.append(
                f"the generator could not keep the pace: it noticed arrivals {self.late.mean:.1f} ms late on average"
            )
        if self.arrived and self.failed > ERRORS_PART * self.arrived:
            found.append(f"{self.failed} of {self.arrived} failed")
        if not self.answered:
            found.append("it was given up before anything was measured" if self.cut else "nothing was answered")
        return found

    @property
    def valid(self) -> bool:
        return not self.doubts

    @property
    def sustained(self) -> bool:
        """Whether the target kept up. A point that is not valid was not sustained by anybody that we know of."""
        kept_up = self.in_time >= ACHIEVED_PART * self.arrived
        return self.valid and kept_up and self.all.sojourn.mean <= SUSTAINED_MS

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **asdict(self),
            "achieved": round(self.achieved, 2),
            "server_cpu_s": round(self.server_cpu_s, 3),
            "server_cpu_ms_each": None if self.cpu_ms_each is None else round(self.cpu_ms_each, 4),
            "settled_after_s": settled_after(self.timeline),
            "valid": self.valid,
            "doubts": self.doubts,
            "sustained": self.sustained,
        }
