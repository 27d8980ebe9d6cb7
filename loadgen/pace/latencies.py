"""Sojourn and service times as histograms, by kind of request. The one module that knows hdrhistogram.

Values are kept in microseconds with three significant digits, from 1 µs to an hour: 190 kB a histogram, whatever
the number of requests. Recording takes 4 µs, so there are two a request and none is kept of all kinds together: that
one is the sum of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hdrh.histogram import HdrHistogram

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
