"""The base rows of one answer row, by each operator, embedded and in clusters."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.api.conftest import READ_TIMEOUT

PROGRAM = """
CREATE TABLE authors (id BIGINT NOT NULL PRIMARY KEY, name TEXT);
INSERT INTO authors VALUES (1, 'ann'), (2, 'bob');
INSERT INTO stories (id, author, title) VALUES (1, 1, 'Weir'), (2, 1, 'Mill'), (3, 2, 'Race');
INSERT INTO votes (story_id, user_id) VALUES (1, 10), (1, 11), (3, 10);
CREATE EXT VIEW ByAuthor AS SELECT a.name, COUNT(v.user_id) AS n FROM authors a JOIN stories s ON s.author = a.id
  LEFT JOIN votes v ON v.story_id = s.id WHERE a.id = ? GROUP BY a.name;
CREATE EXT VIEW Best AS SELECT id, title FROM stories WHERE author = ? ORDER BY id DESC LIMIT 1;
CREATE EXT VIEW Voted AS SELECT id, UPPER(title) AS loud FROM stories
  WHERE author = ? AND EXISTS (SELECT 1 FROM votes WHERE votes.story_id = stories.id AND votes.user_id > 10);
CREATE EXT VIEW Both AS SELECT title AS name FROM stories UNION ALL SELECT name FROM authors;
CREATE EXT VIEW Ranked AS SELECT id, ROW_NUMBER() OVER (PARTITION BY author ORDER BY id) AS place FROM stories
  WHERE author = ?;
CREATE EXT VIEW Distinctly AS SELECT DISTINCT user_id FROM votes WHERE user_id = ?;
CREATE EXT VIEW Loud AS SELECT CONCAT(?, title) AS said, id FROM stories WHERE author = ? AND (id > ? OR title LIKE ?)
  ORDER BY id DESC LIMIT ?;
CREATE EXT VIEW Counted AS SELECT COUNT(*) AS n, author FROM stories WHERE id > ? OR title LIKE ? GROUP BY author
  ORDER BY n DESC, author;
CREATE EXT VIEW Several AS SELECT id FROM stories WHERE author = ? AND (title IN (?) OR id < ?) ORDER BY id
"""


def told(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """Each base row as its table and its first two values."""
    return {(each["table"], *list(each["row"].values())[:2]) for each in rows}


CASES: list[tuple[str, list[int], int, set[tuple[Any, ...]]]] = [
    (
        "ByAuthor", [1], 0,
        {("authors", 1, "ann"), ("stories", 1, 1), ("stories", 2, 1), ("votes", 1, 10), ("votes", 1, 11)},
    ),
    ("StoriesWithVC", [2], 0, {("stories", 2, 1)}),
    ("StoriesWithVC", [3], 0, {("stories", 3, 2), ("votes", 3, 10)}),
    ("Best", [1], 0, {("stories", 2, 1)}),
    ("Voted", [1], 0, {("stories", 1, 1), ("votes", 1, 11)}),
    ("Ranked", [1], 1, {("stories", 1, 1), ("stories", 2, 1)}),
    ("Distinctly", [10], 0, {("votes", 1, 10), ("votes", 3, 10)}),
    ("Loud", ["oh ", 1, 0, "x", 5], 0, {("stories", 2, 1)}),
    ("Loud", ["oh ", 1, 1, "W%", 5], 1, {("stories", 1, 1)}),
    ("Counted", [1, "W%"], 0, {("stories", 1, 1), ("stories", 2, 1)}),
    ("Counted", [1, "W%"], 1, {("stories", 3, 2)}),
    ("Several", [1, ["Mill", "Race"], 2], 1, {("stories", 2, 1)}),
]  # fmt: skip


async def test_the_base_rows_of_an_answer(http: httpx.AsyncClient, deployment: object) -> None:
    if type(deployment).__name__ == "FakeDeployment":
        pytest.skip("the fake has no dataflow")
    made = await http.post("/v1/sql", json={"sql": PROGRAM}, timeout=READ_TIMEOUT)
    assert made.status_code == 200, made.text
    for view, key, row, wanted in CASES:
        found = await http.get(
            "/v1/lineage", params={"view": view, "key": json.dumps(key), "row": row}, timeout=READ_TIMEOUT
        )
        assert found.status_code == 200, (view, found.text)
        assert told(found.json()["rows"]) == wanted, (view, key)
        assert not found.json()["more"]
    names = [row["name"] for row in (await http.get("/v1/views/Both", timeout=READ_TIMEOUT)).json()["rows"]]
    for place, name in enumerate(names):
        found = await http.get("/v1/lineage", params={"view": "both", "row": place}, timeout=READ_TIMEOUT)
        (only,) = found.json()["rows"]
        assert name in only["row"].values(), (name, only)
    past_the_end = 'view=Counted&key=[1,"W%25"]&row=2'
    for wrong in ("view=Best&key=[1]&row=1", past_the_end, "view=Best&key=[", ""):
        assert (await http.get(f"/v1/lineage?{wrong}", timeout=READ_TIMEOUT)).status_code == 400, wrong
    assert (await http.get("/v1/lineage?view=Bast", timeout=READ_TIMEOUT)).status_code == 404
