"""When requests arrive: a Poisson process out of a seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random


def arrivals(rate: float, random: Random) -> Iterator[float]:
    """Seconds since the start, ascending, without end: gaps are exponential with a mean of ``1 / rate``.

    :param rate: arrivals a second, more than 0.
    """
    if rate <= 0:
        raise ValueError(f"rate must be greater than 0, not {rate}")
    due = 0.0
    draw = random.expovariate
    while True:
        due += draw(rate)
        yield due
