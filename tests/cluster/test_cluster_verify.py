"""``headrace verify`` against a cluster: readers in several shards, rows over links, while writes go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from headrace_client.connection import Connection
from running_cluster import Running, until

from headrace import connect
from headrace.errors import Unavailable
from tests.migrations.spark.conftest import SMALL
from tests.told_process import headrace

Launch = Callable[..., Running]
pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.long]

PROGRAM = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(20));
CREATE TABLE votes (id INT PRIMARY KEY, story INT NOT NULL);
CREATE VIEW counted AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story;
CREATE EXT VIEW with_votes AS
  SELECT s.id, s.title, c.n FROM stories s LEFT JOIN counted c ON c.story = s.id WHERE id = ?;
CREATE EXT VIEW by_author AS SELECT COUNT(*) AS n FROM stories s JOIN votes v ON v.story = s.id WHERE s.author = ?;
CREATE EXT VIEW ranking AS SELECT story, n FROM counted ORDER BY n DESC, story LIMIT 10
"""
STORIES, AUTHORS = 24, 5


def filled(url: str) -> Connection:
    db = connect(url, read_your_writes=True)
    db.execute(PROGRAM)
    db.table("stories").insert([{"id": n, "author": n % AUTHORS, "title": f"story {n}"} for n in range(STORIES)])
    db.table("votes").insert([{"id": n, "story": n * n % STORIES} for n in range(400)])
    db.view("with_votes").lookup_many([[story] for story in (0, 1, 4, 9, 999)])
    db.view("by_author").lookup_many([[author] for author in range(AUTHORS)])
    db.view("ranking").lookup()
    return db


@contextmanager
def voting(url: str) -> Iterator[list[int]]:
    over, done = Event(), [0]

    def vote() -> None:
        with connect(url) as db:
            while not over.wait(0.01):
                try:
                    db.table("votes").insert({"id": 1_000 + done[0], "story": done[0] % STORIES})
                except Unavailable:
                    continue  # The next round sends it again.
                done[0] += 1

    thread = Thread(target=vote)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


def verify(url: str) -> dict[str, Any]:
    environment = {
        "HEADRACE_SPARK_MASTER": SMALL.master,
        "HEADRACE_SPARK_CONF": json.dumps([f"{name}={value}" for name, value in SMALL.conf]),
    }
    code, out, err = headrace("verify", "--json", "--url", url, **environment)
    assert code == 0, (out, err)
    return {view["view"]: view for view in json.loads(out)["views"]}


def test_a_cluster_that_takes_writes_is_equal(launch: Launch, tmp_path: Path) -> None:
    shape = ("--workers", "2", "--controllers", "1", "--shards", "3")
    running = launch(*shape, "--archive", str(tmp_path / "archive"), "--archive-interval", "1").serves()
    with filled(running.url) as db, voting(running.url) as votes:
        until(lambda: votes[0] > 20)
        views = verify(running.url)
        assert {name: view["verdict"] for name, view in views.items()} == {
            "with_votes": "equal",
            "by_author": "equal",
            "ranking": "equal",
        }
        assert (views["with_votes"]["keys"], views["by_author"]["keys"]) == (5, AUTHORS)
        assert views["ranking"]["rows"] == 10
        assert db.view("by_author").lookup(author=1)
