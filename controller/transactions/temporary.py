"""The temporary tables of sessions: which there are, how many there may be, and their ends.

A temporary table is a table of the catalog under a hidden name (``migrations/parse/temporary.py``), so CREATE and DROP
of it are migrations as of any other, which commit nothing. It goes with its session: at a disconnect,
COM_RESET_CONNECTION, COM_CHANGE_USER, KILL, or when a session over HTTP was silent for too long. What a crash leaves
goes at the next start.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from domains.errors import HeadraceError, LimitExceeded, Unsupported
from migrations.catalog import Catalog
from migrations.flow.plan import State
from migrations.parse.reading import Parsed, quote
from migrations.parse.temporary import MARK, is_hidden, is_temporary_definition
from migrations.recipe import RecipeEntry

_log = logging.getLogger("headrace.controller")


@dataclass(slots=True)
class OwnTables:
    """Of one session."""

    secret: str = field(default_factory=lambda: secrets.token_hex(8))
    made: set[str] = field(default_factory=set)
    """The names of all that it asked for, whose making may still be under way when the session ends."""

    def known(self, catalog: Catalog) -> frozenset[str]:
        """The names of those that are there, in lower case."""
        begins = f"{MARK}{self.secret}{MARK}"
        return frozenset(title for title in catalog.titles if title.startswith(begins))


class MigratingPort(Protocol):
    """The part of a deployment that makes and drops them."""

    @property
    def state(self) -> State: ...

    async def run(self, entry: RecipeEntry, sql: str) -> None: ...


class TemporaryTables:
    """Those of one process."""

    def __init__(self, deployment: MigratingPort) -> None:
        self._deployment = deployment
        self.are_there = True
        """In a cluster there are none: nobody would drop what an api process leaves that is lost."""
        self._ending: set[asyncio.Task[None]] = set()

    def check(self, definitions: Iterable[Parsed], limit: int) -> None:
        """:raises Unsupported: it is a cluster. :raises LimitExceeded: there would be too many."""
        new = sum(is_temporary_definition(each) and "tables" not in each.expression.args for each in definitions)
        if not new:
            return
        if not self.are_there:
            raise Unsupported("CREATE TEMPORARY TABLE in a cluster", hint="headrace serve has it; or make a table")
        if len(self.left()) + new > limit:
            raise LimitExceeded(
                f'"max_temporary_tables", {limit}, are there, of all sessions together',
                hint="DROP TEMPORARY TABLE, or start the server with a greater max_temporary_tables",
            )

    def left(self) -> list[str]:
        """The names of all that are there."""
        return [table.title for table in self._deployment.state.catalog.tables.values() if is_hidden(table.title)]

    def leave(self, own: OwnTables | None) -> None:
        """Drop a session's, which has ended, when those that it asked for are made."""
        if own is None:
            return
        task = asyncio.create_task(self.drop({*own.made, *own.known(self._deployment.state.catalog)}))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def drop(self, titles: Collection[str]) -> None:
        texts = tuple(f"DROP TABLE IF EXISTS {quote(each)}" for each in sorted(titles))
        try:
            if texts:
                await self._deployment.run(RecipeEntry(texts), ";\n".join(texts))
        except HeadraceError as error:
            _log.info("temporary tables are left for the next start: %s", error.message)

    async def close(self) -> None:
        if self._ending:
            await asyncio.wait(self._ending)
