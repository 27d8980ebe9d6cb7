"""The same program as a careful programmer writes it for this one purpose: plain dicts, no graph, no holes.

It does what the program needs and no more: the rows, index entries, log entry and position of each batch in one
RocksDB write, of the same bytes as the engine's; the counts; and the answers brought up to date. It knows that votes
are never taken back, that every story is there, and which answers a vote changes. The engine finds all that out.
"""

from __future__ import annotations

import marshal
from pathlib import Path
from struct import Struct

from headrace.bench.program import Story
from worker.rocks.database import Database

Vote = tuple[int, int]

_ROWS, _INDEX, _LOG, _COUNTERS = b"r\0\0\0\1\0", b"i\0\0\0\1\0\1\x60", b"l\0\0\0\1", b"m\2\0\0\0\1"
_NUMBER = Struct(">Q").pack
_MARSHAL_VERSION = 2


class VotesByHand:
    """``answers`` is the view: story → its row with the count."""

    def __init__(self, path: Path, stories: list[Story]) -> None:
        self._database = Database(path, create=True)
        self._counts: dict[int, int] = {}
        self._stories = {each[0]: each for each in stories}
        self.answers: dict[int, tuple[int, int, str, str, int]] = {}
        self._rows = 0
        self._position = 0

    def write(self, votes: list[Vote]) -> None:
        """One batch: durable state, counts, answers."""
        number = self._rows
        changes: dict[bytes, bytes | None] = {}
        counts = self._counts
        touched: set[int] = set()
        for vote in votes:
            number += 1
            story = vote[1]
            row = marshal.dumps(vote, _MARSHAL_VERSION) + _NUMBER(number)
            changes[_ROWS + row] = b""
            changes[_INDEX + _NUMBER(story) + row] = b""
            counts[story] = counts.get(story, 0) + 1
            touched.add(story)
        self._rows = number
        self._position += 1
        changes[_LOG + _NUMBER(self._position)] = marshal.dumps(votes, _MARSHAL_VERSION)
        changes[_COUNTERS] = marshal.dumps((number, 0, number, self._position), _MARSHAL_VERSION)
        self._database.write(changes)
        stories, answers = self._stories, self.answers
        for story in touched:
            answers[story] = (*stories[story], counts[story])

    def sync(self) -> None:
        self._database.sync()

    def close(self) -> None:
        self._database.close()
