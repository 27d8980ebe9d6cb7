"""Rows of one table that were found lately, kept decoded until a staged row changes the answer.

A join against base rows asks for the same popular keys at every step: out of RocksDB an index entry with its row costs
8 to 13 µs a key, from here 0.1. A write forgets the answers that its rows belong to before anything looks up again, so
an answer that is here is the one that RocksDB would give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from domains.deltas import key_function
from domains.graph import Columns
from domains.state import row_bytes
from domains.types import Delta, Row

CACHE_BYTES = 16 * 2**20
"""Of one table, some 40,000 rows of ordinary size: as many as a busy hour's popular ones. A cache that is full is
emptied whole, since an order of use would cost more than the look-ups that it saves."""
ANSWER_BYTES = 250
"""An answer beside its rows: the key's tuple and the slot in the dict."""

Answers = dict[Row, list[Delta]]


class RowCache:
    """Known-empty answers are not kept: a new row's uniqueness check would fill the cache with them."""

    def __init__(self) -> None:
        self._ways: dict[Columns, tuple[Callable[[Row], Row], Answers]] = {}
        self._bytes = 0

    def answers(self, columns: Columns) -> Answers:
        """What is known by these columns; not to be changed by the caller."""
        way = self._ways.get(columns)
        if way is None:
            way = self._ways[columns] = (key_function(columns), {})
        return way[1]

    def remember(self, columns: Columns, key: Row, rows: list[Delta]) -> None:
        if not rows or key in self.answers(columns):
            return
        size = ANSWER_BYTES + sum([row_bytes(row) for row, _ in rows])
        if self._bytes + size > CACHE_BYTES:
            self.clear()
            if size > CACHE_BYTES:
                return
        self._bytes += size
        self.answers(columns)[key] = rows

    def forget(self, deltas: Iterable[Delta]) -> None:
        """These rows come or go: what is known of their keys is no longer so."""
        for key_of, answers in self._ways.values():
            if answers:
                for key in {key_of(row) for row, _ in deltas} & answers.keys():
                    self._bytes -= ANSWER_BYTES + sum([row_bytes(row) for row, _ in answers.pop(key)])

    def clear(self) -> None:
        self._ways.clear()
        self._bytes = 0
