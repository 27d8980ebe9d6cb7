"""Whatever is killed, at rest every table equals: the follower, the server, the upstream, under random writes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random, SystemRandom
from threading import Event, Thread
from time import sleep
from typing import Any

import pymysql  # type: ignore[import-untyped]
import pytest

from headrace import connect
from headrace.errors import HeadraceError
from loadgen.bench import servers
from tests.told_process import ToldProcess
from tests.upstream.upstream_server import UpstreamServer, position_of, rows_of, until

pytestmark = pytest.mark.skipif(servers.mariadbd() is None, reason="MariaDB is not installed")

TABLES = ("accounts", "notes")
SCHEMA = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL DEFAULT 100, name VARCHAR(20) UNIQUE)",
    "CREATE TABLE notes (author VARCHAR(8), number INT, body TEXT, made DATETIME(6), PRIMARY KEY (author, number))",
    "INSERT INTO accounts SELECT seq, 100, CONCAT('n', seq) FROM seq_1_to_400",
    "INSERT INTO notes SELECT CONCAT('a', seq % 9), seq, REPEAT('x', seq % 50), NOW(6) FROM seq_1_to_3000",
)
ACCOUNTS = 400
TOTAL = 100 * ACCOUNTS


class Writer:
    """Writes to the upstream until it is ended, whether that is there or not: transactions that keep a sum."""

    def __init__(self, upstream: UpstreamServer, seed: int) -> None:
        self._upstream, self._random, self._ended = upstream, Random(seed), Event()
        self.done = 0
        self._number = 10_000
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ended.is_set():
            with (
                suppress(pymysql.err.MySQLError, OSError),
                self._upstream.connect(read_timeout=20) as db,
                db.cursor() as cursor,
            ):
                while not self._ended.is_set():
                    self._transaction(cursor)
                    self.done += 1
            sleep(0.02)

    def _transaction(self, cursor: Any) -> None:
        random = self._random
        image = random.choice(["FULL", "MINIMAL", "NOBLOB"])
        cursor.execute(f"SET binlog_row_image = {image}")
        cursor.execute("START TRANSACTION")
        for _ in range(random.randint(1, 3)):
            self._statement(cursor)
        if random.random() < 0.1:
            cursor.execute("SAVEPOINT s")
            self._statement(cursor)
            cursor.execute("ROLLBACK TO s")
        cursor.execute(random.choices(["COMMIT", "ROLLBACK"], [9, 1])[0])

    def _statement(self, cursor: Any) -> None:
        random = self._random
        author = f"a{random.randint(0, 12)}"
        which = random.randint(0, 6)
        if which <= 1:
            one, other = random.sample(range(1, ACCOUNTS + 1), 2)
            cursor.execute("UPDATE accounts SET balance = balance - 7 WHERE id = %s", [one])
            cursor.execute("UPDATE accounts SET balance = balance + 7 WHERE id = %s", [other])
        elif which == 2:
            one, other = random.sample(range(1, ACCOUNTS + 1), 2)  # Two swap what is unique.
            cursor.execute("SELECT id, name FROM accounts WHERE id IN (%s, %s) FOR UPDATE", [one, other])
            names = dict(cursor.fetchall())
            cursor.execute("UPDATE accounts SET name = NULL WHERE id = %s", [one])
            cursor.execute("UPDATE accounts SET name = %s WHERE id = %s", [names[one], other])
            cursor.execute("UPDATE accounts SET name = %s WHERE id = %s", [names[other], one])
        elif which == 3:
            self._number += 1
            cursor.execute("INSERT INTO notes VALUES (%s, %s, 'new', NOW(6))", [author, self._number])
        elif which == 4:
            cursor.execute("DELETE FROM notes WHERE author = %s ORDER BY number LIMIT 2", [author])
        elif which == 5:
            cursor.execute("UPDATE notes SET body = CONCAT(body, 'y') WHERE author = %s AND number %% 50 = 1", [author])
        else:
            self._number += 1  # A key that becomes another one.
            sql = "UPDATE notes SET number = %s, author = %s WHERE author = 'a1' ORDER BY number DESC LIMIT 1"
            cursor.execute(sql, [self._number, author])


class Scene:
    def __init__(self, directory: Path) -> None:
        self.directory, self.port = directory, servers.free_port()
        self.upstream = self._upstream()
        self.upstream_url = self.upstream.url_of("shop")
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = self._serve()
        self.follower: ToldProcess | None = None

    def _upstream(self) -> Any:
        server = UpstreamServer(self.directory)
        server.run(*SCHEMA)
        return server

    def _serve(self) -> ToldProcess:
        words = ["-m", "headrace", "serve", "--data", str(self.directory / "data"), "--port", str(self.port)]
        process = ToldProcess([*words, "--shards", "3"], {"HEADRACE_SLOW_REQUEST": "60"})
        process.read_until(r"answers at")
        return process

    def begin(self, *words: str) -> None:
        self.follower = ToldProcess(["-m", "headrace", *words, "--url", self.url], {})

    def follow(self) -> None:
        """It is under way: one that finds no server when it starts ends, and says so."""
        self.begin("follow", self.upstream_url)
        assert self.follower is not None
        self.follower.read_until("following")

    def kill_follower(self) -> None:
        assert self.follower is not None
        self.follower.kill()

    def kill_server(self) -> None:
        self.server.popen.send_signal(signal.SIGKILL)
        self.server.kill()
        self.server = self._serve()

    def kill_upstream(self) -> None:
        self.upstream.kill()
        self.upstream.start()

    def close(self) -> None:
        if self.follower is not None:
            self.follower.kill()
        self.server.kill()
        self.upstream.kill()

    def rows(self, table: str, order: str) -> list[tuple[Any, ...]]:
        with connect(self.url) as db:
            return [tuple(row) for row in db.execute(f"SELECT * FROM {table} ORDER BY {order}").rows]

    def followed(self) -> str:
        with connect(self.url) as db, suppress(HeadraceError):
            for gtid, stopped in db.execute("SELECT reached, stopped FROM headrace_upstream").rows:
                assert not stopped, stopped
                return str(gtid)
        return ""

    def equals(self) -> None:
        until(lambda: self.followed() == position_of(self.upstream), "it has followed")
        assert self.rows("accounts", "id") == rows_of(self.upstream, "accounts")
        assert self.rows("notes", "author, number") == rows_of(self.upstream, "notes")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        made = Scene(tmp_path)
        stack.callback(made.close)
        yield made


def test_at_rest_every_table_equals(scene: Scene) -> None:
    seed = SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    everything_is_killed(scene, Writer(scene.upstream, seed), Random(seed))


def everything_is_killed(scene: Scene, writer: Any, random: Random) -> None:
    importing = ("import", scene.upstream_url, *TABLES, "--chunk-rows", "40")
    scene.begin(*importing)
    until(lambda: copied(scene) > 200, "some rows are copied")
    scene.kill_follower()
    assert copied(scene) < 3_000, "it is to be killed while it copies"
    scene.begin(*importing)
    assert scene.follower is not None
    code, out, errors = scene.follower.finish()
    assert code == 0, errors
    assert "rows copied" in out
    scene.follow()
    acts: list[Callable[[], None]] = [scene.kill_server, scene.kill_upstream, scene.kill_follower]
    random.shuffle(acts)
    for act in acts:
        before, at = writer.done, scene.followed()
        until(lambda before=before, at=at: writer.done > before + 20 and scene.followed() != at, "writes are followed")
        act()
        if act == scene.kill_follower:
            scene.follow()
    before = writer.done
    until(lambda: writer.done > before + 20, "writes go on")
    with connect(scene.url) as db:  # Each transaction is whole, at any moment, to who asks for the whole.
        for _ in range(10):
            with db.transaction(isolation="read-committed", read_only=True) as whole:
                assert whole.execute("SELECT SUM(balance), COUNT(*) FROM accounts").rows == ((TOTAL, ACCOUNTS),)
    writer.end()
    scene.equals()


def copied(scene: Scene) -> int:
    with connect(scene.url) as db, suppress(HeadraceError):
        scene.followed()
        ((count,),) = db.execute("SELECT COUNT(*) FROM notes").rows
        return int(count)
    return 0
