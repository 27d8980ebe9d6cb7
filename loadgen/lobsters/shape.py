"""How many rows of everything, and how unequally they are spread: the published figures of Lobsters as numbers.

At scale 1 the site has 5,797 users, 40,650 stories, 121,270 comments and about 370,000 votes on each of stories and
comments. The most voted story has 290 votes, the most voted comment 150, the busiest voter cast 15,100 votes and the
longest discussion has 170 comments, while most have a handful. A Lomax curve with the published total and the
published largest value has that form: see :func:`heavy_tail`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from math import log

LARGEST_STORY_VOTES = 290
LARGEST_COMMENT_VOTES = 150
LARGEST_STORY_COMMENTS = 170

VOTES_EXPONENT = 1.0
"""Of votes per story and comment, and of comments per story: a few large, the median at a third of the mean."""
VOTERS_EXPONENT = 2.0
"""Of votes per user. Steeper: nine users of ten stay under a hundred votes, a few dozen cast half of all."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Row counts. ``story_votes`` and ``comment_votes`` include the author's own vote on each."""

    users: int
    stories: int
    comments: int
    story_votes: int
    comment_votes: int
    head_of_activity: int
    """What the busiest user is drawn for. Drawn twice for one story, one votes once: 20,000 make 15,100 votes."""

    @classmethod
    def at(cls, scale: float) -> Shape:
        """The site at ``scale``: above 1 only the users grow (so do the published runs), below 1 all shrinks."""
        if scale <= 0:
            raise ValueError(f"scale must be greater than 0, not {scale}")
        part = min(scale, 1.0)
        return cls(
            users=max(20, round(5_797 * scale)),
            stories=max(60, round(40_650 * part)),
            comments=max(180, round(121_270 * part)),
            story_votes=max(540, round(370_000 * part)),
            comment_votes=max(540, round(370_000 * part)),
            # Less than in proportion to the users, more than in proportion to the votes: in between, nobody is alone.
            head_of_activity=round(20_000 * part**0.75),
        )


def heavy_tail(count: int, total: int, largest: int, exponent: float) -> list[int]:
    """``count`` whole numbers in descending order, of sum ``total`` and with about ``largest`` at the head.

    The curve is ``largest · (1 + rank / knee) ** -exponent``; the knee is what gives it the sum (found by bisection,
    on the integral over the ranks). Rounding carries its error along, so that the sum is met.
    """
    largest = max(largest, total // count + 1)
    knee = _bisect(lambda k: largest * k * _spread(count / k, exponent), total, count)
    curve = [largest * (1 + (rank + 0.5) / knee) ** -exponent for rank in range(count)]
    correction = total / sum(curve)
    ends = [round(end * correction) for end in accumulate(curve)]
    return sorted((end - start for start, end in zip([0, *ends], ends, strict=False)), reverse=True)


def _spread(reach: float, exponent: float) -> float:
    """The integral of ``(1 + x) ** -exponent`` from 0 to ``reach``."""
    if exponent == 1.0:
        return log(1 + reach)
    rest: float = (1 + reach) ** (1 - exponent)
    return (1 - rest) / (exponent - 1)


def _bisect(rising: Callable[[float], float], target: float, count: int) -> float:
    low, high = 1e-6, 1000.0 * count
    for _ in range(60):  # halves to the last bit of a float
        middle = (low + high) / 2
        if rising(middle) < target:
            low = middle
        else:
            high = middle
    return high
