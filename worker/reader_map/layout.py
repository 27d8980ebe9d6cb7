"""Which bytes stand for what in the reader map.

For each filled key of a reader there is a *marker* under ``reader id ‖ key``; its value is one of

==========================  ==================================================================================
(nothing)                   filled, no rows
``{…} [00 ‖ suffix]``       filled, this one row: its JSON, and its suffix where the reader has any
``2a ‖ count ‖ version``    so many rows, one entry each
``7e ‖ count ‖ version``    the same, and the suffix of some entry did not fit into its key
==========================  ==================================================================================

and where there have been two rows or more, an *entry* for each under ``reader id ‖ key ‖ suffix ‖ tie ‖ ordinal`` with
the row's JSON as its value. The *suffix* is ``seek ‖ order``; the tie (8 bytes of a digest of the value) sets rows of
equal suffix apart, in an order that depends on nothing but the row, and the ordinal (4 bytes) equal rows. A key of one
row is thus read by one get, and a page is a walk that never looks at a key: entries lie behind their marker in the
answer's order, and the marker says how many there are. JSON holds no zero byte, so 00 can end it.

The one marker of a full reader that is being built stands under another key, its *veil*: to whoever reads, the reader
has a hole until it is revealed. Its entries stand in their places; nobody finds them without the marker.

Each reader also has a *version*: the number of the last transaction that published to it. As long as it stands, so does
every answer that was read out of this reader, and whoever has kept one need not read it again. The same holds for one
key and its marker's value: that is all of its rows, or has the number of the last transaction that changed one of them.

LMDB keys have 511 bytes. A key of more than :data:`KEY_LIMIT` is replaced by ``ff`` and its digest of 32 bytes, which
no two keys share (and no value's encoding begins with ``ff``). A suffix that does not fit is cut, the whole of it is
kept behind the entry's JSON (``{…} 00 ‖ suffix``), and the marker says so: such a key is read as a whole and sorted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from domains.language.coercion import json_encoder
from domains.language.encoding import Encoder, encode_order, key_encoder, row_encoder
from domains.language.ordered import COMPLEMENT, NULL_BYTES, encode_value, value_end
from domains.language.types import Column, Kind, Row, SqlType, Value
from domains.plan.graph import Columns, NodeIndex, OrderTerm, Reader
from domains.plan.sharding import SHARDS_MAX

ENTRY_LIMIT = 511
"""LMDB's own, in bytes of a key."""

KEY_LIMIT = 250
"""Bytes of an encoded key. It leaves as much again for the suffix before that is cut."""

TIE_BYTES = 8
ORDINAL_BYTES = 4
TAIL_BYTES = TIE_BYTES + ORDINAL_BYTES

OPEN_BRACE = ord("{")
MANY, MANY_CUT = 0x2A, 0x7E

FIRST_ORDINAL = bytes(ORDINAL_BYTES)
VEIL = b"\xff" * 4
"""Before a reader's prefix: the key of a marker that is not to be found yet. No reader has that number."""
VERSION = b"\xff" * 3 + b"\xfe"
"""Before a reader's prefix: the key of its version. No reader has this number either."""

pack_ordinal = struct.Struct(">I").pack
_pack_state = struct.Struct(">BQ8s").pack
_COUNT = slice(1, 9)
"""The place of the count in a state."""
pack_version = struct.Struct(">Q").pack
_FAR = b"\xff" * 3 + b"\x00"
"""Before the number, in 8 bytes, of a reader that has none of 4 bytes: those of automatic views of a cluster."""
_FAR_FROM = 0xFFFFFF00
"""The first number that no reader has in 4 bytes."""
_pack_integer = struct.Struct(">sQ").pack


INTEGER_ZERO = int.from_bytes(encode_value(0)[1:], "big")
"""The number that is added to an INTEGER so that its 8 bytes sort as it does."""
INTEGER_TAG = encode_value(0)[:1]


def reader_id(node: NodeIndex, shard: int) -> int:
    """The number of one shard of a reader: the same in every process, and in each map no other's."""
    return node * SHARDS_MAX + shard


def _prefix(reader_id: int) -> bytes:
    """What the keys of a reader begin with, and no other reader's."""
    return pack_ordinal(reader_id) if reader_id < _FAR_FROM else _FAR + pack_version(reader_id)


def _is_integer(types: Sequence[SqlType], key: Columns) -> bool:
    return len(key) == 1 and types[key[0]].kind is Kind.INTEGER


class ReaderLayout:
    """The encoders of one reader, compiled once; the same in the writer and in every process that reads.

    ``columns`` are those of the reader's node: the visible ones first, hidden keys and orders after them.
    """

    def __init__(self, reader_id: int, reader: Reader, columns: tuple[Column, ...]) -> None:
        types = [column.type for column in columns]
        self.types = tuple(types)
        self.reader_id = reader_id
        self.reader = reader
        self.prefix = _prefix(reader_id)
        self.concealed = False
        """Whether a full reader's marker stands under ``veil``; for whoever writes the map."""
        self.veil = VEIL + self.prefix
        self.version_key = VERSION + self.prefix
        self.encode_key: Encoder = key_encoder([types[at] for at in reader.key])
        self._integer_head = self.prefix + self.encode_key((0,))[:1] if _is_integer(types, reader.key) else b""
        self._pack_integer = struct.Struct(f">{len(self._integer_head)}sQ").pack
        self.encode_seek: list[Encoder] = [
            key_encoder([types[at] for at in reader.seek[:count]]) for count in range(len(reader.seek) + 1)
        ]
        """Encoders of values for so many of the seek columns."""
        self._seeks_integer = _is_integer(types, reader.seek)
        positions = (*reader.seek, *(term.column for term in reader.order))
        descending = (False,) * len(reader.seek) + tuple(term.descending for term in reader.order)
        self.descending = descending
        """Of each column of the suffix."""
        self.suffix: Encoder = row_encoder(positions, [types[at] for at in positions], descending)
        """Encodes a row's ``seek ‖ order``."""
        self.has_suffix = bool(positions)
        self.json: Encoder = json_encoder(columns[: reader.visible])
        """Encodes the JSON object of a row's visible columns, which is answered."""
        self.empty = self.json(reader.empty) if reader.empty is not None else None
        self.unordered = not reader.order and self.empty is None and reader.limit is None and not reader.offset
        """Whether rows are answered one after another as they lie, and nothing else is."""
        self.plain = not reader.seek and not reader.ranges and reader.limit is None and not reader.offset
        """Whether a look-up by key alone answers all rows of the key."""
        self.sought = bool(reader.seek) and self.unordered
        """Whether a look-up by key and seek values answers the rows with these, value by value: ``seek_cache.py``."""
        self.follows = not reader.seek and self.unordered
        """Whether, besides, the rows of several keys are those of each, one after another."""

    def marker(self, key: Row) -> bytes:
        encoded = self.encode_key(key)
        if len(encoded) > KEY_LIMIT:
            encoded = b"\xff" + blake2b(encoded, digest_size=32).digest()
        return self.prefix + encoded

    @property
    def by_integer(self) -> bool:
        """Whether the key is one INTEGER: then :meth:`integer_markers` is there."""
        return bool(self._integer_head)

    def integer_markers(self, values: Sequence[int]) -> list[bytes]:
        """``marker`` of each key ``(value,)``: 0.08 µs each, a quarter. ``struct.error`` beyond 64 bits."""
        pack, head, zero = self._pack_integer, self._integer_head, INTEGER_ZERO
        return [pack(head, zero + value) for value in values]

    def markers(self, keys: Sequence[Row]) -> list[bytes]:
        """``marker`` of each key."""
        if not self._integer_head:
            return list(map(self.marker, keys))
        try:
            return self.integer_markers([value for (value,) in keys])  # type: ignore[misc]
        except (struct.error, TypeError):  # one is NULL or beyond 64 bits
            return list(map(self.marker, keys))

    def seek_starts(self, seeks: Sequence[Row]) -> list[bytes]:
        """The beginnings of the suffixes of rows that have these values in the seek columns, each once."""
        if self._seeks_integer:
            try:
                return [_pack_integer(INTEGER_TAG, INTEGER_ZERO + value) for (value,) in dict.fromkeys(seeks)]  # type: ignore[operator]
            except (struct.error, TypeError):  # one is NULL or beyond 64 bits
                pass
        return list(map(self.encode_seek[-1], dict.fromkeys(seeks)))

    def one(self, row: Row) -> bytes:
        """The marker's value for this one row."""
        return self.json(row) + b"\x00" + self.suffix(row) if self.has_suffix else self.json(row)

    def entry(self, marker: bytes, suffix: bytes, json: bytes) -> tuple[bytes, bytes, bool]:
        """An entry's key without its ordinal, its value, and whether the suffix had to be cut."""
        room = ENTRY_LIMIT - TAIL_BYTES - len(marker)
        if len(suffix) <= room:
            return marker + suffix + tie_of(json), json, False
        value = json + b"\x00" + suffix
        return marker + suffix[:room] + tie_of(value), value, True

    def order_start(self, encoded: bytes, suffix_start: int) -> int:
        """The place at which the order begins in a suffix: behind the seek values, each of which says where it ends."""
        for _ in self.reader.seek:
            suffix_start = value_end(encoded, suffix_start)
        return suffix_start


def tie_of(value: bytes) -> bytes:
    return blake2b(value, digest_size=TIE_BYTES).digest()


def split_one(value: bytes) -> tuple[bytes, bytes]:
    """JSON and suffix of a marker that holds one row, or of an entry whose suffix was cut."""
    json, _, suffix = value.partition(b"\x00")
    return json, suffix


def many(count: int, cut: bool, version: bytes) -> bytes:
    """The marker's value for rows that have entries, as the transaction of this version leaves them."""
    return _pack_state(MANY_CUT if cut else MANY, count, version)


def count_of(value: bytes) -> int:
    """How many rows a marker with this value has."""
    if not value:
        return 0
    return 1 if value[0] == OPEN_BRACE else int.from_bytes(value[_COUNT], "big")


# Which part of a key's entries a look-up walks: the suffixes from ``start`` on, below ``end``.
#
# The suffix begins with the seek values, so equality parameters are a prefix and a range parameter an interval behind
# it. As in SQL, a range never takes NULL, and a bound that is NULL takes nothing; equality is that of values, NULL
# among them.

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


# Conditions of several columns (``Reader.ranges``): each alternative is an interval of suffixes, so a condition is a
# union of intervals, and several conditions are what these have in common. ``(a, b) < (7, 3)`` by a, b descending::
#
#     a = 7, b < 3     from  7 ‖ 3 (behind it)  to  7 ‖ NULL
#     a < 7            from  7 (behind it)      to  NULL
#
# The walk goes from the first to the last and ends where the page is full. Rows whose b is NULL lie between the two.

Span = tuple[Row, Bound | None, Bound | None]
"""An alternative: values of the first columns of a range, and the bounds of the next one."""
Spans = tuple[tuple[Span, ...], ...]
"""Alternatives of each condition; all conditions hold."""

_Interval = tuple[bytes, bytes | None]
_AFTER_NULL = bytes((NULL_BYTES[0] + 1,))
_NULL_LAST = NULL_BYTES.translate(COMPLEMENT)


def windows(
    layout: ReaderLayout, seek_values: Row, low: Bound | None, high: Bound | None, spans: Spans
) -> list[Window]:
    """:func:`window` for these parameters, in the order of the entries, where ``spans`` may say more."""
    if not spans:
        return [window(layout, seek_values, low, high)]
    given = len(seek_values)
    prefix = layout.encode_seek[given](seek_values)
    descending = layout.descending[given:]
    found: list[_Interval] | None = None
    for alternatives in spans:
        wanted = _joined([_interval(prefix, descending, span) for span in alternatives])
        if found is None:
            found = wanted
        else:
            found = [common for one in found for other in wanted if (common := _common(one, other)) is not None]
    assert found is not None, "there are spans"
    ordered = not layout.reader.order or given == len(layout.reader.seek)
    return [Window(start, end, ordered) for start, end in found]


def _interval(prefix: bytes, descending: Sequence[bool], span: Span) -> _Interval:
    values, low, high = span
    begin = prefix + encode_order(values, descending[: len(values)]) if values else prefix
    if low is None and high is None:
        return begin, after(begin) if begin else None
    down = descending[len(values)]
    first, last = (high, low) if down else (low, high)
    # NULL, which no comparison finds, comes first, and last where the column descends.
    if first is None:
        start = begin if down else begin + _AFTER_NULL
    else:
        edge = encode_value(first[0])
        start = begin + (edge.translate(COMPLEMENT) if down else edge)
        start = start if first[1] else after(start)
    if last is None:
        return start, begin + _NULL_LAST if down else after(begin) if begin else None
    edge = encode_value(last[0])
    end = begin + (edge.translate(COMPLEMENT) if down else edge)
    return start, after(end) if last[1] else end


def _joined(intervals: Sequence[_Interval]) -> list[_Interval]:
    """Intervals in order, those that meet as one."""
    found: list[_Interval] = []
    for start, end in sorted((each for each in intervals if each[1] is None or each[0] < each[1]), key=_start):
        if found and (found[-1][1] is None or start <= found[-1][1]):
            last, stop = found[-1]
            found[-1] = last, None if end is None or stop is None else max(end, stop)
        else:
            found.append((start, end))
    return found


def _start(interval: _Interval) -> bytes:
    return interval[0]


def _common(one: _Interval, other: _Interval) -> _Interval | None:
    start = max(one[0], other[0])
    ends = [end for end in (one[1], other[1]) if end is not None]
    end = min(ends, default=None)
    return None if end is not None and end <= start else (start, end)


def after(prefix: bytes) -> bytes:
    """The least byte string above all that begin with ``prefix``."""
    kept = prefix.rstrip(b"\xff")
    assert kept, "no byte string is above all that begin with ff"
    return kept[:-1] + bytes((kept[-1] + 1,))
