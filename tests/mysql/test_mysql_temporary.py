"""Temporary tables: of one connection alone, before a table of the same name, and gone with the connection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pymysql
import pytest

from tests.mysql.conftest import MysqlServer, started, stopped
from tests.mysql.test_mysql_databases import refused
from tests.mysql.test_mysql_statements import rows
from tests.mysql.wire_client import WireClient

COM_RESET_CONNECTION = 0x1F


def stored(server: MysqlServer) -> set[str]:
    """The temporary tables that are there, by the names of their storage."""
    return {name for name in httpx.get(f"{server.url}/v1/status").json()["tables"] if name.startswith("#")}


def until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 60
    while not condition():
        assert monotonic() < deadline
        sleep(0.02)


def reset(db: Any) -> None:
    db._execute_command(COM_RESET_CONNECTION, b"")
    db._read_ok_packet()


def test_it_hides_a_table_of_the_same_name_from_its_own_connection(open_server: MysqlServer, db: Any) -> None:
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(9))")
    rows(db, "INSERT INTO t VALUES (1, 'base')")
    rows(db, "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, word VARCHAR(9), KEY k (word))")
    rows(db, "INSERT INTO t VALUES (2, 'own')")
    for sql in (
        "SELECT t.word FROM t",
        "SELECT word FROM headrace.t",
        "SELECT a.word FROM t AS a JOIN t AS b USING (id)",
    ):
        assert rows(db, sql) == (("own",),)
    assert rows(db, "SELECT word FROM t WHERE id = %s", 2) == (("own",),)
    rows(db, "UPDATE t SET word = 'new' WHERE t.id = 2")
    rows(db, "INSERT INTO t SELECT id + 1, word FROM t")
    assert rows(db, "SELECT * FROM t ORDER BY id") == ((2, "new"), (3, "new"))
    rows(db, "DELETE t FROM t WHERE id = 3")
    with open_server.connect() as other:
        assert rows(other, "SELECT * FROM t") == ((1, "base"),)
    assert rows(db, "SHOW TABLES") == (("t",),)
    assert "CREATE TEMPORARY TABLE `t` (" in rows(db, "SHOW CREATE TABLE t")[0][1]
    assert [row[0] for row in rows(db, "DESCRIBE t")] == ["id", "word"]
    assert [row[2] for row in rows(db, "SHOW INDEX FROM t FROM headrace")] == ["PRIMARY", "k"]
    rows(db, "ALTER TABLE t ADD COLUMN n INT")
    assert len(rows(db, "SHOW COLUMNS FROM t")) == 3
    assert rows(db, "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_NAME = 't'") == ((2,),)
    assert rows(db, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA LIKE '#%'") == ((0,),)
    rows(db, "DROP TABLE t")
    assert rows(db, "SELECT * FROM t") == ((1, "base"),)
    assert refused(db, "DROP TEMPORARY TABLE t") == 1051
    rows(db, "DROP TEMPORARY TABLE IF EXISTS t")
    assert rows(db, "SELECT * FROM t") == ((1, "base"),)


def test_it_is_made_of_others(db: Any) -> None:
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(9))")
    rows(db, "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    rows(db, "CREATE TEMPORARY TABLE u AS SELECT word FROM t WHERE id = 2")
    rows(db, "CREATE TEMPORARY TABLE v LIKE t")
    rows(db, "CREATE TEMPORARY TABLE IF NOT EXISTS v (n INT)")
    rows(db, "INSERT INTO v SELECT 7, word FROM u")
    assert rows(db, "SELECT v.id, u.word FROM v JOIN u ON v.word = u.word") == ((7, "two"),)
    rows(db, "CREATE TABLE kept AS SELECT * FROM v")
    assert rows(db, "SELECT * FROM kept") == ((7, "two"),)
    rows(db, "ALTER TABLE v RENAME TO w")
    assert rows(db, "SELECT id FROM w") == ((7,),)
    for sql, number in (
        ("SELECT * FROM v", 1146),
        ("CREATE TEMPORARY TABLE w (a INT)", 1050),
        ("CREATE VIEW x AS SELECT * FROM w", 1352),
        ("CREATE TEMPORARY TABLE x (a INT, FOREIGN KEY (a) REFERENCES t (id))", 1235),
        ("INSERT INTO w VALUES (7, 'again')", 1062),
    ):
        with pytest.raises(pymysql.MySQLError) as caught:
            rows(db, sql)
        assert caught.value.args[0] == number, caught.value
        assert "#" not in caught.value.args[1]


def test_it_commits_nothing(open_server: MysqlServer, db: Any) -> None:
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY)")
    rows(db, "BEGIN")
    rows(db, "INSERT INTO t VALUES (1)")
    rows(db, "CREATE TEMPORARY TABLE u (id INT)")
    rows(db, "INSERT INTO u SELECT id FROM t")
    rows(db, "CREATE TEMPORARY TABLE v (id INT)")
    rows(db, "DROP TEMPORARY TABLE v")
    assert rows(db, "SELECT * FROM u") == ((1,),)
    with open_server.connect() as other:
        assert rows(other, "SELECT * FROM t") == ()
    rows(db, "ROLLBACK")
    assert rows(db, "SELECT * FROM t") == rows(db, "SELECT * FROM u") == ()


@pytest.mark.parametrize("end", ["close", "reset", "change user", "kill"])
def test_it_goes_with_its_connection(open_server: MysqlServer, end: str) -> None:
    until(lambda: not stored(open_server))
    with open_server.connect() as watching:
        db = open_server.connect()
        rows(db, "CREATE TEMPORARY TABLE t_of_mine (id INT)")
        assert stored(open_server) == {"#1.t_of_mine"}
        if end == "close":
            db.close()
        elif end == "kill":
            rows(watching, f"KILL {db.thread_id()}")
        elif end == "reset":
            reset(db)
            assert refused(db, "SELECT * FROM t_of_mine") == 1146
        else:
            wire = WireClient.connected(open_server.port)
            db.close()
            until(lambda: not stored(open_server))
            assert wire.command(b"\x03CREATE TEMPORARY TABLE t_of_mine (id INT)")[0] == 0
            assert wire.command(b"\x11root\0\0\0")[0] == 0
            assert int.from_bytes(wire.command(b"\x03SELECT * FROM t_of_mine")[1:3], "little") == 1146
            until(lambda: not stored(open_server))
            wire.close()
        until(lambda: not stored(open_server))


def test_a_connection_that_has_none_can_be_refused_one_by_a_limit(tmp_path: Path) -> None:
    server = started(tmp_path, "--max-temporary-tables", "1")
    try:
        with server.connect() as db, server.connect() as other:
            rows(db, "CREATE TEMPORARY TABLE t (id INT)")
            for sql in ("CREATE TEMPORARY TABLE u (id INT)", "CREATE TEMPORARY TABLE u AS SELECT 1 AS a"):
                with pytest.raises(pymysql.MySQLError, match="max_temporary_tables"):
                    rows(other, sql)
            rows(db, "DROP TEMPORARY TABLE t")
            rows(other, "CREATE TEMPORARY TABLE u (id INT)")
    finally:
        stopped(server)


def test_what_a_crash_leaves_goes_at_the_next_start(tmp_path: Path) -> None:
    server = started(tmp_path)
    with server.connect() as db:
        rows(db, "CREATE TABLE t (id INT)")
        rows(db, "CREATE TEMPORARY TABLE t (id INT)")
        assert stored(server) == {"#1.t"}
        server.process.popen.kill()
        server.process.popen.wait()
    server.process.kill()
    server = started(tmp_path)
    try:
        assert stored(server) == set()
        with server.connect() as db:
            assert rows(db, "SHOW TABLES") == (("t",),)
    finally:
        stopped(server)


def test_over_http_it_is_of_a_session(open_server: MysqlServer, db: Any) -> None:
    def asked(sql: str, session: str = "") -> httpx.Response:
        headers = {"Headrace-Session": session} if session else {}
        return httpx.post(f"{open_server.url}/v1/sql", json={"sql": sql}, headers=headers)

    assert asked("CREATE TEMPORARY TABLE mine (id INT)").status_code == 422
    assert asked("CREATE TEMPORARY TABLE mine (id INT); INSERT INTO mine VALUES (3)", "one").status_code == 200
    assert asked("SELECT id FROM mine", "one").json()["results"][0]["rows"] == [[3]]
    for session in ("", "two"):
        assert asked("SELECT id FROM mine", session).status_code in (400, 404)
    assert asked("DROP TABLE mine", "one").status_code == 200


def test_over_http_it_goes_when_its_session_is_silent_for_too_long(tmp_path: Path) -> None:
    server = started(tmp_path, "--transaction-idle", "0.3")
    try:
        asked = {"sql": "CREATE TEMPORARY TABLE mine (id INT); INSERT INTO mine VALUES (1); SELECT id FROM mine"}
        answer = httpx.post(f"{server.url}/v1/sql", json=asked, headers={"Headrace-Session": "one"}).json()
        assert answer["results"][-1]["rows"] == [[1]]
        until(lambda: not stored(server))
    finally:
        stopped(server)


def test_who_makes_one_needs_the_right_to_create_a_table_of_its_name(closed_server: MysqlServer) -> None:
    with closed_server.secured("ann", "a long one") as administrator:
        rows(administrator, "CREATE DATABASE scratch")
        rows(administrator, "GRANT CREATE ON scratch.* TO sha")
        with closed_server.connect("sha", "of sha") as db:
            assert refused(db, "CREATE TEMPORARY TABLE mine (id INT)") == 1142
            rows(db, "USE scratch")
            assert refused(db, "CREATE TEMPORARY TABLE mine AS SELECT * FROM headrace.secrets") == 1142
            rows(db, "CREATE TEMPORARY TABLE mine AS SELECT id, title FROM headrace.stories")
            assert rows(db, "SELECT * FROM mine") == ()  # Its policy lets nothing through.
            rows(db, "INSERT INTO mine VALUES (5, 'five')")
            assert rows(db, "SELECT title FROM scratch.mine") == (("five",),)
            rows(db, "DROP TEMPORARY TABLE mine")
        rows(administrator, "REVOKE CREATE ON scratch.* FROM sha")
        rows(administrator, "DROP DATABASE scratch")
