"""Statements by MySQL's protocol: rows and their types, errors and their numbers, transactions, several at once."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT, FIELD_TYPE

from tests.mysql.conftest import MysqlServer
from tests.mysql.wire_client import WireClient

EVERY_TYPE = """
CREATE TABLE every (
  id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, tiny TINYINT, small SMALLINT UNSIGNED, middle MEDIUMINT, whole INT,
  flag BOOL, year YEAR, bits BIT(12), price DECIMAL(10,2), ratio DOUBLE, day DATE, at DATETIME, span TIME,
  name VARCHAR(20), code CHAR(3), note TEXT, raw VARBINARY(8), data BLOB, kind ENUM('a', 'bb'), tags SET('x', 'y'),
  doc JSON
)
"""
VALUES = (
    *(-5, 65535, -70000, 2_000_000_000, 1, 2026, 5, "12.50", 0.1, "2026-01-31", "2026-01-31 08:00:01.5", "-12:34:56"),
    *("Wäter", "abc", "a note", b"\x00\xff", b"data", "bb", "x,y", '{"a": 1}'),
)
INSERT = f"INSERT INTO every VALUES (NULL, {', '.join(['%s'] * len(VALUES))})"


def rows(db: Any, sql: str, *params: Any) -> tuple[Any, ...]:
    with db.cursor() as cursor:
        cursor.execute(sql, params or None)
        return tuple(cursor.fetchall())


def test_a_zero_that_asks_for_no_number_is_refused(db: Any) -> None:
    rows(db, "CREATE TABLE numbered (id INT PRIMARY KEY AUTO_INCREMENT, a INT)")
    rows(db, "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
    with pytest.raises(pymysql.MySQLError, match="NO_AUTO_VALUE_ON_ZERO"):
        rows(db, "INSERT INTO numbered VALUES (7, 1), (0, 2)")
    rows(db, "INSERT INTO numbered VALUES (7, 1)")
    rows(db, "SET sql_mode = DEFAULT")
    rows(db, "INSERT INTO numbered VALUES (0, 2)")
    assert rows(db, "SELECT id FROM numbered ORDER BY a") == ((7,), (8,))


def test_locks_of_tables_commit_what_is_open(db: Any) -> None:
    rows(db, "CREATE TABLE locked (id INT PRIMARY KEY)")
    rows(db, "BEGIN")
    rows(db, "INSERT INTO locked VALUES (1)")
    rows(db, "LOCK TABLES locked WRITE, locked AS other READ")
    rows(db, "ROLLBACK")
    rows(db, "/*!40000 ALTER TABLE `locked` DISABLE KEYS */")
    rows(db, "UNLOCK TABLES")
    assert rows(db, "SELECT id FROM locked") == ((1,),)


def test_rows_have_their_types(db: Any) -> None:
    rows(db, EVERY_TYPE)
    with db.cursor() as cursor:
        assert cursor.execute(INSERT, VALUES) == 1
        assert cursor.lastrowid == 1
        cursor.execute("SELECT * FROM every")
        (row,) = cursor.fetchall()
        types = [column[1] for column in cursor.description]
    assert row == (
        *(1, -5, 65535, -70000, 2_000_000_000, 1, 2026, b"\x00\x05", Decimal("12.50"), 0.1),
        *(date(2026, 1, 31), datetime(2026, 1, 31, 8, 0, 1, 500_000), -timedelta(hours=12, minutes=34, seconds=56)),
        *("Wäter", "abc", "a note", b"\x00\xff", b"data", "bb", "x,y", '{"a": 1}'),
    )
    of = FIELD_TYPE
    assert types == [
        *(of.LONGLONG, of.TINY, of.SHORT, of.INT24, of.LONG, of.TINY, of.YEAR, of.BIT, of.NEWDECIMAL, of.DOUBLE),
        *(of.DATE, of.DATETIME, of.TIME, of.VAR_STRING, of.STRING, of.BLOB, of.VAR_STRING, of.BLOB, of.STRING),
        *(of.STRING, of.JSON),
    ]
    rows(db, "INSERT INTO every (id) VALUES (18446744073709551615)")
    ((greatest, *nulls),) = rows(db, "SELECT * FROM every WHERE tiny IS NULL")
    assert greatest == 2**64 - 1
    assert set(nulls) == {None}


def test_doubles_are_written_as_mysql_does(open_server: MysqlServer) -> None:
    wire = WireClient.connected(open_server.port)
    (row,) = wire.rows(wire.command(b"\x03SELECT 1e0, 0.5e0, 1e20, 1.5e-7, -2e0, 100000e0"))
    assert row == b"\x011\x030.5\x041e20\x061.5e-7\x02-2\x06100000"
    wire.close()


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("SELECT 1 FROM", 1064),
        ("SELECT * FROM nothing", 1146),
        ("SELECT nothing FROM t", 1054),
        ("INSERT INTO t VALUES (1, 1, 'b')", 1062),
        ("INSERT INTO t VALUES (2, NULL, 'b')", 1048),
        ("INSERT INTO t (id) VALUES (2)", 1364),
        ("INSERT INTO t VALUES (2, -1, 'b')", 3819),
        ("INSERT INTO t VALUES (2, 1, 'too long')", 1406),
        ("INSERT INTO t VALUES (2, 99999999999, 'b')", 1264),
        ("INSERT INTO t VALUES (2, 'x', 'b')", 1366),
        ("INSERT INTO child VALUES (1, 7)", 1452),
        ("DELETE FROM t WHERE id = 1", 1451),
        ("CREATE TABLE t (id INT)", 1050),
        ("ROLLBACK TO nowhere", 1210),
        ("KILL 999999", 1094),
        ("", 1065),
        (";", 1065),
        ("SELECT 1; SELECT 2", 1064),
        ("GRANT SELECT ON t TO nobody", 1146),
    ],
)
def test_errors_have_their_numbers(db: Any, statement: str, number: int) -> None:
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, n INT NOT NULL CHECK (n > 0), name VARCHAR(3))")
    rows(db, "CREATE TABLE child (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id))")
    rows(db, "INSERT INTO t VALUES (1, 1, 'a')")
    rows(db, "INSERT INTO child VALUES (9, 1)")
    with pytest.raises(pymysql.MySQLError) as raised:
        rows(db, statement)
    assert raised.value.args[0] == number, raised.value
    assert rows(db, "SELECT 1") == ((1,),), "the connection goes on"


def test_a_transaction_is_all_or_nothing_and_sees_itself(db: Any, open_server: MysqlServer) -> None:
    rows(db, "CREATE TABLE stock (item INT PRIMARY KEY, n INT)")
    rows(db, "INSERT INTO stock VALUES (7, 1)")
    with open_server.connect(autocommit=False) as other:
        assert not other.get_autocommit()
        rows(other, "UPDATE stock SET n = 5 WHERE item = 7")
        assert rows(other, "SELECT n FROM stock") == ((5,),)
        assert rows(db, "SELECT n FROM stock") == ((1,),)
        rows(other, "SAVEPOINT here")
        rows(other, "UPDATE stock SET n = 6 WHERE item = 7")
        rows(other, "ROLLBACK TO here")
        other.commit()
        assert rows(db, "SELECT n FROM stock") == ((5,),)
        rows(other, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        rows(other, "UPDATE stock SET n = 9 WHERE item = 7")
        rows(db, "UPDATE stock SET n = 8 WHERE item = 7")
        with pytest.raises(pymysql.err.OperationalError) as raised:
            other.commit()
        assert raised.value.args[0] == 1213
        rows(other, "UPDATE stock SET n = 10 WHERE item = 7")
    assert rows(db, "SELECT n FROM stock") == ((8,),), "what is open goes with its connection"


def test_a_client_reads_what_it_wrote(db: Any) -> None:
    rows(db, "CREATE TABLE votes (id INT PRIMARY KEY, story INT)")
    rows(db, "CREATE EXT VIEW VotesOf AS SELECT COUNT(*) AS n FROM votes WHERE story = ?")
    for number in range(30):
        rows(db, "INSERT INTO votes VALUES (%s, 7)", number)
        assert rows(db, "SELECT COUNT(*) AS n FROM votes WHERE story = 7") == ((number + 1,),)


def test_several_statements_are_answered_one_by_one(db: Any, open_server: MysqlServer) -> None:
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY)")
    with open_server.connect(client_flag=CLIENT.MULTI_STATEMENTS) as many, many.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1); SELECT id FROM t; SELECT 'a;b'; INSERT INTO t VALUES (1); SELECT 3")
        assert cursor.rowcount == 1
        assert cursor.nextset()
        assert cursor.fetchall() == ((1,),)
        assert cursor.nextset()
        assert cursor.fetchall() == (("a;b",),)
        with pytest.raises(pymysql.err.IntegrityError):
            cursor.nextset()
    assert rows(db, "SELECT id FROM t") == ((1,),)


def test_an_update_counts_the_rows_that_it_is_about_where_the_client_wants_that(
    db: Any, open_server: MysqlServer
) -> None:
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    rows(db, "CREATE TABLE child (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON UPDATE CASCADE)")
    rows(db, "INSERT INTO t VALUES (1, 5), (2, 6), (3, 7)")
    with open_server.connect(client_flag=CLIENT.FOUND_ROWS) as other, other.cursor() as cursor, db.cursor() as plain:
        for statement, changed, matched in (
            ("UPDATE t SET n = 5 WHERE id < 3", 1, 2),
            ("UPDATE t SET n = 5 WHERE id < 3", 0, 2),
            ("UPDATE t SET n = 5 WHERE id > 9", 0, 0),
            ("UPDATE t JOIN t AS o ON o.id = t.id SET t.n = 5 WHERE o.id = 1", 0, 1),
            ("DELETE FROM t WHERE id = 3", 1, 1),
        ):
            rows(db, "REPLACE INTO t VALUES (1, 5), (2, 6), (3, 7)" if changed else "SELECT 1")
            assert plain.execute(statement) == changed, statement
            rows(db, "REPLACE INTO t VALUES (1, 5), (2, 6), (3, 7)" if changed else "SELECT 1")
            assert cursor.execute(statement) == matched, statement
        cursor.execute("BEGIN")
        assert cursor.execute("UPDATE t SET n = n WHERE id < 3") == 2, "in a transaction, too"


def test_what_is_asked_of_the_server_itself(db: Any, open_server: MysqlServer) -> None:
    db.ping(reconnect=False)
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(3))")
    wire = WireClient.connected(open_server.port)
    assert wire.command(b"\x02headrace")[0] == 0  # COM_INIT_DB
    assert wire.command(b"\x09").startswith(b"Uptime: ")  # COM_STATISTICS
    first, second, end = wire.command(b"\x04t\0"), wire.read(), wire.read()  # COM_FIELD_LIST
    assert b"\x02id" in first
    assert b"\x04name" in second
    assert end[0] == 0xFE
    wire.command(b"\x03BEGIN")
    assert wire.command(b"\x0e")[3] & 1, "a transaction is open"
    assert not wire.command(b"\x1f")[3] & 1, "COM_RESET_CONNECTION rolls back"
    assert int.from_bytes(wire.command(b"\x08")[1:3], "little") == 1047  # COM_SHUTDOWN
    assert int.from_bytes(wire.command(b"\x0c" + (10**6).to_bytes(4, "little"))[1:3], "little") == 1094
    assert wire.command(b"\x11root\0\0\0")[0] == 0  # COM_CHANGE_USER
    wire.close()


def test_a_session_tells_of_itself(db: Any, open_server: MysqlServer) -> None:
    rows(db, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT)")
    rows(db, "INSERT INTO t (n) VALUES (1), (2), (3)")
    assert rows(db, "SELECT LAST_INSERT_ID(), ROW_COUNT()") == ((1, 3),)
    assert rows(db, "SELECT LAST_INSERT_ID(), ROW_COUNT()") == ((1, -1),)
    rows(db, "SELECT * FROM t WHERE n < 3")
    assert rows(db, "SELECT FOUND_ROWS()") == ((2,),)
    rows(db, "UPDATE t SET n = 9 WHERE id = LAST_INSERT_ID()")
    assert rows(db, "SELECT n FROM t WHERE id = LAST_INSERT_ID()") == ((9,),)
    rows(db, "INSERT INTO t (n) VALUES (4)")
    assert rows(db, "SELECT n FROM t WHERE id = LAST_INSERT_ID()") == ((4,),), "no plan has another's value"
    assert rows(db, "SELECT VERSION(), CONNECTION_ID(), USER()") == (("8.0.36", db.thread_id(), "root@127.0.0.1"),)
    assert rows(db, "SELECT @@autocommit") == ((1,),)
    rows(db, "SET autocommit = 0")
    assert rows(db, "SELECT @@autocommit") == ((0,),)
    with open_server.connect() as other:
        assert rows(other, "SELECT @@autocommit, LAST_INSERT_ID()") == ((1, 0),)


def test_variables_are_set_and_asked(db: Any, open_server: MysqlServer) -> None:
    for statement in (
        "SET NAMES utf8mb4 COLLATE utf8mb4_0900_ai_ci",
        "set autocommit=1, sql_mode = concat(@@sql_mode,',STRICT_TRANS_TABLES')",
        "SET SESSION wait_timeout = 100, @a = 7, @b := @a",
        "SET @old = @@sql_mode, sql_mode = 'NO_ZERO_DATE', time_zone = '+00:00'",
        "SET foreign_key_checks = 0, unique_checks = OFF, @@session.sql_safe_updates = DEFAULT",
    ):
        rows(db, statement)
    assert rows(db, "SELECT @@wait_timeout, @a, @b, @never, @@sql_mode, @@foreign_key_checks") == (
        (100, 7, None, None, "NO_ZERO_DATE", 0),
    )
    assert rows(db, "SELECT @old LIKE '%STRICT_TRANS_TABLES,STRICT_TRANS_TABLES'") == ((0,),)
    rows(db, "SET sql_mode = @old")
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY)")
    rows(db, "INSERT INTO t VALUES (@a)")
    assert rows(db, "SELECT id FROM t WHERE id = @a") == ((7,),)
    rows(db, "SET @a = 8")
    assert rows(db, "SELECT id FROM t WHERE id = @a") == ()
    with open_server.connect() as other:
        assert rows(other, "SELECT @a, @@wait_timeout") == ((None, 28800),)
    rows(db, "SET autocommit = 0, @x = 1")
    assert not db.get_autocommit()
    rows(db, "DELETE FROM t")
    db.rollback()
    assert rows(db, "SELECT id FROM t") == ((7,),)


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("SET nothing = 1", 1193),
        ("SELECT @@nothing", 1193),
        ("SET version = '9'", 1238),
        ("SET sql_mode = 'ANSI_QUOTES'", 1231),
        ("SET @a = 'PIPES_AS_CONCAT', sql_mode = @a", 1231),
        ("SET time_zone = 'Europe/Berlin'", 1231),
        ("SET sql_select_limit = 5", 1231),
        ("SET wait_timeout = 'long'", 1231),
        ("SET autocommit = 7", 1231),
        ("SET GLOBAL wait_timeout = 5", 1231),
        ("SET NAMES gbk", 1115),
        ("SET character_set_client = big5", 1115),
    ],
)
def test_what_is_not_implemented_is_refused_and_sets_nothing(db: Any, statement: str, number: int) -> None:
    with pytest.raises(pymysql.MySQLError) as raised:
        rows(db, statement)
    assert raised.value.args[0] == number, raised.value
    assert rows(db, "SELECT @a, @@autocommit, @@time_zone") == ((None, 1, "SYSTEM"),)


def test_a_long_answer_is_read_whole(db: Any) -> None:
    rows(db, "CREATE TABLE numbers (id INT PRIMARY KEY, text TEXT)")
    with db.cursor() as cursor:
        cursor.executemany("INSERT INTO numbers VALUES (%s, %s)", [(each, "x" * 200) for each in range(4_000)])
    assert [row[0] for row in rows(db, "SELECT id, text FROM numbers ORDER BY id")] == list(range(4_000))


def test_a_packet_of_more_than_16_mb_goes_both_ways(db: Any, open_server: MysqlServer) -> None:
    rows(db, "CREATE TABLE large (id INT PRIMARY KEY, data LONGBLOB)")
    data = bytes(range(256)) * 70_000
    with open_server.connect(max_allowed_packet=64_000_000) as other:
        wire = WireClient.connected(open_server.port)
        number, _ = wire.prepare("INSERT INTO large VALUES (1, ?)")
        wire.long_data(number, 0, data)
        assert wire.execute(number, [(0xFC, None)])[0] == 0
        wire.close()
        assert rows(other, "SELECT data FROM large") == ((data,),)


def test_texts_are_in_the_charset_of_the_connection(db: Any, open_server: MysqlServer) -> None:
    rows(db, "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20))")
    wire = WireClient.connected(open_server.port, collation=8)
    assert wire.command(b"\x03INSERT INTO t VALUES (1, 'W\xe4ter \x80')")[0] == 0
    assert rows(db, "SELECT name FROM t") == (("Wäter €",),)
    rows(db, "UPDATE t SET name = 'Wäter 水'")
    assert wire.command(b"\x03SELECT name FROM t") == b"\x01"
    assert [wire.read() for _ in range(4)][2] == b"\x07W\xe4ter ?"
    assert wire.command(b"\x03SET NAMES utf8mb4")[0] == 0
    assert wire.rows(wire.command(b"\x03SELECT name FROM t")) == [b"\x0aW\xc3\xa4ter \xe6\xb0\xb4"]
    assert wire.command(b"\x03SET character_set_results = latin1")[0] == 0
    assert wire.rows(wire.command("\x03SELECT '\xe4'".encode())) == [b"\x01\xe4"]
    wire.close()
    assert WireClient(open_server.port, collation=28).error == 1115  # gbk
