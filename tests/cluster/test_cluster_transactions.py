"""Transactions over shards on several workers: all or none, also where a worker is killed in the middle of commits; and
below SERIALIZABLE, with locks, as MySQL's clients have them."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest
from running_cluster import DEADLINE, Launch

from headrace import connect
from headrace.errors import (
    Conflict,
    ConstraintViolation,
    HeadraceError,
    OutcomeUnknown,
    SnapshotGone,
    TransactionEnded,
)

SCHEMA = """
CREATE TABLE acc (id INT PRIMARY KEY, n INT NOT NULL);
CREATE EXT VIEW one AS SELECT n FROM acc WHERE id = ?;
CREATE EXT VIEW total AS SELECT SUM(n) AS s FROM acc
"""
ACCOUNTS = 8


def test_all_or_none_on_several_workers(launch: Launch) -> None:
    running = launch("--workers", "2", "--controllers", "1", "--shards", "4").serves()
    with connect(running.url, read_your_writes=True) as db, connect(running.url) as other:
        db.execute_all(SCHEMA)
        db.table("acc").insert([{"id": id, "n": 100} for id in range(ACCOUNTS)])
        with db.transaction() as t:
            t.execute("UPDATE acc SET n = n - 10 WHERE id = 1")
            t.execute("UPDATE acc SET n = n + 10 WHERE id = 2")
            assert t.view("total").lookup() == [{"s": 100 * ACCOUNTS}]
            assert t.view("one").lookup_many([[1], [2]]) == [[{"n": 90}], [{"n": 110}]]
            assert other.view("one").lookup_many([[1], [2]]) == [[{"n": 100}], [{"n": 100}]]
            done = t.commit()
        assert done.rows_affected == 2
        assert other.view("one").lookup_many([[1], [2]], token=done.token) == [[{"n": 90}], [{"n": 110}]]
        assert other.view("total").lookup(token=done.token) == [{"s": 100 * ACCOUNTS}]

        with pytest.raises(ConstraintViolation):
            db.execute("UPDATE acc SET n = 0 WHERE id = 3; INSERT INTO acc VALUES (4, 0)", atomic=True)
        assert db.view("one").lookup(id=3) == [{"n": 100}]

        def late() -> None:
            with db.transaction() as t:
                ((n,),) = t.execute("SELECT n FROM acc WHERE id = 5").rows
                other.execute("UPDATE acc SET n = n + 1 WHERE id = 5")
                t.execute("UPDATE acc SET n = ? WHERE id = 6", [n + 1])

        with pytest.raises(Conflict, match="acc"):
            late()
        assert db.view("one").lookup(id=6) == [{"n": 100}]
        (one, (total,)) = db.lookups([("one", [[5], [6]]), ("total", [[]])], consistent=True)
        assert (one, total) == ([[{"n": 101}], [{"n": 100}]], [{"s": 100 * ACCOUNTS + 1}])
        with db.transaction() as t:  # One statement that is refused in one shard takes nothing of it.
            with pytest.raises(ConstraintViolation):
                t.execute("INSERT INTO acc VALUES (100, 0), (101, 0), (102, 0), (7, 0)")
            assert t.execute("SELECT COUNT(*) FROM acc").rows == ((ACCOUNTS,),)
            t.execute("SAVEPOINT before")
            t.execute("INSERT INTO acc VALUES (100, 0), (101, 0), (102, 0), (103, 0)")
            t.execute("ROLLBACK TO before")
            t.execute("INSERT INTO acc VALUES (104, 0)")
        assert db.execute("SELECT id FROM acc WHERE id > 99").rows == ((104,),)


def test_a_snapshot_of_several_workers_is_of_one_moment(launch: Launch) -> None:
    running = launch("--workers", "2", "--controllers", "1", "--shards", "4").serves()
    sums, over = set[tuple[int, int]](), [False]

    def move(seed: int) -> None:
        own = random.Random(seed)
        with connect(running.url) as db:
            while not over[0]:
                source, sink = own.sample(range(ACCOUNTS), 2)
                text = f"UPDATE acc SET n = n - 1 WHERE id = {source}; UPDATE acc SET n = n + 1 WHERE id = {sink}"
                with suppress(Conflict):
                    db.execute(text, atomic=True)

    with connect(running.url, read_your_writes=True) as db, connect(running.url) as other:
        db.execute_all(SCHEMA)
        db.table("acc").insert([{"id": id, "n": 100} for id in range(ACCOUNTS)])
        held = db.take_snapshot("held", hold=True)
        movers = [Thread(target=move, args=[seed]) for seed in range(3)]
        for mover in movers:
            mover.start()
        try:
            until = time.monotonic() + DEADLINE
            while len(sums) < 5 and time.monotonic() < until:
                then = other.as_of(other.take_snapshot())
                ((first,),) = then.execute("SELECT n FROM acc WHERE id = 1").rows
                sums.add((first, then.view("total").lookup()[0]["s"]))
                assert then.view("one").lookup(id=1) == [{"n": first}], "it stays as it is"
        finally:
            over[0] = True
            for mover in movers:
                mover.join()
        assert len(sums) >= 5, "nothing is moved"
        assert {total for _, total in sums} == {100 * ACCOUNTS}
        then = db.as_of(held)
        assert then.view("one").lookup_many([[id] for id in range(ACCOUNTS)]) == [[{"n": 100}]] * ACCOUNTS
        assert "held" in {each["name"] for each in db.snapshots()}

        passing = db.as_of(db.take_snapshot())
        os.kill(running.pids()["worker-1"], signal.SIGKILL)
        until, gone = time.monotonic() + DEADLINE, False
        while not gone:
            assert time.monotonic() < until, "what a worker kept in memory is not there after it was killed"
            try:
                passing.view("total").lookup()
            except SnapshotGone:
                gone = True
            except HeadraceError:
                time.sleep(0.05)
        name = None
        while name is None:
            assert time.monotonic() < until
            try:
                name = db.take_snapshot()
            except HeadraceError:
                time.sleep(0.05)
        assert db.as_of(name).view("total").lookup() == [{"s": 100 * ACCOUNTS}]
        assert then.view("one").lookup_many([[id] for id in range(ACCOUNTS)]) == [[{"n": 100}]] * ACCOUNTS
        db.drop_snapshot(held)


def test_money_is_neither_lost_nor_made_while_a_worker_is_killed(launch: Launch) -> None:
    running = launch("--workers", "2", "--controllers", "1", "--shards", "4").serves()
    draws = random.Random(7)
    with connect(running.url) as db:
        db.execute_all(SCHEMA)
        db.table("acc").insert([{"id": id, "n": 100} for id in range(ACCOUNTS)])
    moved, unknown, over = [0], [0], [False]

    def move(seed: int) -> None:
        own = random.Random(seed)
        with connect(running.url) as db:
            while not over[0]:
                source, sink = own.sample(range(ACCOUNTS), 2)
                text = f"UPDATE acc SET n = n - 1 WHERE id = {source}; UPDATE acc SET n = n + 1 WHERE id = {sink}"
                try:
                    db.execute(text, atomic=True)
                    moved[0] += 1
                except Conflict:
                    continue
                except OutcomeUnknown:
                    unknown[0] += 1
                except HeadraceError:
                    time.sleep(0.05)

    movers = [Thread(target=move, args=[seed]) for seed in range(3)]
    for mover in movers:
        mover.start()
    with connect(running.url) as db:
        try:
            for _ in range(3):
                before, until = moved[0], time.monotonic() + DEADLINE
                while moved[0] < before + 20:
                    assert time.monotonic() < until, "nothing is moved any more"
                    time.sleep(0.05)
                name = draws.choice(["worker-1", "worker-2"])
                os.kill(running.pids()[name], signal.SIGKILL)
                seen = None
                while seen is None:
                    try:
                        ((seen,),) = db.lookups([("total", [[]])], consistent=True)
                    except HeadraceError:
                        assert time.monotonic() < until, "it cannot be read any more"
                assert seen == [{"s": 100 * ACCOUNTS}]
        finally:
            over[0] = True
            for mover in movers:
                mover.join()
        until, rows = time.monotonic() + DEADLINE, None
        while rows is None or db.execute("SHOW TRANSACTIONS").rows:
            assert time.monotonic() < until
            rows = db.execute("SELECT SUM(n) FROM acc").rows
        assert rows == ((100 * ACCOUNTS,),)
        for id in range(ACCOUNTS):  # Nothing is held any more.
            db.execute(f"UPDATE acc SET n = n WHERE id = {id}")
    print(f"{moved[0]} moved, {unknown[0]} unknown")


CLIENTS = 32


def ask_by_drivers(host: str, port: int) -> None:
    """The first row of ``acc``, by each driver that is installed; a driver's own tests are in ``tests/mysql``."""
    sql, given = "SELECT id, n FROM acc WHERE id = %s", {"host": host, "port": port, "user": "root"}
    connector = pytest.importorskip("mysql.connector")
    with connector.connect(**given, use_pure=True) as db, db.cursor(prepared=True) as cursor:
        cursor.execute(sql, (1,))
        (first,) = cursor.fetchall()

    async def asked(driver: Any) -> Any:
        db = await driver.connect(**given, autocommit=True)
        async with db.cursor() as cursor:
            await cursor.execute(sql, (1,))
            found = await cursor.fetchall()
        db.close()
        return found

    for name in ("asyncmy", "aiomysql"):
        assert asyncio.run(asked(pytest.importorskip(name))) == (first,)


def test_clients_of_mysql_do_nothing_again(launch: Launch) -> None:
    """Over two api processes and two workers: a writer waits, and only a deadlock refuses one."""
    pymysql = pytest.importorskip("pymysql")
    running = launch(
        "--workers", "2", "--controllers", "1", "--shards", "4", "--apis", "2", "--mysql-port", "0"
    ).serves()
    host, _, port = running.mysql.rpartition(":")
    ended: list[int] = []

    def connect_by_mysql() -> Any:
        return pymysql.connect(host=host, port=int(port), user="root", autocommit=True)

    def done(db: Any, sql: str) -> Any:
        with db.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def add(number: int) -> None:
        with connect_by_mysql() as db:
            for _ in range(3):
                done(db, "BEGIN")
                done(db, "UPDATE acc SET n = n + 1")
                done(db, "COMMIT")

    def move(number: int) -> None:
        ids = (1, 2) if number % 2 else (2, 1)
        with connect_by_mysql() as db:
            try:
                done(db, "BEGIN")
                for id in ids:
                    done(db, f"UPDATE acc SET n = n + 1 WHERE id = {id}")
                done(db, "COMMIT")
            except pymysql.MySQLError as error:
                ended.append(error.args[0])

    with connect(running.url, read_your_writes=True) as db, ThreadPoolExecutor(CLIENTS) as pool:
        db.execute_all(SCHEMA)
        db.table("acc").insert([{"id": id, "n": 0} for id in range(ACCOUNTS)])
        list(pool.map(add, range(CLIENTS)))
        assert db.execute("SELECT n FROM acc").rows == ((3 * CLIENTS,),) * ACCOUNTS
        list(pool.map(move, range(CLIENTS)))
        assert set(ended) <= {1213}
        assert len(ended) < CLIENTS
        moved = 4 * CLIENTS - len(ended)
        assert db.execute("SELECT n FROM acc WHERE id IN (1, 2)").rows == ((moved,), (moved,))
        print(f"{len(ended)} of {CLIENTS} were in a deadlock")
    with connect_by_mysql() as db:
        with pytest.raises(pymysql.MySQLError, match="in a cluster") as refused:
            done(db, "CREATE TEMPORARY TABLE mine (id INT)")
        assert refused.value.args[0] == 1235
        with db.cursor() as cursor:
            cursor.execute("SELECT a.id, a.n FROM acc AS a WHERE id = 1")
            assert [(each.table_name, each.org_table) for each in cursor._result.fields] == [("a", "acc")] * 2
    ask_by_drivers(host, int(port))


def test_locks_end_with_their_worker(launch: Launch) -> None:
    """Whoever held some is not committed, and whoever waits goes on."""
    running = launch("--workers", "2", "--controllers", "1", "--shards", "4").serves()
    with connect(running.url) as db, connect(running.url) as other:
        db.execute_all(SCHEMA)
        db.table("acc").insert([{"id": id, "n": 100} for id in range(ACCOUNTS)])
        holder = db.transaction(isolation="repeatable-read")
        holder.__enter__()
        holder.execute("UPDATE acc SET n = 0")
        assert holder.execute("SELECT SUM(n) FROM acc").rows == ((0,),)
        os.kill(running.pids()["worker-1"], signal.SIGKILL)
        with pytest.raises(TransactionEnded):
            holder.commit()
        until, left = time.monotonic() + DEADLINE, list(range(ACCOUNTS))
        while left:
            assert time.monotonic() < until, "something is locked still"
            with suppress(HeadraceError):
                other.execute(f"UPDATE acc SET n = n + 1 WHERE id = {left[0]}")
                left.pop(0)
        rows = other.execute("SELECT n FROM acc").rows
        assert all(n > 100 for (n,) in rows), "nothing of what was locked is done"
