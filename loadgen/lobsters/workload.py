"""The Lobsters workload as the loop wants it: a stream of jobs, a program, and the rows that it expects to be there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loadgen.lobsters import program, words
from loadgen.lobsters.counters import HandOptimisedPages
from loadgen.lobsters.data import Data
from loadgen.lobsters.invalidation import touched
from loadgen.lobsters.pages import NaturalPages, Page
from loadgen.lobsters.visits import Visit, Visits
from loadgen.pace.jobs import Job
from loadgen.peers.store import Lookup, Program, Session, parse_queries

SITE_RATE = 46 / 60
"""Pages a second of the real site: a scale of 1."""
VARIANTS = ("natural", "hand-optimised")


def rate_of(scale: float) -> float:
    """Pages a second at a scale."""
    return scale * SITE_RATE


def natural() -> Program:
    """Everything derived from the votes themselves."""
    text = program.page_queries()
    return Program(
        "lobsters",
        "natural",
        program.schema(),
        program.natural_views(),
        parse_queries(text),
        text,
        indexes=program.database_indexes("natural"),
        tables=program.TABLES,
    )


def hand_optimised() -> Program:
    """The application keeps counters."""
    columns, changed = program.hand_optimised()
    queries = {**parse_queries(program.page_queries()), **parse_queries(changed)}
    queries.pop("replies_to_user")  # no page asks for it
    text = "\n".join(f"CREATE EXT VIEW {query.name} AS\n{query.sql};\n" for query in queries.values())
    return Program(
        "lobsters",
        "hand-optimised",
        program.schema() + columns,
        "",
        queries,
        text,
        indexes=program.database_indexes("hand-optimised"),
        tables=program.TABLES,
        fill=program.natural_views() + program.fill_counters(),
        touched=touched,
    )


@dataclass(slots=True)
class _Act:
    page: Page
    visit: Visit

    async def __call__(self, session: Session) -> None:
        await self.page(session, self.visit)


class LobstersWorkload:
    name = "lobsters"
    unit = "pages"

    def __init__(self, *, variant: str = "natural", data_scale: float = 1.0, data_seed: int = 1, seed: int = 1) -> None:
        self.program = natural() if variant == "natural" else hand_optimised()
        self._data_seed = data_seed
        self._scale = data_scale
        self._data = Data(data_scale, data_seed)
        pages = NaturalPages if variant == "natural" else HandOptimisedPages
        self._pages: dict[str, Page] = pages(self.program.queries).by_kind
        self._visits = Visits(self._data, seed, time.time())

    def begin(self, rate: float) -> float:
        return rate

    def draw(self, at: float) -> Job:
        visit = self._visits.draw(at)
        return Job(visit.kind, _Act(self._pages[visit.kind], visit))

    def probe(self) -> Lookup:
        """A look-up that has rows if the data is there: the last story."""
        return Lookup(self.program.queries["story_by_short_id"], (words.story_short_id(self._data.shape.stories),))

    def rows(self) -> tuple[Iterator[tuple[str, list[dict[str, Any]]]], int]:
        """All rows by the batch, and how many there are."""
        data = Data(self._scale, self._data_seed)  # Can be run through once, so another one each time.
        return data.batches(), sum(data.totals.values())
