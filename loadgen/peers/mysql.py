"""MariaDB or MySQL: each query as its text, each write in a transaction. The one module that knows asyncmy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult

import asyncmy
from asyncmy.cursors import Cursor, DictCursor
from asyncmy.errors import Error, IntegrityError

from loadgen.peers.sql import SqlSession, SqlTarget, changed_rows, statements
from loadgen.peers.store import Change, PeerServer, Program, Query

SETTINGS = (
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "log_bin",
    "innodb_doublewrite",
    "innodb_buffer_pool_size",
    "thread_handling",
)
LISTS = re.compile(r"\bIN\s*\(\s*\?\s*\)", re.IGNORECASE)
DEADLOCK = 1213
DEADLOCKS = (1205, DEADLOCK)
"""Codes of a lock that was waited for too long, and of a deadlock: the transaction was undone and may be done again."""

BROKEN: tuple[type[Exception], ...] = (Error, OSError, EOFError, RuntimeError)
"""All that asyncmy raises where a connection breaks amid a statement."""


def text_of(query: Query) -> str:
    """The query with the driver's places for values; a list brings its own parentheses."""
    return LISTS.sub("IN %s", query.sql.replace("%", "%%")).replace("?", "%s")


class MysqlTarget(SqlTarget):
    name = "mysql"

    def __init__(self, parts: SplitResult, port: int) -> None:
        super().__init__(parts, port, user="root")
        self.servers = (PeerServer(self.host, port, "mariadbd"),)

    def text_of(self, query: Query) -> str:
        return text_of(query)

    async def open(self, database: str | None) -> MysqlSession:
        try:
            connection = await asyncmy.connect(**self.where, db=database, autocommit=True, cursor_cls=DictCursor)
        except (OSError, Error) as error:
            raise self.unreachable(error) from error
        return MysqlSession(self, connection)

    async def describe(self) -> dict[str, str]:
        ((version,),) = await self._rows("SELECT VERSION()")
        settings = await self._rows(f"SHOW VARIABLES WHERE Variable_name IN ({', '.join(map(repr, SETTINGS))})")
        return {"server": f"MariaDB {version}" if "Maria" in version else f"MySQL {version}", **dict(settings)}

    async def tables(self) -> set[str]:
        text = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
        return {name for (name,) in await self._rows(text, self.database)}

    async def create(self, program: Program) -> MysqlSession:
        if await self._rows("SHOW DATABASES LIKE %s", self.database):
            raise self.there_already()
        session = await self.open(None)
        await session.run(f"CREATE DATABASE `{self.database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        await session.run(f"USE `{self.database}`")
        await session.run(*statements(program.schema))
        return session

    async def load(self, session: SqlSession, table: str, rows: list[dict[str, Any]]) -> None:
        columns = list(rows[0])
        names = ", ".join(f"`{column}`" for column in columns)
        text = f"INSERT INTO `{table}` ({names}) VALUES ({', '.join(['%s'] * len(columns))})"
        async with session.connection.cursor() as cursor:
            await cursor.executemany(text, [tuple(row[each] for each in columns) for row in rows])

    async def finish(self, session: SqlSession, program: Program) -> None:
        assert isinstance(session, MysqlSession)
        for text in (program.indexes, program.views, program.fill):
            await session.run(*statements(text))
        await session.connection.commit()
        await session.run(f"ANALYZE TABLE {', '.join(f'`{table}`' for table in program.tables)}")

    async def _rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement, run on a connection of its own."""
        session = await self.open(None)
        async with session.connection.cursor(Cursor) as cursor:
            await cursor.execute(text, values or None)
            rows = list(await cursor.fetchall())
        await session.disconnect()
        return rows


class MysqlSession(SqlSession):
    faults = (Error, OSError)
    conflicts = (IntegrityError,)

    async def run(self, *texts: str) -> None:
        async with self.connection.cursor() as cursor:
            for text in texts:
                await cursor.execute(text)

    async def fetch(self, text: str, values: Sequence[Any]) -> Sequence[Any]:
        given = tuple(tuple(value) if isinstance(value, list) else value for value in values) or None
        async with self.connection.cursor(DictCursor) as cursor:
            await cursor.execute(text, given)
            rows: Sequence[Any] = await cursor.fetchall()
        return rows

    async def apply(self, changes: Sequence[Change]) -> int:
        affected = 0
        async with self.connection.cursor() as cursor:
            if len(changes) > 1:
                await self.connection.begin()
            for change in changes:
                for text, values in changed_rows(change, "`", "%s"):
                    affected += await cursor.execute(text, values)
            if len(changes) > 1:
                await self.connection.commit()
        return affected

    async def undo(self) -> None:
        await self.connection.rollback()

    def is_deadlock(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] in DEADLOCKS

    def told(self, error: Exception) -> str:
        return f"{type(error).__name__} {error.args[0] if error.args else ''}".strip()

    async def disconnect(self, *, at_once: bool = False) -> None:
        self.connection.close()
