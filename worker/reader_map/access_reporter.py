"""The choice of hits that are reported to the domain, beside a sample of all reads.

The domain protects a key from eviction once it has been read a second time, and only the reading side knows of that: a
hit never reaches the domain. From a sample of one read in sixteen it hears of most such keys too late: in a simulation
of Zipf(1.15) reads, protection then gains 0.2 % of hits, and 1.1 % where it hears of all. To tell of every hit would
cost 2 µs each. But the keys that are hit most often are few, so those told of lately are remembered and not told of
again.
"""

from __future__ import annotations

from collections.abc import Sequence

from domains.language.types import Row

TOLD = 16_384
"""Keys remembered as reported, then all are forgotten: about 2 MB to a view. With twice as many, hot keys are reported
too seldom for a small memory limit (0.3 % fewer hits with room for 20,000 keys); with a quarter, half as many again are
told of for no more hits."""
HITS_PER_MISS = 64
"""Hits that are looked at for each miss. Without misses there is no pressure, and what goes first does not matter:
reads that all hit pay nothing. A miss and the eviction for it cost some 400 µs, to look at 64 hits 4 µs, to tell of
them all (one in six is usual) 140. At three misses in two hundred or more, all hits are looked at."""
OWED = 4_096
"""Hits that may be looked at for the misses so far: a burst of misses is not paid for long after it."""


class AccessReporter:
    """Of one view, as one process reads it."""

    __slots__ = ("_told", "owed")

    def __init__(self) -> None:
        self._told: set[Row] = set()
        self.owed = 0
        """Hits that are still to be looked at."""

    def missed(self, keys: Sequence[Row]) -> None:
        """These were holes. When they are filled they are new, and their next hit is reported."""
        self._told.difference_update(keys)
        self.owed = min(OWED, self.owed + HITS_PER_MISS * len(keys))

    def pass_over(self, hits: int) -> None:
        """The number of hits on keys that were reported before."""
        self.owed = max(0, self.owed - hits)

    def news(self, keys: Sequence[Row]) -> list[Row]:
        """Those of these hit keys to report; from now on they count as reported."""
        told = self._told
        looked_at = keys[: self.owed]
        self.owed -= len(looked_at)
        new = [key for key in dict.fromkeys(looked_at) if key not in told]
        if len(told) + len(new) > TOLD:
            told.clear()
        told.update(new)
        return new
