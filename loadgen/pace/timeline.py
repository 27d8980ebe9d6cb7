"""A run by the second: what was answered, how fast, and what failed. Pure.

The seconds are those of the arrivals, so that a stall shows in the seconds that had to wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Second:
    """Of one second since the start of the load, warm-up included."""

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
    """Seconds from the start until p95 is within ``times`` its steady value for good; None if that cannot be told.

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
