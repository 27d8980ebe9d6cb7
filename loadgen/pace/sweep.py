"""The highest rate that a target sustains: double until it does not keep up, then halve the gap.

Each point is a run of its own with the mean sojourn time as the judge (``point.SUSTAINED_MS``). Points are measured on
the same target one after the other, so what one has cached the next one has too; the warm-up is for the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from loadgen.pace.point import Point

RESOLUTION = 0.1
"""Stop when the gap between a sustained rate and the next that was not is this part of the former."""
FASTER = 2.0
TRIES = 2
"""Times that a rate may fail before it counts as not sustained: on a machine with other work one slow second is not the
target's."""
POINTS_MAX = 40

Measure = Callable[[float], Awaitable[Point]]


async def sweep(measure: Measure, start: float, goes_on: Callable[[], bool]) -> list[Point]:
    """All points, in the order of measuring. Ends early when ``goes_on`` says no, or a generator was the bottleneck."""
    points: list[Point] = []
    below, above = 0.0, 0.0
    rate = start
    while goes_on() and len(points) < POINTS_MAX:
        point = await _best_of(measure, rate, points, goes_on)
        if point.sustained:
            below = rate
        else:
            above = rate
        if below and above:
            if above - below <= RESOLUTION * below:
                break
            rate = (below + above) / 2
        elif below:
            rate = below * FASTER
        else:
            rate = above / FASTER
            if rate < start / 1000:
                break
    return points


async def _best_of(measure: Measure, rate: float, points: list[Point], goes_on: Callable[[], bool]) -> Point:
    for _ in range(TRIES):
        point = await measure(rate)
        points.append(point)
        if point.sustained or not goes_on():
            break
    return point


def highest_sustained(points: list[Point]) -> Point | None:
    """The fastest of the points that were sustained."""
    return max((each for each in points if each.sustained), key=lambda each: each.offered, default=None)
