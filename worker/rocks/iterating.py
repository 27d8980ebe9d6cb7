"""Entries out of an iterator of the binding: below a key, of prefixes, of ranges; and what is read of them at once.

An iterator that cannot read on looks like one that is at its end, unless it is asked: all of these ask it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from domains.errors import StorageFailure

ENTRIES = 2_000
"""Read at once by whoever is elsewhere: what a scan asks for. It takes about a millisecond."""
ENTRY_BYTES = 1 << 20
"""The bytes of keys and values that are read at once: rows may be long."""

Entry = tuple[bytes, bytes]
"""Key and value."""
KeyRange = tuple[bytes, bytes]
"""The keys from the first one on, below the second. Where the first is the greater one: those below it, the greatest
first, down to the second."""


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """What is read at once of some ranges."""

    found: tuple[tuple[Entry, ...], ...]
    """The entries of the first ranges, of one at least."""
    cut: bool
    """Whether the last of these has more entries that were asked for."""


class Entries(Protocol):
    """Keys and values in their order: of a database as it is, or of a view of it. See :class:`Database`."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def items(self, start: bytes, end: bytes, limit: int | None = None) -> list[tuple[bytes, bytes]]: ...

    def before(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]: ...

    def prefixed(self, prefixes: Sequence[bytes], end: bytes, most: float = inf) -> list[list[tuple[bytes, bytes]]]: ...

    def cannot_read(self, error: Exception | str) -> StorageFailure: ...


def walk_back(cursor: Any, start: bytes, end: bytes, limit: int, size: float = inf) -> list[tuple[bytes, bytes]]:
    """The last entries from ``start`` on, below ``end``, the greatest first: so many and so large at most."""
    found: list[tuple[bytes, bytes]] = []
    cursor.seek_for_prev(end)
    if cursor.valid() and cursor.key() == end:
        cursor.prev()
    while len(found) < limit and size > 0 and cursor.valid() and (key := cursor.key()) >= start:
        value = cursor.value()
        found.append((key, value))
        size -= len(key) + len(value)
        cursor.prev()
    cursor.status()
    return found


def walk_prefixes(cursor: Any, prefixes: Sequence[bytes], most: float) -> list[list[tuple[bytes, bytes]]]:
    """The entries that begin with each prefix, at most so many."""
    answers: list[list[tuple[bytes, bytes]]] = []
    for prefix in prefixes:
        found: list[tuple[bytes, bytes]] = []
        cursor.seek(prefix)
        while len(found) < most and cursor.valid() and (key := cursor.key()).startswith(prefix):
            found.append((key, cursor.value()))
            cursor.next()
        if not cursor.valid():
            cursor.status()  # The next seek would forget it.
        answers.append(found)
    return answers


def walk_ranges(cursor: Any, ranges: Sequence[KeyRange], most: int) -> FoundEntries:
    answers: list[tuple[Entry, ...]] = []
    entries, size = ENTRIES, ENTRY_BYTES
    for start, end in ranges:
        found: list[Entry] = []
        limit = min(most, entries)
        if start > end:
            found = walk_back(cursor, end, start, limit, size)
            size -= sum(len(key) + len(value) for key, value in found)
            goes_on = cursor.valid() and cursor.key() >= end
        else:
            cursor.seek(start)
            while len(found) < limit and size > 0 and cursor.valid() and (key := cursor.key()) < end:
                value = cursor.value()
                found.append((key, value))
                size -= len(key) + len(value)
                cursor.next()
            goes_on = cursor.valid() and cursor.key() < end
        if not goes_on:
            cursor.status()  # The next seek would forget it.
        answers.append(tuple(found))
        entries -= len(found)
        if entries <= 0 or size <= 0:
            return FoundEntries(tuple(answers), goes_on and len(found) < most)
    return FoundEntries(tuple(answers), cut=False)
