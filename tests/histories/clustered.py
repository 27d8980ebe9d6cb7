"""A cluster as a system under test: ``headrace up``, whose clients come over HTTP or by MySQL's protocol to any of its
api processes, while workers and api processes are killed by turns.

A client whose api process is killed has lost what was open there. One that is told that a shard is away rolls back. Of
a COMMIT the outcome is unknown, but where it was refused by name.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pymysql
from headrace_client.async_connection import AsyncConnection

from tests.cluster.running_cluster import Running
from tests.histories.mariadb import BY, DEADLOCK, DUPLICATE, IN_ORDER, LOCK_WAIT, READ, WRITES, Kept
from tests.histories.served import AWAY_SECONDS, SERIALIZABLE, UP_SECONDS, Asked, Served, ServedSession, again
from tests.histories.system import Aborted, How, Session, Unknown

SHARDS, WORKERS, APIS = 4, 2, 2
LOCK_SECONDS = 5
CANNOT_CONNECT, GONE, LOST, AWAY, TOO_LATE = 2003, 2006, 2013, 1053, 3024
"""Errors of PyMySQL where nobody listens, and where the connection broke; ours where a shard is away."""
REFUSED = (LOCK_WAIT, DUPLICATE, AWAY, TOO_LATE)
BROKEN = (0, CANNOT_CONNECT, GONE, LOST)


WAYS = tuple(
    (kept, how, by_mysql)
    for how in (
        SERIALIZABLE,
        *(Asked(level, locks) for level in ("repeatable-read", "read-committed") for locks in (0, 1)),
    )
    for by_mysql in (False, True)
    for kept in ("texts", "rows", "registers")
)
"""Of keeping lists or registers, and of asking."""


class Clustered(Served):
    """Its tables are of one way to keep lists, or registers, after another: each run has blocks of its own."""

    def __init__(self, data: Path) -> None:
        super().__init__(data, "texts", 0, SHARDS)
        self.by_mysql = False
        self._turns = cycle(("worker", "api"))
        self.running: Running

    def asked(self, kept: Kept, keys_of_block: int, how: Asked = SERIALIZABLE, *, by_mysql: bool = False) -> None:
        """What clients do from now on."""
        self.kept, self.keys_of_block, self.how, self.by_mysql = kept, keys_of_block, how, by_mysql
        self.lists = kept != "registers"

    async def start(self) -> None:
        shape = ("--workers", str(WORKERS), "--controllers", "1", "--shards", str(SHARDS), "--apis", str(APIS))
        self.running = await asyncio.to_thread(lambda: Running(self._data, *shape, "--mysql-port", "0").serves())
        self.url = self.running.url

    async def kill(self) -> None:
        """One of its parts, which its supervisor begins anew."""
        kind = next(self._turns)
        names = sorted(name for name in self.running.pids() if name.startswith(kind))
        with suppress(ProcessLookupError):  # The one before it is not begun anew yet.
            os.kill(self.running.pids()[names[self.kills // 2 % len(names)]], signal.SIGKILL)
            self.kills += 1

    async def stop(self) -> None:
        await asyncio.to_thread(self.running.kill)

    async def serves(self) -> None:
        """All shards answer."""
        async with AsyncConnection(self.url) as db:
            await again(lambda: db.execute("SELECT COUNT(*) FROM texts"))

    async def session(self) -> Session:
        return MySQLSession(self) if self.by_mysql else ServedSession(self)


class MySQLSession:
    """A connection of PyMySQL, in a thread of its own, and another one where that is broken."""

    def __init__(self, system: Clustered) -> None:
        self.system = system
        self._thread = ThreadPoolExecutor(1)
        self._connection: Any = None

    async def _run(self, text: str) -> Sequence[tuple[Any, ...]]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._execute, text)

    def _execute(self, text: str) -> Sequence[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = self._connected()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(text)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            if error.args[0] in BROKEN:
                self._drop()
            raise

    def _connected(self) -> Any:
        host, _, port = self.system.running.mysql.rpartition(":")
        until = time.monotonic() + UP_SECONDS
        while True:
            try:
                connection = pymysql.connect(host=host, port=int(port), user="root", autocommit=True)
                level = self.system.how.isolation.replace("-", " ").upper()
                with connection.cursor() as cursor:
                    cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                    cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {LOCK_SECONDS}")
                return connection
            except (pymysql.MySQLError, OSError):
                if time.monotonic() > until:
                    raise
            time.sleep(AWAY_SECONDS)

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(pymysql.MySQLError, OSError):
                self._connection.close()
        self._connection = None

    async def _done(self, text: str) -> Sequence[tuple[Any, ...]]:
        try:
            return await self._run(text)
        except pymysql.MySQLError as error:
            code = error.args[0]
            if code in REFUSED:
                await self.rollback()
            elif code != DEADLOCK and code not in BROKEN:
                raise
            if code not in (LOCK_WAIT, DUPLICATE, DEADLOCK):
                await asyncio.sleep(AWAY_SECONDS)
            raise Aborted from error

    async def begin(self) -> None:
        await self._done("BEGIN")

    async def read(self, keys: Sequence[int], how: How) -> dict[int, Any]:
        kept, block = self.system.kept, keys[0] // self.system.keys_of_block
        text = READ[kept] + BY[how].format(first=keys[0], last=keys[-1], block=block)
        text += (IN_ORDER if kept == "rows" else "") + (" FOR SHARE" if self.system.how.locking else "")
        rows = await self._done(text)
        if kept == "texts":
            return {key: list(map(int, value.split(","))) for key, value in rows}
        if kept == "registers":
            return dict(rows)
        lists: dict[int, list[int]] = {}
        for key, value in rows:
            lists.setdefault(key, []).append(value)
        return lists

    def _text(self, key: int, value: int) -> str:
        return WRITES[self.system.kept].format(k=key, v=value, block=key // self.system.keys_of_block)

    async def write(self, key: int, value: int) -> None:
        await self._done(self._text(key, value))

    async def write_plainly(self, key: int, value: int) -> None:
        try:
            await self._run(self._text(key, value))
        except pymysql.MySQLError as error:
            raise (Aborted if error.args[0] in (DUPLICATE, DEADLOCK) else Unknown) from error

    async def commit(self) -> None:
        try:
            await self._run("COMMIT")
        except pymysql.MySQLError as error:
            if error.args[0] == DEADLOCK:
                raise Aborted from error
            await self._run_in_thread(self._drop)
            raise Unknown from error

    async def rollback(self) -> None:
        try:
            await self._run("ROLLBACK")
        except pymysql.MySQLError:
            await self._run_in_thread(self._drop)  # What was open there goes with it.

    async def _run_in_thread(self, act: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, act)

    async def close(self) -> None:
        await self._run_in_thread(self._drop)
        self._thread.shutdown()
