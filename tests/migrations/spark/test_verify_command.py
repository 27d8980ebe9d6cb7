"""``headrace verify`` against a running server that takes writes meanwhile, as a user calls it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
from headrace_client import calls
from headrace_client.connection import Connection

from headrace import verifying
from tests.migrations.spark.conftest import SMALL
from tests.told_process import ToldProcess, headrace

PROGRAM = """
CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(20));
CREATE TABLE votes (user INT, story INT, PRIMARY KEY (user, story));
CREATE VIEW counted AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story;
CREATE EXT VIEW with_votes AS
  SELECT s.id, s.title, c.n FROM stories s LEFT JOIN counted c ON c.story = s.id WHERE id = ?;
CREATE EXT VIEW ranking AS SELECT story, n FROM counted ORDER BY n DESC, story LIMIT 10;
"""
ENVIRONMENT = {
    "HEADRACE_SPARK_MASTER": SMALL.master,
    "HEADRACE_SPARK_CONF": json.dumps([f"{name}={value}" for name, value in SMALL.conf]),
}


@contextmanager
def serving(path: Path, *flags: str) -> Iterator[str]:
    command = ["-m", "headrace", "serve", "--port", "0", "--data", str(path / "data"), *flags]
    server = ToldProcess(command, ENVIRONMENT)
    try:
        yield server.read_until(r"answers at (\S+)")[1]
    finally:
        server.popen.terminate()
        server.finish()
        server.kill()


def verify(url: str, *arguments: str) -> tuple[int, str, str]:
    return headrace("verify", "--url", url, *arguments, **ENVIRONMENT)


USERS = count(1)


@contextmanager
def writing(url: str) -> Iterator[list[int]]:
    """Votes one after another, while the block lasts; how many there were."""
    over, written = Event(), [0]

    def write() -> None:
        with Connection(url) as db:
            while not over.is_set():
                written[0] += 1
                user = next(USERS)
                db.table("votes").insert({"user": user, "story": user % 7})
                over.wait(0.01)

    thread = Thread(target=write)
    thread.start()
    try:
        yield written
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the tests that need an archive; its views have keys and rows."""
    path = tmp_path_factory.mktemp("server")
    with serving(path, "--archive", str(path / "archive"), "--archive-interval", "1") as url:
        with Connection(url) as db:
            db.migrate(PROGRAM).wait()
            db.table("stories").insert([{"id": i, "author": i % 3, "title": f"story {i}"} for i in range(20)])
            db.view("with_votes").lookup_many([[story] for story in (1, 2, 19, 77)])
            db.view("ranking").lookup()
        yield url


def test_a_server_that_takes_writes_is_judged_at_one_moment(server: str) -> None:
    with writing(server) as written:
        code, out, err = verify(server, "--json")
    assert code == 0, err
    views = {view["view"]: view for view in json.loads(out)["views"]}
    assert {name: view["verdict"] for name, view in views.items()} == {"with_votes": "equal", "ranking": "equal"}
    assert (views["with_votes"]["keys"], views["ranking"]["rows"]) == (4, 7)
    assert written[0] > 10


def test_a_snapshot_is_judged_at_its_own_positions(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside writes; and the answers of one held against the positions of another are wrong."""
    with Connection(server) as db:
        db.take_snapshot("first", hold=True)
        db.table("votes").insert([{"user": -1, "story": story} for story in (1, 2, 3)])
        db.table("stories").insert({"id": 77, "author": 1, "title": "late"})
        db.take_snapshot("second", hold=True)
    with writing(server):
        code, out, err = verify(server, "--json", "--snapshot", "first")
    assert code == 0, err
    views = {view["view"]: view for view in json.loads(out)["views"]}
    assert {name: view["verdict"] for name, view in views.items()} == {"with_votes": "equal", "ranking": "equal"}
    assert (views["with_votes"]["keys"], views["with_votes"]["rows"]) == (4, 3)
    mixed = replace(calls.snapshot("second"), read=lambda answer: answer | {"name": "first"})
    monkeypatch.setattr(calls, "snapshot", lambda name: mixed)
    with Connection(server) as db:
        judged = verifying.verify(db, [], SMALL, snapshot="first")
    assert {each.view: (each.verdict, each.looks) for each in judged} == {
        "with_votes": ("different", verifying.LOOKS),
        "ranking": ("different", verifying.LOOKS),
    }


def test_without_an_archive_it_says_what_to_do(tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        with Connection(url) as db:
            db.migrate(PROGRAM).wait()
        code, _, err = verify(url)
        assert code == 1
        assert "--archive" in err


@pytest.mark.parametrize("flags", [["nothing"], ["--spark-conf", "novalue"], ["--snapshot", "none"]])
def test_what_is_wrong_is_one_line(server: str, flags: list[str]) -> None:
    code, _, err = verify(server, *flags)
    assert code == 1
    assert err.startswith("error: ")
    assert "Traceback" not in err
