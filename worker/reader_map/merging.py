"""Rows taken out of the map one by one: for windows, and for answers that several keys make together.

Rows of one key usually lie in the map in the order of the answer, and a whole key is read as it lies. Everything else
takes each row with its *rank*, the bytes of ``order ‖ tie``, which sort as ORDER BY does. Both are recovered without
decoding a value: the suffix of an entry is its key between the marker and the tie (or, where it was cut, what its value
holds behind the JSON), each seek value at its front says where it ends, and the rest is the order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from domains.plan.graph import Reader
from worker.reader_map.environment import Transaction
from worker.reader_map.layout import (
    MANY,
    MANY_CUT,
    OPEN_BRACE,
    ORDINAL_BYTES,
    TAIL_BYTES,
    ReaderLayout,
    Window,
    after,
    count_of,
    split_one,
    tie_of,
)

# All that one reader holds, entry by entry, out of one state of the map: to be compared with what it should hold.
#
# A reader may hold more than fits into memory, so it is walked. The walk's transaction stays open meanwhile and keeps
# the pages that it sees from being used again; whoever walks has to come to an end (``worker/service/holds.py`` sees
# to that).

HeldRow = tuple[bytes, bytes | None, bytes]
"""The key (encoded, or ``ff`` and its digest), a row's JSON (None: the key is filled and has no rows), its suffix."""


def walk(transaction: Transaction, layout: ReaderLayout) -> Iterator[HeldRow]:
    """Every row of every filled key; a key's rows follow one another. Nothing of a full reader that is being built."""
    prefix = layout.prefix
    cursor = transaction.cursor()
    found = cursor.set_range(prefix)
    while found and cursor.key().startswith(prefix):
        marker, state = cursor.item()
        key = marker[len(prefix) :]
        if not state:
            yield key, None, b""
        elif state[0] == OPEN_BRACE:
            yield key, *split_one(state)
        else:
            cut = state[0] == MANY_CUT
            for _ in range(count_of(state)):
                cursor.next()
                entry, value = cursor.item()
                json, _, suffix = value.partition(b"\x00")
                yield key, json, suffix if cut and suffix else entry[len(marker) : -TAIL_BYTES]
        found = cursor.next()


Ranked = tuple[bytes, bytes]
"""Rank and JSON of a row."""
Parts = list[list[Ranked]]
"""The rows of several keys, a list for each."""

WALKED = 4
"""Rows of a key to each value that is sought in it, up to which all of them are walked: to go to one place in LMDB's
tree takes 1.5 µs, and a row on the way 0.4."""


def limits(reader: Reader, limit: int | None, offset: int) -> tuple[int | None, int]:
    """Limit and offset of the look-up, else those of the reader."""
    return reader.limit if limit is None else limit, offset or reader.offset


def joined(layout: ReaderLayout, parts: Parts, limit: int | None, offset: int) -> bytes:
    """The parts of several keys, wherever they came from, as one answer: order, limit and offset hold across them.

    Without an order the keys' rows follow one another.
    """
    return b",".join(listed(layout, parts, limit, offset))


def listed(layout: ReaderLayout, parts: Parts, limit: int | None, offset: int) -> list[bytes]:
    """The same, row by row."""
    found = list(chain.from_iterable(parts))
    if layout.reader.order:
        found.sort()
    return _taken(layout, found, *limits(layout.reader, limit, offset))


def answer(layout: ReaderLayout, rows: Sequence[Ranked], limit: int | None, offset: int) -> bytes:
    """These rows, which are in order, as a response's bytes; ``limit`` and ``offset`` are what holds in the end."""
    return b",".join(_taken(layout, rows, limit, offset))


def _taken(layout: ReaderLayout, rows: Sequence[Ranked], limit: int | None, offset: int) -> list[bytes]:
    taken = [json for _, json in rows]
    if not taken and layout.empty is not None:
        taken = [layout.empty]
    return taken[offset : None if limit is None else offset + limit]


def ranked_rows(
    transaction: Transaction, layout: ReaderLayout, marker: bytes, state: bytes, part: Window, most: int | None
) -> list[Ranked]:
    """The rows of a filled key within the window, in the reader's order; no more than ``most`` of them if given.

    ``state`` is the marker's value.
    """
    if not state:
        return []
    if state[0] == OPEN_BRACE:
        json, suffix = split_one(state)
        return [(suffix[layout.order_start(suffix, 0) :] + tie_of(json), json)] if part.holds(suffix) else []
    if state[0] == MANY_CUT:
        return sorted(_cut_rows(transaction, layout, marker, part))[:most]
    if part.everything and not layout.reader.seek:
        # What an IN list over whole keys is made of; the walk below asks where each row's order begins.
        cursor, begin, count = transaction.cursor(), len(marker), count_of(state)
        cursor.set_key(marker)
        entries = islice(cursor.iternext(True, True), 1, 1 + (count if most is None else min(count, most)))
        return [(key[begin:-ORDINAL_BYTES], json) for key, json in entries]
    rows = _rows(transaction, layout, marker, part)
    return list(islice(rows, most)) if part.ordered else sorted(rows)[:most]


def sought_rows(
    transaction: Transaction,
    layout: ReaderLayout,
    marker: bytes,
    state: bytes,
    windows: Sequence[Window],
    most: int | None,
) -> list[Ranked]:
    """The rows of a filled key that lie in any of the windows, which have nothing in common, window by window.

    Few rows are walked once, and each finds its window; where there are many of them, each window is walked to.
    """
    if len(windows) == 1 or (state[0] == MANY and count_of(state) > WALKED * len(windows)):
        return [row for part in windows for row in ranked_rows(transaction, layout, marker, state, part, most)]
    placed = sorted((part.start, number) for number, part in enumerate(windows))
    starts = [start for start, _ in placed]
    rows: list[list[Ranked]] = [[] for _ in windows]
    for suffix, tie, json in _suffixes(transaction, layout, marker, state):
        at = bisect_right(starts, suffix) - 1
        if at >= 0 and windows[number := placed[at][1]].holds(suffix):
            rows[number].append((suffix[layout.order_start(suffix, 0) :] + tie, json))
    if state[0] == MANY_CUT or not windows[0].ordered:
        rows = list(map(sorted, rows))
    return [row for found in rows for row in found[:most]]


def spanned_rows(
    transaction: Transaction,
    layout: ReaderLayout,
    marker: bytes,
    state: bytes,
    windows: Sequence[Window],
    most: int | None,
) -> list[Ranked]:
    """The rows of a filled key in all of these windows, which lie one after another, in the reader's order. Where that
    is theirs the walk ends with the ``most``-th row: a page costs its own rows, and a step down the tree a window."""
    found: list[Ranked] = []
    ordered = all(part.ordered for part in windows)
    for part in windows:
        left = None if most is None or not ordered else most - len(found)
        if left == 0:
            break
        found += ranked_rows(transaction, layout, marker, state, part, left)
    return found if ordered else sorted(found)[:most]


def _suffixes(
    transaction: Transaction, layout: ReaderLayout, marker: bytes, state: bytes
) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Suffix, tie and JSON of each row of a key that has any."""
    if state[0] == OPEN_BRACE:
        json, suffix = split_one(state)
        yield suffix, tie_of(json), json
        return
    cursor, begin = transaction.cursor(), len(marker)
    cursor.set_key(marker)
    for key, value in islice(cursor.iternext(True, True), 1, 1 + count_of(state)):
        json, _, cut = value.partition(b"\x00")
        yield cut or key[begin:-TAIL_BYTES], key[-TAIL_BYTES:-ORDINAL_BYTES], json


def _rows(transaction: Transaction, layout: ReaderLayout, marker: bytes, part: Window) -> Iterator[Ranked]:
    """The rows within the window as they lie."""
    cursor = transaction.cursor()
    end = after(marker) if part.end is None else marker + part.end
    begin, order_start = len(marker), layout.order_start
    # Without a lower bound the walk would begin at the marker itself.
    found = cursor.set_range(marker + part.start) if part.start else cursor.set_key(marker) and cursor.next()
    if not found:
        return
    for key, value in cursor.iternext(True, True):
        if key >= end:
            return
        yield key[order_start(key, begin) : -ORDINAL_BYTES], value


def _cut_rows(transaction: Transaction, layout: ReaderLayout, marker: bytes, part: Window) -> Iterator[Ranked]:
    """All rows of a key some of whose suffixes were cut; the window is tried on the whole suffixes."""
    cursor = transaction.cursor()
    end, begin = after(marker), len(marker)
    cursor.set_key(marker)
    for key, value in islice(cursor.iternext(True, True), 1, None):
        if key >= end:
            return
        json, whole = split_one(value)
        suffix = whole or key[begin:-TAIL_BYTES]
        if part.holds(suffix):
            yield suffix[layout.order_start(suffix, 0) :] + key[-TAIL_BYTES:-ORDINAL_BYTES], json
