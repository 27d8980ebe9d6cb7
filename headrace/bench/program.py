"""The thesis's two-table program (Listing 3.1), and the keys that its users ask for and vote on."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from random import Random

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
