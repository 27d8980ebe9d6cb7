"""MariaDB as a system under test, at each of its isolation levels: the control of checker and workload.

A list is a text that grows by CONCAT, or rows with a position after the last one; a register is a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import asyncmy
from asyncmy.errors import Error

from tests.histories.system import Aborted, How, Unknown
from tests.histories.workload import MOST_BLOCKS

Kept = Literal["texts", "rows", "registers"]
DATABASE = "histories"
TABLES = """
CREATE TABLE blocks (block INT PRIMARY KEY) ENGINE = InnoDB;
CREATE TABLE texts (k INT PRIMARY KEY, block INT NOT NULL, v TEXT NOT NULL, KEY (block)) ENGINE = InnoDB;
CREATE TABLE registers (k INT PRIMARY KEY, block INT NOT NULL, v INT NOT NULL, KEY (block)) ENGINE = InnoDB;
CREATE TABLE elements (
  k INT, position INT, block INT NOT NULL, v INT NOT NULL, PRIMARY KEY (k, position), KEY (block)) ENGINE = InnoDB
"""
WRITES: dict[Kept, str] = {
    "texts": "INSERT INTO texts VALUES ({k}, {block}, '{v}') ON DUPLICATE KEY UPDATE v = CONCAT(v, ',{v}')",
    "registers": "INSERT INTO registers VALUES ({k}, {block}, {v}) ON DUPLICATE KEY UPDATE v = {v}",
    "rows": "INSERT INTO elements SELECT {k}, COALESCE(MAX(position), 0) + 1, {block}, {v} FROM elements WHERE k = {k}",
}
READ = {"texts": "SELECT t.k, t.v FROM texts t", "registers": "SELECT t.k, t.v FROM registers t"}
READ["rows"] = "SELECT t.k, t.v FROM elements t"
BY: dict[How, str] = {
    "key": " WHERE t.k = {first}",
    "range": " WHERE t.k BETWEEN {first} AND {last}",
    "join": " JOIN blocks b ON t.block = b.block WHERE b.block = {block}",
}
IN_ORDER = " ORDER BY t.k, t.position"
LOCK_WAIT, DEADLOCK, DUPLICATE, CHANGED = 1205, 1213, 1062, 1020
ABORTS = (LOCK_WAIT, DEADLOCK, DUPLICATE, CHANGED)
"""Two appends by rows that took the same position are a duplicate key for the second one."""


class MariaDB:
    def __init__(self, port: int, isolation: str, kept: Kept, keys_of_block: int) -> None:
        self.port, self.isolation, self.kept, self.keys_of_block = port, isolation, kept, keys_of_block
        self.lists = kept != "registers"

    async def create(self) -> None:
        connection = await self.connect("")
        async with connection.cursor() as cursor:
            for text in (f"CREATE OR REPLACE DATABASE {DATABASE}", f"USE {DATABASE}", *TABLES.split(";")):
                await cursor.execute(text)
            await cursor.execute(f"INSERT INTO blocks VALUES {', '.join(f'({n})' for n in range(MOST_BLOCKS))}")
        await connection.ensure_closed()

    async def connect(self, database: str = DATABASE) -> Any:
        return await asyncmy.connect(host="127.0.0.1", port=self.port, user="root", db=database, autocommit=True)

    async def session(self) -> MariaDBSession:
        connection = await self.connect()
        session = MariaDBSession(self, connection)
        await session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {self.isolation}")
        await session.run("SET SESSION innodb_lock_wait_timeout = 2")
        return session


class MariaDBSession:
    def __init__(self, system: MariaDB, connection: Any) -> None:
        self.system = system
        self.connection = connection

    async def run(self, text: str) -> Sequence[tuple[Any, ...]]:
        try:
            async with self.connection.cursor() as cursor:
                await cursor.execute(text)
                rows: Sequence[tuple[Any, ...]] = await cursor.fetchall()
                return rows
        except Error as error:
            if error.args[0] not in ABORTS:
                raise
            await self.rollback()
            raise Aborted from error

    async def begin(self) -> None:
        await self.run("BEGIN")

    async def read(self, keys: Sequence[int], how: How) -> dict[int, Any]:
        kept, block = self.system.kept, keys[0] // self.system.keys_of_block
        text = READ[kept] + BY[how].format(first=keys[0], last=keys[-1], block=block)
        rows = await self.run(text + IN_ORDER if kept == "rows" else text)
        if kept == "texts":
            return {key: list(map(int, value.split(","))) for key, value in rows}
        if kept == "registers":
            return dict(rows)  # type: ignore[arg-type]
        lists: dict[int, list[int]] = {}
        for key, value in rows:
            lists.setdefault(key, []).append(value)
        return lists

    async def write(self, key: int, value: int) -> None:
        block = key // self.system.keys_of_block
        await self.run(WRITES[self.system.kept].format(k=key, v=value, block=block))

    async def write_plainly(self, key: int, value: int) -> None:
        try:
            await self.write(key, value)
        except (Error, OSError) as error:
            raise Unknown from error

    async def commit(self) -> None:
        try:
            await self.run("COMMIT")
        except (Error, OSError) as error:
            raise Unknown from error

    async def rollback(self) -> None:
        async with self.connection.cursor() as cursor:
            await cursor.execute("ROLLBACK")

    async def close(self) -> None:
        await self.connection.ensure_closed()
