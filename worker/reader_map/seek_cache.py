"""Rows sought by equality within keys, found without a walk while a key stays as it is.

What one user has marked is one key, and a page asks which of its stories are among that. The rows of such a key are
taken apart once, by the bytes of their seek values, and remembered with the key's state (``layout.py``), which says
whether they are still these: 0.1 µs for each value that is sought, where going to its place in the map takes 5.
A page that asks twelve times what its user has done to a story, while his rows change, takes twice as long without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from worker.reader_map.environment import Transaction
from worker.reader_map.layout import OPEN_BRACE, TAIL_BYTES, count_of

# Pages that were read since their reader last changed, kept as Python bytes.
#
# LMDB takes 0.45 µs to walk down to a key, which is twice what all the rest of a look-up of many keys takes. A
# reader's version (``layout.py``) says whether anything was published to it since, so what is kept is exactly what
# the map holds. Where something is published to the reader before every request this gains nothing, and costs 0.1 µs
# a key. Without it look-ups of a thousand keys fall by more than a third of their ratio (``headrace bench --guard``).

RECENT_BYTES = 4 * 2**20
"""Bytes of one reader's rows: some 20,000 of ordinary size. Beyond it all are forgotten; they are in the map anyway."""


@dataclass(slots=True)
class RecentPages:
    """Pages of one reader, by the value of its INTEGER key, as of its ``version``."""

    version: bytes | None
    pages: dict[int, bytes] = field(default_factory=dict)
    held: int = 0

    def remember(self, values: Sequence[int], pages: Sequence[bytes | None]) -> None:
        """Holes are not kept."""
        found = {value: page for value, page in zip(values, pages, strict=True) if page is not None}
        size = sum(map(len, found.values()))
        if self.held + size > RECENT_BYTES:
            self.pages.clear()
            self.held = 0
        if size <= RECENT_BYTES:
            self.pages.update(found)
            self.held += size


WALKED = 8
"""Rows of a key for each value that was sought in it since it last changed, up to which all are taken apart. Of more
rows those that are sought are read: a key may change with every page that asks it. To go to one place takes 3 µs, and a
row to be taken apart 0.4."""

Found = dict[bytes, bytes]
"""The JSON of all rows with these seek values, joined by commas."""


class SoughtRows:
    """The rows of one reader without an order, whose suffixes thus are the seek values. One thread has it."""

    def __init__(self) -> None:
        self._by_marker: dict[bytes, tuple[bytes, int, Found | None]] = {}
        """The state of each key that was asked lately, how many values were sought in it, and its rows, taken apart."""
        self._held = 0

    def page(self, transaction: Transaction, marker: bytes, state: bytes, sought: Sequence[bytes]) -> bytes:
        """The rows with these seek values, value by value, each named once. ``state`` says that no suffix was cut."""
        if not state:
            return b""
        if state[0] == OPEN_BRACE:
            json, _, suffix = state.partition(b"\x00")
            return json if suffix in sought else b""
        known, asked, found = self._by_marker.get(marker, (b"", 0, None))
        if known != state or found is None:
            asked = len(sought) if known != state else asked + len(sought)
            if count_of(state) > WALKED * asked:
                self._remember(marker, state, asked, None)
                return b",".join(_walked(transaction, [marker + value for value in sought]))
            found = _taken_apart(transaction, marker, state)
            self._remember(marker, state, asked, found)
        return b",".join([found[value] for value in sought if value in found])

    def _remember(self, marker: bytes, state: bytes, asked: int, found: Found | None) -> None:
        """Remember what was found. Beyond the bound all is forgotten; it is in the map anyway. What is replaced counts
        on until then."""
        self._held += len(marker) + (sum([len(value) + len(rows) for value, rows in found.items()]) if found else 0)
        if self._held > RECENT_BYTES:
            self._by_marker.clear()
            self._held = 0
        self._by_marker[marker] = state, asked, found


def _taken_apart(transaction: Transaction, marker: bytes, state: bytes) -> Found:
    cursor, begin = transaction.cursor(), len(marker)
    cursor.set_key(marker)
    found: dict[bytes, list[bytes]] = {}
    for key, json in islice(cursor.iternext(True, True), 1, 1 + count_of(state)):
        found.setdefault(key[begin:-TAIL_BYTES], []).append(json)
    return {value: b",".join(rows) for value, rows in found.items()}


def _walked(transaction: Transaction, starts: Sequence[bytes]) -> list[bytes]:
    """The rows whose entries begin with the first of ``starts``, then those with the second …"""
    cursor = transaction.cursor()
    found: list[bytes] = []
    for start in starts:
        there = cursor.set_range(start)
        while there and cursor.key().startswith(start):
            found.append(cursor.value())
            there = cursor.next()
    return found
