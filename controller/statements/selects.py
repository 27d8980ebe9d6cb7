"""Ad-hoc SELECTs: each becomes a view, found again by its normalised text, and is served by it from then on."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from controller.deployment import StatementResult, ViewInfo, WriteResult
from controller.hosts import SchemaChanged
from controller.lookups.binding import Binding
from domains.errors import AlreadyExists, NotFound, Unsupported
from domains.language.coercion import coerce
from domains.language.types import Column, Row, TableSchema
from domains.plan.packets import Clock, Operation
from migrations.flow.plan import State, understand
from migrations.parse.reading import Parsed
from migrations.query.select import constant_select, reads_nothing
from migrations.query.view import PlannedView
from migrations.recipe import RecipeEntry
from migrations.statements.adhoc.shapes_of_selects import AdHoc, exact_arguments, parameterise, verbatim
from migrations.statements.constants import Argument
from migrations.statements.statement import SelectStatement
from worker.reader_map import BoundLookup

Answer = TypeVar("Answer")

AD_HOC_VIEWS_MAX = 500
"""Views of ad-hoc SELECTs that are kept. An application has some hundred queries; past that, texts are made up, and
the view that was used longest ago goes."""


class StatementPort(Protocol):
    """What statements need of the deployment that they are performed on; ``controller/serving.py`` implements it."""

    @property
    def state(self) -> State: ...

    async def run(self, entry: RecipeEntry, sql: str, parsed: Sequence[Parsed] | None = None) -> None: ...

    async def read(self, view: str, bind: Callable[[Binding], BoundLookup], token: Clock | None = None) -> bytes: ...

    async def write(self, operation: Operation) -> WriteResult: ...

    async def made_anew(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer: ...

    def now(self) -> str: ...

    def tables(self) -> list[TableSchema]: ...

    def views(self) -> list[ViewInfo]: ...

    def explain(self, view: str) -> str: ...


class Selects:
    """Answers SELECTs of one deployment."""

    def __init__(self, deployment: StatementPort) -> None:
        self._deployment = deployment
        self._used: dict[str, None] = {}
        """Ad-hoc views, the one used longest ago first."""

    async def answer(self, statement: SelectStatement, token: Clock) -> StatementResult:
        columns, fragments = await self._read(statement, token)
        return StatementResult(columns, tuple(tuple(row.values()) for row in fragments))

    async def values(self, statement: SelectStatement, token: Clock) -> list[Row]:
        """The answer as the engine's values (JSON knows no DECIMAL and no BLOB)."""
        if reads_nothing(statement.query):
            return list(constant_select(statement.query).rows)
        columns, fragments = await self._read(statement, token)
        return [
            tuple(coerce(value, c.type, from_json=True) for value, c in zip(row.values(), columns, strict=True))
            for row in fragments
        ]

    async def view(self, statement: SelectStatement) -> str:
        """The view that a SELECT is served by."""
        name, _, _ = await self._prepared(statement)
        return name

    async def _read(self, statement: SelectStatement, token: Clock) -> tuple[tuple[Column, ...], list[dict[str, Any]]]:
        """Raises SchemaChanged where another view came to stand under its name meanwhile, which ALTER TABLE can do."""
        name, planned, arguments = await self._prepared(statement)
        served = self._deployment.state.planned.get(name)
        if served is not None and _alike(served, planned):
            try:
                page = await self._deployment.read(name, lambda binding: binding.from_arguments(arguments), token)
            except NotFound:
                page = None  # Forgotten meanwhile, for that reason or because there are too many others.
            if page is not None and self._deployment.state.planned.get(name) is served:
                return planned.columns, json.loads(b"[" + page + b"]")  # not orjson, to which 2^64 is a float
        raise SchemaChanged(", ".join(sorted(planned.tables)))

    async def _prepared(self, statement: SelectStatement) -> tuple[str, PlannedView, Sequence[Argument]]:
        """The view and what to read it with: with its constants as parameters, or else with them in its text."""
        catalog = self._deployment.state.catalog
        ad_hoc = parameterise(statement.query, catalog, statement.params)
        try:
            planned = self._planned(ad_hoc)
        except Unsupported:
            planned = None
        if planned is not None:
            bound = ad_hoc.bind(statement.params)
            arguments = exact_arguments(bound, planned.placeholders, planned.parameters)
            if arguments is not None:
                await self._ensure(ad_hoc)
                return ad_hoc.name, planned, arguments
        ad_hoc = verbatim(statement.query, catalog, statement.params)
        planned = self._planned(ad_hoc)
        arguments = exact_arguments(ad_hoc.bind(statement.params), planned.placeholders, planned.parameters)
        await self._ensure(ad_hoc)
        return ad_hoc.name, planned, arguments or ()

    def _planned(self, ad_hoc: AdHoc) -> PlannedView:
        state = self._deployment.state
        return state.planned.get(ad_hoc.name) or understand(state, ad_hoc.definition())

    async def _ensure(self, ad_hoc: AdHoc) -> None:
        """Have the view, and forget the one that was used longest ago where there are too many."""
        self._used.pop(ad_hoc.name, None)
        self._used[ad_hoc.name] = None
        if len(self._used) > AD_HOC_VIEWS_MAX:
            del self._used[next(iter(self._used))]
        if ad_hoc.name not in self._deployment.state.catalog.views:
            try:
                await self._deployment.run(RecipeEntry((ad_hoc.view_sql,), ad_hoc=True), ad_hoc.view_sql)
            except AlreadyExists:
                return  # Another request was quicker with the same text.
        catalog = self._deployment.state.catalog
        kept = [view.name for view in catalog.views.values() if view.ad_hoc]
        if len(kept) > AD_HOC_VIEWS_MAX:
            unused = (name for name in kept if name not in self._used)
            doomed = next((name for name in unused if not catalog.dependents(name)), None)
            if doomed is not None:
                await self._deployment.run(RecipeEntry(forget=(doomed,)), f"forget {doomed}")


def _alike(one: PlannedView, other: PlannedView) -> bool:
    """Whether arguments made for one are those of the other, and its rows have the other's columns."""
    return (one.columns, one.parameters, one.placeholders) == (other.columns, other.parameters, other.placeholders)
