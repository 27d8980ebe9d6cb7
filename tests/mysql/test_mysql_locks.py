"""Isolation levels and locks as an application of MySQL meets them: nothing is done again, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any

import pytest

from tests.mysql.conftest import MysqlServer

pymysql = pytest.importorskip("pymysql")

CLIENTS = 32
LEVELS = pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED"])


def rows(connection: Any, sql: str) -> tuple[tuple[Any, ...], ...]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        found: tuple[tuple[Any, ...], ...] = cursor.fetchall()
        return found


def refused(connection: Any, sql: str) -> int:
    with pytest.raises(pymysql.MySQLError) as raised:
        rows(connection, sql)
    return int(raised.value.args[0])


@pytest.fixture
def table(open_server: MysqlServer) -> MysqlServer:
    with open_server.connect() as db:
        rows(db, "DROP TABLE IF EXISTS c")
        rows(db, "CREATE TABLE c (id INT PRIMARY KEY, n INT NOT NULL)")
        rows(db, "INSERT INTO c VALUES (1, 0), (2, 0), (3, 0)")
    return open_server


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(CLIENTS) as pool:
        yield pool


def still_waits(future: Future[Any]) -> bool:
    sleep(0.1)
    return not future.done()


def in_time(future: Future[Any], seconds: float) -> Any:
    return future.result(seconds)


@LEVELS
def test_each_of_many_clients_adds_its_one(table: MysqlServer, pool: ThreadPoolExecutor, level: str) -> None:
    """No client does anything again."""

    def add(number: int) -> None:
        with table.connect() as db:
            rows(db, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            for _ in range(5):
                if number % 8 == 0:
                    rows(db, "UPDATE c SET n = n + 1 WHERE id = 1")
                    continue
                rows(db, "BEGIN")
                rows(db, "UPDATE c SET n = n + 1 WHERE id = 1")
                rows(db, "COMMIT")

    list(pool.map(add, range(CLIENTS)))
    with table.connect() as db:
        assert rows(db, "SELECT n FROM c WHERE id = 1") == ((5 * CLIENTS,),)


@LEVELS
def test_of_a_deadlock_one_ends(table: MysqlServer, pool: ThreadPoolExecutor, level: str) -> None:
    with table.connect() as one, table.connect() as other:
        for each in (one, other):
            rows(each, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            rows(each, "BEGIN")
        rows(one, "UPDATE c SET n = n + 1 WHERE id = 1")
        rows(other, "UPDATE c SET n = n + 1 WHERE id = 2")
        waiting = pool.submit(rows, one, "UPDATE c SET n = n + 1 WHERE id = 2")
        assert still_waits(waiting)
        assert refused(other, "UPDATE c SET n = n + 1 WHERE id = 1") == 1213
        in_time(waiting, 10)
        rows(one, "COMMIT")
        rows(other, "COMMIT")  # Of nothing.
        assert rows(other, "SELECT n FROM c ORDER BY id") == ((1,), (1,), (0,))


def test_a_wait_ends_in_time(table: MysqlServer) -> None:
    with table.connect() as one, table.connect() as other, table.connect() as plain:
        rows(one, "BEGIN")
        rows(one, "UPDATE c SET n = n + 1 WHERE id = 1")
        for each in (other, plain):
            rows(each, "SET innodb_lock_wait_timeout = 1")
        rows(other, "BEGIN")
        rows(other, "UPDATE c SET n = n + 1 WHERE id = 2")
        began = monotonic()
        assert refused(other, "SELECT n FROM c WHERE id = 1 FOR UPDATE") == 1205
        assert 0.9 < monotonic() - began < 10
        assert refused(other, "SELECT n FROM c WHERE id = 1 FOR UPDATE NOWAIT") == 3572
        assert rows(other, "SELECT id FROM c ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED") == ((2,),)
        assert refused(plain, "UPDATE c SET n = n + 1 WHERE id = 1") == 1205
        assert refused(plain, "DELETE FROM c") == 1205
        rows(one, "ROLLBACK")
        rows(other, "UPDATE c SET n = n + 1 WHERE id = 1")
        rows(other, "COMMIT")
        assert rows(plain, "SELECT n FROM c ORDER BY id") == ((1,), (1,), (0,))


def test_a_client_that_has_gone_holds_nothing(table: MysqlServer, pool: ThreadPoolExecutor) -> None:
    """Also one that goes while it waits."""
    with table.connect() as other:
        holder, waiter = table.connect(), table.connect()
        for each in (holder, waiter):
            rows(each, "BEGIN")
        rows(holder, "UPDATE c SET n = n + 1 WHERE id = 1")
        rows(waiter, "UPDATE c SET n = n + 1 WHERE id = 2")
        gone = pool.submit(rows, waiter, "UPDATE c SET n = n + 10 WHERE id = 1")
        assert still_waits(gone)
        last = pool.submit(rows, other, "UPDATE c SET n = n + 100")
        assert still_waits(last)
        for each in (waiter, holder):
            each._sock.shutdown(2)
        began = monotonic()
        in_time(last, 10)
        assert monotonic() - began < 1
        assert isinstance(gone.exception(10), pymysql.MySQLError)
        assert rows(other, "SELECT n FROM c ORDER BY id") == ((100,), (100,), (100,))


def test_reads_and_what_they_are_of(table: MysqlServer) -> None:
    with table.connect() as one, table.connect() as other:
        rows(one, "BEGIN")
        assert rows(one, "SELECT n FROM c WHERE id = 1") == ((0,),)
        rows(other, "UPDATE c SET n = n + 1")
        assert rows(one, "SELECT n FROM c WHERE id = 1") == ((0,),)
        rows(one, "UPDATE c SET n = n + 1 WHERE id = 1")
        assert rows(one, "SELECT n FROM c ORDER BY id") == ((2,), (0,), (0,))
        rows(one, "COMMIT")
        rows(one, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        rows(other, "UPDATE c SET n = n + 1")
        assert rows(one, "SELECT n FROM c ORDER BY id") == ((2,), (1,), (1,))
        rows(one, "COMMIT")
        rows(one, "START TRANSACTION READ ONLY")
        assert refused(one, "DELETE FROM c") == 1792
        assert rows(one, "SELECT n FROM c ORDER BY id") == ((3,), (2,), (2,))
        rows(one, "COMMIT")
        rows(one, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED")  # Of the next one alone.
        for before, after in ((3, 4), (4, 4)):
            rows(one, "BEGIN")
            assert rows(one, "SELECT n FROM c WHERE id = 1") == ((before,),)
            rows(other, "UPDATE c SET n = n + 1 WHERE id = 1")
            assert rows(one, "SELECT n FROM c WHERE id = 1") == ((after,),)
            rows(one, "COMMIT")


def test_levels_are_variables(table: MysqlServer) -> None:
    shown = "SELECT @@transaction_isolation, @@session.tx_isolation, @@innodb_lock_wait_timeout"

    def levels(db: Any) -> tuple[Any, ...]:
        return rows(db, shown)[0]

    with table.connect() as db:
        assert levels(db) == ("REPEATABLE-READ", "REPEATABLE-READ", 50)
        for sql, level in (
            ("SET transaction_isolation = 'READ-COMMITTED'", "READ-COMMITTED"),
            ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SERIALIZABLE"),
            ("SET @@session.tx_isolation = 'repeatable-read', innodb_lock_wait_timeout = 7", "REPEATABLE-READ"),
            ("SET SESSION transaction_isolation = 'READ-UNCOMMITTED'", "READ-COMMITTED"),
        ):
            rows(db, sql)
            assert levels(db)[:2] == (level, level)
        assert levels(db)[2] == 7
        assert refused(db, "SET transaction_isolation = 'CHAOS'") == 1231
        rows(db, "BEGIN")
        assert refused(db, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE") == 1568
        rows(db, "COMMIT")
        rows(db, "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED")
        with table.connect() as other:
            assert levels(other)[0] == "READ-COMMITTED"
        rows(db, "SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ")
