"""The changes that one reader's publish makes to the map, inside the write transaction of its step.

An inlined row and entries are two forms of one thing (``layout.py``). A key takes the second form when a second row
comes and keeps it until it is empty or evicted: going back would read an entry for each row that leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

from domains.language.types import Delta, Row
from domains.plan.packets import Publish
from worker.reader_map.environment import Cursor, Transaction
from worker.reader_map.layout import (
    FIRST_ORDINAL,
    MANY_CUT,
    OPEN_BRACE,
    ORDINAL_BYTES,
    ReaderLayout,
    count_of,
    many,
    pack_ordinal,
    split_one,
)

ENTRY_OVERHEAD = 16
"""Bytes that LMDB takes beside key and value: 10 for the node and its pointer, the rest for pages not quite full."""
SMALL_ENTRY = 150
"""Bytes of key and value below which two fifths come late, and leave pages 0.81 to 0.9 full, where a third leaves 0.74
to 0.86. Of larger ones a page that has got three fifths has no room for the others, and is halved again."""


class Application:
    """Applies one publish in the transaction of ``version``. ``net_bytes``: what the reader's entries have grown by."""

    def __init__(self, transaction: Transaction, layout: ReaderLayout, version: bytes) -> None:
        self._get = transaction.get
        self._put = transaction.put
        self._delete = transaction.delete
        self._cursor: Cursor = transaction.cursor()
        self._version = version
        self._layout = layout
        self._veil = layout.veil if layout.concealed else None
        """Where the marker stands instead. A concealed reader is full, and so has only one key."""
        self.net_bytes = 0

    def apply(self, publish: Publish) -> None:
        for key in publish.evicted:
            self._evict(self._layout.marker(key))
        for key, rows in publish.filled:
            self._fill(self._layout.marker(key), rows)
        if publish.deltas:
            self._apply_deltas(publish.deltas)

    # --- keys ---------------------------------------------------------------------------------------------------

    def _evict(self, marker: bytes) -> None:
        place = self._veil or marker
        value = self._get(place)
        if value is None:
            return
        self._delete(place)
        self.net_bytes -= len(marker) + len(value) + ENTRY_OVERHEAD
        if value and value[0] != OPEN_BRACE:
            cursor = self._cursor
            cursor.set_range(marker)
            for _ in range(count_of(value)):
                self.net_bytes -= sum(map(len, cursor.item())) + ENTRY_OVERHEAD
                cursor.delete()

    def _fill(self, marker: bytes, rows: Sequence[Delta]) -> None:
        self._evict(marker)
        count = sum([weight for _, weight in rows])
        assert all(weight > 0 for _, weight in rows), "a fill holds rows, not retractions"
        if count == 0:
            value = b""
        elif count == 1:
            value = self._layout.one(rows[0][0])
        else:
            value = many(count, self._lay_out(marker, rows, count), self._version)
        self._put(self._veil or marker, value)
        self.net_bytes += len(marker) + len(value) + ENTRY_OVERHEAD

    def _apply_deltas(self, deltas: Sequence[tuple[Row, Delta]]) -> None:
        by_key: dict[Row, list[Delta]] = {}
        for key, delta in deltas:
            if (changes := by_key.get(key)) is None:
                by_key[key] = [delta]
            else:
                changes.append(delta)
        layout, veil, get, put = self._layout, self._veil, self._get, self._put
        for key, changes in by_key.items():
            marker = layout.marker(key)
            place = veil or marker
            old = get(place)
            if old is None:
                continue  # a hole: a fill will bring these rows
            if len(changes) > 2 or (len(changes) == 2 and changes[0][0] == changes[1][0]):
                changes = _consolidated(changes)
                if not changes:
                    continue  # as it was, and so is its version
            if not old or old[0] == OPEN_BRACE:
                new = self._change_few(marker, old, changes)
            else:
                new = self._change_many(marker, count_of(old), old[0] == MANY_CUT, changes)
            if new != old:
                put(place, new)
                self.net_bytes += len(new) - len(old)

    def _change_few(self, marker: bytes, old: bytes, changes: Sequence[Delta]) -> bytes:
        """The marker's new value where there were no rows or one."""
        if old and len(changes) == 2:
            (first, weight), (second, other) = changes
            if weight == -1 and other == 1:
                # What a vote does: the row that is retracted can only be the one that was there.
                return self._layout.one(second)
            if weight == 1 and other == -1:
                return self._layout.one(first)
        count = sum([weight for _, weight in changes]) + (1 if old else 0)
        come = [delta for delta in changes if delta[1] > 0]
        if count == 0 and not come:
            return b""
        if count == 1 and len(come) <= 1:
            return self._layout.one(come[0][0]) if come else old
        cut = False
        if old:
            json, suffix = split_one(old)
            cut = self._put_entry(marker, suffix, json, 1)
        return self._change_many(marker, 1 if old else 0, cut, changes)

    def _change_many(self, marker: bytes, count: int, cut: bool, changes: Sequence[Delta]) -> bytes:
        """The marker's new value where rows have entries."""
        for row, weight in changes:
            if weight < 0:
                self._remove_entry(marker, row, -weight)
        cut |= self._insert(marker, [delta for delta in changes if delta[1] > 0])
        count += sum([weight for _, weight in changes])
        assert count >= 0, "more rows retracted than there were"
        return many(count, cut, self._version) if count else b""

    # --- entries ------------------------------------------------------------------------------------------------

    def _lay_out(self, marker: bytes, rows: Sequence[Delta], count: int) -> bool:
        """``_insert`` of so many rows where none stand: 0.3 µs an entry in LMDB, where one by one takes 0.6.

        In order, but every other one of three or five after the rest. LMDB halves a full page wherever the next entry
        goes, so that in order they leave their pages half full and in any order two thirds; the late ones fill them.
        """
        layout, cut = self._layout, False
        entries: dict[bytes, bytes] = {}
        for row, _ in rows:
            key, value, was_cut = layout.entry(marker, layout.suffix(row), layout.json(row))
            entries[key + FIRST_ORDINAL] = value
            cut |= was_cut
        if len(entries) < count:
            return self._insert(marker, rows)  # some rows are equal: the later ones have other ordinals
        items = sorted(entries.items())
        size = sum([len(key) + len(value) for key, value in items])
        group = 5 if size < count * SMALL_ENTRY else 3
        self._cursor.putmulti([item for at, item in enumerate(items) if at % group % 2 == 0])
        self._cursor.putmulti([item for at, item in enumerate(items) if at % group % 2])
        self.net_bytes += size + count * ENTRY_OVERHEAD
        return cut

    def _insert(self, marker: bytes, rows: Sequence[Delta]) -> bool:
        layout, cut = self._layout, False
        for row, weight in rows:
            cut |= self._put_entry(marker, layout.suffix(row), layout.json(row), weight)
        return cut

    def _put_entry(self, marker: bytes, suffix: bytes, json: bytes, weight: int) -> bool:
        key, value, cut = self._layout.entry(marker, suffix, json)
        ordinal = 0
        if not self._put(key + FIRST_ORDINAL, value, overwrite=False):
            ordinal = self._last_ordinal(key) + 1  # it is not the first of its kind
            self._put(key + pack_ordinal(ordinal), value)
        for more in range(ordinal + 1, ordinal + weight):
            self._put(key + pack_ordinal(more), value)
        self.net_bytes += weight * (len(key) + ORDINAL_BYTES + len(value) + ENTRY_OVERHEAD)
        return cut

    def _remove_entry(self, marker: bytes, row: Row, weight: int) -> None:
        key, value, _ = self._layout.entry(marker, self._layout.suffix(row), self._layout.json(row))
        last = self._last_ordinal(key)
        assert last + 1 >= weight, f"retraction of a row that the reader does not have: {row!r}"
        for ordinal in range(last, last - weight, -1):
            self._delete(key + pack_ordinal(ordinal))
        self.net_bytes -= weight * (len(key) + ORDINAL_BYTES + len(value) + ENTRY_OVERHEAD)

    def _last_ordinal(self, key: bytes) -> int:
        """The greatest ordinal of these equal rows (they count from 0 without gaps), -1 if there are none."""
        cursor = self._cursor
        found = cursor.set_range(key + b"\xff" * ORDINAL_BYTES)
        if not (cursor.prev() if found else cursor.last()):
            return -1
        at = cursor.key()
        return int.from_bytes(at[-ORDINAL_BYTES:], "big") if at[:-ORDINAL_BYTES] == key else -1


def _consolidated(changes: Sequence[Delta]) -> list[Delta]:
    totals: dict[Row, int] = {}
    for row, weight in changes:
        totals[row] = totals.get(row, 0) + weight
    return [(row, weight) for row, weight in totals.items() if weight]
