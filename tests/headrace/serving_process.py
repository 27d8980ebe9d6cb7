"""A server process of the fake deployment, and the program that the client tests load into it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
from headrace_client import tokens

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


def emptied(url: str) -> str:
    """The server's URL again, once no view and no table is there any more."""
    with httpx.Client(base_url=url, timeout=60) as http:
        views = [each["name"] for each in http.get("/v1/views").json()["views"]]
        tables = [each["name"] for each in http.get("/v1/tables").json()["tables"]]
        drops = [*(f"DROP VIEW {name}" for name in reversed(views)), *(f"DROP TABLE {name}" for name in tables)]
        if drops:
            http.post("/v1/sql", json={"sql": "; ".join(drops)}).raise_for_status()
    return url


def ahead_of(token: str) -> str:
    """The token of a write that was never done, as another deployment might have answered it."""
    return tokens.encode({table: position + 999_999 for table, position in tokens.decode(token).items()})


QUIET = {"HEADRACE_SLOW_REQUEST": "60"}
"""On a machine that is busy with other tests, any request may be slow enough to be logged."""


class Process(ToldProcess):
    """A running ``headrace serve``; ``url`` once it has said that it answers."""

    def __init__(self, kind: str, arguments: list[str], environment: dict[str, str]) -> None:
        super().__init__(
            [*([str(FAKE)] if kind == "fake" else ["-m", "headrace"]), *arguments], {**QUIET, **environment}
        )
        self.url = ""
