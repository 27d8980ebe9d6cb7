"""One look-up as it is asked of a reader: of the map of this process, of another's on this host, or over the wire.

A look-up whose keys stand in several shards of a reader is answered in *parts*: each shard gives the rows of its own
keys with their ranks, and whoever asked joins them as if one map had held them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domains.language.types import Row
from worker.reader_map.layout import Bound, ReaderLayout
from worker.reader_map.merging import Parts, joined
from worker.reader_map.reader import ReaderClient, ReaderSnapshot

# The choice of hits that are reported to the domain, beside a sample of all reads.
#
# The domain protects a key from eviction once it has been read a second time, and only the reading side knows of
# that: a hit never reaches the domain. From a sample of one read in sixteen it hears of most such keys too late: in a
# simulation of Zipf(1.15) reads, protection then gains 0.2 % of hits, and 1.1 % where it hears of all. To tell of
# every hit would cost 2 µs each. But the keys that are hit most often are few, so those told of lately are remembered
# and not told of again.

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
        """These were holes. When they are filled they are new: their next hit is reported."""
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


@dataclass(frozen=True, slots=True)
class BoundLookup:
    """One look-up, ready for the reader map. ``keys`` is empty where SQL finds nothing (a NULL, a contradiction)."""

    keys: tuple[Row, ...]
    seeks: tuple[Row, ...] = ((),)
    """The values sought within each key: of the leading seek columns, several where one of them has an IN list."""
    low: Bound | None = None
    high: Bound | None = None
    limit: int | None = None
    offset: int = 0

    def finished(self, page: bytes) -> bytes:
        """The answer out of the reader's rows: they are it."""
        return page

    @property
    def sent(self) -> BoundLookup:
        """The part of it that a worker answers."""
        return self

    def page(self, client: ReaderClient | ReaderSnapshot, layout: ReaderLayout) -> bytes | None:
        """The rows, or None where one of the keys is a hole."""
        if len(self.keys) == len(self.seeks) == 1:
            return client.page(layout, self.keys[0], self.seeks[0], self.low, self.high, self.limit, self.offset)
        if not self.keys:
            return self.joined(layout, [])  # The row of an aggregate over nothing, unless LIMIT cuts it off.
        return client.rows(layout, self.keys, self.seeks, self.low, self.high, self.limit, self.offset)

    def parts(self, client: ReaderClient | ReaderSnapshot, layout: ReaderLayout) -> Parts | None:
        """The rows of each key, in the order of the keys, for :meth:`joined`; None where one of them is a hole."""
        return client.parts(layout, self.keys, self.seeks, self.low, self.high, self.limit, self.offset)

    def joined(self, layout: ReaderLayout, parts: Parts) -> bytes:
        """The answer out of the rows of all keys, in the order of the keys."""
        return joined(layout, parts, self.limit, self.offset)


__all__ = ["BoundLookup", "Parts"]
