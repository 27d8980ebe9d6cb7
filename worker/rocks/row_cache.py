"""Rows of tables that were found lately, kept decoded until a staged row changes the answer.

A join against base rows asks for the same popular keys at every step: out of RocksDB an index entry with its row costs
8 to 13 µs a key, from here 0.1. A write forgets the answers that its rows belong to before anything looks up again, so
an answer that is here is the one that RocksDB would give.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from domains.language.collating.collation import Collations
from domains.language.types import Delta, Row
from domains.operators.state import row_bytes
from domains.plan.deltas import key_function
from domains.plan.graph import Columns
from worker.rocks.database import Database

# Rows of a table that a scan in slices will ask for next.
#
# A slice of a backfill has some hundred rows, or two where each is dear, and a new iterator takes 10 µs over a
# million rows and over 100 where there are fifty million. So one iterator reads for several slices. What was read
# ahead is forgotten as soon as anything of the table is written, so a slice has what is stored when it is asked for.

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
        """The first entries, at most so many, from ``start`` on, below ``end``, which is where the table ends."""
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


CACHE_BYTES = 16 * 2**20
"""The bytes of the caches of all tables of a store: some 40,000 rows of ordinary size: as many as a busy hour's popular
ones. When they are full all are emptied, since an order of use would cost more than the look-ups that it saves."""
ANSWER_BYTES = 250
"""An answer beside its rows: the key's tuple and the slot in the dict."""

IDLE_WRITES = 64
"""Writes after which answers that nobody asked for again are dropped: keeping them true costs 0.2 µs a written row, and
what only filled state once is in that state."""

Answers = dict[Row, list[Delta]]


@dataclass(slots=True)
class CachedAccess:
    """Rows known by one choice of columns."""

    key_of: Callable[[Row], Row]
    answers: Answers = field(default_factory=dict)
    sizes: dict[Row, int] = field(default_factory=dict)
    """The bytes of the answers: adding them up again would make it dear to forget a key of many rows."""
    idle: int = 0
    """Writes since somebody asked."""


class CacheRoom:
    """The room of all caches of one store together."""

    def __init__(self) -> None:
        self.held = 0
        """Bytes."""
        self._caches: list[RowCache] = []

    def new_cache(self) -> RowCache:
        cache = RowCache(self)
        self._caches.append(cache)
        return cache

    def give_up(self, cache: RowCache) -> None:
        """Its table is no longer there."""
        cache.clear()
        self._caches.remove(cache)

    def makes(self, size: int) -> bool:
        """Whether so many bytes may come; all caches are emptied where there are too many otherwise."""
        if self.held + size > CACHE_BYTES:
            for cache in self._caches:
                cache.clear()
        return size <= CACHE_BYTES


class RowCache:
    """The cache of one table. That there are no rows is kept, too: most ribbons are on stories where the user wrote
    nothing."""

    def __init__(self, room: CacheRoom) -> None:
        self._room = room
        self.ways: dict[Columns, CachedAccess] = {}
        """What is known, by the columns of the look-up; whoever asks sets ``idle`` to 0. See :meth:`way`."""
        self._weigh: Callable[[Row], int] = row_bytes
        self._collations: Collations = ()

    def adopt(self, weigh: Callable[[Row], int], collations: Collations) -> None:
        """The table has another schema: nothing is known of it, and its rows weigh so much."""
        self.clear()
        self.ways.clear()
        self._weigh, self._collations = weigh, collations

    def way(self, columns: Columns) -> CachedAccess:
        """The rows known by these columns, for the first time."""
        return self.ways.setdefault(columns, CachedAccess(key_function(columns, self._collations)))

    def remember(
        self, way: CachedAccess, keys: Sequence[Row], found: Sequence[list[Delta]], *, keep_empty: bool
    ) -> None:
        """What was found at each key; that there is nothing only with ``keep_empty``."""
        weigh, room = self._weigh, self._room
        for key, rows in zip(keys, found, strict=True):
            if key in way.answers or not (rows or keep_empty):
                continue
            size = ANSWER_BYTES + sum([weigh(row) for row, _ in rows])
            if room.makes(size):
                room.held += size
                way.answers[key], way.sizes[key] = rows, size

    def forget(self, deltas: Iterable[Delta]) -> None:
        """These rows come or go: what is known of their keys is no longer so."""
        for way in self.ways.values():
            if not way.answers:
                continue
            way.idle += 1
            known = way.answers.keys()
            gone = {way.key_of(row) for row, _ in deltas} & known if way.idle <= IDLE_WRITES else set(known)
            for key in gone:
                del way.answers[key]
                self._room.held -= way.sizes.pop(key)

    def clear(self) -> None:
        for way in self.ways.values():
            self._room.held -= sum(way.sizes.values())
            way.answers.clear()
            way.sizes.clear()
