"""One base shard's tables as they were between two steps, wherever they lie, and how they are read: by ranges of keys,
so many at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from sys import maxsize
from typing import Protocol, runtime_checkable

from domains.errors import StorageFailure
from domains.language.types import Delta
from domains.store.storage import StoredRows
from worker.adhoc.answer import Question, ShardedRows
from worker.rocks.iterating import ENTRIES, Entry, FoundEntries, KeyRange
from worker.rocks.stored_table import ViewedTable


class ReadableEntries(Protocol):
    """Any thread but an event loop's."""

    def ranges(self, ranges: Sequence[KeyRange], most: int) -> FoundEntries:
        """The entries of some ranges of keys, at most so many of each."""

    def misread(self, what: str) -> StorageFailure:
        """The error for what was read and is no row."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of the rows that a part of a question comes to (``pushing.py``)."""

    deltas: tuple[Delta, ...]
    stream: int = 0
    """The number by which the next piece is asked for. 0: there are no more."""


class ShardView(ReadableEntries, Protocol):
    @property
    def tables(self) -> tuple[ViewedTable, ...]: ...

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, by its maker or since its store was closed."""

    def close(self) -> None:
        """Whoever reads meanwhile fails. Any thread."""


@runtime_checkable
class RemoteView(ShardView, Protocol):
    """It is where the rows are, so parts of a question are evaluated there."""

    def begin(self, part: Question) -> Piece: ...

    def next(self, stream: int) -> Piece: ...


class RangedEntries:
    """See :class:`worker.rocks.iterating.Entries`, over what is read by ranges."""

    def __init__(self, view: ReadableEntries) -> None:
        self._view = view

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._ranges([(key, key + b"\x00") for key in keys], 1)
        return [some[0][1] if some else None for some in found]

    def items(self, start: bytes, end: bytes, limit: int | None = None) -> list[Entry]:
        return self._ranges([(start, end)], maxsize if limit is None else limit)[0]

    def before(self, start: bytes, end: bytes, limit: int) -> list[Entry]:
        return self._ranges([(end, start)], limit)[0]

    def prefixed(self, prefixes: Sequence[bytes], end: bytes, most: float = inf) -> list[list[Entry]]:
        return self._ranges([(prefix, prefix + b"\xff") for prefix in prefixes], maxsize if most == inf else int(most))

    def _ranges(self, ranges: Sequence[KeyRange], most: int) -> list[list[Entry]]:
        answers: list[list[Entry]] = []
        while len(answers) < len(ranges):
            some = ranges[len(answers) : len(answers) + ENTRIES]
            part = self._view.ranges(some, most)
            answers += map(list, part.found)
            start, end = some[len(part.found) - 1]
            while part.cut:
                last = answers[-1]
                rest = last[-1][0] if start > end else last[-1][0] + b"\x00"
                part = self._view.ranges([(rest, end)], most - len(last))
                last += part.found[0]
        return answers

    def cannot_read(self, error: Exception | str) -> StorageFailure:
        return self._view.misread(str(error))


class ViewedTables:
    """The tables of all shards, over views of them."""

    def __init__(self, shards: Sequence[tuple[ReadableEntries, Sequence[ViewedTable]]]) -> None:
        found: dict[str, list[StoredRows]] = {}
        for view, tables in shards:
            entries = RangedEntries(view)
            for table in tables:
                found.setdefault(table.schema.name, []).append(table.over(entries))
        self._tables = {name: some[0] if len(some) == 1 else ShardedRows(some) for name, some in found.items()}

    def table(self, name: str) -> StoredRows:
        return self._tables[name]
