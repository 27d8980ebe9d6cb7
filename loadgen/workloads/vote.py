"""The vote workload (Listing 3.1 of the Noria thesis): stories, votes, and how many votes a story has.

95 of 100 requests read a story with its count, 5 cast a vote. A client gathers requests and sends them in batches, as
the thesis' clients do, since no single request is worth a packet at hundreds of thousands a second::

    requests, one by one ─► gathered to a batch ─► one look-up of many keys, or one insert of many rows
"""

from collections.abc import Iterator, Sequence
from functools import partial
from importlib.resources import files
from itertools import accumulate
from random import Random
from typing import Any

from loadgen.pace.loop import Arrival, Workload
from loadgen.peers.store import InsertRow, Lookup, PeerSession, Program, Query, Rows, parse_queries

# Batches of reads and of votes, over stories drawn evenly or by Zipf's law.

STORIES = 100_000
"""The number of stories at a data scale of 1."""
FIRST_VOTES = 5
"""Votes of each story before the run."""
READS_PERCENT = 95
ZIPF = 1.15
"""The exponent of the thesis."""
DISTRIBUTIONS = ("zipf", "uniform")
USERS = 1_000_000
_ROWS = 1000


def program() -> Program:
    text = files("loadgen.workloads").joinpath("vote.sql").read_text(encoding="utf-8")
    tables, rest = text.split("CREATE VIEW", 1)
    views, queries = rest.split("CREATE EXT VIEW", 1)
    query_text = "CREATE EXT VIEW" + queries
    return Program(
        "vote",
        "natural",
        tables,
        "CREATE VIEW" + views,
        parse_queries(query_text),
        query_text,
        tables=("stories", "votes"),
    )


async def _read(query: Query, stories: list[int], session: PeerSession) -> None:
    await session.read([Lookup(query, (stories,))])


async def _vote(rows: list[dict[str, int]], session: PeerSession) -> None:
    await session.write([InsertRow("votes", rows)])


class VoteWorkload(Workload):
    name = "vote"

    def __init__(
        self, *, data_scale: float = 1.0, seed: int = 1, distribution: str = "zipf", batch: int = 1000
    ) -> None:
        self.program = program()
        self._stories = max(100, round(STORIES * data_scale))
        self._batch = batch
        self._random = Random(seed)
        self._order = list(range(1, self._stories + 1))
        self._sums: Sequence[float] | None = None
        if distribution == "zipf":
            Random(0).shuffle(self._order)  # Which stories are popular does not depend on the run's seed.
            self._sums = list(accumulate(rank**-ZIPF for rank in range(1, self._stories + 1)))
        self._query = self.program.queries["story_with_votes"]
        self._gathered = 0.0

    def begin(self, rate: float) -> float:
        self._gathered = self._batch / rate
        return rate / self._batch

    def draw(self, at: float) -> Arrival:
        random, size = self._random, self._batch
        drawn = random.choices(self._order, cum_weights=self._sums, k=size)
        if random.randrange(100) < READS_PERCENT:
            # The same story twice in a batch is asked for once: its two readers share the row.
            return Arrival("read", partial(_read, self._query, list(dict.fromkeys(drawn))), size, self._gathered)
        rows = [{"user_id": random.randrange(USERS), "story_id": story} for story in drawn]
        return Arrival("vote", partial(_vote, rows), size, self._gathered)

    def probe(self) -> Lookup:
        return Lookup(self._query, ([self._stories],))

    def rows(self) -> tuple[Rows, int]:
        return self._rows(), self._stories * (1 + FIRST_VOTES)

    def _rows(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for first in range(1, self._stories + 1, _ROWS):
            stories = range(first, min(first + _ROWS, self._stories + 1))
            yield "stories", [{"id": story, "author": story % 997, "title": f"Story {story}"} for story in stories]
        votes = range(self._stories * FIRST_VOTES)
        for start in range(0, len(votes), _ROWS):
            part = votes[start : start + _ROWS]
            yield "votes", [{"user_id": vote, "story_id": 1 + vote % self._stories} for vote in part]
