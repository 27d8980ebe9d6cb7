"""Headrace as a system under test: a server of its own, spoken to over HTTP, and killed now and then if that is asked.

What is read by a key comes of SELECTs and of a view's look-ups by turns. Where the server is killed, a transaction that
was not to be committed yet is lost with it, and a commit without an answer is unknown.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from headrace_client.async_connection import AsyncConnection
from headrace_client.errors import (
    Conflict,
    ConnectionFailed,
    ConstraintViolation,
    HeadraceError,
    Locked,
    ReadTimeout,
    TransactionEnded,
    Unavailable,
)

from tests.histories.checker import Report, check
from tests.histories.control import CLIENTS, recorded
from tests.histories.events import Event
from tests.histories.mariadb import BY, IN_ORDER, READ, WRITES, Kept
from tests.histories.system import Aborted, How, Unknown
from tests.histories.workload import MOST_BLOCKS, Workload

Answer = TypeVar("Answer")

TABLES = """
CREATE TABLE blocks (block INT PRIMARY KEY);
CREATE TABLE texts (k INT PRIMARY KEY, block INT NOT NULL, v TEXT NOT NULL, KEY (block));
CREATE TABLE registers (k INT PRIMARY KEY, block INT NOT NULL, v INT NOT NULL, KEY (block));
CREATE TABLE elements (
  k INT, position INT, block INT NOT NULL, v INT NOT NULL, PRIMARY KEY (k, position), KEY (block));
CREATE EXT VIEW texts_by_key AS SELECT k, v FROM texts WHERE k = ?;
CREATE EXT VIEW registers_by_key AS SELECT k, v FROM registers WHERE k = ?;
CREATE EXT VIEW rows_by_key AS SELECT k, v FROM elements WHERE k = ? ORDER BY position
"""
UP_SECONDS = 60.0
AWAY_SECONDS = 0.2
"""Before the next transaction of a client who was told that something is away: else it would try all that there are."""
KILL_SECONDS = 4.0
"""Between two kills, on the average."""


@dataclass(frozen=True)
class Asked:
    """What its clients ask for."""

    isolation: str
    locking: bool = False
    """Whether all of a transaction's reads are FOR SHARE."""

    def judged(self, events: list[Event], kept: Kept) -> list[Report]:
        """By what the level promises: of plain reads below SERIALIZABLE, that none is of what is not committed; and at
        REPEATABLE READ, that those of transactions which only read are of one moment. Beside an own write, which is of
        now, a plain read is not: so an own row may stand behind rows that are not shown."""
        if self.locking or self.isolation == "serializable":
            return [check(events, "strict-serializable")]
        if self.isolation == "read-committed":
            return [check(events, "read-committed")]
        whole = [] if kept == "rows" else [check(events, "read-committed")]
        return [*whole, check(list(map(_without_mixed_reads, events)), "strict-serializable")]


SERIALIZABLE = Asked("serializable")


def _without_mixed_reads(event: Event) -> Event:
    """A transaction that writes, without its reads."""
    value = event.get("value") or []
    writes = [each for each in value if each[0] != "r"]
    return {**event, "value": writes or value}


class Served:
    """A server of one data directory."""

    def __init__(self, data: Path, kept: Kept, keys_of_block: int, shards: int = 1, how: Asked = SERIALIZABLE) -> None:
        self.shards, self.how = shards, how
        self.kept, self.keys_of_block = kept, keys_of_block
        self.lists = kept != "registers"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._data = data
        self._process: asyncio.subprocess.Process | None = None
        self.kills = 0

    async def start(self) -> None:
        """Return when it serves."""
        command: tuple[str, ...] = ("-m", "headrace", "serve", "--port", str(self.port), "--data", str(self._data))
        command += ("--shards", str(self.shards))
        with (self._data.parent / "server.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=log, stderr=log)
        async with AsyncConnection(self.url) as db:
            await again(lambda: db.execute("SELECT 1"))

    async def create(self) -> None:
        await self.start()
        async with AsyncConnection(self.url) as db:
            await db.execute(TABLES)
            for start in range(0, MOST_BLOCKS, 1000):
                await db.table("blocks").insert([{"block": number} for number in range(start, start + 1000)])

    async def kill(self) -> None:
        """And begin another on the same data."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await self._process.wait()
        self.kills += 1
        await self.start()

    async def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        await self._process.wait()

    async def session(self) -> ServedSession:
        return ServedSession(self)


async def again(attempt: Callable[[], Awaitable[Answer]]) -> Answer:
    """What it answers once there is a server."""
    deadline = asyncio.get_running_loop().time() + UP_SECONDS
    while True:
        try:
            return await attempt()
        except (ConnectionFailed, Unavailable):
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.05)


class ServedSession:
    def __init__(self, system: Served) -> None:
        self.system = system
        self._db = AsyncConnection(system.url)
        self._transaction: Any = None
        self._reads = 0

    async def begin(self) -> None:
        transaction = self._db.transaction(isolation=self.system.how.isolation)
        self._transaction = await again(transaction.__aenter__)

    async def _done(self, statement: Awaitable[Answer]) -> Answer:
        try:
            return await statement
        except (Conflict, TransactionEnded) as error:
            raise Aborted from error
        except (ConstraintViolation, ConnectionFailed, ReadTimeout, Unavailable) as error:
            await self.rollback()  # Nothing of it is stored before its commit, and it may hold locks.
            await asyncio.sleep(0 if isinstance(error, ConstraintViolation | Locked) else AWAY_SECONDS)
            raise Aborted from error

    async def read(self, keys: Sequence[int], how: How) -> dict[int, Any]:
        kept, block = self.system.kept, keys[0] // self.system.keys_of_block
        self._reads += 1
        if how == "key" and self._reads % 2 and not self.system.how.locking:
            found = await self._done(self._transaction.view(f"{kept}_by_key").lookup(k=keys[0]))
            rows = [(row["k"], row["v"]) for row in found]
        else:
            text = READ[kept] + BY[how].format(first=keys[0], last=keys[-1], block=block)
            text += (IN_ORDER if kept == "rows" else "") + (" FOR SHARE" if self.system.how.locking else "")
            rows = (await self._done(self._transaction.execute(text))).rows
        if kept == "texts":
            return {key: list(map(int, value.split(","))) for key, value in rows}
        if kept == "registers":
            return dict(rows)
        lists: dict[int, list[int]] = {}
        for key, value in rows:
            lists.setdefault(key, []).append(value)
        return lists

    async def write(self, key: int, value: int) -> None:
        await self._done(self._transaction.execute(self._text(key, value)))

    def _text(self, key: int, value: int) -> str:
        return WRITES[self.system.kept].format(k=key, v=value, block=key // self.system.keys_of_block)

    async def write_plainly(self, key: int, value: int) -> None:
        try:
            await self._db.execute(self._text(key, value))
        except ConstraintViolation as error:
            raise Aborted from error
        except HeadraceError as error:
            raise Unknown from error

    async def commit(self) -> None:
        try:
            await self._transaction.commit()
        except (Conflict, TransactionEnded) as error:
            raise Aborted from error
        except (ConnectionFailed, ReadTimeout, Unavailable) as error:
            raise Unknown from error

    async def rollback(self) -> None:
        try:
            await self._transaction.rollback()
        except (TransactionEnded, ConnectionFailed, ReadTimeout, Unavailable):
            return  # It is over in each of these cases.

    async def close(self) -> None:
        await self._db.close()


def run_on_headrace(
    folder: Path,
    kept: Kept,
    workload: Workload,
    *,
    seconds: float = inf,
    kills: bool = False,
    shards: int = 1,
    how: Asked = SERIALIZABLE,
) -> tuple[list[Event], int]:
    """The history of a run of so many seconds from when the server is there, and how often it was killed in it."""

    async def run() -> tuple[list[Event], int]:
        system = Served(folder / "data", kept, workload.keys, shards, how)
        await system.create()
        try:
            return await recorded_beside_kills(system, workload, seconds=seconds, kills=kills), system.kills
        finally:
            await system.stop()

    return asyncio.run(run())


async def recorded_beside_kills(
    system: Served, workload: Workload, *, seconds: float = inf, kills: bool = False, every: int | None = None
) -> list[Event]:
    """The history of a run of so many seconds. ``every``: so many transactions are begun between two kills."""

    async def killing() -> None:
        draws, begun = random.Random(workload.seed), 0
        while True:
            if every is None:
                await asyncio.sleep(draws.uniform(0.5, 1.5) * KILL_SECONDS)
            begun += every or 0
            while workload.begun < begun:
                await asyncio.sleep(0.01)
            await system.kill()

    until = time.monotonic() + seconds
    workload.go_on = lambda: time.monotonic() < until
    killer = asyncio.create_task(killing()) if kills else None
    try:
        return await recorded(system, workload, CLIENTS)
    finally:
        if killer is not None:
            killer.cancel()
            for ended in await asyncio.gather(killer, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended
