"""MariaDB runs the same SQL on the same rows and says the same: every page query, at rest and after a run's writes.

Skipped, with the reason, where there is no MariaDB; CI installs one.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from test_lobsters_dataflow import KEYS

from loadgen.bench import servers
from loadgen.peers.opening import open_target
from loadgen.peers.store import Answer, Change, Lookup, PeerSession, Program, Target
from loadgen.workloads.counters import HandOptimisedPages
from loadgen.workloads.lobsters import hand_optimised, natural, whole_pages
from loadgen.workloads.pages import NaturalPages
from loadgen.workloads.visits import FIRST_FREE, MIX, Visit, Visits
from loadgen.workloads.whole import WholePages
from lobsters import words
from lobsters.data import Data

SCALE = 0.005
SEED = 1
PAGES = 8
"""Of each kind."""
READS = 6
"""Keys that each query is asked for."""
EQUAL_WITHIN = 60.0
"""Seconds until what was written must be seen in every view."""

MISSING = servers.missing("mariadb")
pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

ORDERED = {"frontpage_ids", "recent_ids", "newest_comment_ids", "story_comments", "favourite_tag", "replies_to_user"}
"""Queries that promise an order. Others are compared as bags."""

WHOLE: dict[str, tuple[str, ...]] = {
    "reader_by_id": ("user",),
    "marks_of_reader": ("user", "stories"),
    "story_in_list": ("stories",),
    "story_page": ("story name",),
    "comment_in_list": ("comments",),
    "user_page": ("user name",),
    "comment_by_name": ("comment name",),
}
"""The same for the queries that only the variant ``pages`` has."""
ASKED_BY = {**KEYS, **WHOLE}

Row = dict[str, Any]


def both_programs() -> Program:
    """The natural program, and beside it the views that are whole pages."""
    pages, program = whole_pages(), natural()
    assert set(pages.queries) - set(program.queries) == set(WHOLE)
    text = "".join(f"CREATE EXT VIEW {name} AS\n{pages.queries[name].sql};\n" for name in WHOLE)
    queries = {**pages.queries, **program.queries}
    return replace(program, views=pages.views, queries=queries, query_text=program.query_text + text)


class Sites:
    """The same site in MariaDB, as either variant, and in Headrace: URLs of targets."""

    def __init__(self, database: str, headrace: str) -> None:
        self.data = Data(SCALE, SEED)
        self.natural = f"{database}natural"
        self.hand_optimised = f"{database}hand_optimised"
        self.headrace = headrace


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with (
        servers.mariadb(tmp_path_factory.mktemp("mariadb")) as database,
        servers.headrace(tmp_path_factory.mktemp("headrace")) as headrace,
    ):
        made = Sites(database, headrace)
        for url, program in (
            (made.natural, both_programs()),
            (made.headrace, both_programs()),
            (made.hand_optimised, hand_optimised()),
        ):
            asyncio.run(prime(url, program))
        yield made


async def prime(url: str, program: Program) -> None:
    target = open_target(url)
    data = Data(SCALE, SEED)
    # What a read-only run would warm up is not needed here, and covering indexes only cost.
    await target.prime(replace(program, indexes=""), data.batches(), sum(data.totals.values()), lambda *_: None)
    await target.close()


async def on(url: str, act: Callable[[PeerSession], Awaitable[Any]]) -> Any:
    target: Target = open_target(url)
    session = await target.session()
    try:
        return await act(session)
    finally:
        await session.close()
        await target.close()


# --- what a query says -------------------------------------------------------------------------------------------


def lookups_of(name: str, data: Data, seed: int) -> list[Lookup]:
    """Keys that are there, and some that are not."""
    draw = random.Random(f"{name} {seed}")
    size = data.shape
    drawn: Mapping[str, Callable[[], Any]] = {
        "user": lambda: draw.randint(1, size.users + 1),
        "story": lambda: draw.randint(1, size.stories + 1),
        "comment": lambda: draw.randint(1, size.comments + 1),
        "tag": lambda: draw.randint(1, len(words.TAGS) + 1),
        "key": lambda: f"user:{draw.randint(1, size.users)}:unread_messages",
        "story name": lambda: words.story_short_id(draw.randint(1, size.stories)),
        "comment name": lambda: words.comment_short_id(draw.randint(1, size.comments)),
        "user name": lambda: words.username(draw.randint(1, size.users)),
        "merged into": lambda: draw.randint(0, size.stories // 200) * 200 + 1,
        "tag names": lambda: [draw.choice(words.TAGS)[0], "no tag"],
        "url": lambda: draw.choice(["", "https://nobody.example.com/"]),
    }
    plural = {"users": "user", "stories": "story", "comments": "comment", "tags": "tag"}

    def value(what: str) -> Any:
        if what in plural:
            return sorted({drawn[plural[what]]() for _ in range(draw.randint(1, 6))})
        return drawn[what]()

    query = both_programs().queries[name]
    times = READS if ASKED_BY[name] else 1
    return [Lookup(query, tuple(value(what) for what in ASKED_BY[name])) for _ in range(times)]


def plain(rows: list[Row], ordered: bool) -> list[dict[str, Any]]:
    """Rows as either side would say them: moments as text, exact numbers without trailing zeros, JSON parsed."""
    made = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return made if ordered else sorted(made, key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return str(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return _plain(json.loads(value))
    if isinstance(value, str) and value.endswith(".000000"):  # As MySQL, and not MariaDB, has a moment in JSON.
        return value.removesuffix(".000000")
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value else "0"
    if isinstance(value, str) and value.replace(".", "", 1).removeprefix("-").isdigit():
        return _plain(Decimal(value))
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


async def said(session: PeerSession, lookups: list[Lookup]) -> list[list[Row]]:
    ordered = lookups[0].query.name in ORDERED
    return [plain(answer.rows(), ordered) for answer in await session.read(lookups)]


def compare(sites: Sites, name: str, seed: int) -> None:
    """Both say the same, at the latest when all that was written is seen."""
    lookups = lookups_of(name, sites.data, seed)

    async def ask(session: PeerSession) -> list[list[Row]]:
        return await said(session, lookups)

    theirs = asyncio.run(on(sites.natural, ask))
    until = time.monotonic() + EQUAL_WITHIN
    while (ours := asyncio.run(on(sites.headrace, ask))) != theirs and time.monotonic() < until:
        time.sleep(0.1)
    for lookup, our, their in zip(lookups, ours, theirs, strict=True):
        assert our == their, (name, lookup.values)


@pytest.mark.parametrize("name", list(ASKED_BY))
def test_every_page_query_says_the_same(sites: Sites, name: str) -> None:
    compare(sites, name, seed=1)


def test_most_answers_have_rows(sites: Sites) -> None:
    """Else the test above would compare nothing with nothing."""
    empty = []
    for name in ASKED_BY:
        lookups = lookups_of(name, sites.data, seed=1)

        async def ask(session: PeerSession, lookups: list[Lookup] = lookups) -> list[list[Row]]:
            return await said(session, lookups)

        if not any(asyncio.run(on(sites.headrace, ask))):
            empty.append(name)
    assert len(empty) <= 6, empty


# --- and after the pages have written ------------------------------------------------------------------------------


def visits(data: Data, first: int = FIRST_FREE) -> list[Visit]:
    """Some of each kind, in a mixed order, with numbers that are the same on each target."""
    stream, made = Visits(data, SEED, 0.0), []
    wanted = [kind for kind in MIX for _ in range(PAGES)]
    random.Random(SEED).shuffle(wanted)
    for number, kind in enumerate(wanted):
        made.append(replace(stream.draw(number * 30.0), kind=kind, fresh=first + number))
    return made


class Remembering:
    """A session, and what each of its reads was answered."""

    def __init__(self, session: PeerSession) -> None:
        self._session = session
        self.reads: list[list[tuple[str, list[Row]]]] = []

    async def read(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        answers = await self._session.read(lookups)
        names = [each.query.name for each in lookups]
        said = [plain(answer.rows(), name in ORDERED) for answer, name in zip(answers, names, strict=True)]
        self.reads.append(list(zip(names, said, strict=True)))
        return answers

    async def write(self, changes: Sequence[Change]) -> int:
        return await self._session.write(changes)

    async def close(self) -> None: ...


async def browse(
    session: PeerSession,
    pages: NaturalPages,
    data: Data,
    kinds: Sequence[str] = tuple(MIX),
    first: int = FIRST_FREE,
) -> Remembering:
    remembering = Remembering(session)
    for visit in visits(data, first):
        if visit.kind in kinds:
            await pages.by_kind[visit.kind](remembering, visit)
    return remembering


@pytest.mark.parametrize(
    ("pages", "least"), [(NaturalPages(natural().queries), 4), (WholePages(whole_pages().queries), 2)]
)
def test_pages_are_answered_the_same(sites: Sites, pages: NaturalPages, least: int) -> None:
    """In one request with references, and in rounds of statements."""
    kinds = ("Frontpage", "Recent", "Comments", "User", "Logout")
    theirs, ours = (
        asyncio.run(on(url, lambda session: browse(session, pages, sites.data, kinds))).reads
        for url in (sites.natural, sites.headrace)
    )
    assert len(ours) == PAGES * len(kinds)
    for our, their in zip(ours, theirs, strict=True):
        assert our == their
    assert sum(bool(rows) for read in ours for _, rows in read) > len(ours) * least


def test_after_the_same_pages_every_query_says_the_same(sites: Sites) -> None:
    read: list[set[str]] = []
    for url in (sites.natural, sites.headrace):
        said = asyncio.run(on(url, lambda session: browse(session, NaturalPages(natural().queries), sites.data)))
        read.append({name for one in said.reads for name, rows in one if rows})
    assert read[0] == read[1]
    for name in ASKED_BY:
        compare(sites, name, seed=2)


def test_after_whole_pages_have_written_every_query_says_the_same(sites: Sites) -> None:
    """Pages of the other variant write the same rows."""
    pages = WholePages(whole_pages().queries)
    for url in (sites.natural, sites.headrace):
        asyncio.run(on(url, lambda session: browse(session, pages, sites.data, first=FIRST_FREE + 5_000)))
    for name in ASKED_BY:
        compare(sites, name, seed=3)


def test_hand_kept_counters_agree_with_the_natural_views(sites: Sites) -> None:
    """After the pages have kept them, each is what the natural views compute of the same rows."""
    queries = hand_optimised().queries
    asyncio.run(on(sites.hand_optimised, lambda session: browse(session, HandOptimisedPages(queries), sites.data)))

    async def both(session: Any) -> tuple[list[Row], ...]:
        answers = []
        for sql in COUNTERS:
            async with session.connection.cursor() as cursor:
                await cursor.execute(sql)
                answers.append(plain(await cursor.fetchall(), ordered=True))
        return tuple(answers)

    stories, score, comments, comment_score, users, stats = asyncio.run(on(sites.hand_optimised, both))
    assert stories == score
    assert comments == comment_score
    assert users == stats
    assert len(users) >= 20
    assert sum(int(each["upvotes"]) for each in stories) > sites.data.shape.stories


COUNTERS = (
    # What is merged into a story heats it only when that one is voted on next: those are left out.
    """SELECT id, upvotes, downvotes, comments_count, ROUND(hotness, 5) AS hotness FROM stories
       WHERE id NOT IN (SELECT merged_story_id FROM stories WHERE merged_story_id IS NOT NULL) ORDER BY id""",
    """SELECT s.id, COALESCE(v.upvotes, 0) AS upvotes, COALESCE(v.downvotes, 0) AS downvotes,
              COALESCE(c.comments_count, 0) AS comments_count, ROUND(h.hotness, 5) AS hotness
       FROM stories s LEFT JOIN votes_per_story v ON v.story_id = s.id
       LEFT JOIN comments_per_story c ON c.story_id = s.id JOIN story_hotness h ON h.story_id = s.id
       WHERE s.id NOT IN (SELECT merged_story_id FROM stories WHERE merged_story_id IS NOT NULL) ORDER BY s.id""",
    "SELECT id, upvotes, downvotes FROM comments ORDER BY id",
    """SELECT c.id, COALESCE(v.upvotes, 0) AS upvotes, COALESCE(v.downvotes, 0) AS downvotes
       FROM comments c LEFT JOIN votes_per_comment v ON v.comment_id = c.id ORDER BY c.id""",
    "SELECT id AS user_id, username, stories_count, comments_count, karma FROM users ORDER BY id",
    "SELECT user_id, username, stories_count, comments_count, karma FROM user_stats ORDER BY user_id",
)
