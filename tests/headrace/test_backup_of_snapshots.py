"""Back-ups of a snapshot: each shard has its rows exactly as of that cut, whatever was written and defined since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_client import calls
from typer.testing import CliRunner

from domains.archive.manifest import ArchiveError
from headrace.backup.choosing import LATEST
from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_running
from headrace.cli import app
from headrace.embedding import Embedded, embedded
from headrace.errors import BadRequest, SnapshotGone
from worker.archive.checking import check_archive
from worker.archive.compacting import compact_now
from worker.archive.manifests import all_manifests
from worker.archive.place import Place
from worker.archive.recipes import RecipeBook

SCHEMA = """
CREATE TABLE acc (id INT PRIMARY KEY, branch INT, n INT NOT NULL, KEY (branch));
CREATE TABLE moves (acc INT NOT NULL, n INT NOT NULL);
CREATE EXT VIEW total AS SELECT SUM(n) AS s FROM acc
"""
ACCOUNTS = 9


class Site:
    def __init__(self, path: Path, shards: int) -> None:
        self.path, self.shards = path, shards
        self.db = self.open("data", archive=str(path / "archive"), archive_interval=3600)
        self.db.execute(SCHEMA)
        self.db.table("acc").insert([{"id": id, "branch": id % 2, "n": 10} for id in range(ACCOUNTS)])

    def open(self, data: str, **settings: Any) -> Embedded:
        return embedded(self.path / data, shards=self.shards, read_your_writes=True, **settings)

    def move(self, count: int = 7) -> None:
        """Each in two writes of one transaction, over shards."""
        for number in range(count):
            source, sink = number % ACCOUNTS, (number * 2 + 1) % ACCOUNTS
            self.db.execute(
                f"UPDATE acc SET n = n - 1 WHERE id = {source}; UPDATE acc SET n = n + 1 WHERE id = {sink}; "
                f"INSERT INTO moves VALUES ({source}, -1), ({sink}, 1)",
                atomic=True,
            )

    def backed_up(self, snapshot: str, *, as_of: str | None = None) -> Any:
        """What a back-up of it restores."""
        number = len(list(self.path.glob("backup*")))
        backup = str(self.path / f"backup{number}")
        positions = back_up_running(self.db, backup, snapshot=snapshot).positions
        assert all(
            cut.positions[base] <= at for cut in RecipeBook(Place(backup)).cuts() for base, at in positions.items()
        )
        assert [problem for checked in check_archive(Place(backup)) for problem in checked.problems] == []
        restore(backup, self.path / f"again{number}", as_of=as_of)
        with self.open(f"again{number}") as db:
            return answers(db)


def answers(db: Any) -> Any:
    return (
        sorted(db.execute("SELECT * FROM acc").rows),
        sorted(db.execute("SELECT * FROM moves").rows),
        db.view("total").lookup(),
    )


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, request.param)
    yield made
    made.db.close()


def test_a_backup_has_what_the_snapshot_has(site: Site) -> None:
    """Its cut is within a segment of the log, at a segment's end, and before anything was archived."""
    empty = site.db.take_snapshot("empty", hold=True)
    site.move()
    at_the_end = site.db.take_snapshot("archived", hold=True)
    wanted = {empty: answers(site.db.as_of(empty)), at_the_end: answers(site.db)}
    assert site.backed_up(at_the_end) == wanted[at_the_end]
    site.move(5)
    within = site.db.take_snapshot("within", hold=True)
    wanted[within] = answers(site.db)
    site.move(4)
    site.db.execute("DELETE FROM moves WHERE acc = 1")
    for name, rows in wanted.items():
        assert answers(site.db.as_of(name)) == rows
        assert site.backed_up(name) == rows
        assert site.backed_up(name, as_of=LATEST) == rows, "nothing that came later is in it"
    assert site.backed_up("latest") == wanted[within]
    assert len({str(rows) for rows in wanted.values()}) == 3


def test_tables_that_came_since_are_not_in_it(site: Site) -> None:
    site.move()
    then, wanted = site.db.take_snapshot(hold=True), answers(site.db)
    site.db.execute("CREATE EXT VIEW later AS SELECT n FROM acc WHERE branch = ?")
    assert site.backed_up(then) == wanted, "a recipe that has its tables was archived with it"
    site.db.execute("ALTER TABLE acc ADD COLUMN more INT DEFAULT 7; CREATE TABLE other (id INT PRIMARY KEY)")
    site.db.execute("DROP VIEW total, later; DROP TABLE moves; CREATE TABLE moves (id INT PRIMARY KEY)")
    site.db.execute("INSERT INTO moves VALUES (1); UPDATE acc SET n = 0")
    assert site.backed_up(then) == wanted


def test_what_cannot_be_answered_is_told(site: Site) -> None:
    site.db.send(calls.archive())  # The next one is an hour away, so what is altered twice by then is in none.
    site.db.execute("ALTER TABLE acc ADD COLUMN early INT DEFAULT 7")
    then = site.db.take_snapshot(hold=True)
    site.db.execute("ALTER TABLE acc ADD COLUMN more INT DEFAULT 7")
    with pytest.raises(SnapshotGone, match="altered"):
        site.backed_up(then)  # Its tables were never archived as they were.
    with pytest.raises(SnapshotGone):
        site.backed_up("none")
    site.move()
    folded = site.db.take_snapshot(hold=True)
    site.move()
    site.db.send(calls.archive())
    place = Place(str(site.path / "archive"))
    for manifest in all_manifests(place):
        compact_now(place, manifest, "9")
    with pytest.raises(ArchiveError, match="let go of position"):
        site.backed_up(folded)
    site.db.drop_snapshot(folded)
    with pytest.raises(SnapshotGone):
        site.backed_up(folded)


def test_a_stopped_server_has_none(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["backup", str(tmp_path / "b"), "--data", str(tmp_path), "--snapshot", "s"])
    assert isinstance(run.exception, BadRequest), run.output
