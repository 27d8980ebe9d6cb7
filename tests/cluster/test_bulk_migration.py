"""A full view of a cluster, computed in bulk from what the workers have archived, while writes go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest
from headrace_client.connection import Connection
from headrace_client.results import Progress
from running_cluster import Running, until

from headrace import connect
from headrace.errors import NotFound, Unavailable

Launch = Callable[..., Running]
pytestmark = pytest.mark.cluster

TABLES = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT);
CREATE TABLE votes (id INT PRIMARY KEY, story_id INT)
"""
RANKING = """
CREATE EXT VIEW ranking AS SELECT author, COUNT(*) AS n FROM stories JOIN votes ON votes.story_id = stories.id
GROUP BY author
"""
STORIES, VOTES = 30, 600


class Voter:
    """Votes from a thread of its own until it is stopped; a vote that is not taken is sent again, under its number."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = Event()
        self.done = VOTES
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with connect(self._url) as db:
            while not self._stop.is_set():
                try:
                    db.execute(f"INSERT IGNORE INTO votes VALUES ({self.done}, {self.done % STORIES})")
                except Unavailable:
                    continue
                self.done += 1

    def stop(self) -> int:
        self._stop.set()
        self._thread.join()
        return self.done


def filled(running: Running) -> Connection:
    db = connect(running.url, read_your_writes=True)
    db.execute(TABLES)
    db.table("stories").insert([{"id": n, "author": n % 7} for n in range(STORIES)])
    db.table("votes").insert([{"id": n, "story_id": n % STORIES} for n in range(VOTES)])
    return db


def ranking(db: Connection) -> dict[int, int]:
    def read() -> Any:
        try:
            return {row["author"]: row["n"] for row in db.view("ranking").lookup()}
        except Unavailable:
            return None

    found: dict[int, int] = until(read)
    return found


def counted(votes: int) -> dict[int, int]:
    found = dict.fromkeys(range(7), 0)
    for n in range(votes):
        found[n % STORIES % 7] += 1
    return found


@pytest.mark.parametrize(
    ("master", "way", "loses"),
    [
        pytest.param("none", "local", True, id="losing a worker"),
        pytest.param("local[1]", "spark", False, id="spark", marks=(pytest.mark.spark, pytest.mark.long)),
    ],
)
def test_a_cluster_builds_a_full_view_in_bulk(
    launch: Launch, tmp_path: Any, master: str, way: str, loses: bool
) -> None:
    archive = tmp_path / "archive"
    arguments = ("--workers", "3", "--shards", "3", "--archive", str(archive), "--spark-threshold", "100")
    running = launch(*arguments, HEADRACE_SPARK_MASTER=master).serves()
    with filled(running) as db:
        voter = Voter(running.url)
        try:
            migration = db.migrate(RANKING)
            if loses:
                until(lambda: _computes(migration.status()))
                os.kill(running.pids()["worker-2"], signal.SIGKILL)
            done = migration.wait(600)
        finally:
            votes = voter.stop()
        assert (done.state, done.backfill, done.stages_done) == ("done", way, done.stages)
        assert done.rows == done.rows_total >= STORIES + VOTES
        until(lambda: ranking(db) == counted(votes) or None)
        db.execute(f"INSERT INTO votes VALUES ({votes}, {votes % STORIES})")
        assert ranking(db) == counted(votes + 1)
        assert not list((archive / "_bulk").iterdir())


def test_a_leader_that_dies_with_a_job_leaves_the_old_graph(launch: Launch, tmp_path: Any) -> None:
    archive = tmp_path / "archive"
    arguments = ("--workers", "2", "--shards", "2", "--archive", str(archive), "--spark-threshold", "100")
    running = launch(*arguments, HEADRACE_SPARK_MASTER="none").serves()
    with filled(running) as db:
        migration = db.migrate(RANKING)
        until(lambda: _computes(migration.status()))
        leader = db.status()["cluster"]["leader"]["name"]
        os.kill(running.pids()[leader], signal.SIGKILL)
        done = until(lambda: _migrated(db))
        assert (done.state, done.backfill) == ("done", "local")
        assert ranking(db) == counted(VOTES)
        until(lambda: not list((archive / "_bulk").iterdir()))


def _migrated(db: Connection) -> Progress | None:
    """Asked of whoever leads now; the one who led has taken its migrations along."""
    try:
        return db.migrate(RANKING).wait(300)
    except (Unavailable, NotFound):
        return None


def _computes(progress: Progress) -> bool | None:
    return progress.step.startswith("compute") or None
