"""Back-up and restore: what is restored answers as what was backed up, as of any moment that was archived."""

from __future__ import annotations

import base64
import json
import re
import shlex
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from headrace_client import calls
from typer.testing import CliRunner

import headrace
from controller.cluster.state import ClusterState
from domains.archive.manifest import ArchiveGap, ShardManifest
from headrace.backup import taking
from headrace.backup.choosing import BackupContents, choose, listed, read_contents
from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_running, back_up_stopped
from headrace.cli import app
from headrace.embedding import Embedded
from headrace.errors import AlreadyExists, ArchiveError, BadRequest, NotFound, OutOfOrder, StorageFailure
from worker.archive.archiver import Archiver
from worker.archive.manifests import all_manifests
from worker.archive.place import Place
from worker.archive.shard import ShardArchive
from worker.rocks.cut import TableCut

SCHEMA = """
CREATE TABLE stories (id BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT, title VARCHAR(40) NOT NULL, price DECIMAL(8, 2),
  posted DATETIME);
CREATE TABLE votes (story BIGINT NOT NULL, user BIGINT NOT NULL) SHARD BY (story);
CREATE VIEW ById AS SELECT id, title, price, posted FROM stories WHERE id = ?;
CREATE VIEW Ranked AS SELECT s.id, COUNT(*) AS n FROM stories s JOIN votes v ON v.story = s.id GROUP BY s.id
"""
STORIES = [{"title": f"story {at}", "price": "9.50", "posted": "2026-01-31 08:00:00"} for at in range(6)]


class Site:
    """An embedded server with an archive, in a directory of its own."""

    def __init__(self, path: Path, shards: int) -> None:
        self.data, self.archive, self.shards = path / "data", path / "archive", shards
        self.db = self.open(self.data)
        self.db.execute(SCHEMA)
        self.db.table("stories").insert(STORIES)
        self.vote(3)

    def open(self, data: Path, **settings: Any) -> Embedded:
        settings = {"archive": str(self.archive), "archive_interval": 3600, **settings}
        return headrace.embedded(data, shards=self.shards, read_your_writes=True, **settings)

    def vote(self, count: int) -> str:
        """One write for each of the stories; answers the token of the last."""
        for at in range(count):
            written = self.db.table("votes").insert([{"story": story, "user": at} for story in range(1, 7)])
        return written.token


def answers(db: Embedded) -> dict[str, Any]:
    return {
        "stories": [db.view("ById").lookup(id=at) for at in range(1, 8)],
        "ranked": sorted(db.execute("SELECT id, n FROM Ranked").rows),
        "votes": sorted(db.execute("SELECT story, user FROM votes").rows),
    }


@pytest.fixture(params=[1, 3], ids=["one", "sharded"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, request.param)
    yield made
    made.db.close()


def check_restored(site: Site, source: Path, into: Path, wanted: dict[str, Any], as_of: str | None = None) -> None:
    restore(str(source), into, as_of=as_of)
    with site.open(into, archive=None) as db:
        assert answers(db) == wanted
        written = db.table("stories").insert([{"title": "new", "price": None, "posted": None}])
        assert written.first_id is not None
        assert db.view("ById").lookup(id=written.first_id)[0]["title"] == "new"
        db.execute("CREATE VIEW Later AS SELECT COUNT(*) AS n FROM votes")
        assert db.execute("SELECT n FROM Later").rows[0][0] == len(wanted["votes"])


def test_a_running_server_is_backed_up_and_restored(site: Site, tmp_path: Path) -> None:
    before = answers(site.db)
    contents = back_up_running(site.db, str(tmp_path / "backup"))
    site.vote(1)
    assert contents.shards == site.shards
    assert contents == read_contents(Place(str(tmp_path / "backup")))
    check_restored(site, tmp_path / "backup", tmp_path / "again", before)
    assert answers(site.db) != before, "the server has gone on"


def test_a_backup_under_writes_is_of_one_moment(site: Site, tmp_path: Path) -> None:
    """Each pair is written to one table first: whatever the moment is, that one is ahead by one row or by none."""
    site.db.execute("CREATE TABLE a (id BIGINT NOT NULL PRIMARY KEY); CREATE TABLE b (id BIGINT NOT NULL PRIMARY KEY)")
    stop, acknowledged = threading.Event(), [0]

    def write() -> None:
        while not stop.is_set():
            number = acknowledged[0] + 1
            site.db.table("a").insert([{"id": number}])
            site.db.table("b").insert([{"id": number}])
            acknowledged[0] = number

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for number in range(3):
            known = acknowledged[0]
            back_up_running(site.db, str(tmp_path / f"backup{number}"))
            restore(str(tmp_path / f"backup{number}"), tmp_path / f"again{number}")
            with site.open(tmp_path / f"again{number}", archive=None) as db:
                a, b = (len(db.execute(f"SELECT id FROM {name}").rows) for name in "ab")
            assert a - b in (0, 1)
            assert b >= known, "what was acknowledged before the call is in it"
    finally:
        stop.set()
        writing.join()


@pytest.mark.parametrize("beside", ["accounts", "zebras"])
def test_a_table_that_is_replaced_while_it_is_archived_is_there_once(
    plain: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """It has left when it is to be archived, or just after that. Either way its rows are in it, or in the other."""
    plain.db.execute("CREATE TABLE accounts (id INT PRIMARY KEY); CREATE TABLE zebras (id INT PRIMARY KEY)")
    for table in ("accounts", "zebras"):
        plain.db.table(table).insert([{"id": number} for number in range(50)])
    append, done = ShardArchive.append, []

    def swapped(self: ShardArchive, cut: TableCut, *rest: Any, **more: Any) -> None:
        if cut.schema.name == beside and not done:
            done.append(True)
            plain.db.execute("CREATE TABLE accounts_new (id INT PRIMARY KEY)")
            plain.db.execute("INSERT INTO accounts_new SELECT id FROM accounts")
            plain.db.execute("DROP TABLE accounts")
        append(self, cut, *rest, **more)

    monkeypatch.setattr(ShardArchive, "append", swapped)
    contents = back_up_running(plain.db, str(tmp_path / "backup"))
    plain.db.send(calls.archive())
    for number, (source, as_of) in enumerate(
        ((tmp_path / "backup", None), (tmp_path / "backup", contents.time), (plain.archive, contents.time))
    ):
        restore(str(source), tmp_path / f"again{number}", as_of=as_of)
        with plain.open(tmp_path / f"again{number}", archive=None) as db:
            tables = [table["name"] for table in db.tables()]
            found = {name: db.execute(f"SELECT COUNT(*) FROM {name}").rows[0][0] for name in tables}
        assert {name: rows for name, rows in found.items() if "acc" in name} in (
            {"accounts": 50},
            {"accounts": 50, "accounts_new": 50},
            {"accounts_new": 50},
        )
        assert found["zebras"] == 50


def test_a_clock_that_is_set_back_brings_no_former_recipe_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.time() + 3600]
    defaults: Any = Archiver.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "clock", lambda: now[0])
    site = Site(tmp_path, 1)
    site.db.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    site.db.send(calls.archive())
    now[0] -= 3600
    site.db.execute("CREATE TABLE b (id INT PRIMARY KEY)")
    site.db.execute("ALTER TABLE a ADD COLUMN later INT")
    site.db.execute("INSERT INTO a (id, later) VALUES (1, 2); INSERT INTO b VALUES (3)")
    contents = back_up_running(site.db, str(tmp_path / "backup"))
    site.db.close()
    for number, (source, as_of) in enumerate(
        ((tmp_path / "backup", None), (tmp_path / "backup", contents.time), (site.archive, None))
    ):
        restore(str(source), tmp_path / f"again{number}", as_of=as_of)
        with site.open(tmp_path / f"again{number}", archive=None) as db:
            assert list(db.execute("SELECT id, later FROM a").rows) == [(1, 2)]
            assert list(db.execute("SELECT id FROM b").rows) == [(3,)]


def test_auto_increment_goes_on_above(site: Site, tmp_path: Path) -> None:
    site.db.execute("DELETE FROM stories WHERE id = 6")
    back_up_running(site.db, str(tmp_path / "backup"))
    restore(str(tmp_path / "backup"), tmp_path / "again")
    with site.open(tmp_path / "again", archive=None) as db:
        first = db.table("stories").insert([{"title": "new"}]).first_id
        assert first is not None
        assert first > 6, "a number that was given out is not given out again"


def test_a_stopped_server_is_backed_up(site: Site, tmp_path: Path) -> None:
    before = answers(site.db)
    with pytest.raises(StorageFailure, match="in use"):
        back_up_stopped(site.data, str(tmp_path / "early"))
    site.db.close()
    contents = back_up_stopped(site.data, str(tmp_path / "all" / "backup"))
    shutil.copytree(tmp_path / "all" / "backup", tmp_path / "all" / "half", ignore=lambda *_: ["backup.json"])
    (tmp_path / "all" / "wrong").mkdir()
    (tmp_path / "all" / "wrong" / "backup.json").write_text("{")
    whole, *others = listed(str(tmp_path / "all"))
    told = {"time": contents.time, "shards": contents.shards, "files": len(contents.files)}
    assert whole == {"backup": "backup", **told, "writes": sum(contents.positions.values()), "damage": None}
    assert {each["backup"]: str(each["damage"])[:6] for each in others} == {
        "half": "no who",
        "wrong": f'"{tmp_path}'[:6],
    }
    shutil.move(tmp_path / "all" / "backup", tmp_path / "backup")
    check_restored(site, tmp_path / "backup", tmp_path / "again", before)


def test_as_of_a_time_and_a_token(site: Site, tmp_path: Path) -> None:
    """Also of a back-up, which has the history; the recipe is that of the time."""
    site.db.send(calls.archive())
    first = answers(site.db)
    moment = time.time()
    token = site.vote(1)
    at_token = answers(site.db)
    site.db.execute("ALTER TABLE stories ADD COLUMN score BIGINT NOT NULL DEFAULT 7")
    site.db.execute("DROP VIEW Ranked")
    site.db.execute("DELETE FROM votes WHERE user = 0")
    site.db.execute("CREATE TABLE extra (id BIGINT NOT NULL PRIMARY KEY)")
    back_up_running(site.db, str(tmp_path / "backup"))
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03}Z"
    for number, source in enumerate((site.archive, tmp_path / "backup")):
        check_restored(site, source, tmp_path / f"then{number}", first, as_of=when)
        chosen = choose(Place(str(source)), token)
        assert {each.manifest.table: each.position for each in chosen.tables if each.manifest.shard == 0}["votes"] > 0
        restore(str(source), tmp_path / f"token{number}", as_of=token)
        with site.open(tmp_path / f"token{number}", archive=None) as db:
            assert sorted(db.execute("SELECT story, user FROM votes").rows) == at_token["votes"]
    restore(str(site.archive), tmp_path / "now")
    with site.open(tmp_path / "now", archive=None) as db:
        assert sorted(db.execute("SELECT story, user FROM votes").rows) == sorted(
            site.db.execute("SELECT story, user FROM votes").rows
        )
        assert {row[0] for row in db.execute("SELECT score FROM stories").rows} == {7}
        assert "extra" in {table["name"] for table in db.tables()}


def test_a_table_that_was_dropped_and_created_again_is_had_as_it_was(site: Site, tmp_path: Path) -> None:
    site.db.send(calls.archive())
    first, moment = answers(site.db), time.time()
    site.db.execute("DROP VIEW Ranked; DROP TABLE votes")
    site.db.execute("CREATE TABLE votes (story BIGINT NOT NULL, user BIGINT NOT NULL) SHARD BY (story)")
    site.db.table("votes").insert([{"story": 1, "user": 99}])
    site.db.send(calls.archive())
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03}Z"
    check_restored(site, site.archive, tmp_path / "then", first, as_of=when)
    restore(str(site.archive), tmp_path / "now")
    with site.open(tmp_path / "now", archive=None) as db:
        assert list(db.execute("SELECT story, user FROM votes").rows) == [(1, 99)]


def test_a_table_without_rows_that_was_dropped_and_created_again_is_had_as_it_was(site: Site, tmp_path: Path) -> None:
    site.db.execute("CREATE TABLE extra (id BIGINT NOT NULL PRIMARY KEY)")
    site.db.send(calls.archive())
    first, moment = answers(site.db), time.time()
    site.db.execute("DROP TABLE extra; CREATE TABLE extra (other TEXT)")
    site.db.send(calls.archive())
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1000):03}Z"
    check_restored(site, site.archive, tmp_path / "then", first, as_of=when)


def test_what_is_restored_is_archived_as_another_table(site: Site, tmp_path: Path) -> None:
    """Its writes from here on have the positions that others have had: they must not be mistaken for them."""
    token = site.vote(1)
    site.vote(1)
    site.db.send(calls.archive())
    site.db.close()
    restore(str(site.archive), tmp_path / "again", as_of=token)
    with site.open(tmp_path / "again") as db:
        db.table("votes").insert([{"story": story, "user": 77} for story in range(1, 7)])
        db.send(calls.archive())
        wanted = sorted(db.execute("SELECT story, user FROM votes").rows)
    restore(str(site.archive), tmp_path / "third")
    with site.open(tmp_path / "third", archive=None) as db:
        assert sorted(db.execute("SELECT story, user FROM votes").rows) == wanted
    assert len(all_manifests(Place(str(site.archive)), former=True)) > len(all_manifests(Place(str(site.archive))))


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, 1)
    yield made
    made.db.close()


def test_a_damaged_backup_is_refused_and_leaves_nothing(plain: Site, tmp_path: Path) -> None:
    back_up_running(plain.db, str(tmp_path / "backup"))
    (victim,) = (tmp_path / "backup" / "table=votes").rglob("*.parquet")
    victim.write_bytes(victim.read_bytes()[:-7])
    with pytest.raises(ArchiveError, match=victim.name):
        restore(str(tmp_path / "backup"), tmp_path / "again")
    (tmp_path / "backup" / "backup.json").unlink()
    with pytest.raises(ArchiveError, match=victim.name):
        restore(str(tmp_path / "backup"), tmp_path / "again")
    assert not list(tmp_path.glob("again*"))


def test_a_bit_that_turns_in_what_a_backup_says_of_itself_is_noticed(tmp_path: Path) -> None:
    place, wanted = Place(str(tmp_path)), BackupContents("2026-01-31", {"t": 35}, 1, {"table=t/x": "0a"})
    wanted.write(place)
    whole = (tmp_path / "backup.json").read_bytes()
    for bit in range(8 * len(whole)):
        (tmp_path / "backup.json").write_bytes(bytes(b ^ (bit // 8 == at) << bit % 8 for at, b in enumerate(whole)))
        try:
            assert read_contents(place) == wanted, bit
        except ArchiveError as error:
            assert "backup.json" in str(error), bit  # noqa: PT017


def test_a_damaged_archive_is_not_backed_up(plain: Site, tmp_path: Path) -> None:
    plain.db.send(calls.archive())
    (victim,) = (plain.archive / "table=votes").rglob("*.parquet")
    victim.write_bytes(victim.read_bytes()[:-1] + b"x")
    with pytest.raises(ArchiveError, match=victim.name) as caught:
        back_up_running(plain.db, str(tmp_path / "backup"))
    assert "is no back-up: delete it" in (caught.value.hint or ""), "the same command finds it in its way"
    assert read_contents(Place(str(tmp_path / "backup"))) is None, "it is no back-up"


def test_directories_that_are_in_use_are_left_alone(plain: Site, tmp_path: Path) -> None:
    back_up_running(plain.db, str(tmp_path / "backup"))
    with pytest.raises(AlreadyExists):
        back_up_running(plain.db, str(tmp_path / "backup"))
    with pytest.raises(AlreadyExists):
        restore(str(tmp_path / "backup"), plain.data)
    (tmp_path / "empty").mkdir()
    restore(str(tmp_path / "backup"), tmp_path / "empty")
    assert (tmp_path / "empty" / "recipe.json").exists()


def test_where_it_may_be_restored_to(plain: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back_up_running(plain.db, str(tmp_path / "backup"))
    for name in ("here", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "here")
    for data in (Path(), tmp_path / "link"):
        restore(str(tmp_path / "backup"), data)
    assert all((tmp_path / name / "recipe.json").exists() for name in ("here", "elsewhere", "link"))
    assert (tmp_path / "link").is_symlink()
    monkeypatch.setattr(Path, "is_mount", lambda self: self.name == "volume")
    with pytest.raises(StorageFailure, match="is a mount point") as caught:
        restore(str(tmp_path / "backup"), tmp_path / "volume")
    assert "directory" in caught.value.hint


def test_what_was_folded_away_is_not_taken_for_an_empty_table(plain: Site, tmp_path: Path) -> None:
    plain.db.send(calls.archive())
    moment = datetime.now(UTC).isoformat()
    plain.vote(1)
    plain.db.send(calls.archive())
    run("archive", "compact", "--archive", str(plain.archive), "--archive-retention", "0")
    with pytest.raises(ArchiveGap, match='"votes" does not reach back to') as caught:
        restore(str(plain.archive), tmp_path / "again", as_of=moment)
    since = re.search(r"back to (\S+), position 4", caught.value.hint or "")
    assert since, caught.value.hint
    restore(str(plain.archive), tmp_path / "again", as_of=since[1])
    with plain.open(tmp_path / "again", archive=None) as db:
        assert answers(db) == answers(plain.db)


def test_a_backup_that_the_archive_outruns_is_refused(
    plain: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has gone on, and folded all of it, between the answer to the call and the look at its manifests."""
    seen = taking.all_manifests

    def later(place: Place, **asked: bool) -> list[ShardManifest]:
        plain.vote(1)
        plain.db.send(calls.archive())
        run("archive", "compact", "--archive", str(plain.archive), "--archive-retention", "0")
        return seen(place, **asked)

    monkeypatch.setattr(taking, "all_manifests", later)
    with pytest.raises(ArchiveError, match="while it was copied"):
        back_up_running(plain.db, str(tmp_path / "backup"))
    assert read_contents(Place(str(tmp_path / "backup"))) is None, "it is no back-up"


def test_what_there_is_not_is_named(plain: Site, tmp_path: Path) -> None:
    plain.db.send(calls.archive())
    with pytest.raises(BadRequest, match="is not a time") as caught:
        restore(str(plain.archive), tmp_path / "again", as_of="yesterday")
    assert "2026-01-31T08:00:00Z, or give the token of a write" in (caught.value.hint or "")
    with pytest.raises(NotFound, match="has nothing as of 2001"):
        restore(str(plain.archive), tmp_path / "again", as_of="2001-01-01")
    with pytest.raises(NotFound, match="there is no directory"):
        restore(str(tmp_path / "nowhere"), tmp_path / "again")
    (tmp_path / "bare").mkdir()
    with pytest.raises(NotFound, match="has no recipe"):
        restore(str(tmp_path / "bare"), tmp_path / "again")
    with pytest.raises(NotFound, match="is not the data directory of a server"):
        back_up_stopped(tmp_path / "nowhere", str(tmp_path / "backup"))
    with plain.open(tmp_path / "other", archive=None) as db, pytest.raises(BadRequest, match="not archived"):
        back_up_running(db, str(tmp_path / "backup"))


# --- the commands -------------------------------------------------------------------------------------------------


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_the_commands(plain: Site, tmp_path: Path) -> None:
    plain.db.send(calls.archive())
    plain.vote(1)
    plain.db.send(calls.archive())
    wanted = answers(plain.db)
    plain.db.close()
    url = str(plain.archive)
    assert "votes: positions 0 to 4 in 2 segments" in run("archive", "status", "--archive", url)
    shown = json.loads(run("archive", "status", "--archive", url, "--json"))
    for command in ("status", "check", "compact"):
        refused = CliRunner().invoke(app, ["archive", command, "--archive", f"{url}-nowhere"])
        assert isinstance(refused.exception, NotFound)
    assert {each["shard"]: each["position"] for each in shown} == {"stories": 1, "votes": 4}
    assert "votes: 2 segments, 24 rows" in run("archive", "check", "--archive", url)
    compacted = run("archive", "compact", "--archive", url, "--archive-retention", "0")
    assert "votes: 2 segments are now 1" in compacted
    assert "votes: positions 4 to 4 in 1 segments" in run("archive", "status", "--archive", url)
    assert "ok" in run("archive", "check", "--archive", url)

    assert "2 tables" not in run("backup", str(tmp_path / "backup"), "--data", str(plain.data))
    output = run("restore", str(tmp_path / "backup"), "--data", str(tmp_path / "again"))
    assert "votes: 24 rows" in output
    recorded = choose(Place(str(tmp_path / "backup")), None).recorded  # By the back-up itself, after the last write.
    assert all(part in output for part in ("2 tables", "1 shard", "30 rows", f"as of {recorded}", "defined by 20")), (
        output
    )
    assert output.endswith(f"start it with: headrace serve --data {tmp_path / 'again'}\n")
    with plain.open(tmp_path / "again", archive=None) as db:
        assert answers(db) == wanted
    for manifest in all_manifests(Place(url)):
        for segment in manifest.segments:
            Path(Place(url).at(segment.file)).write_bytes(b"")
    assert "is truncated" in run("archive", "check", "--archive", url, code=1)


def test_a_restore_says_what_it_has_restored(site: Site, tmp_path: Path) -> None:
    """Also of a moment, of a token, of a cluster, and of a table of which nothing was archived yet."""
    site.db.send(calls.archive())
    moment = max(segment.closed for each in all_manifests(Place(str(site.archive))) for segment in each.segments)
    site.db.execute("CREATE TABLE empty (id BIGINT NOT NULL PRIMARY KEY)")
    token = site.vote(1)
    site.db.send(calls.archive())
    site.db.close()
    shards = "1 shard" if site.shards == 1 else f"{site.shards} shards"
    cases = (
        ("then", ("--as-of", moment), f"restored 2 tables in {shards}, 24 rows, as of {moment};", "serve"),
        (
            "written",
            ("--as-of", token),
            f"restored 3 tables in {shards}, 30 rows, as of the write of the token,",
            "serve",
        ),
        ("a cluster", ("--cluster", "main"), f"restored 3 tables in {shards}, 30 rows, as of 20", "up"),
    )
    for name, options, said, command in cases:
        data = tmp_path / name
        output = run("restore", str(site.archive), "--data", str(data), *options)
        assert said in output
        assert output.endswith(f"start it with: headrace {command} --data {shlex.quote(str(data))}\n")


def test_a_directory_for_a_cluster_is_taken_up_by_it(plain: Site, tmp_path: Path) -> None:
    """The state goes into ZooKeeper, with every shard bound to the restored directory."""

    back_up_running(plain.db, str(tmp_path / "backup"))
    restore(str(tmp_path / "backup"), tmp_path / "again", cluster="main")
    document = json.loads((tmp_path / "again" / "restored.state").read_text())
    owner = json.loads((tmp_path / "again" / "deployment.json").read_text())
    assert (owner["deployment"], owner["id"]) == ("main", document["id"])

    state = ClusterState.decode(base64.b64decode(document["state"]), "main")
    assert {given.data for given in state.placement.values()} == {owner["directory"]}
    assert (tmp_path / "again" / "shards" / "0000" / "base").is_dir()
    assert "Ranked" in state.recipe.to_json().decode()


def test_numbered_writes_begin_anew_after_a_restore(site: Site, tmp_path: Path) -> None:
    """What docs/archive.md says of it: the next number is refused, the first one is done a second time."""
    row = {"story": 1, "user": 99}
    site.db.table("votes").insert(row, once=("load", 1))
    assert site.db.table("votes").insert(row, once=("load", 1)).repeated
    back_up_running(site.db, str(tmp_path / "backup"))
    restore(str(tmp_path / "backup"), tmp_path / "restored")
    with site.open(tmp_path / "restored", archive=None) as db:
        votes = db.table("votes")
        assert votes.streams() == {}
        with pytest.raises(OutOfOrder):
            votes.insert(row, once=("load", 2))
        assert not votes.insert(row, once=("load", 1)).repeated
        assert sorted(db.execute("SELECT user FROM votes WHERE user = 99").rows) == [(99,), (99,)]
