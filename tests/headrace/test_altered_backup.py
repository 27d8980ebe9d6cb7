"""What a definition says of rows holds over shards, a restart, an archive, a back-up and a restore as of before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_client import calls

import headrace
from headrace.backup.restoring import restore
from headrace.backup.taking import back_up_running
from headrace.embedding import Embedded
from headrace.errors import ConstraintViolation, HeadraceError, StillInUse

SCHEMA = """
CREATE TABLE t (id INT NOT NULL PRIMARY KEY, n INT, double_n INT AS (n * 2) STORED,
  label VARCHAR(20) AS (CONCAT('n', n)),
  seen DATETIME DEFAULT '2000-01-01' ON UPDATE CURRENT_TIMESTAMP, KEY (double_n),
  CONSTRAINT small CHECK (double_n < 100));
CREATE EXT VIEW by_double AS SELECT id, label FROM t WHERE double_n = ?
"""


def opened(path: Path, shards: int, archive: str | None) -> Embedded:
    return headrace.embedded(path, shards=shards, read_your_writes=True, archive=archive, archive_interval=3600)


@pytest.fixture(params=[1, 3], ids=["one", "sharded"])
def shards(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def db(tmp_path: Path, shards: int) -> Iterator[Embedded]:
    made = opened(tmp_path / "data", shards, str(tmp_path / "archive"))
    yield made
    made.close()


def moment() -> str:
    """Of now, as ``as_of`` takes it, with a moment around it in which nothing happens."""
    time.sleep(0.01)
    now = time.time()
    time.sleep(0.01)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"


def rows(db: Embedded, sql: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in db.execute(sql).rows), key=repr)


def check_rules(db: Embedded) -> None:
    db.execute("INSERT INTO t (id, n) VALUES (50, 7)")
    assert rows(db, "SELECT double_n, label, seen > '2020-01-01' FROM t WHERE id = 50") == [(14, "n7", 0)]
    db.execute("UPDATE t SET n = 8 WHERE id = 50")
    assert rows(db, "SELECT double_n, label, seen > '2020-01-01' FROM t WHERE id = 50") == [(16, "n8", 1)]
    assert [dict(row) for row in db.view("by_double").lookup(double_n=16)] == [{"id": 50, "label": "n8"}]
    for write in ("INSERT INTO t (id, n) VALUES (51, 50)", "UPDATE t SET n = 50 WHERE id = 50"):
        with pytest.raises(ConstraintViolation, match='check "small" of table "t" does not hold'):
            db.execute(write)
    db.execute("DELETE FROM t WHERE id = 50")


def test_computed_columns_and_checks(db: Embedded, tmp_path: Path, shards: int) -> None:
    db.execute(SCHEMA)
    db.execute("INSERT INTO t (id, n) VALUES (1, 10), (2, NULL), (3, 30), (4, -5)")
    check_rules(db)
    db.send(calls.archive())
    kept = rows(db, "SELECT * FROM t")
    then = moment()
    db.execute("UPDATE t SET n = 1")
    db.execute("DELETE FROM t WHERE id = 3")
    back_up_running(db, str(tmp_path / "backup"))
    now = rows(db, "SELECT * FROM t")
    for number, (as_of, expected) in enumerate(((then, kept), (None, now))):
        restore(str(tmp_path / "backup"), tmp_path / f"restored{number}", as_of=as_of)
        for _ in range(2):  # The second time out of its own store.
            with opened(tmp_path / f"restored{number}", shards, None) as again:
                assert rows(again, "SELECT * FROM t") == expected
                check_rules(again)


ALTERED = """
CREATE TABLE a (id INT NOT NULL PRIMARY KEY, n SMALLINT DEFAULT 1, name VARCHAR(5));
CREATE EXT VIEW named AS SELECT id, name FROM a WHERE name = ?;
CREATE VIEW counted AS SELECT name, COUNT(*) AS rows_of FROM a GROUP BY name
"""


def seen(db: Embedded) -> tuple[Any, ...]:
    """The views' answers, and all rows of the table."""
    looked_up = [tuple(row.values()) for row in db.view("named").lookup(name="x")]
    return sorted(looked_up), rows(db, "SELECT * FROM counted"), rows(db, "SELECT * FROM a")


def test_altered_columns_keep_their_rows_and_views(db: Embedded, tmp_path: Path, shards: int) -> None:
    """Each ALTER between two archivings, so that segments of every schema are folded together."""
    db.execute(ALTERED)
    db.execute("INSERT INTO a (id, name) VALUES (1, 'x'), (2, 'y')")
    db.send(calls.archive())
    states: list[tuple[str, tuple[Any, ...]]] = []
    statements = (
        "ALTER TABLE a ADD COLUMN b INT NOT NULL DEFAULT 3",
        "ALTER TABLE a ALTER COLUMN b SET DEFAULT 9",
        "ALTER TABLE a RENAME COLUMN n TO m, RENAME COLUMN name TO called",
        "ALTER TABLE a MODIFY m BIGINT NULL DEFAULT 5000000000",
        "ALTER TABLE a CHANGE b bb BIGINT DEFAULT 10",
        "ALTER TABLE a ALTER bb DROP DEFAULT, ADD COLUMN first_one INT DEFAULT 0 FIRST",
        "ALTER TABLE a MODIFY first_one INT DEFAULT 0 AFTER id, MODIFY called VARCHAR(5) FIRST",
    )
    for number, statement in enumerate(statements, 3):
        states.append((moment(), seen(db)))
        db.execute(statement)
        assert seen(db)[:2] == states[-1][1][:2], statement
        called = "called" if number > 4 else "name"
        db.execute(f"INSERT INTO a (id, {called}) VALUES ({number}, 'x')")
        changed = f"UPDATE a SET {called} = 'x' WHERE id = 2"
        db.execute(changed if number == 5 else f"DELETE FROM a WHERE id = {number - 3}")
        db.send(calls.archive())
    later = [(id, 5000000000, b) for id, b in ((7, 10), (8, None), (9, None))]
    shown = [row[0] for row in db.execute("SHOW COLUMNS FROM a").rows]
    assert shown == ["called", "id", "first_one", "m", "bb"]
    assert rows(db, "SELECT id, m, bb FROM a") == [(2, 1, 3), *later]
    back_up_running(db, str(tmp_path / "backup"))
    for number, (as_of, expected) in enumerate([*states, (None, seen(db))]):
        restore(str(tmp_path / "backup"), tmp_path / f"restored{number}", as_of=as_of)
        for _ in range(2):
            with opened(tmp_path / f"restored{number}", shards, None) as again:
                assert seen(again) == expected, statements[:number]


def test_rows_from_before_a_column_keep_what_it_came_with(db: Embedded, tmp_path: Path, shards: int) -> None:
    db.execute(ALTERED)
    db.execute("INSERT INTO a (id, name) VALUES (1, 'x'), (2, 'y')")
    db.send(calls.archive())
    db.execute("ALTER TABLE a ADD COLUMN b INT NOT NULL DEFAULT 3")
    db.execute("ALTER TABLE a ALTER COLUMN b SET DEFAULT 9")
    db.execute("INSERT INTO a (id, name) VALUES (3, 'z')")
    back_up_running(db, str(tmp_path / "backup"))
    restore(str(tmp_path / "backup"), tmp_path / "restored")
    with opened(tmp_path / "restored", shards, None) as again:
        for one in (db, again):
            assert rows(one, "SELECT id, b FROM a") == [(1, 3), (2, 3), (3, 9)]


def test_what_views_read_is_refused_with_all_of_them_and_goes_with_cascade(db: Embedded) -> None:
    db.execute(ALTERED)
    for statement in (
        "ALTER TABLE a MODIFY name VARCHAR(9)",
        "ALTER TABLE a DROP COLUMN name",
    ):
        with pytest.raises(StillInUse, match=r'view "named" needs it.*counted'):
            db.execute(statement)
    with pytest.raises(StillInUse, match='views "named" and "counted" read table "a"'):
        db.execute("DROP TABLE a")
    db.execute("INSERT INTO a (id, name) VALUES (1, 'x')")
    assert seen(db)[:2] == ([(1, "x")], [("x", 1)])
    db.execute("CREATE VIEW ids AS SELECT id FROM a")
    db.execute("ALTER TABLE a DROP COLUMN name CASCADE")
    assert sorted(view["name"] for view in db.views()) == ["ids"]
    assert rows(db, "SELECT * FROM ids") == [(1,)]
    db.execute("DROP TABLE a CASCADE")
    assert not db.views()


ASKED = """
CREATE TABLE k (id INT NOT NULL, n INT, name VARCHAR(9));
CREATE EXT VIEW of_name AS SELECT id, n FROM k WHERE name = ?;
CREATE EXT VIEW shown AS SELECT id, (SELECT name FROM k other WHERE other.id = k.n) AS other FROM k WHERE id = ?
"""


def refused(db: Embedded) -> tuple[bool, ...]:
    """Which of some writes the table's definition refuses; the rows stay what they are."""
    found = []
    for values in ("(1, 8, 'twice')", "(7, NULL, 'null')", "(7, -1, 'check')"):
        try:
            db.execute(f"INSERT INTO k VALUES {values}")
            found.append(False)
        except ConstraintViolation:
            found.append(True)
        db.execute("DELETE FROM k WHERE name IN ('twice', 'null', 'check')")
    return tuple(found)


def test_what_is_asked_of_rows_later_holds_in_a_back_up_as_of_after_it(
    db: Embedded, tmp_path: Path, shards: int
) -> None:
    db.execute(ASKED.rsplit(";", 1)[0])
    db.execute("INSERT INTO k VALUES (1, 1, 'a'), (1, 2, 'b'), (2, NULL, 'c'), (3, -3, 'd'), (9, 9, NULL)")
    db.send(calls.archive())
    states: list[tuple[str, Any, tuple[bool, ...]]] = []
    steps = (
        ("ALTER TABLE k ADD UNIQUE once (id)", r'unique key "id" has \(1\)', "DELETE FROM k WHERE name = 'b'"),
        ("ALTER TABLE k MODIFY n INT NOT NULL", '"n" is NULL in the row', "UPDATE k SET n = 4 WHERE id = 2"),
        ("ALTER TABLE k ADD CHECK (n > 0)", r"is false of \(3, -3, 'd'\)", "UPDATE k SET n = 3 WHERE id = 3"),
        ("ALTER TABLE k ADD PRIMARY KEY (id, name)", 'column "name" is NULL', "DELETE FROM k WHERE id = 9"),
    )
    for statement, why, mend in steps:
        states.append((moment(), rows(db, "SELECT * FROM k"), refused(db)))
        with pytest.raises(ConstraintViolation, match=why):
            db.execute(statement)
        assert refused(db) == states[-1][2]
        db.execute(mend)
        db.execute(statement)
        db.send(calls.archive())
    assert [found for _, _, found in states] == [(False,) * 3, (True, False, False), (True, True, False), (True,) * 3]
    assert [tuple(row.values()) for row in db.view("of_name").lookup(name="c")] == [(2, 4)]
    back_up_running(db, str(tmp_path / "backup"))
    states.append(("", rows(db, "SELECT * FROM k"), (True, True, True)))
    for number, (as_of, expected, found) in enumerate(states):
        restore(str(tmp_path / "backup"), tmp_path / f"restored{number}", as_of=as_of or None)
        for _ in range(2):
            with opened(tmp_path / f"restored{number}", shards, None) as again:
                assert (rows(again, "SELECT * FROM k"), refused(again)) == (expected, found), steps[:number]


def test_a_key_that_a_view_relies_on_stays_unless_the_view_goes_too(tmp_path: Path) -> None:
    with opened(tmp_path / "data", 1, None) as db:
        db.execute("CREATE TABLE k (id INT NOT NULL, n INT, name VARCHAR(9))")
        db.execute("INSERT INTO k VALUES (1, 2, 'a'), (2, 1, 'b')")
        db.execute("CREATE UNIQUE INDEX once ON k (id)")
        db.execute(ASKED.split(";")[2])
        assert [dict(row) for row in db.view("shown").lookup(id=1)] == [{"id": 1, "other": "b"}]
        db.execute("CREATE VIEW all_of_them AS SELECT id FROM k")
        with pytest.raises(StillInUse, match='view "shown" needs it: it would rely on a UNIQUE key that has gone'):
            db.execute("DROP INDEX once ON k")
        db.execute("ALTER TABLE k DROP INDEX once CASCADE")
        assert [view["name"] for view in db.views()] == ["all_of_them"]
        db.execute("INSERT INTO k VALUES (1, 1, 'c')")


RELATED = """
CREATE TABLE p (id INT NOT NULL PRIMARY KEY, n INT);
CREATE TABLE c (p INT NOT NULL, id INT NOT NULL, n INT, PRIMARY KEY (p, id),
  CONSTRAINT of_p FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE) SHARD BY (p);
CREATE TABLE g (p INT NOT NULL, c INT, n INT) SHARD BY (p);
CREATE EXT VIEW counted AS SELECT COUNT(*) AS n FROM g WHERE p = ?
"""
LATE = "ALTER TABLE g ADD CONSTRAINT of_c FOREIGN KEY (p, c) REFERENCES c (p, id) ON DELETE CASCADE"
OF_FAMILY = ("p", "c", "g")


def family(db: Embedded) -> dict[str, list[tuple[Any, ...]]]:
    return {table: rows(db, f"SELECT * FROM {table}") for table in OF_FAMILY}


def check_family(db: Embedded, key: int) -> None:
    """A row with its children and theirs comes and goes; nothing of it is left."""
    before = family(db)
    db.execute(f"INSERT INTO p VALUES ({key}, 0)")
    db.execute(f"INSERT INTO c VALUES ({key}, 1, 0), ({key}, 2, 0)")
    db.execute(f"INSERT INTO g VALUES ({key}, 1, 0), ({key}, 2, 0), ({key}, 2, 0)")
    assert [dict(row) for row in db.view("counted").lookup(p=key)] == [{"n": 3}]
    for write in (f"INSERT INTO c VALUES ({key + 1}, 1, 0)", f"INSERT INTO g VALUES ({key}, 3, 0)"):
        with pytest.raises(ConstraintViolation, match="names no row"):
            db.execute(write)
    db.execute(f"DELETE FROM p WHERE id = {key}")
    assert [dict(row) for row in db.view("counted").lookup(p=key)] == [{"n": 0}]
    assert family(db) == before


def test_cascades_are_replayed_as_what_they_were(db: Embedded, tmp_path: Path, shards: int) -> None:
    """What cascaded is in the log of each table: a replay neither cascades again nor loses a row."""
    db.execute(RELATED)
    for key in range(1, 9):
        db.execute(f"INSERT INTO p VALUES ({key}, {key})")
        db.execute(f"INSERT INTO c VALUES ({key}, 1, 0), ({key}, 2, 0)")
        db.execute(f"INSERT INTO g VALUES ({key}, 1, 0), ({key}, 2, 0), ({key}, 2, 0), ({key}, NULL, 5)")
    db.execute(LATE)
    check_family(db, 50)
    db.execute("DELETE FROM p WHERE id IN (1, 2)")
    db.execute("DELETE FROM c WHERE p = 3 AND id = 2")
    db.send(calls.archive())
    kept = family(db)
    then = moment()
    db.execute("DELETE FROM p WHERE id = 4")
    db.execute("INSERT INTO p VALUES (4, 44)")
    db.send(calls.archive())
    db.execute("DELETE FROM p WHERE id = 5")
    back_up_running(db, str(tmp_path / "backup"))
    now = family(db)
    assert (len(kept["g"]), len(now["g"])) == (24, 18), "rows that name none stay"
    for number, (as_of, expected) in enumerate(((then, kept), (None, now))):
        target = tmp_path / f"restored {number}"
        restore(str(tmp_path / "backup"), target, as_of=as_of)
        with opened(target, shards, None) as again:
            assert family(again) == expected
            check_family(again, 60)
    db.close()
    with opened(tmp_path / "data", shards, str(tmp_path / "archive")) as again:
        assert family(again) == now
        check_family(again, 70)


RETYPED = """
CREATE TABLE r (id INT NOT NULL PRIMARY KEY, n INT, name VARCHAR(9), KEY (n));
CREATE EXT VIEW named AS SELECT id, name FROM r WHERE name = ?;
CREATE VIEW counted AS SELECT name, COUNT(*) AS rows_of FROM r GROUP BY name;
CREATE TABLE bag (m INT, n VARCHAR(9))
"""
RETYPING = (
    ("ALTER TABLE bag MODIFY n DECIMAL(9,2)", "DELETE FROM bag WHERE n = 1.5 AND m = 1"),
    ("ALTER TABLE r MODIFY n VARCHAR(9) AFTER name", "UPDATE r SET n = '11' WHERE n = '10'"),
    ("ALTER TABLE r ADD COLUMN g VARCHAR(20) AS (CONCAT(name, n)) STORED, ADD KEY (g)", "DELETE FROM r WHERE id = 0"),
    ("ALTER TABLE r DROP KEY g, DROP COLUMN g, MODIFY n SMALLINT NULL DEFAULT 3", "DELETE FROM r WHERE n = 30"),
    ("ALTER TABLE r ADD COLUMN h INT AS (n * 2) FIRST, ADD KEY (h)", "INSERT INTO r (id, name) VALUES (7, 'x')"),
    (
        "ALTER TABLE bag ADD COLUMN k DECIMAL(12,2) AS (n * m), ADD UNIQUE once (m, k)",
        "UPDATE bag SET n = 9 WHERE m = 2",
    ),
    ("ALTER TABLE r ADD UNIQUE begins (id, name(1))", "UPDATE r SET name = 'xx' WHERE id = 2"),
)


def retyped(db: Embedded) -> tuple[Any, ...]:
    looked_up = [tuple(row.values()) for row in db.view("named").lookup(name="x")]
    tables = [rows(db, f"SELECT * FROM {table}") for table in ("r", "bag")]
    return sorted(looked_up), rows(db, "SELECT * FROM counted"), *tables


def test_computed_values_of_stored_rows_are_the_same_wherever_they_are_read(
    db: Embedded, tmp_path: Path, shards: int
) -> None:
    """Rows of before each ALTER, of after it, and of before it that go after it: out of the store, its log, segments of
    several schemas, and the store that is opened again. A row that was gone before need not have had a value."""
    db.execute(RETYPED)
    db.execute("INSERT INTO r VALUES (0, 0, 'gone'), (1, 10, 'x'), (2, NULL, 'x'), (3, 30, 'y')")
    db.execute("INSERT INTO bag VALUES (1, 'none'), (1, '1.5'), (1, '1.5'), (2, '2'), (2, '2.00'), (3, NULL)")
    db.send(calls.archive())
    with pytest.raises(ConstraintViolation, match=r"'none' does not fit type DECIMAL\(9,2\) of column \"n\""):
        db.execute(RETYPING[0][0])
    db.execute("DELETE FROM bag WHERE n = 'none'")
    states: list[tuple[str, tuple[Any, ...]]] = []
    for number, (statement, write) in enumerate(RETYPING):
        if number == 5:
            with pytest.raises(ConstraintViolation, match=r'unique key "m", "k" has \(2, .*4.00.* in 2 rows'):
                db.execute(statement)
            db.execute("UPDATE bag SET n = 3 WHERE m = 2")
            db.execute("DELETE FROM bag WHERE m = 2")
            db.execute("INSERT INTO bag VALUES (2, 2)")
        db.send(calls.archive())
        states.append((moment(), retyped(db)))
        db.execute(statement)
        assert retyped(db)[:2] == states[-1][1][:2], statement
        db.execute(write)
    looked_up, counted, of_r, bag = retyped(db)
    assert (looked_up, counted) == ([(1, "x"), (7, "x")], [("x", 2), ("xx", 1)])
    assert of_r == [(22, 1, "x", 11), (6, 7, "x", 3), (None, 2, "xx", None)]
    assert [(m, n and str(n), k and str(k)) for m, n, k in bag] == [(2, "9.00", "18.00"), (3, None, None)]
    for write in ("INSERT INTO bag (m, n) VALUES (2, 9)", "INSERT INTO r (id, name, n) VALUES (9, 'a', 40000)"):
        with pytest.raises(HeadraceError):
            db.execute(write)
    back_up_running(db, str(tmp_path / "backup"))
    states.append(("", retyped(db)))
    for number, (as_of, expected) in enumerate(states):
        restore(str(tmp_path / "backup"), tmp_path / f"restored{number}", as_of=as_of or None)
        for _ in range(2):
            with opened(tmp_path / f"restored{number}", shards, None) as again:
                assert retyped(again) == expected, RETYPING[:number]
    db.close()
    with opened(tmp_path / "data", shards, str(tmp_path / "archive")) as again:
        assert retyped(again) == states[-1][1]
        again.execute("UPDATE r SET n = n + 1 WHERE h = 22")
        assert rows(again, "SELECT id FROM r WHERE h = 24") == [(1,)]


NAMING = """
CREATE TABLE p (a INT NOT NULL PRIMARY KEY, up INT,
  CONSTRAINT above FOREIGN KEY (up) REFERENCES p (a)) SHARD BY (a) SHARDS 1;
CREATE TABLE c (id INT NOT NULL PRIMARY KEY, x INT,
  CONSTRAINT k FOREIGN KEY (x) REFERENCES p (a) ON UPDATE CASCADE ON DELETE CASCADE) SHARD BY (id) SHARDS 1;
CREATE EXT VIEW children AS SELECT id FROM c WHERE x = ?
"""


def check_names(db: Embedded, key: str, child: str) -> None:
    """The foreign keys hold, by the names that their columns have."""
    assert f"(`{child}`) REFERENCES `p` (`{key}`)" in db.execute("SHOW CREATE TABLE c").rows[0][1]
    assert f"(`up`) REFERENCES `p` (`{key}`)" in db.execute("SHOW CREATE TABLE p").rows[0][1]
    with pytest.raises(ConstraintViolation, match='foreign key "k"'):
        db.execute("INSERT INTO c VALUES (90, 77)")
    with pytest.raises(ConstraintViolation, match='foreign key "above"'):
        db.execute("INSERT INTO p VALUES (91, 77)")
    db.execute("INSERT INTO p VALUES (50, 1); INSERT INTO c VALUES (60, 50)")
    db.execute(f"UPDATE p SET {key} = 51 WHERE {key} = 50")
    assert [row["id"] for row in db.view("children").lookup(x=51)] == [60]
    db.execute(f"DELETE FROM p WHERE {key} = 51")
    assert db.view("children").lookup(x=51) == []


def test_columns_of_foreign_keys_are_renamed(db: Embedded, tmp_path: Path, shards: int) -> None:
    db.execute(NAMING)
    db.execute("INSERT INTO p VALUES (1, NULL), (2, 1); INSERT INTO c VALUES (10, 1), (11, 2)")
    check_names(db, "a", "x")
    db.send(calls.archive())
    then = moment()
    db.execute("ALTER TABLE p RENAME COLUMN a TO z; ALTER TABLE c CHANGE x y INT AFTER id")
    check_names(db, "z", "y")
    back_up_running(db, str(tmp_path / "backup"))
    for number, (as_of, names) in enumerate(((then, ("a", "x")), (None, ("z", "y")))):
        restore(str(tmp_path / "backup"), tmp_path / f"restored{number}", as_of=as_of)
        for _ in range(2):  # The second time out of its own store.
            with opened(tmp_path / f"restored{number}", shards, None) as again:
                assert rows(again, "SELECT * FROM c") == [(10, 1), (11, 2)]
                check_names(again, *names)
