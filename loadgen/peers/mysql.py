"""MariaDB or MySQL: each query as its text, each write in a transaction. The one module that knows asyncmy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import asyncmy
from asyncmy.cursors import Cursor, DictCursor
from asyncmy.errors import Error, IntegrityError

from loadgen.peers.sql import PooledTarget, RowsAnswer, changed_rows, check_data, check_tables, statements
from loadgen.peers.store import (
    Answer,
    Change,
    Conflict,
    LoadRunError,
    Lookup,
    PeerServer,
    Program,
    Progress,
    Query,
    RequestFailed,
    in_rounds,
)

SETTINGS = (
    "innodb_flush_log_at_trx_commit",
    "sync_binlog",
    "log_bin",
    "innodb_doublewrite",
    "innodb_buffer_pool_size",
    "thread_handling",
)
LISTS = re.compile(r"\bIN\s*\(\s*\?\s*\)", re.IGNORECASE)
DEADLOCKS = (1205, 1213)
"""Codes of a lock that was waited for too long, and of a deadlock: the transaction was undone and may be done again."""
AGAIN_MAX = 5


def text_of(query: Query) -> str:
    """With the driver's places for values; a list brings its own parentheses."""
    return LISTS.sub("IN %s", query.sql.replace("%", "%%")).replace("?", "%s")


class MysqlTarget(PooledTarget["MysqlSession"]):
    name = "mysql"

    def __init__(self, host: str, port: int, user: str, password: str, database: str) -> None:
        super().__init__(text_of)
        self.host, self.port = host, port
        self._where: dict[str, Any] = {"host": host, "port": port, "user": user or "root", "password": password}
        self._database = database or "lobsters"
        self.servers = (PeerServer(host, port, "mariadbd"),)

    async def describe(self) -> dict[str, str]:
        connection = await self._connect(None)
        async with connection.cursor(Cursor) as cursor:
            await cursor.execute("SELECT VERSION()")
            (version,) = await cursor.fetchone()
            await cursor.execute(f"SHOW VARIABLES WHERE Variable_name IN ({', '.join(map(repr, SETTINGS))})")
            settings = dict(await cursor.fetchall())
        connection.close()
        return {"server": f"MariaDB {version}" if "Maria" in version else f"MySQL {version}", **settings}

    async def check(self, program: Program, probe: Lookup | None) -> None:
        connection = await self._connect(None)
        async with connection.cursor(Cursor) as cursor:
            await cursor.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (self._database,)
            )
            there = {name for (name,) in await cursor.fetchall()}
        connection.close()
        check_tables(self._database, there, program)
        if probe is not None:
            await check_data(self, self._database, program, probe)

    async def prime(
        self, program: Program, batches: Iterable[tuple[str, list[dict[str, Any]]]], total: int, tell: Progress
    ) -> None:
        connection = await self._connect(None)
        async with connection.cursor() as cursor:
            await cursor.execute("SHOW DATABASES LIKE %s", (self._database,))
            if await cursor.fetchone():
                raise LoadRunError(f'there is a database "{self._database}" already', hint="prime another one")
            await cursor.execute(f"CREATE DATABASE `{self._database}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
            await cursor.execute(f"USE `{self._database}`")
            for statement in statements(program.schema):
                await cursor.execute(statement)
            done = 0
            for table, rows in batches:
                columns = list(rows[0])
                await cursor.executemany(
                    _insert(table, columns), [tuple(row[each] for each in columns) for row in rows]
                )
                done += len(rows)
                tell(table, done, total)
            tell("indexes and views", done, total)
            for text in (program.indexes, program.views, program.fill):
                for statement in statements(text):
                    await cursor.execute(statement)
            await connection.commit()
            tables = ", ".join(f"`{table}`" for table in program.tables)
            await cursor.execute(f"ANALYZE TABLE {tables}")
        connection.close()

    async def _open(self) -> MysqlSession:
        return MysqlSession(self, await self._connect(self._database))

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().connection.close()

    async def _connect(self, database: str | None) -> Any:
        try:
            return await asyncmy.connect(**self._where, db=database, autocommit=True, cursor_cls=DictCursor)
        except (OSError, Error) as error:
            raise LoadRunError(
                f"cannot reach the database at {self.host}:{self.port}: {error}",
                hint="is the server running, and are user and password right?",
            ) from error


class MysqlSession:
    """One connection: its look-ups go one after the other, as an application's do."""

    def __init__(self, target: MysqlTarget, connection: Any) -> None:
        self.connection = connection
        self._target = target
        self._under_way = False
        """Whether an answer may still be on its way: then nobody else can use the connection."""

    async def read(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        return await in_rounds(self._round, lookups)

    async def _round(self, lookups: Sequence[Lookup]) -> Sequence[RowsAnswer]:
        answers = []
        self._under_way = True
        try:
            async with self.connection.cursor(DictCursor) as cursor:
                for lookup in lookups:
                    await cursor.execute(self._target.text(lookup.query), _given(lookup.values))
                    answers.append(RowsAnswer(await cursor.fetchall()))
        except (Error, OSError) as error:
            raise RequestFailed(_told(error)) from error
        self._under_way = False
        return answers

    async def write(self, changes: Sequence[Change]) -> int:
        for again in range(AGAIN_MAX + 1):
            try:
                return await self._write(changes)
            except IntegrityError as error:
                await self.connection.rollback()
                raise Conflict(_told(error)) from error
            except (Error, OSError) as error:
                if again == AGAIN_MAX or error.args[:1] not in [(code,) for code in DEADLOCKS]:
                    raise RequestFailed(_told(error)) from error
                await self.connection.rollback()
        raise AssertionError("the last try returns or raises")

    async def _write(self, changes: Sequence[Change]) -> int:
        affected = 0
        self._under_way = True
        async with self.connection.cursor() as cursor:
            if len(changes) > 1:
                await self.connection.begin()
            for change in changes:
                for text, values in changed_rows(change, "`", "%s"):
                    affected += await cursor.execute(text, values)
            if len(changes) > 1:
                await self.connection.commit()
        self._under_way = False
        return affected

    async def close(self) -> None:
        if self._under_way:
            self.connection.close()
        else:
            self._target.give_back(self)


def _insert(table: str, columns: Sequence[str]) -> str:
    names = ", ".join(f"`{column}`" for column in columns)
    return f"INSERT INTO `{table}` ({names}) VALUES ({', '.join(['%s'] * len(columns))})"


def _given(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """As the driver takes them: lists as tuples."""
    return tuple(tuple(value) if isinstance(value, list) else value for value in values) or None


def _told(error: Exception) -> str:
    """Without what differs from one request to the next."""
    code = error.args[0] if error.args else ""
    return f"{type(error).__name__} {code}".strip()
