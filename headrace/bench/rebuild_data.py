"""What the cluster of ``rebuild.py`` holds: rows from a seed, posted as a client posts them, and all that is to be the
same again afterwards.

Votes and their stories stand by story, and so does the count of a story's votes: a story is of one shard, whose disk is
lost or is not. The ranking needs rows of all shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from headrace_client.connection import Connection

from headrace.bench.replay_data import Tell, seldom

PROGRAM = """
CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE stories (id INT PRIMARY KEY, author INT, INDEX (author)) SHARD BY (id);
CREATE TABLE votes (user INT, story INT, INDEX (story)) SHARD BY (story);
CREATE EXT VIEW Counted AS SELECT COUNT(*) AS n FROM votes WHERE story = ?;
CREATE EXT VIEW Ranking AS
SELECT u.name, COUNT(*) AS votes FROM votes v JOIN stories s ON s.id = v.story JOIN users u ON u.id = s.author
GROUP BY u.name ORDER BY votes DESC, u.name LIMIT 50;
"""
ROWS_TOGETHER = 1_000
"""Rows and keys to a request."""
CLIENTS = 4
SECONDS = 600.0
"""That a request of this may take."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answers:
    """Of both views, whole: each vote is counted in either."""

    counted: list[list[Record]]
    ranking: list[Record]


def stories_of(rows: int) -> int:
    return rows // 20


def tables(rows: int) -> Iterator[tuple[str, int, Iterator[Record]]]:
    """Each table's name, how many rows, and these: of a hundred, 94 are votes, five stories and one is a user."""
    stories, users, random = stories_of(rows), rows // 100, Random(1)
    votes = rows - stories - users
    yield "users", users, ({"id": number, "name": f"user{number}"} for number in range(users))
    yield "stories", stories, ({"id": number, "author": random.randrange(users)} for number in range(stories))
    cast = ({"user": random.randrange(10**9), "story": random.randrange(stories)} for _ in range(votes))
    yield "votes", votes, cast


def fill(url: str, rows: int, tell: Tell) -> None:
    told = seldom(tell)
    with Connection(url, timeout=SECONDS) as db, ThreadPoolExecutor(CLIENTS) as clients:
        db.execute_all(PROGRAM)
        for name, count, made in tables(rows):
            table, done = db.table(name), 0
            while parts := [part for _ in range(CLIENTS) if (part := list(islice(made, ROWS_TOGETHER)))]:
                list(clients.map(table.insert, parts))
                done += sum(map(len, parts))
                told(f"{name}: {done:,} of {count:,}")


def answers(url: str, rows: int) -> Answers:
    with Connection(url, timeout=SECONDS) as db:
        counted, view, stories = list[list[Record]](), db.view("Counted"), range(stories_of(rows))
        for first in stories[::ROWS_TOGETHER]:
            counted += view.lookup_many([[story] for story in stories[first : first + ROWS_TOGETHER]])
        return Answers(counted, db.view("Ranking").lookup())
