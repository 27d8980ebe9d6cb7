"""The same program as a careful programmer writes it for this one purpose: plain dicts, no graph, no holes.

It does what the engine's dataflow thread does for the program and no more: the rows, index entries, log entry and position of each batch in
one RocksDB write, the counts, and the answers brought up to date. It knows that votes are never taken back, that
every story is known, and which answers a vote changes; the engine finds that out.
"""

from __future__ import annotations

import marshal
from pathlib import Path
from struct import Struct

from headrace.bench.program import Story
from worker.rocks.database import Database

Vote = tuple[int, int]

_ROW_KEY = Struct(">BIQ").pack
_INDEX_KEY = Struct(">BIQQ").pack
_LOG_KEY = Struct(">BQ").pack
_ROWS, _INDEX, _LOG, _COUNTERS = 1, 2, 3, b"\x04"
_MARSHAL_VERSION = 2
_TABLE = 1


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
        number, changes = self._rows, {}
        counts = self._counts
        touched = set()
        for vote in votes:
            number += 1
            story = vote[1]
            changes[_ROW_KEY(_ROWS, _TABLE, number)] = marshal.dumps(vote, _MARSHAL_VERSION)
            changes[_INDEX_KEY(_INDEX, _TABLE, story, number)] = b""
            counts[story] = counts.get(story, 0) + 1
            touched.add(story)
        self._rows = number
        self._position += 1
        changes[_LOG_KEY(_LOG, self._position)] = marshal.dumps(votes, _MARSHAL_VERSION)
        changes[_COUNTERS] = marshal.dumps((number, self._position), _MARSHAL_VERSION)
        self._database.write(changes)
        stories, answers = self._stories, self.answers
        for story in touched:
            answers[story] = (*stories[story], counts[story])

    def sync(self) -> None:
        self._database.sync()

    def close(self) -> None:
        self._database.close()
