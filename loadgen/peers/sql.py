"""The common part of the databases: statements out of a file, changes as SQL, rows as an answer."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from loadgen.peers.store import (
    Change,
    DeleteRow,
    InsertRow,
    LoadRunError,
    Lookup,
    Program,
    Query,
    RequestFailed,
    Target,
    UpdateRow,
    Upsert,
)

SessionT = TypeVar("SessionT")


def statements(text: str) -> Iterator[str]:
    """The statements of a file without its comments. None of ours has a semicolon inside."""
    for statement in re.sub(r"--.*", "", text).split(";"):
        if statement.strip():
            yield statement.strip()


@dataclass(frozen=True, slots=True)
class RowsAnswer:
    """Rows as the driver gives them: by column name."""

    given: Sequence[Any]

    def rows(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.given]

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.given]


class PooledTarget(ABC, Generic[SessionT]):
    """The common part of SQL targets: sessions that are used again, and each query's text, made once."""

    def __init__(self, text_of: Callable[[Query], str]) -> None:
        self._text_of = text_of
        self._texts: dict[str, str] = {}
        self._idle: list[SessionT] = []

    async def session(self) -> SessionT:
        return self._idle.pop() if self._idle else await self._open()

    @abstractmethod
    async def _open(self) -> SessionT:
        """A session on a connection of its own. Raises LoadError."""

    def give_back(self, session: SessionT) -> None:
        self._idle.append(session)

    def notes(self) -> dict[str, Any]:
        return {}

    def text(self, query: Query) -> str:
        text = self._texts.get(query.name)
        if text is None:
            text = self._texts[query.name] = self._text_of(query)
        return text


def check_tables(database: str, there: Collection[str], program: Program) -> None:
    """Raises LoadError where a table of the program is not there."""
    missing = [table for table in program.tables if table not in there]
    if missing:
        raise LoadRunError(
            f'database "{database}" has no table "{missing[0]}" of the {program.name} program',
            hint="load it with --prime",
        )


async def check_data(target: Target, database: str, program: Program, probe: Lookup) -> None:
    """Raises LoadError where the probe finds nothing, or its query is not understood: the variant is another."""
    session = await target.session()
    try:
        (found,) = await session.read([probe])
    except RequestFailed as error:
        raise LoadRunError(
            f'database "{database}" is not of the variant "{program.variant}": {error}', hint="prime another database"
        ) from error
    if not found.rows():
        raise LoadRunError(
            f'database "{database}" holds less data than the run would ask for',
            hint="give the --data-scale and --data-seed that it was primed with, or --prime another one",
        )
    await session.close()


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
