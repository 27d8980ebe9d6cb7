"""Which part of a key's entries a look-up walks: the suffixes from ``start`` on, below ``end``.

The suffix begins with the seek values, so equality parameters are a prefix and a range parameter an interval behind
it. As in SQL, a range never takes NULL, and a bound that is NULL takes nothing; equality is that of values, NULL among
them.
"""

from __future__ import annotations

from dataclasses import dataclass

from domains.encoding import NULL_BYTES, encode_value
from domains.graph import OrderTerm
from domains.types import Row, Value
from worker.reader_map.layout import ReaderLayout

Bound = tuple[Value, bool]
"""A value, and whether it is itself within the range."""


@dataclass(frozen=True, slots=True)
class Window:
    start: bytes
    end: bytes | None
    """None: to the end of the key's entries."""
    ordered: bool
    """Whether the walk meets the rows in the reader's order."""

    @property
    def everything(self) -> bool:
        return not self.start and self.end is None

    def holds(self, suffix: bytes) -> bool:
        return self.start <= suffix and (self.end is None or suffix < self.end)


WHOLE = Window(b"", None, True)
NOTHING = Window(b"\xff", b"", True)


def window(layout: ReaderLayout, seek_values: Row, low: Bound | None, high: Bound | None) -> Window:
    """The window for these parameters.

    ``seek_values`` are those of the seek columns, in their order. If they are not all given, ``low`` and ``high`` are
    the range of the first that is not.
    """
    seek, order, given = layout.reader.seek, layout.reader.order, len(seek_values)
    assert given <= len(seek), f"{given} values for the seek columns {seek}"
    if not seek:
        return WHOLE
    prefix = layout.encode_seek[given](seek_values)
    if given == len(seek):
        assert (low, high) == (None, None), "a range needs a seek column of its own"
        return Window(prefix, after(prefix), True)
    # What lies in the order of the seek column is in the reader's order if that begins with the same column.
    leads = given == len(seek) - 1 and bool(order) and order[0] == OrderTerm(seek[-1])
    ordered = not order or leads
    if low is None and high is None:
        return Window(prefix, after(prefix) if prefix else None, ordered)
    if (low is not None and low[0] is None) or (high is not None and high[0] is None):
        return NOTHING
    start = prefix + after(NULL_BYTES)
    if low is not None:
        edge = prefix + encode_value(low[0])
        start = edge if low[1] else after(edge)
    end = after(prefix) if prefix else None
    if high is not None:
        edge = prefix + encode_value(high[0])
        end = after(edge) if high[1] else edge
    return Window(start, end, ordered)


def after(prefix: bytes) -> bytes:
    """The least byte string above all that begin with ``prefix``."""
    kept = prefix.rstrip(b"\xff")
    assert kept, "no byte string is above all that begin with ff"
    return kept[:-1] + bytes((kept[-1] + 1,))
