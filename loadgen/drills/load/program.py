"""The drill's tables and views, and the requests that it makes of them.

``entries`` has no primary key on purpose: a write that somebody repeats is there twice. It is sharded by its first
column, as a table without a primary key is, and ``stories`` by its key, so the views of one story need the one shard
that has the story, and the other views need all shards.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from loadgen.peers.headrace import request

STORIES = 120
"""Enough that each of some shards has many; few enough that all pages stay warm."""
USERS = 40

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY, title TEXT NOT NULL, revision BIGINT NOT NULL);
CREATE TABLE entries (story_id BIGINT NOT NULL, id BIGINT NOT NULL, user_id BIGINT NOT NULL, amount BIGINT NOT NULL);
CREATE VIEW StoryTotals AS SELECT s.id AS id, s.revision AS revision, COUNT(e.id) AS n, SUM(e.amount) AS total
  FROM stories s LEFT JOIN entries e ON e.story_id = s.id WHERE s.id = ? GROUP BY s.id, s.revision;
CREATE VIEW Newest AS SELECT id, amount FROM entries WHERE story_id = ? ORDER BY id DESC LIMIT 5;
CREATE VIEW UserTotals AS SELECT user_id, COUNT(*) AS n, SUM(amount) AS total
  FROM entries WHERE user_id = ? GROUP BY user_id;
CREATE VIEW Totals AS SELECT COUNT(*) AS n, SUM(amount) AS total, MAX(id) AS last FROM entries;
CREATE VIEW Top AS SELECT story_id, COUNT(*) AS n FROM entries GROUP BY story_id ORDER BY n DESC, story_id LIMIT 10;
CREATE VIEW EntriesOf AS SELECT id, user_id, amount FROM entries WHERE story_id = ?;
CREATE VIEW RevisionOf AS SELECT id, revision FROM stories WHERE id = ?;
"""
NEWEST_ROWS = 5
TOP_ROWS = 10

PARAMETERS = {"StoryTotals": "id", "Newest": "story_id", "UserTotals": "user_id", "Totals": "", "Top": ""}
"""The views that are read under load, with the name of their parameter."""
BY_STORY = frozenset({"StoryTotals", "Newest", "insert", "revise", "delete", "own"})
"""Kinds of request that need the shard of their story and no other."""
WRITES = frozenset({"insert", "revise", "delete"})
BASE_VIEWS = ("EntriesOf", "RevisionOf")
"""Read at rest only, after an eviction: what the base tables hold."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    data: bytes
    """The bytes that go over the wire."""
    again: bool = False
    """Whether it may be sent once more if a connection that had been used before ends without a byte of an answer: a
    server that stops closes idle connections, and may do so while a request is on its way."""


def keys_of(view: str) -> range | tuple[None]:
    """All keys of a view that has keys; else the one that is none."""
    parameter = PARAMETERS.get(view, "id")
    if not parameter:
        return (None,)
    return range(USERS if parameter == "user_id" else STORIES)


def read(view: str, key: int | None, token: str | None = None) -> HttpRequest:
    query = "" if key is None else f"?{PARAMETERS[view]}={key}"
    path = f"/v1/views/{quote(view)}{query}"
    own = "" if token is None else f"headrace-token: {token}\r\n"
    return HttpRequest(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{own}\r\n".encode(), again=True)


def lookup(view: str, keys: Sequence[int | None]) -> HttpRequest:
    return _post(f"/v1/views/{view}/lookup", {"keys": [[] if key is None else [key] for key in keys]})


def evict(view: str, keys: Sequence[int | None]) -> HttpRequest:
    return _post(f"/v1/views/{view}/evict", {"keys": [[] if key is None else [key] for key in keys]})


def sql(text: str) -> HttpRequest:
    return _post("/v1/sql", {"sql": text})


def insert_stories() -> HttpRequest:
    rows = [{"id": key, "title": f"story {key}", "revision": 0} for key in range(STORIES)]
    return _post("/v1/tables/stories/rows", {"rows": rows})


def insert(story: int, rows: Sequence[tuple[int, int, int]]) -> HttpRequest:
    """Entries of one story, all or none: (id, user, amount)."""
    given = [{"story_id": story, "id": number, "user_id": user, "amount": amount} for number, user, amount in rows]
    return _post("/v1/tables/entries/rows", {"rows": given})


def delete(story: int, number: int) -> HttpRequest:
    return _body("DELETE", "/v1/tables/entries/rows", {"key": {"story_id": story, "id": number}})


def revise(story: int, revision: int) -> HttpRequest:
    return _body("PATCH", "/v1/tables/stories/rows", {"key": {"id": story}, "set": {"revision": revision}})


def _post(path: str, body: object) -> HttpRequest:
    return _body("POST", path, body)


def _body(method: str, path: str, body: object) -> HttpRequest:
    return HttpRequest(request(method, path, "localhost", json.dumps(body, separators=(",", ":")).encode()))
