"""The Lobsters and ribbons workloads: a stream of jobs, and the program and rows that they expect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from loadgen.pace.loop import Arrival, Workload
from loadgen.peers.store import (
    Change,
    DeleteRow,
    InsertRow,
    Lookup,
    PeerSession,
    Program,
    Rows,
    UpdateRow,
    Upsert,
    parse_queries,
)
from loadgen.workloads.counters import HandOptimisedPages
from loadgen.workloads.pages import NaturalPages, Page
from loadgen.workloads.visits import Visit, Visits
from loadgen.workloads.whole import WholePages
from lobsters import program, words
from lobsters.data import Data

# The cache entries that an application deletes when it writes. Pure.
#
# This part of a cache-aside is written by hand, for each query and each write, and is where it goes wrong. Here a write
# deletes every entry that its own page knows to be touched. Others stay until they expire: notifications of followers
# other than the one who is answered, names of a renamed user on other pages, the hotness of a story that another one
# was merged into.

STORY_BY_ID = ("listed_stories:", "stories_by_id:", "story_by_id")


def touched(change: Change) -> Iterator[str]:
    """Names of cache entries (``cached.entries_of``)."""
    match change:
        case InsertRow(table=table, rows=rows):
            for row in rows:
                yield from _row(table, {**row, **change.about})
        case Upsert(table=table, rows=rows):
            for row in rows:
                yield from _row(table, dict(row))
        case UpdateRow(table=table, key=key):
            yield from _row(table, {**change.about, **key})
        case DeleteRow(table=table, key=key):
            yield from _row(table, dict(key))


def _row(table: str, row: dict[str, object]) -> Iterator[str]:
    user, story = row.get("user_id"), row.get("story_id")
    match table:
        case "votes":
            yield f"story_votes_of_user:{user}:{story}"
            yield f"comment_votes_of_user:{user}:{row.get('comment_id')}"
            yield f"comment_votes_on_story:{user}:{story}"
        case "stories":
            yield from _story(int(str(row["id"])))
            yield from ("frontpage_ids:", "recent_ids:", f"stories_by_url:{row.get('url')}")
            yield f"favourite_tag:{user}"
        case "comments":
            comment = int(str(row["id"]))
            yield f"comments_by_id::{comment}"
            yield f"comment_by_short_id:{words.comment_short_id(comment)}"
            yield f"story_comments:{story}"
            yield f"comment_points_of_story:{story}"
            yield "newest_comment_ids:"
            yield f"notifications_of_user:{row.get('answered')}"
        case "taggings":
            yield from (f"taggings_of_stories::{story}", f"tag_hotness_of_story:{story}")
        case "read_ribbons":
            yield from (f"read_ribbon:{user}:{story}", f"notifications_of_user:{user}")
        case "users":
            number = int(str(row["id"]))
            yield from (f"user_by_id:{number}", f"stats_of_user:{number}")
            yield f"user_by_name:{words.username(number)}"


def _story(story: int) -> Iterator[str]:
    for start in STORY_BY_ID:
        yield f"{start}:{story}"
    yield f"story_by_short_id:{words.story_short_id(story)}"


SITE_RATE = 46 / 60
"""Pages a second of the real site: a scale of 1."""


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


def whole_pages() -> Program:
    """Everything derived as in the natural program, and a page is one answer."""
    views, text = program.page_views()
    return Program(
        "lobsters",
        "pages",
        program.schema(),
        program.natural_views() + views,
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


_VARIANTS: dict[str, tuple[Callable[[], Program], type[NaturalPages]]] = {
    "natural": (natural, NaturalPages),
    "pages": (whole_pages, WholePages),
    "hand-optimised": (hand_optimised, HandOptimisedPages),
}
VARIANTS = tuple(_VARIANTS)


class SiteWorkload(Workload):
    """A workload on the generated site."""

    def __init__(self, program: Program, data_scale: float, data_seed: int, seed: int, started: float) -> None:
        self.program = program
        self._site = (data_scale, data_seed)
        self._data = Data(*self._site)
        self._visits = Visits(self._data, seed, started)

    def probe(self) -> Lookup:
        """The last story."""
        query = self.program.queries[_VARIANTS[self.program.variant][1].STORY]
        return Lookup(query, (words.story_short_id(self._data.shape.stories),))

    def rows(self) -> tuple[Rows, int]:
        data = Data(*self._site)  # Can be run through once, so another one each time.
        return data.batches(), sum(data.totals.values())


async def _visit(page: Page, visit: Visit, session: PeerSession) -> None:
    await page(session, visit)


class LobstersWorkload(SiteWorkload):
    name = "lobsters"
    unit = "pages"

    def __init__(self, *, variant: str = "natural", data_scale: float = 1.0, data_seed: int = 1, seed: int = 1) -> None:
        program, pages = _VARIANTS[variant]
        made = program()
        super().__init__(made, data_scale, data_seed, seed, time.time())
        self._pages: dict[str, Page] = pages(made.queries).by_kind

    def draw(self, at: float) -> Arrival:
        visit = self._visits.draw(at)
        return Arrival(visit.kind, partial(_visit, self._pages[visit.kind], visit))


# The notifications view under its heaviest writer: read ribbons, as fast as they come, in batches.
#
# Every Story page moves a ribbon, and the view of unread replies sees each: in the published runs this bounded the
# whole site (about 4,300 updates a second). This workload is those updates, and some reads of notifications, so that
# the view has keys to keep::
#
#     95 % a batch of ribbons (one statement)      5 % notifications of as many users (one look-up each)

WRITES_PERCENT = 95
USERS_READ = 20
"""Notifications asked for at once."""


async def _move(change: Upsert, session: PeerSession) -> None:
    await session.write([change])


async def _ask(lookups: list[Lookup], session: PeerSession) -> None:
    await session.read(lookups)


class RibbonsWorkload(SiteWorkload):
    """Read ribbons of the site, which ``lobsters`` primes."""

    name = "ribbons"
    unit = "updates"

    def __init__(self, *, data_scale: float = 1.0, data_seed: int = 1, seed: int = 1, batch: int = 100) -> None:
        super().__init__(natural(), data_scale, data_seed, seed, started=0.0)
        self._batch, self._random, self._gathered = batch, Random(seed), 0.0

    def begin(self, rate: float) -> float:
        self._gathered = self._batch / rate
        return rate / self._batch * 100 / WRITES_PERCENT

    def draw(self, at: float) -> Arrival:
        if self._random.randrange(100) >= WRITES_PERCENT:
            query = self.program.queries["notifications_of_user"]
            lookups = [Lookup(query, (self._visits.draw(at).user,)) for _ in range(USERS_READ)]
            return Arrival("notifications", partial(_ask, lookups), 0)
        now = words.sql_time(self._data.until + 1 + int(at))
        pairs = {((visit := self._visits.draw(at)).user, visit.story) for _ in range(self._batch)}
        rows = [
            {"user_id": user, "story_id": story, "is_following": 1, "created_at": now, "updated_at": now}
            for user, story in pairs
        ]
        change = Upsert("read_ribbons", rows, ("user_id", "story_id"), ("updated_at",))
        return Arrival("ribbons", partial(_move, change), len(rows), self._gathered)
