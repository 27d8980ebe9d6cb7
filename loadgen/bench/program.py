"""The thesis's two-table program (Listing 3.1), and the keys that its users ask for and vote on."""

from __future__ import annotations

import asyncio
from bisect import bisect
from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import accumulate, islice
from random import Random
from typing import Any

from controller.deployment import WriteResult
from controller.embedded.local import LocalDeployment
from domains.language.types import Row
from domains.plan.packets import Insert

KEY = "hrk_bench"
"""An API key that may read the view, of a server with accounts."""

# Rows into a deployment at the rate that it takes them: batches, some of them under way at once.

ROWS_TOGETHER = 2_000
"""Rows to a write: a step of some 20 ms, after which others have their turn."""
UNDER_WAY = 8
"""Writes that wait for the same sync."""


async def load(deployment: LocalDeployment, table: str, rows: Iterable[Row]) -> None:
    rest = iter(rows)
    while True:
        writes: list[Coroutine[Any, Any, WriteResult]] = []
        while len(writes) < UNDER_WAY and (batch := tuple(islice(rest, ROWS_TOGETHER))):
            writes.append(deployment.write(Insert(table, batch)))
        if not writes:
            return
        await asyncio.gather(*writes)


TABLES = """
CREATE TABLE stories (id int, author int, title text, url text);
CREATE TABLE votes (user int, story_id int);
CREATE TABLE users (id int, username text);
"""

INDEXED_TABLES = """
CREATE TABLE stories (id int, author int, title text, url text, INDEX (id));
CREATE TABLE votes (user int, story_id int, INDEX (story_id));
"""
"""The same with the indexes that the views would bring along."""

VIEWS = """
CREATE VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id;
CREATE EXT VIEW StoriesWithVC AS
  SELECT id, author, title, url, vcount FROM stories
    JOIN VoteCount ON VoteCount.story_id = stories.id
  WHERE stories.id = ?;
"""

VIEW = "StoriesWithVC"
ZIPF = 1.15
"""The skew of the issue's figures: of 10,000 stories the first hundred take three quarters of the votes."""

Story = tuple[int, int, str, str]


def story(number: int) -> Story:
    """A story of ordinary size: a title of 40 characters, a URL of 50. Each author has ten."""
    title = f"A story with a title of usual length {number}"
    return number, number // 10, title, f"https://news.example.org/2025/06/articles/{number}"


def zipf(stories: int, random: Random, exponent: float = ZIPF) -> Callable[[int], list[int]]:
    """Draws that many story numbers, from 1 on, the first the most popular."""
    weights = list(accumulate(rank**-exponent for rank in range(1, stories + 1)))
    total, draw = weights[-1], random.random

    def take(count: int) -> list[int]:
        return [bisect(weights, draw() * total) + 1 for _ in range(count)]

    return take


# Users, stories and votes in any number, for ``replay.py`` and ``rebuild.py``.
#
# Votes and their stories stand by story, and so does the count of a story's votes. The ranking needs all rows.

SITE = """
CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE stories (id INT PRIMARY KEY, author INT, INDEX (author)) SHARD BY (id);
CREATE TABLE votes (user INT, story INT, INDEX (story)) SHARD BY (story);
CREATE EXT VIEW Counted AS SELECT COUNT(*) AS n FROM votes WHERE story = ?;
"""


def ranking(view: str) -> str:
    """A full view: it joins all tables, aggregates and ranks."""
    return f"""CREATE EXT VIEW {view} AS
SELECT u.name, COUNT(*) AS votes FROM votes v JOIN stories s ON s.id = v.story JOIN users u ON u.id = s.author
GROUP BY u.name ORDER BY votes DESC, u.name LIMIT 50"""


def stories_of(rows: int) -> int:
    return rows // 20


def site(rows: int) -> Iterator[tuple[str, tuple[str, ...], int, Iterator[Row]]]:
    """The name, columns, number of rows and rows of each table. Of a hundred, 94 are votes, five stories, one a
    user."""
    stories, users, random = stories_of(rows), rows // 100, Random(1)
    votes = rows - stories - users
    yield "users", ("id", "name"), users, ((number, f"user{number}") for number in range(users))
    yield "stories", ("id", "author"), stories, ((number, random.randrange(users)) for number in range(stories))
    cast = ((random.randrange(10**9), random.randrange(stories)) for _ in range(votes))
    yield "votes", ("user", "story"), votes, cast
