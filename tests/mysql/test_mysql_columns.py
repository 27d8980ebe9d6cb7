"""The definitions of columns, byte by byte as MariaDB sends them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from loadgen.bench import servers
from tests.mysql.conftest import MysqlServer
from tests.mysql.test_mysql_statements import rows
from tests.mysql.wire_client import WireClient

TABLES = (
    """CREATE TABLE a (
        id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, n INT NOT NULL, u INT UNIQUE, m INT DEFAULT 3,
        word VARCHAR(20) NOT NULL DEFAULT 'x', kind ENUM('a', 'bcd') NOT NULL, some SET('q', 'rr'), code CHAR(4),
        at DATETIME, day DATE, clock TIME, stamp TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
        since TIMESTAMP NOT NULL DEFAULT '2026-01-31 08:00:00', made DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
        changed DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, never TIMESTAMP NULL,
        yes TINYINT(1), tiny TINYINT UNSIGNED, small SMALLINT, medium MEDIUMINT, big BIGINT UNSIGNED NOT NULL,
        price DECIMAL(8,2), whole DECIMAL, wide DECIMAL(65,30) UNSIGNED, half FLOAT, double_ DOUBLE NOT NULL,
        year_ YEAR, bits BIT(4), few VARBINARY(7), three BINARY(3),
        t1 TINYTEXT, t2 TEXT, t3 MEDIUMTEXT, t4 LONGTEXT, b1 TINYBLOB, b2 BLOB NOT NULL, b3 MEDIUMBLOB, b4 LONGBLOB,
        KEY (m, n), KEY (word))""",
    "CREATE TABLE b (x INT NOT NULL, y INT NOT NULL, z INT, PRIMARY KEY (x, y), UNIQUE KEY (z, y))",
    "CREATE TABLE c (p INT, q INT NOT NULL, UNIQUE (q))",
    "CREATE VIEW plain AS SELECT id, n AS nn FROM a",
    "CREATE VIEW grouped AS SELECT n, COUNT(*) AS c FROM a GROUP BY n",
)
QUERIES = (
    "SELECT * FROM a",
    "SELECT * FROM b",
    "SELECT * FROM c",
    "SELECT id, n AS k, Id FROM a AS t",
    "SELECT t.*, b.x FROM b JOIN c t ON t.q = b.x",
    "SELECT a.id, b1.x, b2.x, b1.y AS why FROM a JOIN b b1 ON b1.x = a.id JOIN b b2 ON b2.x = a.id",
    "SELECT a.id, b.x, b.z FROM a LEFT JOIN b ON b.x = a.id",
    "SELECT a.id, b.x FROM b RIGHT JOIN a ON b.x = a.id",
    "SELECT x, b1.x, b2.x FROM b b1 JOIN b b2 USING (x)",
    "SELECT * FROM b b1 LEFT JOIN b b2 USING (x)",
    "SELECT x FROM b b1 RIGHT JOIN b b2 USING (x)",
    "SELECT * FROM b NATURAL JOIN (SELECT x FROM b) AS d",
    "SELECT b.x, c.q FROM a, b LEFT JOIN c ON c.q = b.x",
    "SELECT b.x, c.q, a.id FROM a JOIN (b LEFT JOIN c ON c.q = b.x) ON a.id = b.x",
    "SELECT d.k FROM (SELECT id AS k FROM a) AS d",
    "SELECT d.id FROM (SELECT id FROM a LIMIT 3) AS d",
    "SELECT d.k FROM (SELECT n AS k, COUNT(*) AS c FROM a GROUP BY n) AS d",
    "SELECT d.nn, e.q FROM plain AS d LEFT JOIN (SELECT q FROM c) AS e ON e.q = d.id",
    "SELECT id, nn AS i FROM plain",
    "SELECT v.nn, b.z FROM b LEFT JOIN plain AS v ON v.id = b.x",
    "SELECT n FROM grouped",
    "WITH w AS (SELECT id, n FROM a) SELECT id, n AS q FROM w",
    "WITH w (i) AS (SELECT id FROM a), v AS (SELECT i FROM w) SELECT i FROM v",
    "SELECT big FROM a GROUP BY big",
    "SELECT n FROM a ORDER BY word LIMIT 2",
    "SELECT n, word FROM a HAVING n > 1",
    "SELECT s.id, s.word FROM shop.a AS s",
)
DIFFERENT = {
    "SELECT f FROM d": "the digits of a fraction are those that a value has, where MySQL has those of the declaration",
    "SELECT j FROM d": "JSON is MySQL's type of that name, where MariaDB has a LONGTEXT",
    "SELECT s FROM d": "a text that is compared by code point is not said to be BINARY, or drivers would give bytes",
}


def definitions(db: Any, sql: str) -> list[bytes]:
    with db.cursor() as cursor:
        cursor.execute(sql)
        return [field._data for field in cursor._result.fields]


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if servers.missing("mariadb"):
        pytest.skip("MariaDB is not installed")
    with servers.mariadb(tmp_path_factory.mktemp("mariadb"), durable=False) as url:
        port = int(url.rstrip("/").rsplit(":", 1)[1])
        with pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True) as db:
            yield db


@pytest.fixture
def both(db: Any, mariadb: Any) -> Iterator[tuple[Any, Any]]:
    """Connections to Headrace and to MariaDB, with the same tables."""
    for connection in (db, mariadb):
        rows(connection, "CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
        rows(connection, "USE shop")
        for definition in TABLES:
            rows(connection, definition)
    yield db, mariadb
    for connection in (db, mariadb):
        rows(connection, "DROP DATABASE shop")


def test_definitions_are_mariadbs_in_text_and_binary(both: tuple[Any, Any], open_server: MysqlServer) -> None:
    ours, theirs = both
    wire = WireClient.connected(open_server.port)
    wire.command(b"\x02shop")
    for sql in QUERIES:
        found, wanted = definitions(ours, sql), definitions(theirs, sql)
        assert found == wanted, sql
        number, _, prepared = wire.prepared(sql)
        assert prepared == wanted, sql
        first = wire.execute(number)
        assert [wire.read() for _ in range(first[0])] == wanted, sql
        wire.read()
        wire.left()
        wire.send(b"\x19" + struct.pack("<I", number))
    wire.close()


def test_what_differs_of_definitions_is_named(both: tuple[Any, Any]) -> None:
    """Each is in docs/mysql.md."""
    for connection in both:
        words = "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        rows(connection, f"CREATE TABLE d (f DATETIME(3), j JSON, s {words})")
    ours, theirs = both
    for sql in DIFFERENT:
        assert definitions(ours, sql) != definitions(theirs, sql), sql


def test_definitions_follow_the_keys(db: Any) -> None:
    rows(db, "CREATE TABLE t (a INT, b INT)")

    def flags() -> list[int]:
        with db.cursor() as cursor:
            cursor.execute("SELECT a, b FROM t")
            return [field.flags for field in cursor._result.fields]

    assert flags() == [0, 0]
    rows(db, "CREATE UNIQUE INDEX one ON t (a)")
    rows(db, "ALTER TABLE t MODIFY b INT NOT NULL")
    assert flags() == [4 | 16384, 1 | 4096]
    rows(db, "CREATE EXT VIEW v AS SELECT a, b FROM t WHERE b = ?")
    with db.cursor() as cursor:
        for alias in ("t", "u", "u"):  # A view answers them, at once from the second asking on.
            cursor.execute(f"SELECT {alias}.a, {alias}.b FROM t AS {alias} WHERE b = 3")
            assert [field.table_name for field in cursor._result.fields] == [alias, alias]
            assert [field.flags for field in cursor._result.fields] == [4 | 16384, 1 | 4096]


def test_two_columns_of_an_answer_have_one_name(db: Any) -> None:
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    rows(db, "INSERT INTO t VALUES (1, 2)")
    with db.cursor() as cursor:
        cursor.execute(
            "SELECT a.id, b.id, a.n + 1, COUNT(*) FROM t AS a JOIN t AS b USING (id) GROUP BY a.id, b.id, a.n"
        )
        assert [each[0] for each in cursor.description] == ["id", "id", "a.n + 1", "COUNT(*)"]
