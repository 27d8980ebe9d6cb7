"""All that one reader holds, entry by entry, out of one state of the map: to be compared with what it should hold.

A reader may hold more than fits into memory, so it is walked. The walk's transaction stays open meanwhile and keeps
the pages that it sees from being used again; whoever walks has to come to an end (``worker/holds.py`` sees to that).
"""

from __future__ import annotations

from collections.abc import Iterator

from worker.reader_map.environment import Transaction
from worker.reader_map.layout import MANY_CUT, OPEN_BRACE, TAIL_BYTES, ReaderLayout, count_of, split_one

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
