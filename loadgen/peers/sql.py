"""Databases: what MariaDB and PostgreSQL have in common as targets, and changes as SQL."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import SplitResult

from loadgen.peers.store import (
    Answer,
    Change,
    Conflict,
    DeleteRow,
    InsertRow,
    LoadRunError,
    Lookup,
    PeerSession,
    Program,
    Progress,
    Query,
    RequestFailed,
    Rows,
    RowsAnswer,
    Target,
    UpdateRow,
    Upsert,
)


def statements(text: str) -> Iterator[str]:
    """The statements of a file without its comments. None of ours has a semicolon inside."""
    for statement in re.sub(r"--.*", "", text).split(";"):
        if statement.strip():
            yield statement.strip()


class SqlTarget(Target):
    """A database: sessions that are used again, each query's text made once, and the order of a priming."""

    def __init__(self, parts: SplitResult, port: int, user: str) -> None:
        self.host, self.port = parts.hostname or "127.0.0.1", port
        self.database = parts.path.lstrip("/") or "lobsters"
        self.where = {
            "host": self.host,
            "port": port,
            "user": parts.username or user,
            "password": parts.password or "",
        }
        self._texts: dict[str, str] = {}
        self._idle: list[SqlSession] = []

    # --- what the databases differ in ---------------------------------------------------------------------------

    @abstractmethod
    def text_of(self, query: Query) -> str:
        """The query in the dialect and with the driver's places for values."""

    @abstractmethod
    async def open(self, database: str | None) -> SqlSession:
        """A session on a connection of its own; in no database of ours if none is named. Raises LoadRunError."""

    @abstractmethod
    async def tables(self) -> set[str]: ...

    @abstractmethod
    async def create(self, program: Program) -> SqlSession:
        """Make the database with the tables of the program. Raises LoadRunError where it is there already."""

    @abstractmethod
    async def load(self, session: SqlSession, table: str, rows: list[dict[str, Any]]) -> None: ...

    @abstractmethod
    async def finish(self, session: SqlSession, program: Program) -> None:
        """When all rows are there: indexes, views, statistics."""

    # --- and what they share --------------------------------------------------------------------------------------

    def text(self, query: Query) -> str:
        text = self._texts.get(query.name)
        if text is None:
            text = self._texts[query.name] = self.text_of(query)
        return text

    async def session(self) -> SqlSession:
        return self._idle.pop() if self._idle else await self.open(self.database)

    def give_back(self, session: SqlSession) -> None:
        self._idle.append(session)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect()

    async def check(self, program: Program, probe: Lookup | None) -> None:
        there = await self.tables()
        missing = [table for table in program.tables if table not in there]
        if missing:
            raise LoadRunError(
                f'database "{self.database}" has no table "{missing[0]}" of the {program.name} program',
                hint="load it with --prime",
            )
        if probe is None:
            return
        session = await self.session()
        try:
            (found,) = await session.read([probe])
        except RequestFailed as error:  # Its query is not understood.
            raise LoadRunError(
                f'database "{self.database}" is not of the variant "{program.variant}": {error}',
                hint="prime another database",
            ) from error
        if not found.rows():
            raise LoadRunError(
                f'database "{self.database}" holds less data than the run would ask for',
                hint="give the --data-scale and --data-seed that it was primed with, or --prime another one",
            )
        await session.close()

    async def prime(self, program: Program, batches: Rows, total: int, tell: Progress) -> None:
        session = await self.create(program)
        done = 0
        for table, rows in batches:
            await self.load(session, table, rows)
            done += len(rows)
            tell(table, done, total)
        tell("indexes and views", done, total)
        await self.finish(session, program)
        await session.disconnect()

    def there_already(self) -> LoadRunError:
        return LoadRunError(f'there is a database "{self.database}" already', hint="prime another one")

    def unreachable(self, error: Exception) -> LoadRunError:
        return LoadRunError(
            f"cannot reach the database at {self.host}:{self.port}: {error}",
            hint="is the server running, and are user and password right?",
        )


AGAIN_MAX = 5
"""Times that a write is done again after a deadlock, which has undone it."""


class SqlSession(PeerSession):
    """One connection: its look-ups go one after the other, as an application's do; each write is a transaction."""

    faults: tuple[type[Exception], ...]
    """The driver's exceptions."""
    conflicts: tuple[type[Exception], ...]
    """The exceptions for a row whose key exists already."""

    def __init__(self, target: SqlTarget, connection: Any) -> None:
        self.connection = connection
        self._target = target
        self._under_way = False
        """Whether an answer may still be on its way: then nobody else can use the connection."""

    @abstractmethod
    async def fetch(self, text: str, values: Sequence[Any]) -> Sequence[Any]: ...

    @abstractmethod
    async def apply(self, changes: Sequence[Change]) -> int:
        """All or none; how many rows changed."""

    @abstractmethod
    async def undo(self) -> None:
        """After an error in ``apply``."""

    @abstractmethod
    def is_deadlock(self, error: Exception) -> bool: ...

    @abstractmethod
    def told(self, error: Exception) -> str:
        """The error's text, without what differs between requests."""

    @abstractmethod
    async def disconnect(self, *, at_once: bool = False) -> None: ...

    async def ask(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        self._under_way = True
        try:
            answers = [RowsAnswer(await self.fetch(self._target.text(each.query), each.values)) for each in lookups]
        except self.faults as error:
            raise RequestFailed(self.told(error)) from error
        self._under_way = False
        return answers

    async def write(self, changes: Sequence[Change]) -> int:
        for again in range(AGAIN_MAX + 1):
            self._under_way = True
            try:
                affected = await self.apply(changes)
            except self.conflicts as error:
                await self.undo()
                raise Conflict(self.told(error)) from error
            except self.faults as error:
                if again == AGAIN_MAX or not self.is_deadlock(error):
                    raise RequestFailed(self.told(error)) from error
                await self.undo()
            else:
                self._under_way = False
                return affected
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        if self._under_way:
            await self.disconnect(at_once=True)
        else:
            self._target.give_back(self)


def changed_rows(change: Change, quote: str, place: str) -> Iterator[tuple[str, list[Any]]]:
    """The change as statements with their values; ``quote`` is put around names, ``place`` stands for a value."""

    def named(name: str) -> str:
        return f"{quote}{name}{quote}"

    match change:
        case InsertRow():
            columns = list(change.rows[0])
            row = f"({', '.join([place] * len(columns))})"
            names = ", ".join(map(named, columns))
            yield (
                f"INSERT INTO {named(change.table)} ({names}) VALUES {', '.join([row] * len(change.rows))}",
                [each[column] for each in change.rows for column in columns],
            )
        case Upsert():
            ((text, values),) = changed_rows(InsertRow(change.table, change.rows), quote, place)
            if quote == "`":
                sets = [f"{named(name)} = VALUES({named(name)})" for name in change.set]
                yield f"{text} ON DUPLICATE KEY UPDATE {', '.join(sets)}", values
            else:
                sets = [f"{named(name)} = excluded.{named(name)}" for name in change.set]
                keys = ", ".join(map(named, change.key))
                yield f"{text} ON CONFLICT ({keys}) DO UPDATE SET {', '.join(sets)}", values
        case UpdateRow():
            sets = [f"{named(name)} = {place}" for name in change.set]
            sets += [f"{named(name)} = {named(name)} + {place}" for name in change.add]
            where = " AND ".join(f"{named(name)} = {place}" for name in change.key)
            yield (
                f"UPDATE {named(change.table)} SET {', '.join(sets)} WHERE {where}",
                [*change.set.values(), *change.add.values(), *change.key.values()],
            )
        case DeleteRow():
            where = " AND ".join(f"{named(name)} = {place}" for name in change.key)
            yield f"DELETE FROM {named(change.table)} WHERE {where}", list(change.key.values())
