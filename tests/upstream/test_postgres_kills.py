"""Whatever is killed, at rest every table equals PostgreSQL's: the importer, the follower, the server, PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random, SystemRandom
from threading import Event, Thread
from time import sleep
from typing import Any

import psycopg2  # type: ignore[import-untyped]
import pytest

from controller.upstreams.positions import LsnPosition
from tests.upstream.postgres_server import PostgresServer, postgres_programs, rows_of
from tests.upstream.test_kills import ACCOUNTS, TOTAL, Scene, everything_is_killed
from tests.upstream.upstream_server import until

pytestmark = pytest.mark.skipif(postgres_programs() is None, reason="PostgreSQL is not installed")

SCHEMA = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL DEFAULT 100, name VARCHAR(20) UNIQUE)",
    "CREATE TABLE notes (author VARCHAR(8), number INT, body TEXT, made TIMESTAMPTZ, apart TEXT,"
    " PRIMARY KEY (author, number))",
    "ALTER TABLE notes ALTER COLUMN apart SET STORAGE EXTERNAL",
    f"INSERT INTO accounts SELECT i, 100, 'n' || i FROM generate_series(1, {ACCOUNTS}) i",
    "INSERT INTO notes SELECT 'a' || i % 9, i, repeat('x', i % 50), now(), repeat('y', 2500 * (i % 17 / 16))"
    " FROM generate_series(1, 3000) i",
)


class PostgresWriter:
    """Writes until it is ended, whether PostgreSQL is there or not: transactions that keep a sum, two at a time."""

    def __init__(self, upstream: PostgresServer, seed: int) -> None:
        self._upstream, self._ended = upstream, Event()
        self.done = 0
        self._threads = [Thread(target=self._run, args=(at, Random(seed + at)), daemon=True) for at in range(2)]
        for each in self._threads:
            each.start()

    def end(self) -> None:
        self._ended.set()
        for each in self._threads:
            each.join(60)
            assert not each.is_alive()

    def _run(self, at: int, random: Random) -> None:
        number = 10_000 + at
        while not self._ended.is_set():
            with suppress(psycopg2.Error):
                db = self._upstream.connect("shop")
                db.autocommit = False
                with db, db.cursor() as cursor:
                    while not self._ended.is_set():
                        number += 2
                        try:
                            self._transaction(cursor, random, number)
                            db.commit() if random.random() < 0.9 else db.rollback()
                        except psycopg2.errors.DeadlockDetected:
                            db.rollback()
                        self.done += 1
            sleep(0.02)

    def _transaction(self, cursor: Any, random: Random, number: int) -> None:
        for _ in range(random.randint(1, 3)):
            self._statement(cursor, random, number)
        if random.random() < 0.1:
            cursor.execute("SAVEPOINT s")
            self._statement(cursor, random, number + 1_000_000)
            cursor.execute("ROLLBACK TO s")

    def _statement(self, cursor: Any, random: Random, number: int) -> None:
        author = f"a{random.randint(0, 12)}"
        which = random.randint(0, 6)
        if which <= 1:
            one, other = random.sample(range(1, ACCOUNTS + 1), 2)
            cursor.execute("UPDATE accounts SET balance = balance - 7 WHERE id = %s", [one])
            cursor.execute("UPDATE accounts SET balance = balance + 7 WHERE id = %s", [other])
        elif which == 2:
            one, other = sorted(random.sample(range(1, ACCOUNTS + 1), 2))  # Two swap what is unique.
            cursor.execute("SELECT id, name FROM accounts WHERE id IN (%s, %s) ORDER BY id FOR UPDATE", [one, other])
            names = dict(cursor.fetchall())
            cursor.execute("UPDATE accounts SET name = NULL WHERE id = %s", [one])
            cursor.execute("UPDATE accounts SET name = %s WHERE id = %s", [names[one], other])
            cursor.execute("UPDATE accounts SET name = %s WHERE id = %s", [names[other], one])
        elif which == 3:
            sql = "INSERT INTO notes VALUES (%s, %s, 'new', now(), repeat('z', %s)) ON CONFLICT DO NOTHING"
            cursor.execute(sql, [author, number, random.choice([0, 3000])])
        elif which == 4:
            first = "SELECT number FROM notes WHERE author = %s ORDER BY number LIMIT 2"
            cursor.execute(f"DELETE FROM notes WHERE author = %s AND number IN ({first})", [author, author])
        elif which == 5:
            cursor.execute(
                "UPDATE notes SET body = left(body || 'y', 60) WHERE author = %s AND number %% 50 = 1", [author]
            )
        else:  # A key that becomes another one, beside what is stored apart.
            last = "SELECT number FROM notes WHERE author = 'a1' ORDER BY length(apart) DESC, number LIMIT 1"
            sql = f"UPDATE notes SET number = %s, author = %s WHERE author = 'a1' AND number = ({last})"
            cursor.execute(sql, [number + 500_000, author])


class PostgresScene(Scene):
    def _upstream(self) -> PostgresServer:
        server = PostgresServer()
        server.make("shop")
        server.run(*SCHEMA, database="shop")
        return server

    def close(self) -> None:
        super().close()
        self.upstream.close()

    def equals(self) -> None:
        ((text,),) = self.upstream.run("SELECT pg_current_wal_lsn()::text", database="shop")
        wanted = LsnPosition.parse(text)
        until(lambda: LsnPosition.parse(self.followed() or "0/0").covers(wanted), "it has followed")
        assert self.rows("accounts", "id") == rows_of(self.upstream, "shop", "accounts", ["id"])
        assert self.rows("notes", "author, number") == rows_of(self.upstream, "shop", "notes", ["author", "number"])


@pytest.fixture
def postgres_scene(tmp_path: Path) -> Iterator[PostgresScene]:
    with ExitStack() as stack:
        made = PostgresScene(tmp_path)
        stack.callback(made.close)
        yield made


def test_at_rest_every_table_equals_that_of_postgres(postgres_scene: PostgresScene) -> None:
    seed = SystemRandom().randrange(10_000)
    print(f"seed {seed}, sum {TOTAL}")
    everything_is_killed(postgres_scene, PostgresWriter(postgres_scene.upstream, seed), Random(seed))
