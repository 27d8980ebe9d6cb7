"""Real processes and the real ZooKeeper, as a user has them."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_client.connection import Connection
from running_cluster import Running, launching, until

from headrace import connect
from headrace.errors import Unavailable
from tests.told_process import ToldProcess, headrace

Launch = Callable[..., Running]

SCHEMA = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT, title TEXT);
CREATE TABLE votes (id INT PRIMARY KEY AUTO_INCREMENT, user INT, story_id INT);
CREATE VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id;
CREATE EXT VIEW StoriesWithVC AS SELECT id, author, title, vcount
  FROM stories JOIN VoteCount ON VoteCount.story_id = stories.id WHERE stories.id = ?;
CREATE EXT VIEW ByAuthor AS SELECT author, COUNT(*) AS n FROM stories GROUP BY author
"""
STORIES = 24


def fill(db: Connection) -> None:
    db.execute(SCHEMA)
    db.table("stories").insert([{"id": n, "author": n % 3, "title": f"story {n}"} for n in range(STORIES)])
    vote(db, 1)


def vote(db: Connection, user: int) -> None:
    """Each story once: every shard has rows of every vote."""
    db.table("votes").insert([{"user": user, "story_id": n} for n in range(STORIES)])


def votes(db: Connection) -> list[int]:
    """Of each story; reads that come while a domain moves are tried again."""

    def read() -> Any:
        try:
            return db.view("StoriesWithVC").lookup_many([[n] for n in range(STORIES)])
        except Unavailable:
            return None

    return [rows[0]["vcount"] for rows in until(read)]


def by_author(db: Connection) -> list[tuple[int, int]]:
    found = until(lambda: _tried(lambda: db.execute("SELECT author, n FROM ByAuthor ORDER BY author").rows))
    return [tuple(row) for row in found]


def _tried(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Unavailable:
        return None


def leader_of(db: Connection) -> dict[str, Any] | None:
    """Name, host and port: a process that is started again has its name, and another port."""
    leader: dict[str, Any] | None = db.status()["cluster"]["leader"]
    return leader


def workers_of(db: Connection) -> dict[str, list[int]]:
    return {worker["worker"]: worker["domains"] for worker in db.status()["workers"]}


def settled(db: Connection, workers: int = 3) -> bool:
    """Whether all domains have been placed, on that many workers."""
    shown = db.status()
    busy = [each for each in shown["workers"] if each["domains"] and each["health"] == "ok"]
    return not shown["cluster"]["unplaced"] and len(busy) == workers


def test_up_write_read_lose_drain_stop_and_start_again(launch_real: Launch) -> None:
    running = launch_real("--workers", "3", "--shards", "6").serves()
    with connect(running.url, read_your_writes=True) as db:
        fill(db)
        assert votes(db) == [1] * STORIES
        assert by_author(db) == [(0, 8), (1, 8), (2, 8)]
        until(lambda: settled(db))  # A busy worker may be late to tell of itself.

        # A worker dies: what was acknowledged is there, and its part of the views comes back.
        os.kill(running.pids()["worker-2"], signal.SIGKILL)
        began = time.monotonic()
        assert votes(db) == [1] * STORIES
        print(f"all views answer {time.monotonic() - began:.2f} s after the kill of a worker")
        until(lambda: _tried(lambda: vote(db, 2) or True))
        assert min(votes(db)) >= 2
        counted = votes(db)

        # The leader dies: nobody notices, and changes are made by the next.
        leader = until(lambda: leader_of(db))
        os.kill(running.pids()[leader["name"]], signal.SIGKILL)
        vote(db, 3)
        assert votes(db) == [count + 1 for count in counted]
        until(lambda: leader_of(db) not in (None, leader))
        db.execute("CREATE TABLE later (a INT PRIMARY KEY)")
        db.execute("INSERT INTO later VALUES (1), (2)")

        # A worker is drained, and then has domains again.
        until(lambda: settled(db))
        assert headrace("drain", "worker-3", "--url", running.url, **secret_of(running)) == (
            0,
            'worker "worker-3" has no domains any more\n',
            "",
        )
        assert workers_of(db)["worker-3"] == []
        assert votes(db) == [count + 1 for count in counted]
        assert headrace("drain", "worker-3", "--undo", "--url", running.url, **secret_of(running))[0] == 0
        until(lambda: workers_of(db)["worker-3"])
        code, _, err = headrace("drain", "worker-9", "--url", running.url, **secret_of(running))
        assert code == 1
        assert 'no worker "worker-9" is there' in err
        code, out, _ = headrace("status", "--url", running.url)
        assert code == 0
        assert "worker-3" in out
    code, _, err = running.stop()
    assert (code, err) == (0, "")

    code, _, err = launch_real("--workers", "2", "--shards", "8").finish()
    assert code == 1
    assert 'error: deployment "main" has 6 shards since its first start, not 8' in err
    assert "hint: give no number of shards" in err
    again = launch_real("--workers", "2").serves()
    with connect(again.url) as db:
        assert votes(db) == [count + 1 for count in counted]
        assert by_author(db) == [(0, 8), (1, 8), (2, 8)]
        assert db.execute("SELECT COUNT(*) FROM later").rows == ((2,),)
        assert db.status()["cluster"]["shards"] == 6
    assert again.stop()[0] == 0


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for the tests that leave it as it was."""
    for launch in launching(tmp_path_factory.mktemp("small")):
        running = launch("--workers", "1", "--controllers", "1", "--shards", "2").serves()
        with connect(running.url) as db:
            fill(db)
        yield running
        assert running.stop()[0] == 0


def test_zookeeper_goes_and_comes_back(small: Running) -> None:
    with connect(small.url) as db:
        before = votes(db)[0]
        os.kill(small.pids()["zookeeper-1"], signal.SIGSTOP)
        until(lambda: db.status()["cluster"]["zookeeper"] == "away")
        vote(db, 2)
        assert votes(db) == [before + 1] * STORIES
        with pytest.raises(Unavailable, match="ZooKeeper"):
            db.execute("CREATE TABLE later (a INT PRIMARY KEY)")
        os.kill(small.pids()["zookeeper-1"], signal.SIGCONT)
        until(lambda: _tried(lambda: db.execute("CREATE TABLE later (a INT PRIMARY KEY)") or True))
        assert votes(db) == [before + 1] * STORIES


def secret_of(running: Running) -> dict[str, str]:
    """For others that are to be at its ZooKeeper."""
    return {"HEADRACE_SECRET_FILE": str(running.data / "secret")}


def test_a_new_zookeeper_is_given_the_saved_state(launch: Launch, small: Running, tmp_path: Path) -> None:
    """It is that of another deployment: not the cluster's own, as there is on several machines."""
    named = {"HEADRACE_DEPLOYMENT": "moved"}
    first = launch("--workers", "1", "--controllers", "1", "--shards", "2", **named).serves()
    with connect(first.url) as db:
        fill(db)
    saved = str(tmp_path / "moved.state")
    code, _, err = headrace("state", saved, "--zookeeper", first.zookeeper(), **named)
    assert code == 1
    assert "--secret-file" in err
    code, out, _ = headrace("state", saved, "--zookeeper", first.zookeeper(), "--data", str(first.data), **named)
    assert code == 0
    assert out.startswith('saved deployment "moved", epoch ')
    assert first.stop()[0] == 0
    shutil.rmtree(tmp_path / "data" / "zookeeper")
    code, _, err = launch("--workers", "1", **named).finish()
    assert code == 1
    assert 'belongs to another deployment "moved"' in err
    named |= secret_of(small)
    code, out, err = headrace("state", saved, "--restore", "--zookeeper", small.zookeeper(), **named)
    assert (code, err) == (0, "")
    second = launch("--workers", "1", "--controllers", "1", "--zookeeper", small.zookeeper(), **named).serves()
    with connect(second.url) as db:
        assert votes(db) == [1] * STORIES
    assert second.stop()[0] == 0


def test_parts_started_by_hand_stop_in_order_with_their_terminal(small: Running, tmp_path: Path) -> None:
    same = ("--zookeeper", small.zookeeper(), "--name", "mine")
    for part, listens, *options in (
        ("worker", "listens on", "--worker-port", "0", "--data", str(tmp_path)),
        ("controller", "control interface at", "--controller-port", "0"),
        ("api", "answers at", "--port", "0"),
    ):
        started = ToldProcess(["-m", "headrace", part, *same, *options], secret_of(small))
        try:
            until(lambda: listens in started.errors())  # noqa: B023  (it is asked within the round)
            started.popen.send_signal(signal.SIGHUP)
            assert started.finish()[0] == 0, (part, started.errors())
        finally:
            started.kill()


def test_parts_that_cannot_start(small: Running, tmp_path: Path) -> None:
    zookeeper, data = small.zookeeper(), str(small.data)
    elsewhere = str(tmp_path / "elsewhere")
    taken = small.url.rpartition(":")[2]
    for arguments, says in (
        (("worker",), "it is not known where ZooKeeper is"),
        (("worker", "--zookeeper", f"127.0.0.1:{taken}"), "is not ZooKeeper"),
        (("worker", "--zookeeper", zookeeper, "--deployment", "other"), 'there is no deployment "other"'),
        (
            ("worker", "--zookeeper", zookeeper, "--worker-port", "0", "--name", "worker-1", "--data", elsewhere),
            'another worker is registered as "worker-1"',
        ),
        (("worker", "--zookeeper", zookeeper, "--worker-port", taken, "--data", elsewhere), "in use"),
        (("controller", "--zookeeper", zookeeper, "--controller-port", taken), "choose another with --controller-port"),
        (("api", "--zookeeper", zookeeper, "--port", taken), f"cannot listen on 127.0.0.1:{taken}"),
        (
            ("controller", "--zookeeper", zookeeper, "--controller-port", "0", "--shards", "9"),
            "has 2 shards since its first start, not 9",
        ),
        (("serve", "--data", data, "--port", "0"), "is that of a cluster, not of headrace serve"),
        (("worker", "--zookeeper", zookeeper, "--name", "a/b"), 'setting "name" from the command line'),
        (("up", "--data", data, "--port", "0"), "is in use by another headrace up"),
    ):
        code, out, err = headrace(*arguments, **secret_of(small))
        assert code == 1, (arguments, out, err)
        assert says in err, (arguments, err)
        assert "Traceback" not in err
    with connect(small.url) as db:
        counted = votes(db)
        vote(db, 9)
        assert votes(db) == [count + 1 for count in counted]
