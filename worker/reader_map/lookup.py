"""One look-up as it is asked of a reader: of the map of this process, of another's on this host, or over the wire.

A look-up whose keys stand in several shards of a reader is answered in *parts*: each shard gives the rows of its own
keys with their ranks, and whoever asked joins them as if one map had held them all.
"""

from __future__ import annotations

from dataclasses import dataclass

from domains.language.types import Row
from worker.reader_map.layout import Bound, ReaderLayout, Spans
from worker.reader_map.merging import Parts, joined, listed
from worker.reader_map.reader import ReaderClient, ReaderSnapshot


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
    spans: Spans = ()
    """Of the reader's ``ranges``; there are no ``low`` and ``high`` beside them."""

    def finished(self, page: bytes) -> bytes | None:
        """The answer out of the reader's rows: they are it. None where more is to be done than a look-up may take."""
        return page

    @property
    def sent(self) -> BoundLookup:
        """The part of it that a worker answers."""
        return self

    def page(self, client: ReaderClient | ReaderSnapshot, layout: ReaderLayout) -> bytes | None:
        """The rows, or None where one of the keys is a hole."""
        if len(self.keys) == len(self.seeks) == 1:
            return client.page(
                layout, self.keys[0], self.seeks[0], self.low, self.high, self.limit, self.offset, self.spans
            )
        if not self.keys:
            return self.joined(layout, [])  # The row of an aggregate over nothing, unless LIMIT cuts it off.
        return client.rows(layout, self.keys, self.seeks, self.low, self.high, self.limit, self.offset, self.spans)

    def parts(self, client: ReaderClient | ReaderSnapshot, layout: ReaderLayout) -> Parts | None:
        """The rows of each key, in the order of the keys, for :meth:`joined`; None where one of them is a hole."""
        return client.parts(layout, self.keys, self.seeks, self.low, self.high, self.limit, self.offset, self.spans)

    def joined(self, layout: ReaderLayout, parts: Parts) -> bytes:
        """The answer out of the rows of all keys, in the order of the keys."""
        return joined(layout, parts, self.limit, self.offset)

    def listed(self, layout: ReaderLayout, parts: Parts) -> list[bytes]:
        """The same as the JSON of each row, however long it takes."""
        return listed(layout, parts, self.limit, self.offset)

    @property
    def ordered(self) -> bool:
        """Whether the answer has an order of its own, besides that of the reader."""
        return False


__all__ = ["BoundLookup", "Parts"]
