"""A restore as of a time is a cut that was archived whole: judged by what every table held when it was archived."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from headrace_client import calls
from typer.testing import CliRunner

import headrace
from domains.archive.manifest import ManifestDamaged
from headrace.backup.choosing import LATEST
from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_running
from headrace.cli import app
from headrace.embedding import Embedded
from headrace.errors import HeadraceError, StorageFailure
from worker.archive.archiver import Archiver
from worker.archive.place import Place, time_text
from worker.archive.recipes import RecipeBook
from worker.archive.shard import ShardArchive
from worker.rocks.store import RocksStore

State = dict[str, list[Any]]
NOON = 1_800_000_000.0


class Site:
    """A server with an archive and a clock of its own, whose archiving can be made to fail for some tables."""

    def __init__(self, path: Path, patched: pytest.MonkeyPatch) -> None:
        self.path, self.now = path, NOON
        self.failing: set[str] = set()
        defaults: Any = Archiver.__init__.__kwdefaults__
        patched.setitem(defaults, "clock", lambda: self.now)
        append = ShardArchive.append

        def perhaps(archive: ShardArchive, *given: Any, **named: Any) -> None:
            if archive.manifest.table in self.failing:
                raise StorageFailure("no room")
            append(archive, *given, **named)

        patched.setattr(ShardArchive, "append", perhaps)
        self.db = self.opened()

    def opened(self) -> Embedded:
        return headrace.embedded(
            self.path / "data", archive=str(self.path / "archive"), archive_interval=3600, read_your_writes=True
        )

    def restart(self) -> None:
        self.db.close()
        self.db = self.opened()

    @property
    def book(self) -> RecipeBook:
        return RecipeBook(Place(str(self.path / "archive")))

    @contextmanager
    def failing_for(self, *tables: str) -> Iterator[None]:
        self.failing = set(tables)
        yield
        self.failing = set()

    def state(self) -> State:
        names = [str(row[0]) for row in self.db.execute("SHOW TABLES").rows]
        return {name: sorted(tuple(row) for row in self.db.execute(f"SELECT id FROM {name}").rows) for name in names}

    def restored(self, as_of: str | None, source: str = "archive") -> State:
        into = self.path / f"restored{random.getrandbits(64)}"
        restore(str(self.path / source), into, as_of=as_of)
        store = RocksStore(into / "base", create=False)
        try:
            return {each.name: sorted(row for row, _ in store.table(each.name).find((), ())) for each in store.tables()}
        finally:
            store.close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path, monkeypatch)
    yield made
    made.db.close()


def test_an_archiving_that_failed_for_a_table_is_no_cut(site: Site) -> None:
    """A row goes from one table to another: archived of one of them alone, it would be in neither."""
    site.db.execute("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY)")
    site.db.execute("INSERT INTO a VALUES (1)")
    site.db.send(calls.archive())
    before = site.state()
    site.now += 60
    site.db.execute("INSERT INTO b SELECT id FROM a; DELETE FROM a WHERE id = 1")
    with site.failing_for("b"):  # Until it was looked at: the archiver tries again by itself.
        with pytest.raises(HeadraceError, match="no room"):
            site.db.send(calls.archive())
        assert site.restored(None) == site.restored(time_text(site.now + 60)) == before
        assert site.restored(LATEST) == {"a": [], "b": []}, "it is of no one moment"
        into = str(site.path / "said")
        said = CliRunner().invoke(app, ["restore", str(site.path / "archive"), "--data", into]).output
        assert "not in it: 1 later write that the archive has of some tables" in said
    site.now += 60
    site.db.send(calls.archive())
    assert site.restored(None) == site.restored(LATEST) == {"a": [], "b": [(1,)]}
    assert site.restored(time_text(site.now - 1)) == before


def test_what_archiving_goes_on_to_fail_for_is_not_folded_away(site: Site) -> None:
    """The last whole cut can be restored, however old it is."""
    site.db.execute("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY)")
    site.db.execute("INSERT INTO a VALUES (1)")
    site.db.send(calls.archive())
    before = site.state()
    site.db.execute("INSERT INTO a VALUES (2); INSERT INTO b VALUES (2)")
    site.now += 7 * 24 * 3600
    with site.failing_for("b"), pytest.raises(HeadraceError, match="no room"):
        site.db.send(calls.archive())
    archive = ["--archive", str(site.path / "archive")]
    result = CliRunner().invoke(app, ["archive", "compact", *archive, "--archive-retention", "0"])
    assert result.exit_code == 0, result.output
    assert site.restored(None) == before


@pytest.mark.parametrize("number", range(4))
def test_every_cut_is_restored_as_it_was(site: Site, number: int) -> None:
    """Whatever the clock does, and whatever fails in between: also of a back-up, which has the cuts before it."""
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    chance, states, tables, made = random.Random(seed), dict[str, State](), ["t0", "t1"], 2
    site.db.execute("CREATE TABLE t0 (id INT PRIMARY KEY); CREATE TABLE t1 (id INT PRIMARY KEY)")
    for step in range(14):
        site.now += chance.choice((1.0, 60.0, 60.0, 3600.0, -30.0, -7200.0))
        act = chance.randrange(8)
        source, target = chance.sample(tables, 2)
        site.db.execute(f"INSERT INTO {source} VALUES ({step})")
        if act < 3:
            site.db.execute(f"INSERT INTO {target} SELECT id FROM {source}; DELETE FROM {source} WHERE id >= 0")
            site.db.execute(f"DELETE FROM {target} WHERE id = {chance.randrange(14)}")
        elif act == 3:
            site.db.execute(f"CREATE TABLE t{made} (id INT PRIMARY KEY); DROP TABLE {target}")
            tables[tables.index(target)], made = f"t{made}", made + 1
        elif act == 4:
            site.restart()
        elif act == 5:
            with site.failing_for(source), pytest.raises(HeadraceError, match="no room"):
                site.db.send(calls.archive())
        if chance.random() < 0.7:
            site.db.send(calls.archive())
            (*_, last) = site.book.cuts()
            assert last.time not in states or states[last.time] == site.state()
            states[last.time] = site.state()
    contents = back_up_running(site.db, str(site.path / "backup"))
    last_state = site.state()
    kept = [cut.time for cut in site.book.cuts()]
    assert kept == sorted(kept)
    assert len(set(kept)) == len(kept) > 2
    for time, wanted in states.items():
        assert site.restored(time) == wanted, (seed, time)
    assert site.restored(None) == site.restored(None, "backup") == last_state
    assert site.restored(contents.time, "backup") == last_state
    here = set(tables)
    for time, wanted in states.items():
        if wanted.keys() <= here:  # It has no tables that were dropped before it.
            assert site.restored(time, "backup") == wanted, (seed, time)


def test_a_newest_cut_that_was_deleted_is_missed(site: Site) -> None:
    site.db.execute("CREATE TABLE a (id INT PRIMARY KEY)")
    for number in range(3):
        site.now += 60
        site.db.execute(f"INSERT INTO a VALUES ({number})")
        site.db.send(calls.archive())
    *_, kept, last = site.book.cuts()
    file = next((site.path / "archive" / "cuts").glob(f"*{last.time}.json"))
    whole = file.read_bytes()
    file.unlink()
    for as_of in (None, last.time, time_text(site.now + 3600)):
        with pytest.raises(ManifestDamaged, match="is missing from"):
            site.restored(as_of)
    assert site.restored(kept.time) == {"a": [(0,), (1,)]}
    assert site.restored(LATEST) == {"a": [(0,), (1,), (2,)]}
    file.write_bytes(whole)
    assert site.restored(None) == {"a": [(0,), (1,), (2,)]}
    file.unlink()
    site.now += 60
    site.db.execute("INSERT INTO a VALUES (3)")
    site.db.send(calls.archive())  # It goes on, and only what the gap hides is refused.
    assert site.restored(None) == {"a": [(0,), (1,), (2,), (3,)]}
