"""A target that answers at once, out of memory: what is left is the cost of the generator itself.

Answers are of the usual size and shape (51 stories, 20 comments), so that pages do all the work on them that they do
elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.peers.references import in_rounds
from loadgen.peers.store import Answer, Change, Lookup, Program, Progress, Server

ROWS = {"frontpage_ids": 51, "recent_ids": 51, "listed_stories": 51, "newest_comment_ids": 40, "comments_by_id": 40}
"""Of queries that have more than :data:`USUAL_ROWS`."""
USUAL_ROWS = 3


class _Row(dict[str, Any]):
    """Has every column: a number, or the moment that it was made."""

    def __missing__(self, key: str) -> int | str:
        return "2018-04-20 00:00:00" if key == "created_at" else int(self["id"])


@dataclass(frozen=True, slots=True)
class NullAnswer:
    _rows: list[dict[str, Any]]

    def rows(self) -> list[dict[str, Any]]:
        return self._rows

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self._rows]


_ANSWERS = {name: NullAnswer([_Row(id=number) for number in range(1, 1 + count)]) for name, count in ROWS.items()}
_USUAL = NullAnswer([_Row(id=number) for number in range(1, 1 + USUAL_ROWS)])


class NullSession:
    async def read(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        return await in_rounds(self._round, lookups)

    async def _round(self, lookups: Sequence[Lookup]) -> Sequence[NullAnswer]:
        return [_ANSWERS.get(each.query.name, _USUAL) for each in lookups]

    async def write(self, changes: Sequence[Change]) -> int:
        return len(changes)

    async def close(self) -> None:
        return None


class NullTarget:
    name = "null"
    servers: Sequence[Server] = ()

    async def describe(self) -> dict[str, str]:
        return {"server": "null: answers at once"}

    async def check(self, program: Program, probe: Lookup | None) -> None:
        return None

    async def prime(
        self, program: Program, batches: Iterable[tuple[str, list[dict[str, Any]]]], total: int, tell: Progress
    ) -> None:
        return None

    async def session(self) -> NullSession:
        return NullSession()

    def notes(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        return None
