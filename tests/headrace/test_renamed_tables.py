"""RENAME TABLE: the rows, views, keys and back-ups of a table are its own under whatever name, and never another's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_client import calls

from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_running
from headrace.embedding import Embedded
from headrace.errors import AlreadyExists, ConstraintViolation, HeadraceError, NotFound, StillInUse, UnknownName
from tests.headrace.test_altered_backup import moment, opened, rows


@pytest.fixture(params=[1, 3], ids=["one", "sharded"])
def shards(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def db(tmp_path: Path, shards: int) -> Iterator[Embedded]:
    made = opened(tmp_path / "data", shards, str(tmp_path / "archive"))
    yield made
    made.close()


def state(db: Embedded) -> dict[str, Any]:
    """All that an application sees."""
    tables = sorted(each["name"] for each in db.tables())
    views = sorted(each["name"] for each in db.views() if not each["name"].startswith("adhoc_"))
    told: dict[str, Any] = {name: rows(db, f"SELECT * FROM `{name}`") for name in [*tables, *views] if name != "of_n"}
    told["of_n"] = sorted(tuple(row.values()) for row in db.view("of_n").lookup(n=1)) if "of_n" in views else None
    told["schema"] = {name: rows(db, f"SHOW CREATE TABLE `{name}`") for name in (*tables, *views)}
    return told


STATEMENTS = (
    "RENAME TABLE a TO b",
    "INSERT INTO b VALUES (2, 1), (3, 2)",
    "CREATE TABLE a (id INT NOT NULL PRIMARY KEY, n INT, m INT)",
    "INSERT INTO a VALUES (7, 1, 5), (8, 1, 6)",
    "CREATE VIEW sums AS SELECT n, SUM(m) AS m FROM a GROUP BY n",
    "RENAME TABLE a TO c, b TO a, c TO b",
    "UPDATE a SET n = 1 WHERE id = 3",
    "INSERT INTO b VALUES (9, 2, 1)",
    "ALTER TABLE b RENAME TO d, ADD COLUMN o INT DEFAULT 4, RENAME COLUMN m TO p",
    "DELETE FROM d WHERE id = 7",
    "DROP TABLE a CASCADE",
    "CREATE TABLE a (id INT NOT NULL PRIMARY KEY, n INT)",
    "INSERT INTO a VALUES (2, 3)",
    "DROP TABLE d CASCADE",
    "CREATE TABLE d (id INT NOT NULL PRIMARY KEY)",
)


def test_a_table_is_itself_under_each_name(db: Embedded, tmp_path: Path, shards: int) -> None:
    db.execute("CREATE TABLE a (id INT NOT NULL PRIMARY KEY, n INT)")
    db.execute("CREATE EXT VIEW of_n AS SELECT a.id, n FROM a WHERE n = ?")
    db.execute("CREATE VIEW counted AS SELECT n, COUNT(*) AS rows_of FROM a GROUP BY n")
    db.execute("INSERT INTO a VALUES (1, 1)")
    states = []
    for statement in STATEMENTS:
        states.append((moment(), state(db)))
        db.execute(statement)
        db.send(calls.archive())
        if statement.startswith("RENAME"):
            for view in ("of_n", "counted", "sums"):
                assert state(db).get(view) == states[-1][1].get(view), statement
    swapped = states[8][1]
    assert (swapped["a"], swapped["b"]) == ([(1, 1), (2, 1), (3, 1)], [(7, 1, 5), (8, 1, 6), (9, 2, 1)])
    assert (swapped["of_n"], swapped["sums"]) == ([(1, 1), (2, 1), (3, 1)], [(1, 11), (2, 1)])
    assert "FROM `a`" in swapped["schema"]["of_n"][0][1]
    assert "FROM `b` AS a" in swapped["schema"]["sums"][0][1]
    assert states[10][1]["sums"] == [(1, 6), (2, 1)]
    assert state(db)["a"] == [(2, 3)]
    assert state(db)["d"] == []
    back_up_running(db, str(tmp_path / "backup"))
    chosen = [*states[1::3], (None, state(db))]
    for number, (as_of, expected) in enumerate(chosen):
        place = "backup" if as_of is None else "archive"  # A back-up has no dropped tables.
        restore(str(tmp_path / place), tmp_path / f"restored{number}", as_of=as_of)
        for _ in range(2):  # The second time out of its own store.
            with opened(tmp_path / f"restored{number}", shards, None) as again:
                assert state(again) == expected, number


def test_all_doors_know_the_new_name_and_no_other(tmp_path: Path) -> None:
    with opened(tmp_path / "data", 1, None) as db:
        db.execute("CREATE TABLE a (id INT NOT NULL PRIMARY KEY, n INT UNIQUE)")
        db.execute(
            "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES a (id) ON DELETE CASCADE)"
        )
        db.table("a").insert({"id": 1, "n": 1})
        assert rows(db, "SELECT n FROM a WHERE id = 1") == [(1,)]
        db.execute("ALTER TABLE a RENAME AS c; ALTER TABLE c RENAME = `as`; ALTER TABLE `as` RENAME b")
        db.table("b").insert([{"id": 2, "n": 2}])
        db.table("b").update({"id": 2}, {"n": 3})
        assert (
            db.execute("INSERT INTO b (id, n) SELECT id + 2, n + 9 FROM b ON DUPLICATE KEY UPDATE b.n = 0") is not None
        )
        assert rows(db, "SELECT b.id, n FROM b") == [(1, 1), (2, 3), (3, 10), (4, 12)]
        assert [each["name"] for each in db.tables()] == ["b", "child"]
        assert rows(db, "SHOW TABLES") == [("b",), ("child",)]
        assert [row[0] for row in db.execute("DESCRIBE b").rows] == ["id", "n"]
        assert "REFERENCES `b` (`id`)" in rows(db, "SHOW CREATE TABLE child")[0][1]
        assert "CREATE TABLE `b`" in rows(db, "SHOW CREATE TABLE b")[0][1]
        for text in (
            "SELECT * FROM a",
            "INSERT INTO a VALUES (9, 9)",
            "DROP TABLE a",
            "DELETE FROM a",
            "SHOW CREATE TABLE a",
        ):
            with pytest.raises(UnknownName, match='"a"'):
                db.execute(text)
        with pytest.raises(NotFound, match='no table "a"'):
            db.table("a").insert({"id": 9})
        with pytest.raises(ConstraintViolation, match='of table "b" has the value 12 already'):
            db.execute("INSERT INTO b VALUES (9, 12)")
        # Keys go on referring to it.
        db.execute("INSERT INTO child VALUES (1, 2)")
        with pytest.raises(ConstraintViolation):
            db.execute("INSERT INTO child VALUES (2, 9)")
        db.execute("CREATE TABLE a (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES a (id))")
        db.execute("INSERT INTO a VALUES (8, NULL), (9, 8)")
        with pytest.raises(StillInUse, match='of table "child" names table "b"'):
            db.execute("DROP TABLE b")
        db.execute("DELETE FROM b WHERE id = 2")
        assert rows(db, "SELECT * FROM child") == []
        assert rows(db, "SELECT * FROM a") == [(8, None), (9, 8)]
        schema = db.execute("SHOW CREATE TABLE a").rows[0][1]
        assert "REFERENCES `a` (`id`)" in schema


def test_names_are_taken_once(tmp_path: Path) -> None:
    with opened(tmp_path / "data", 1, None) as db:
        db.execute("CREATE TABLE a (id INT PRIMARY KEY); CREATE TABLE b (id INT PRIMARY KEY)")
        db.execute("CREATE VIEW v AS SELECT id FROM a")
        for text in ("RENAME TABLE a TO b", "RENAME TABLE a TO v", "RENAME TABLE a TO c, b TO c"):
            with pytest.raises(AlreadyExists):
                db.execute(text)
        for text in ("RENAME TABLE v TO w", "RENAME TABLE a", "RENAME TABLE a TO", "RENAME TABLE q TO r"):
            with pytest.raises(HeadraceError):
                db.execute(text)
        assert rows(db, "SHOW TABLES") == [("a",), ("b",), ("v",)]
        db.execute("RENAME TABLE a TO A")
        db.execute("RENAME TABLE a TO `A b`")
        db.execute("INSERT INTO `a B` VALUES (1)")
        db.execute("CREATE TABLE made AS SELECT id + 1 AS id FROM `A b`; RENAME TABLE made TO kept")
        db.execute("CREATE TABLE made AS SELECT id + 1 AS id FROM kept")
        assert (rows(db, "SELECT * FROM kept"), rows(db, "SELECT * FROM made")) == ([(2,)], [(3,)])
        # A view may take the freed name, as in a migration without a pause.
        db.execute("CREATE EXT VIEW a AS SELECT id FROM `A b` WHERE id = ?")
        assert [dict(row) for row in db.view("a").lookup(id=1)] == [{"id": 1}]
        db.execute("CREATE OR REPLACE EXT VIEW a AS SELECT id, id + 1 AS m FROM `A b` WHERE id = ?")
        assert [dict(row) for row in db.view("a").lookup(id=1)] == [{"id": 1, "m": 2}]
        assert rows(db, "SELECT * FROM v") == [(1,)]
        with pytest.raises(StillInUse, match='views "v" and "a" read table "A b"'):
            db.execute("DROP TABLE `A b`")
