"""A cluster with an archive: a worker is killed, its shards go on in the same archive; back-up, restore."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headrace_client import calls
from headrace_client.connection import Connection
from running_cluster import Running, until

from headrace import connect, embedded
from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_running
from headrace.errors import HeadraceError, SnapshotGone
from worker.archive.checking import check_archive
from worker.archive.manifests import all_manifests
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook

pytestmark = pytest.mark.cluster
Launch = Callable[..., Running]

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT, title VARCHAR(20));
CREATE TABLE votes (story BIGINT NOT NULL, user BIGINT NOT NULL) SHARD BY (story);
CREATE VIEW Ranked AS SELECT s.title, COUNT(*) AS n FROM stories s JOIN votes v ON v.story = s.id GROUP BY s.title
"""
STORIES = 12


def answers(db: Connection) -> Any:
    return (
        sorted(db.execute("SELECT id, title FROM stories").rows),
        sorted(db.execute("SELECT story, user FROM votes").rows),
        sorted(db.execute("SELECT title, n FROM Ranked").rows),
    )


def vote(db: Connection, user: int) -> None:
    db.table("votes").insert([{"story": story, "user": user} for story in range(1, STORIES)])


def archived(db: Connection) -> Any:
    """While a shard is being recovered it is not archived, and that is said."""

    def ask() -> Any:
        try:
            return db.send(calls.archive())
        except HeadraceError:
            return None

    return until(ask)


def test_a_cluster_loses_a_worker_and_is_backed_up_and_restored(launch: Launch, tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    up = launch("--workers", "2", "--controllers", "1", "--shards", "2", HEADRACE_ARCHIVE=url).serves()
    with connect(up.url, read_your_writes=True) as db:
        db.execute(SCHEMA)
        db.table("stories").insert([{"title": f"story {at % 3}"} for at in range(STORIES)])
        vote(db, 1)
        before = archived(db)
        vote(db, 7)
        db.take_snapshot("then", hold=True)
        then = answers(db)
        epochs = {each.base: each.epoch for each in all_manifests(Place(url))}
        os.kill(up.pids()["worker-1"], signal.SIGKILL)
        until(lambda: _votes(db, 2))
        after = archived(db)
        assert all(after.positions[base] >= position for base, position in before.positions.items())
        assert sum(after.positions.values()) > sum(before.positions.values())
        assert any(each.epoch > epochs[each.base] for each in all_manifests(Place(url))), "a shard went on elsewhere"
        assert [problem for checked in check_archive(Place(url)) for problem in checked.problems] == []
        wanted = answers(db)
        back_up_running(db, str(tmp_path / "backup"))
        back_up_running(db, str(tmp_path / "backup of then"), snapshot="then")
        assert answers(db.as_of("then"))[:2] == then[:2]
        with pytest.raises(SnapshotGone):
            back_up_running(db, str(tmp_path / "backup of none"), snapshot="none")
    restore(str(tmp_path / "backup of then"), tmp_path / "then")
    with embedded(tmp_path / "then") as db:
        assert answers(db) == then != wanted
    assert up.stop()[0] == 0

    restore(str(tmp_path / "backup"), tmp_path / "again", cluster="main")
    again = launch("--workers", "1", "--controllers", "1", data="again").serves()
    with connect(again.url, read_your_writes=True) as db:
        assert answers(db) == wanted
        given = db.table("stories").insert([{"title": "new"}]).first_id
        assert given is not None
        assert given not in {row[0] for row in wanted[0]}
    assert again.stop()[0] == 0
    again = launch("--workers", "1", "--controllers", "1", data="again").serves()
    with connect(again.url) as db:
        assert len(answers(db)[0]) == STORIES + 1
    assert again.stop()[0] == 0


def test_the_leader_keeps_the_recipe_by_itself(launch: Launch, tmp_path: Path) -> None:
    url = str(tmp_path / "archive")
    interval = {"HEADRACE_ARCHIVE": url, "HEADRACE_ARCHIVE_INTERVAL": "0.3"}
    up = launch("--workers", "1", "--controllers", "1", "--shards", "2", **interval).serves()
    with connect(up.url, read_your_writes=True) as db:
        db.execute(SCHEMA)
        db.table("stories").insert([{"title": "one"}])
        vote(db, 1)
        book = RecipeBook(Place(url))
        until(lambda: any("Ranked" in record.recipe and len(record.identities) == 4 for record in book.records()))
        wanted = answers(db)
        until(lambda: sum(each.position for each in all_manifests(Place(url))) == 3)
    assert up.stop()[0] == 0
    restore(url, tmp_path / "again")
    with embedded(tmp_path / "again") as db:
        assert answers(db) == wanted


def _votes(db: Connection, user: int) -> bool:
    """Whether every shard took the vote; while one is recovered, none of it may have been done."""
    try:
        vote(db, user)
    except HeadraceError:
        return False
    return True
