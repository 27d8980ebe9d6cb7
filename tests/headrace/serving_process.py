"""A server process of the fake deployment, and the program that the client tests load into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.told_process import ToldProcess

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("serve_fake.py")

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY, title TEXT);
CREATE TABLE votes (story_id BIGINT NOT NULL, user_id BIGINT NOT NULL, PRIMARY KEY (story_id, user_id));
CREATE VIEW StoriesWithVC AS SELECT s.id AS id, s.title AS title, COUNT(v.user_id) AS vcount
  FROM stories s LEFT JOIN votes v ON v.story_id = s.id WHERE s.id = ? GROUP BY s.id, s.title;
CREATE VIEW ByIds AS SELECT id FROM stories WHERE id IN (?)
"""

Launch = Callable[..., "Process"]


class Process(ToldProcess):
    """A running ``headrace serve``; ``url`` once it has said that it answers."""

    def __init__(self, kind: str, arguments: list[str], environment: dict[str, str]) -> None:
        super().__init__([*([str(FAKE)] if kind == "fake" else ["-m", "headrace"]), *arguments], environment)
        self.url = ""
