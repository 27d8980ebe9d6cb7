"""Rows of a table that a scan in slices will ask for next.

A slice of a backfill has some hundred rows, or two where each is dear, and a new iterator takes 10 µs over a million
rows and over 100 where there are fifty million. So one iterator reads for several slices. What was read ahead is
forgotten as soon as anything of the table is written, so a slice has what is stored when it is asked for.
"""

from __future__ import annotations

from bisect import bisect_left

from worker.rocks.database import Database

Entry = tuple[bytes, bytes]

SLICES_AHEAD = 4
AHEAD_MIN = 64
AHEAD_MAX = 4_000
"""Entries; of a slice that has more, none is read ahead."""


class ReadAhead:
    """The entries from ``low`` on, below ``high``: all that there are."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.forget()

    def forget(self) -> None:
        self._low = self._high = b""
        self._entries: list[Entry] = []

    def first(self, start: bytes, end: bytes, limit: int) -> list[Entry]:
        """At most so many entries from ``start`` on, below ``end``, which is where the table ends."""
        if not self._low <= start < self._high or not self._reaches(start, end, limit):
            self._read(start, end, max(limit, min(max(SLICES_AHEAD * limit, AHEAD_MIN), AHEAD_MAX)))
        at = bisect_left(self._entries, (start,))
        return self._entries[at : at + limit]

    def all(self, start: bytes, end: bytes) -> list[Entry]:
        """All entries from ``start`` on, below ``end``."""
        if self._low <= start and end <= self._high:
            return self._entries[bisect_left(self._entries, (start,)) : bisect_left(self._entries, (end,))]
        return self._database.items(start, end)

    def _reaches(self, start: bytes, end: bytes, limit: int) -> bool:
        return self._high == end or len(self._entries) - bisect_left(self._entries, (start,)) >= limit

    def _read(self, start: bytes, end: bytes, count: int) -> None:
        self._entries = self._database.items(start, end, count)
        self._low = start
        self._high = end if len(self._entries) < count else self._entries[-1][0] + b"\x00"
