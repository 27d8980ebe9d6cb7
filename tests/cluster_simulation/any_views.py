"""Clients that do a case of the campaign: any tables, views and writes, and in the end the judge's word on all views.

What becomes of a change whose leader was lost is told by the catalog at the end. What becomes of a write that was lost
does not matter: the judge is given the rows that are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from domains.errors import Unsupported
from domains.language.types import Row
from migrations.flow.plan import State
from tests.campaign.cases import case_of
from tests.campaign.comparison import Different, compare
from tests.campaign.execution import draw_values
from tests.campaign.judge import MOST_ROWS, Judge, Verdict, plain
from tests.campaign.queries import View
from tests.campaign.rendering import parameters
from tests.campaign.schema import Column, Table
from tests.campaign.statements import (
    AddColumn,
    CreateTable,
    CreateView,
    Delete,
    DropColumn,
    DropView,
    Evict,
    Insert,
    Lookup,
    Update,
)
from tests.campaign.subject import Setting
from tests.cluster_simulation.client import Client, Ending

Change = Callable[[str], Awaitable[Exception | None]]
"""Has a statement done by the leader: None when it is, else what it answered (TimeoutError: nothing)."""
At = Callable[[Client, Callable[[], Awaitable[Any]]], Coroutine[Any, Any, Any]]
"""Has a client's process do something."""


class AnyViews:
    def __init__(self, seed: int, random: Random, shards: int, seconds: float, change: Change) -> None:
        self.random = random
        self.operations = case_of(seed, Setting(seed, True, 1, shards)).operations
        self.views: dict[str, View] = {}
        """Those that may be there."""
        self._seconds = seconds
        self._change = change
        self._tables: dict[str, Table] = {}
        self._added: dict[str, list[Column]] = {}
        self._about = Judge()
        """What the tables hold, about: for values that meet rows, and views that are not too large."""
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    async def run(self, clients: list[Client], at: At) -> None:
        """All operations, spread over the time that there is."""
        pause = 2 * self._seconds / len(self.operations)
        tasks: list[asyncio.Task[Any]] = []

        def begin(client: Client, act: Callable[[], Awaitable[Any]]) -> None:
            tasks.append(asyncio.ensure_future(at(client, act)))

        for operation in self.operations:
            client = self.random.choice(clients)
            match operation:
                case CreateTable() | CreateView() | DropView() | AddColumn() | DropColumn():
                    await self._define(operation)
                case Insert() | Update() | Delete():
                    if self._may_write(operation):
                        begin(client, partial(self._write, client, operation))
                case Lookup(name, salt, count):
                    for number in range(count):
                        begin(client, partial(self._read, client, name, salt + number))
                case Evict(name, salt):
                    begin(client, partial(self._evict, client, name, salt))
                case _:
                    continue
            await asyncio.sleep(pause * self.random.random())
        await asyncio.gather(*tasks)

    # --- changes --------------------------------------------------------------------------------------------------

    async def _define(self, operation: Any) -> None:
        match operation:
            case CreateTable(table):
                while (error := await self._change(operation.text())) is not None and "exists" not in str(error):
                    await asyncio.sleep(0.3)
                self._tables[table.name] = table
                self._about.create_table(table)
            case CreateView():
                await self._create_view(operation)
            case DropView():
                await self._change(operation.text())
            case AddColumn(table_name, column):
                self._added.setdefault(table_name, []).append(column)
                if await self._change(operation.text()) is None:
                    self._about.add_column(table_name, column)
            case DropColumn(table_name, column_name):
                error = await self._change(operation.text())
                if error is None and column_name in self._about.tables[table_name].names:
                    self._about.drop_column(table_name, column_name)

    async def _create_view(self, operation: CreateView) -> None:
        for view in (operation.view, operation.spare):
            if view is None or not self._is_affordable(view):
                continue
            self.views[view.name] = view
            error = await self._change(CreateView(view).text())
            if not isinstance(error, Unsupported):
                return

    def _is_affordable(self, view: View) -> bool:
        try:
            return self._about.affordable(view.query)
        except Exception:
            return False  # It reads a column that is not there, or not known to be.

    # --- writes and reads -----------------------------------------------------------------------------------------

    def _may_write(self, write: Insert | Update | Delete) -> bool:
        return write.table in self._about.tables and len(self._about.contents(write.table)) < MOST_ROWS // 2

    async def _write(self, client: Client, write: Insert | Update | Delete) -> None:
        ending, _ = await client.write(write.text())
        self.count(f"writes {ending.value}")
        if ending is Ending.DONE:
            try:
                verdict, changed = self._about.consider(write)
            except Exception:
                return  # The tables as they are known here lack a column.
            if verdict is not Verdict.REFUSED:
                self._about.apply(changed)

    def _values(self, name: str, salt: int) -> list[Any] | None:
        try:
            return draw_values(Random(salt), self.views[name], self._about)
        except Exception:
            return None

    async def _read(self, client: Client, name: str, salt: int) -> None:
        values = self._values(name, salt) if name in self.views else None
        planned = client.directory.state.planned.get(name)
        if values is not None and planned is not None and len(planned.placeholders) == len(values):
            rows = await client.read(name, client.arguments(name, values), {})
            self.count("reads" if rows is not None else "reads without an answer")

    async def _evict(self, client: Client, name: str, salt: int) -> None:
        values = self._values(name, salt) if name in self.views else None
        planned = client.directory.state.planned.get(name)
        if values is not None and planned is not None and len(planned.placeholders) == len(values):
            self.count("evictions")
            await client.evict_arguments(name, client.arguments(name, values))

    # --- the end --------------------------------------------------------------------------------------------------

    def judge(self, state: State, stored: dict[str, list[Row]]) -> Judge:
        """The judge, with the tables as they are and the rows that are stored."""
        judge = Judge()
        for name, table in self._tables.items():
            if name in state.catalog.tables:
                schema = state.catalog.tables[name]
                known = {column.name: column for column in (*table.columns, *self._added.get(name, ()))}
                places = [at for at, column in enumerate(schema.columns) if not column.dropped]
                columns = tuple(known[schema.columns[at].name] for at in places)
                judge.create_table(replace(table, columns=columns))
                rows = {i: tuple(plain(row[at]) for at in places) for i, row in enumerate(stored[name])}
                judge.apply({name: rows})
        return judge

    async def compare(self, client: Client, state: State, judge: Judge, name: str) -> None:
        """Some keys of one view."""
        view = self.views[name]
        if name not in state.catalog.views or not judge.affordable(view.query):
            return
        if name not in state.flow.readers:
            return
        for _ in range(6 if parameters(view.query) else 1):
            values = draw_values(self.random, view, judge)
            found = await client.read(name, client.arguments(name, values), {}, 5.0)
            assert found is not None, f"{name} {values} has no answer, and all is quiet"
            self.count("answers compared")
            try:
                expected = judge.expected(view.query, values)
                compare(found, expected, [output.term.type for output in view.query.outputs], view.query.order)
            except Different as error:
                raise AssertionError(f"{CreateView(view).text()}\n{name} {values}: {error}") from error
