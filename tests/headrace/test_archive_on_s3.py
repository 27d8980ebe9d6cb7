"""The archive on a store of objects, as a user has it: ``--archive s3://…`` of a server, its commands, and trouble."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from headrace_client import calls
from serving_process import ROOT
from typer.testing import CliRunner

import headrace
from headrace.backup.taking import back_up_running
from headrace.cli import app
from headrace.embedding import Embedded
from headrace.errors import ArchiveError, NotFound
from tests.object_store import ObjectStore
from worker.archive.lost_shard import rebuild_shard
from worker.archive.manifests import load_manifest
from worker.archive.place import Place
from worker.protocol.operations import RebuildShard

KEY = "AKIAHEADRACE"
INTERVAL = 3600.0
WAIT = 60.0
SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY, title VARCHAR(40) NOT NULL);
CREATE TABLE votes (story BIGINT NOT NULL, user BIGINT NOT NULL)
"""
Url = Callable[[str], str]


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    made = ObjectStore(KEY)
    yield made
    made.close()


@pytest.fixture
def url(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Url:
    """Of a path in a bucket of the test's own; the environment has the keys to it, and knows no other machine."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return store.bucket(f"headrace-{uuid4().hex[:12]}")


def opened(data: Path, archive: str | None, **settings: Any) -> Embedded:
    return headrace.embedded(data, archive=archive, read_your_writes=True, **{"archive_interval": INTERVAL, **settings})


def vote(db: Embedded, count: int, first: int = 0) -> None:
    for user in range(first, first + count):
        db.table("votes").insert([{"story": story, "user": user} for story in range(1, 4)])


def rows(db: Embedded) -> dict[str, list[Any]]:
    return {name: sorted(db.execute(f"SELECT * FROM {name}").rows) for name in ("stories", "votes")}


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def alarms(db: Embedded) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = db.status()["archive"]["alarms"]
    return found


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


def test_all_that_a_user_does_with_it(url: Url, tmp_path: Path) -> None:
    site, again = tmp_path / "site", tmp_path / "again"
    with opened(site, url("a/site")) as db:
        db.execute(SCHEMA)
        db.table("stories").insert([{"id": at, "title": f"story {at}"} for at in range(1, 4)])
        vote(db, 2)
        first, token = rows(db), db.send(calls.archive()).token
        vote(db, 1, first=2)
        wanted = rows(db)
        back_up_running(db, url("backup"))
        assert alarms(db) == []
    archive = ("--archive", url("a/site"))
    assert "votes: positions 0 to 3 in 2 segments" in run("archive", "status", *archive)
    assert "votes: 2 segments, 9 rows" in run("archive", "check", *archive)
    run("restore", url("a/site"), "--data", str(tmp_path / "before"), "--as-of", str(token))
    assert "votes: 2 segments are now 1" in run("archive", "compact", *archive, "--archive-retention", "0")
    assert read_as_the_page_shows(url("a/site"), tmp_path / "copy") == Counter(map(tuple, wanted["votes"]))
    assert "votes: 9 rows" in run("restore", url("backup"), "--data", str(again))
    for data, expected in ((tmp_path / "before", first), (again, wanted)):
        with opened(data, None) as db:
            assert rows(db) == expected


def read_as_the_page_shows(url: str, copy: Path) -> Counter[tuple[Any, ...]]:
    """docs/archive.md, by DuckDB; of a store of objects, through a copy."""
    shown: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "archive.md").read_text(), re.S):
        exec(compile(block, "docs/archive.md", "exec"), shown)
    shown["copied"](url, copy)
    found = Counter({row[:-1]: row[-1] for row in shown["with_duckdb"](copy, "votes").fetchall()})
    assert found.total()
    return found


def test_a_lost_shard_is_made_from_it(url: Url, tmp_path: Path) -> None:
    with opened(tmp_path / "data", url("site"), shards=2) as db:
        db.execute("CREATE TABLE votes (story BIGINT NOT NULL, user BIGINT NOT NULL) SHARD BY (story)")
        vote(db, 3)
        positions = db.send(calls.archive()).positions
    place = Place(url("site"))
    manifests = [load_manifest(place, "votes", shard) for shard in range(2)]
    shard, manifest = next((at, each) for at, each in enumerate(manifests) if each is not None and each.position)
    known = {manifest.base: positions[manifest.base] + 2}
    asked = RebuildShard(12, shard, 2, 9, (manifest.schemas[-1],), known)
    (made,) = rebuild_shard(tmp_path / "new", place.url, asked).tables
    assert (made.base, made.known, made.lost) == (manifest.base, known[manifest.base], 2)
    assert made.rows == manifest.segments[-1].rows


def test_a_full_view_is_built_from_it_in_bulk(url: Url, tmp_path: Path) -> None:
    with opened(tmp_path / "data", url("site"), spark_threshold=0, spark_master="none") as db:
        db.execute(SCHEMA)
        vote(db, 4)
        told = db.migrate("CREATE EXT VIEW Ranked AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story").wait(WAIT)
        assert told.backfill == "local", told.why
        assert sorted(db.execute("SELECT story, n FROM Ranked").rows) == [(1, 4), (2, 4), (3, 4)]
        assert alarms(db) == []
    assert Place(url("site")).directories("_bulk") == [], "what a job has staged goes with it"


def test_refused_and_away_it_is_an_alarm_and_then_goes_on(url: Url, store: ObjectStore, tmp_path: Path) -> None:
    tables = 6
    with opened(tmp_path / "data", url("site"), archive_interval=0.5) as db:
        db.execute(";".join(f"CREATE TABLE t{at} (id BIGINT NOT NULL PRIMARY KEY)" for at in range(tables)))

        def write(id: int) -> None:
            for at in range(tables):
                db.table(f"t{at}").insert([{"id": id}])

        write(1)
        db.send(calls.archive())
        with store.refusing():
            write(2)
            with pytest.raises(ArchiveError, match=r"INVALID_ACCESS_KEY_ID|ACCESS_DENIED") as caught:
                db.send(calls.archive())
            assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")
            assert "archive" in {each["of"] for each in alarms(db)}
        eventually(lambda: alarms(db) == [])
        with store.away():
            write(3)
            with pytest.raises(ArchiveError, match="NETWORK_CONNECTION") as caught:
                db.send(calls.archive())
            assert "see that the bucket is there and answers" in (caught.value.hint or "")
            # Each question to it takes seconds: it is asked no more than once, and not for each table.
            assert {each["of"] for each in alarms(db)} == {"t0", "archive"}
            assert ids(db, "t5") == [1, 2, 3], "it serves"
        eventually(lambda: alarms(db) == [])
        assert db.send(calls.archive()).positions == {f"t{at}": 3 for at in range(tables)}
    run("restore", url("site"), "--data", str(tmp_path / "again"))
    with opened(tmp_path / "again", None) as db:
        assert [ids(db, f"t{at}") for at in range(tables)] == [[1, 2, 3]] * tables


def ids(db: Embedded, table: str) -> list[int]:
    return sorted(id for (id,) in db.execute(f"SELECT id FROM {table}").rows)


def test_what_is_not_there_is_said_in_a_line(url: Url, tmp_path: Path) -> None:
    refused = CliRunner().invoke(app, ["archive", "status", "--archive", url("nothing")])
    assert isinstance(refused.exception, NotFound)
    nowhere = re.sub("s3://[^/]*", "s3://no-such-bucket", url("site"))
    with opened(tmp_path / "data", nowhere) as db:
        db.execute(SCHEMA)
        vote(db, 1)
        with pytest.raises(ArchiveError, match="NO_SUCH_BUCKET") as caught:
            db.send(calls.archive())
    assert 'cannot use "s3://no-such-bucket/site/table=stories/shard=0/manifest.json?endpoint' in caught.value.message
    assert "\n" not in str(caught.value)


def test_what_spark_calls_it_is_understood(url: Url, tmp_path: Path) -> None:
    Place(url("site")).replace("file", b"content")
    assert Place(url("site").replace("s3://", "s3a://")).read("file") == b"content"
