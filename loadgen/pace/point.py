"""The measurement at one rate, and whether it is valid. Plain values, pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hdrh.histogram import HdrHistogram

from loadgen.pace.processes import ServerUse

# Sojourn and service times as histograms, by kind of request. The one module that knows hdrhistogram.
#
# Values are kept in microseconds with three significant digits, from 1 µs to an hour: 190 kB a histogram, whatever
# the number of requests. Recording takes 4 µs, so there are two a request and none is kept of all kinds together:
# that one is the sum of the others.

# A run by the second: what was answered, how fast, and what failed. Pure.
#
# The seconds are those of the arrivals, so that a stall shows in the seconds that had to wait for it.


@dataclass(slots=True)
class Second:
    """One second since the start of the load, warm-up included."""

    second: int
    answered: int
    errors: int
    p50_ms: float
    p95_ms: float


@dataclass(slots=True)
class Timeline:
    _sojourns: dict[int, list[float]] = field(default_factory=dict)
    _errors: dict[int, int] = field(default_factory=dict)

    def add(self, at: float, sojourn: float) -> None:
        self._sojourns.setdefault(int(at), []).append(sojourn)

    def failed(self, at: float) -> None:
        self._errors[int(at)] = self._errors.get(int(at), 0) + 1

    def seconds(self) -> list[Second]:
        last = max((*self._sojourns, *self._errors), default=-1)
        return [self._second(each) for each in range(last + 1)]

    def _second(self, second: int) -> Second:
        sojourns = sorted(self._sojourns.get(second, ()))
        errors = self._errors.get(second, 0)
        if not sojourns:
            return Second(second, 0, errors, 0.0, 0.0)
        p50, p95 = (sojourns[int((len(sojourns) - 1) * part)] * 1000 for part in (0.5, 0.95))
        return Second(second, len(sojourns), errors, p50, p95)


STEADY_PART = 3
"""The last third of a run is taken for its steady state."""


def settled_after(seconds: list[Second], times: float = 2.0) -> int | None:
    """Seconds from the start until p95 is within ``times`` its steady value for good; None if that is not known.

    The steady value is the median of the last third of the run.
    """
    answered = [each for each in seconds if each.answered]
    last = sorted(each.p95_ms for each in answered[-(len(answered) // STEADY_PART) :]) if len(answered) >= 6 else []
    if not last:
        return None
    limit = times * last[len(last) // 2]
    first_third_of_the_rest = answered[: len(answered) - len(last)]
    slow = [each.second for each in first_third_of_the_rest if each.p95_ms > limit]
    return max(slow) + 1 if slow else 0


LONGEST_US = 3_600_000_000
DIGITS = 3
PERCENTILES = (50.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float


NO_TIMES = Times(0, 0.0, 0.0, 0.0, 0.0, 0.0)


class Histogram:
    def __init__(self) -> None:
        self._histogram: Any = HdrHistogram(1, LONGEST_US, DIGITS)
        self._sum = 0.0
        """Seconds. The mean is what decides a sweep: it is kept exactly, not to three digits."""

    def add(self, seconds: float, count: int = 1) -> None:
        self._histogram.record_value(min(max(1, int(seconds * 1e6)), LONGEST_US), count)
        self._sum += seconds * count

    def merge(self, other: Histogram) -> None:
        self._histogram.add(other._histogram)
        self._sum += other._sum

    def times(self) -> Times:
        count = int(self._histogram.total_count)
        if not count:
            return NO_TIMES
        p50, p95, p99 = (self._histogram.get_value_at_percentile(each) / 1000 for each in PERCENTILES)
        return Times(count, self._sum / count * 1000, p50, p95, p99, self._histogram.get_max_value() / 1000)


class Latencies:
    """Both times of every kind."""

    def __init__(self) -> None:
        self._sojourn: dict[str, Histogram] = {}
        self._service: dict[str, Histogram] = {}

    def add(self, kind: str, sojourn: float, service: float, count: int = 1) -> None:
        """Seconds."""
        if kind not in self._sojourn:
            self._sojourn[kind], self._service[kind] = Histogram(), Histogram()
        self._sojourn[kind].add(sojourn, count)
        self._service[kind].add(service, count)

    def waiting(self, kind: str, age: float, count: int = 1) -> None:
        """One that was not answered by the end: its sojourn time is at least its age."""
        if kind not in self._sojourn:
            self._sojourn[kind], self._service[kind] = Histogram(), Histogram()
        self._sojourn[kind].add(age, count)

    def by_kind(self) -> dict[str, tuple[Times, Times]]:
        """(sojourn, service) of each kind, the most frequent first."""
        made = {kind: (self._sojourn[kind].times(), self._service[kind].times()) for kind in self._sojourn}
        return dict(sorted(made.items(), key=lambda item: -item[1][0].count))

    def all(self) -> tuple[Times, Times]:
        return _sum(self._sojourn).times(), _sum(self._service).times()


def _sum(histograms: dict[str, Histogram]) -> Histogram:
    total = Histogram()
    for each in histograms.values():
        total.merge(each)
    return total


SUSTAINED_MS = 50.0
"""A rate counts as sustained while the mean sojourn time is at most this (the workload's published rule)."""
GENERATOR_BUSY = 0.9
"""Share of one core. A generator that is busier sends late, so it measures itself."""
LATE_MS = 10.0
"""Mean lateness, in milliseconds, past which arrivals did not come when they should: a fifth of what ends a sweep."""
ERRORS_PART = 0.01
ACHIEVED_PART = 0.95
"""Share of the offered rate that a sustained point must reach; the rest is still waiting."""


@dataclass(frozen=True, slots=True)
class RequestKind:
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
    """Answered requests before the last arrival. The others came after the load had ended."""
    unanswered: int = 0
    """Arrived, and not answered when the run ended."""
    failed: int = 0
    seconds: float = 0.0
    """Duration of the measurement, without warm-up."""
    all: RequestKind = field(default_factory=lambda: RequestKind(NO_TIMES, NO_TIMES))
    kinds: dict[str, RequestKind] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    generator_cpu: float = 0.0
    """Share of one core."""
    late: Times = NO_TIMES
    """How long after an arrival the generator noticed it."""
    servers: list[ServerUse] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """Servers whose processes could not be looked at."""
    timeline: list[Second] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    """The target's own counters, such as stale reads."""
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
        """The measurement as a document for JSON."""
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
