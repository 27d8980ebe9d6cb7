"""SELECTs: a look-up of the view that answers it, or else an evaluation over the base tables, kept if that pays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from time import monotonic, perf_counter
from typing import Protocol, TypeVar

from controller.deployment import ArchivedPositions, QueryInfo, StatementResult, ViewInfo, WriteResult
from controller.hosts import SchemaChanged
from controller.lookups.binding import Binding, FinishedLookup
from controller.statements.evaluating import Elsewhere, SparkSelects
from controller.statements.shapes import FULL_ROWS, AdHocMode, AskedShapes, Shape, Variant, listed_text
from controller.statements.texts import Texts
from domains.engine.evaluation import EvaluationPlan
from domains.errors import AlreadyExists, HeadraceError, NotFound, Unsupported
from domains.language.coercion import coerce, json_value, row_coercer
from domains.language.types import Column, Row, TableSchema
from domains.plan.packets import Clock, Operation
from domains.plan.traits import traits_of
from migrations.catalog import Catalog
from migrations.flow.evaluation_plan import explained, plan_evaluation, statistics_of
from migrations.flow.explain import explain
from migrations.flow.plan import State, one_domain, plan_readers
from migrations.parse.reading import Parsed, exp
from migrations.query.finish import Finish
from migrations.query.select import constant_select, reads_nothing
from migrations.query.view import PlannedView
from migrations.recipe import RecipeEntry
from migrations.statements.adhoc.recognising import KnownShapes
from migrations.statements.adhoc.shapes_of_selects import (
    AdHoc,
    comparands,
    exact_arguments,
    parameterise,
    shape_text,
    verbatim,
)
from migrations.statements.constants import Argument
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import SelectStatement
from worker.adhoc.answer import LONG_PAGE, ROWS_TOGETHER, Question, Rows, rows_in
from worker.adhoc.pool import Budget
from worker.reader_map import BoundLookup

Answer = TypeVar("Answer")

PLANS = 200
"""Plans that are remembered while the schema stays: an application asks some hundred shapes."""
PLANNED_CHARACTERS = 200_000
"""Of the texts of these plans, in all: a plan takes some hundred bytes for each."""
SIZES_SECONDS = 10.0
"""After which tables are counted again for the order of joins."""
TEXTS = 2_000
"""Shapes' texts that are remembered, by the names of views: they take a millisecond to write."""
LISTED_CHARACTERS = 4_000
"""Of a statement that is listed: there may be 10,000 of them."""

_log = logging.getLogger("headrace.controller")


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

    async def evaluate(self, question: Question, token: Clock, elsewhere: Elsewhere | None) -> tuple[Rows, Clock]: ...

    async def archive(self) -> ArchivedPositions: ...

    async def table_rows(self, tables: Sequence[TableSchema]) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True)
class PreparedSelect:
    """A SELECT as what can be asked: of a view of it, or of the base tables."""

    ad_hoc: AdHoc
    planned: PlannedView
    plan: EvaluationPlan
    arguments: Sequence[Argument]


class Selects:
    """Answers SELECTs of one deployment."""

    def __init__(self, deployment: StatementPort, shapes: AskedShapes, texts: Texts) -> None:
        self._deployment = deployment
        self.shapes = shapes
        self.texts = texts
        self._lock = Lock()
        """Around plans that are remembered, not their making: a text that is long is planned in a thread."""
        self._plans: dict[str, tuple[int, PlannedView, EvaluationPlan]] = {}
        """With the characters of their texts."""
        self._characters = 0
        self._ordered: dict[str, tuple[float, PlannedView, EvaluationPlan]] = {}
        """Those of several tables, by the time when these were counted."""
        self._by_tree: dict[int, tuple[exp.Query, AdHoc, PlannedView, EvaluationPlan]] = {}
        """By a statement's tree, which a text that was asked before has again: what does not depend on parameters."""
        self._plans_of: State | None = None
        self.known_shapes = KnownShapes()
        self._texts: dict[str, str] = {}
        self._keeping: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._giving_way = False
        self.by_spark: SparkSelects | None = None
        """Answers what reads many rows, where there are an archive and a Spark master."""

    async def answer(self, statement: SelectStatement, token: Clock) -> tuple[StatementResult, Clock]:
        """The answer, and the positions that it reflects, where it was evaluated."""
        columns, rows, clock = await self._read(statement, token)
        return StatementResult(columns, tuple(rows)), clock

    async def values(self, statement: SelectStatement, token: Clock) -> list[Row]:
        """The answer as the engine's values (JSON knows no DECIMAL and no BLOB)."""
        if reads_nothing(statement.query):
            return list(constant_select(statement.query).rows)
        columns, rows, _ = await self._read(statement, token)
        return [
            tuple(coerce(value, c.type, from_json=True) for value, c in zip(row, columns, strict=True)) for row in rows
        ]

    async def explain(self, statement: SelectStatement) -> str:
        """The view that answers it; else how it is evaluated, and the dataflow that a view of it would have. Nothing is
        run, and nothing kept."""
        select = await self._unless_long(statement.sql, lambda state: self._prepared(statement, state))
        view = self._view_of(select)
        if view is not None:
            return f'answered by the view "{view}"\n{self._deployment.explain(view)}'
        variant = self.shapes.variant(select.ad_hoc.name)
        why = "not kept: it was not asked yet" if variant is None else self._why(variant)
        rows = await self._deployment.table_rows(select.plan.tables)
        if (spark := self.by_spark) is not None:
            why = f"{why}; by Spark past {spark.threshold:,} rows read"

        def told(state: State) -> str:
            statistics = statistics_of(state.catalog, rows)
            _, ordered = plan_evaluation(state, select.ad_hoc.definition(), statistics)
            after, _ = plan_readers(state, [select.ad_hoc.definition()], one_domain)
            plan = explain(after.flow, after.flow.readers[select.ad_hoc.name])
            evaluated = f"answered over the base tables; {why}", explained(ordered, statistics)
            return "\n".join((*evaluated, "a view of it would be", plan))

        return await self._unless_long(statement.sql, told)

    async def _read(self, statement: SelectStatement, token: Clock) -> tuple[tuple[Column, ...], Rows, Clock]:
        """Raises SchemaChanged where another view came to stand under its name meanwhile, which ALTER TABLE can do."""
        sql = statement.sql
        select = await self._unless_long(sql, lambda state: self._prepared(statement, state))
        planned, arguments = select.planned, select.arguments
        view = self._view_of(select)
        if view is not None:
            served = self._deployment.state.planned[view]
            await self._counted(select, statement)
            try:
                page = await self._deployment.read(view, lambda binding: binding.from_arguments(arguments), token)
            except NotFound:
                page = None
            if page is None or self._deployment.state.planned.get(view) is not served:
                raise SchemaChanged(", ".join(sorted(planned.tables)))
            return planned.columns, await self.texts.parts(rows_in, page, few=len(page) <= LONG_PAGE), {}
        if self.shapes.mode is AdHocMode.OFF:
            raise Unsupported(
                "a SELECT that no view answers: ad_hoc is off",
                hint=f"CREATE EXT VIEW name AS {select.ad_hoc.view_sql}",
            )
        if (gone := self.shapes.kept.pop(select.ad_hoc.name, None)) is not None:
            gone.view = None  # With a table that it read.
            self.known_shapes.forget(select.ad_hoc.name)
        if planned.finish is not None:
            # What is done to the rows of a view when it is read sinks to tables.
            evaluated = await self._unless_long(sql, lambda state: self._verbatim(statement, state))
        else:
            evaluated = select
        planned, plan = await self._in_order(evaluated)
        binding = Binding(evaluated.ad_hoc.name, planned.reader, planned.parameters, planned.finish)
        bound = binding.from_arguments(evaluated.arguments)
        shape, variant = await self._counted(select, statement)
        began = perf_counter()
        spark = self.by_spark
        elsewhere = None if spark is None else Elsewhere(spark.threshold, partial(self._by_spark, statement, spark))
        rows, clock = await self._deployment.evaluate(Question(plan, bound.sent), token, elsewhere)
        took = perf_counter() - began
        shape.seconds += took
        variant.seconds += took
        shape.rows += len(rows)
        if self.shapes.keeps and not self._keeping:
            if shape.pays:
                self._begin(self._keep_all(shape, sql))
            elif variant.pays:
                self._begin(self._keep(select, variant))
        if isinstance(bound, FinishedLookup) and planned.finish is not None:
            finish = partial(_finished, bound, planned.finish, rows)
            rows = await self.texts.aside(finish) if self.texts.has_thread and len(rows) > ROWS_TOGETHER else finish()
        return planned.columns, rows, clock

    async def _by_spark(
        self, statement: SelectStatement, spark: SparkSelects, budget: Budget
    ) -> tuple[Rows, Clock] | None:
        select = await self._unless_long(statement.sql, lambda state: self._verbatim(statement, state))
        return await spark.answer(self._deployment, select.ad_hoc.definition(), select.plan, budget)

    async def _counted(self, select: PreparedSelect, statement: SelectStatement) -> tuple[Shape, Variant]:
        ad_hoc = select.ad_hoc
        text = self._texts.get(ad_hoc.name)
        if text is None:
            written = await self._unless_long(statement.sql, lambda _: shape_text(ad_hoc.view_sql))
            text = self._texts[ad_hoc.name] = listed_text(written)
            if len(self._texts) > TEXTS:
                del self._texts[next(iter(self._texts))]
        return self.shapes.asked(text, ad_hoc.name, ad_hoc.view_sql[:LISTED_CHARACTERS], ad_hoc.reusable)

    def _why(self, variant: Variant) -> str:
        return variant.why(self.shapes.mode, self.shapes.obstacle)

    # --- planning -------------------------------------------------------------------------------------------

    async def _unless_long(self, sql: str, work: Callable[[State], Answer]) -> Answer:
        """What is done with a text, on the event loop only where that is short.

        :raises SchemaChanged: meanwhile.
        """
        state = self._deployment.state
        if not self.texts.is_left(sql):
            return work(state)
        found = await self.texts.aside(lambda: work(state))
        if self._deployment.state is not state:
            raise SchemaChanged("of the statement")
        return found

    def _prepared(self, statement: SelectStatement, state: State) -> PreparedSelect:
        """What to read it with: with its constants as parameters, or else with them in its text."""
        with self._lock:
            if self._plans_of is not state:
                self._forget_plans(state)
            known = self._by_tree.get(id(statement.query))
        if known is None or known[0] is not statement.query:
            made = self._made(statement, state)
            if isinstance(made, PreparedSelect):
                return made
            known = statement.query, *made
        ad_hoc, planned, plan = known[1:]
        arguments = exact_arguments(ad_hoc.bind(statement.params), planned.placeholders, planned.parameters)
        if arguments is None:
            return self._verbatim(statement, state)
        return PreparedSelect(ad_hoc, planned, plan, arguments)

    def _made(
        self, statement: SelectStatement, state: State
    ) -> PreparedSelect | tuple[AdHoc, PlannedView, EvaluationPlan]:
        """With its constants as parameters, if it can be planned so; that is remembered where it does not depend on the
        values of its own parameters."""
        ad_hoc = parameterise(statement.query, state.catalog, statement.params)
        try:
            planned, plan = self._planned(ad_hoc, state)
        except Unsupported:  # With its constants in the text it may be supported.
            return self._verbatim(statement, state)
        with self._lock:
            if ad_hoc.reusable and self._plans_of is state:
                self._by_tree[id(statement.query)] = statement.query, ad_hoc, planned, plan
                if len(self._by_tree) > PLANS:
                    del self._by_tree[next(iter(self._by_tree))]
        if not statement.params:
            self._learn(statement.sql, statement.query, ad_hoc, state.catalog)
        return ad_hoc, planned, plan

    def _learn(self, sql: str, query: exp.Query, ad_hoc: AdHoc, catalog: Catalog) -> None:
        """How to recognise the next text that differs in constants only: if the same view comes of it by parameters."""
        found = self.known_shapes.unlearnt(sql, ad_hoc.turned)
        if found is None:
            return
        text, values = found
        (parsed,) = split(text)
        statement = interpret_one(parsed, catalog, values, self._deployment.now())
        same = False
        if isinstance(statement, SelectStatement):
            again = parameterise(statement.query, catalog, statement.params)
            same = (again.view_sql, again.bind(statement.params)) == (ad_hoc.view_sql, ad_hoc.bind(()))
        self.known_shapes.learn(sql, ad_hoc.turned if same else (), comparands(query))

    def _verbatim(self, statement: SelectStatement, state: State) -> PreparedSelect:
        """With all constants in the text."""
        ad_hoc = replace(verbatim(statement.query, state.catalog, statement.params), reusable=not statement.params)
        planned, plan = self._planned(ad_hoc, state)
        arguments = exact_arguments(ad_hoc.bind(statement.params), planned.placeholders, planned.parameters)
        return PreparedSelect(ad_hoc, planned, plan, arguments or ())

    def _forget_plans(self, state: State) -> None:
        self._plans.clear()
        self._ordered.clear()
        self._by_tree.clear()
        self._plans_of, self._characters = state, 0

    def _planned(self, ad_hoc: AdHoc, state: State) -> tuple[PlannedView, EvaluationPlan]:
        """:raises Unsupported: it is right SQL that is not done."""
        name = ad_hoc.name
        with self._lock:
            if self._plans_of is not state:
                self._forget_plans(state)
            known = self._plans.pop(name, None)
            if known is not None:
                self._plans[name] = known
                return known[1:]
        made = plan_evaluation(state, ad_hoc.definition())
        with self._lock:
            if self._plans_of is state and name not in self._plans:
                self._plans[name] = len(ad_hoc.view_sql), *made
                self._characters += len(ad_hoc.view_sql)
                while len(self._plans) > PLANS or self._characters > PLANNED_CHARACTERS:
                    oldest = next(iter(self._plans))
                    self._ordered.pop(oldest, None)
                    self._characters -= self._plans.pop(oldest)[0]
        return made

    async def _in_order(self, select: PreparedSelect) -> tuple[PlannedView, EvaluationPlan]:
        """The plan that is evaluated: with its joins in the order that the tables' sizes suggest."""
        # Which side of a single join is gone through, and which is looked up, is decided when it is evaluated.
        if sum(traits_of(node.operator).matching is not None for node in select.plan.nodes) < 2:
            return select.planned, select.plan
        now, name = monotonic(), select.ad_hoc.name
        known = self._ordered.get(name)
        if known is None or now - known[0] > SIZES_SECONDS:
            state = self._deployment.state
            rows = await self._deployment.table_rows(select.plan.tables)
            if self._deployment.state is not state:
                raise SchemaChanged(", ".join(rows))
            statistics = statistics_of(state.catalog, rows)
            plan = await self._unless_long(
                select.ad_hoc.view_sql, lambda state: plan_evaluation(state, select.ad_hoc.definition(), statistics)
            )
            known = now, *plan
            if name in self._plans:  # They go together.
                self._ordered[name] = known
        return known[1], known[2]

    def _view_of(self, select: PreparedSelect) -> str | None:
        """The view, declared or automatic, whose reader has just this answer, by its lower-case name."""
        state, wanted = self._deployment.state, select.planned
        for name, planned in state.planned.items():
            if planned.root == wanted.root and name in state.flow.readers and _alike(planned, wanted):
                return name
        return None

    # --- what pays ------------------------------------------------------------------------------------------

    async def _keep(self, select: PreparedSelect, variant: Variant) -> None:
        """Make an automatic view, and drop the one that was asked longest ago where there are too many."""
        ad_hoc = select.ad_hoc
        try:
            if not await self._unless_long(ad_hoc.view_sql, lambda state: _is_partial(ad_hoc, state)):
                rows = sum((await self._deployment.table_rows(select.plan.tables)).values())
                if rows > FULL_ROWS:
                    variant.refused = f"a view of it has no key, and reads {rows:,} rows (at most {FULL_ROWS:,})"
                    return
            await self._deployment.run(RecipeEntry((ad_hoc.view_sql,), ad_hoc=True), ad_hoc.view_sql)
        except AlreadyExists:
            pass  # A view of this text is there, and that is all that is wanted.
        except HeadraceError as error:
            variant.refused = error.message
            _log.warning("no view is made of the query %s: %s", ad_hoc.view_sql, error.message)
            return
        self.shapes.keep(ad_hoc.name, variant)
        surplus = self.shapes.surplus()
        if surplus is not None:
            await self.forget(surplus)

    async def _keep_all(self, shape: Shape, sql: str) -> None:
        """Make an automatic view that answers the shape whatever its constants are."""
        shape.refused = "its constants cannot all be parameters"
        found = self.known_shapes.general(sql)
        if found is None:
            return
        text, values = found
        try:
            state = self._deployment.state
            (parsed,) = split(text)
            statement = interpret_one(parsed, state.catalog, values, self._deployment.now())
            if not isinstance(statement, SelectStatement):
                return
            select = self._prepared(statement, state)
        except HeadraceError as error:
            shape.refused = error.message
            return
        planned, ad_hoc = select.planned, select.ad_hoc
        if not ad_hoc.reusable or (planned.finish is not None and not planned.reader.key):
            return  # All of its rows would be gone through at each read.
        variant = Variant(ad_hoc.view_sql[:LISTED_CHARACTERS], reusable=True)
        await self._keep(select, variant)
        shape.refused = variant.refused
        if variant.view is not None:
            shape.variants[ad_hoc.name] = variant
            self.known_shapes.keep(sql, ad_hoc.name)

    def queries(self) -> list[QueryInfo]:
        """The shapes that were asked, those that took longest first."""
        shapes = sorted(self.shapes.known.values(), key=lambda shape: -shape.seconds)
        return [
            QueryInfo(
                shape.text,
                shape.calls,
                round(shape.seconds * 1000, 3),
                shape.rows,
                hottest.view,
                self._why(hottest),
                f"CREATE EXT VIEW name AS {hottest.view_sql}",
            )
            for shape in shapes
            for hottest in (shape.hottest(),)
        ]

    async def forget(self, name: str) -> None:
        """Drop an automatic view."""
        self.shapes.kept.pop(name).view = None
        self.known_shapes.forget(name)
        if name in self._deployment.state.catalog.views:
            await self._deployment.run(RecipeEntry(forget=(name,)), f"forget {name}")

    def give_way(self) -> bool:
        """Memory is short: whether an automatic view goes, the one that was asked longest ago. Any thread may ask."""
        if not self._giving_way and self.shapes.kept and not self._loop.is_closed():
            self._giving_way = True
            self._loop.call_soon_threadsafe(lambda: self._begin(self._give_way()))
        return self._giving_way

    async def _give_way(self) -> None:
        try:
            if self.shapes.kept:
                self.shapes.short_at = monotonic()
                await self.forget(next(iter(self.shapes.kept)))
        except HeadraceError as error:
            _log.warning("an automatic view is not dropped, though memory is short: %s", error.message)
        finally:
            self._giving_way = False

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def settled(self) -> None:
        """When no automatic view is being made or dropped."""
        await asyncio.gather(*self._keeping)

    async def close(self) -> None:
        for task in list(self._keeping):
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)


def _is_partial(ad_hoc: AdHoc, state: State) -> bool:
    after, _ = plan_readers(state, [ad_hoc.definition()], one_domain)
    return bool(after.planned[ad_hoc.name].reader.key)


def _finished(bound: FinishedLookup, finish: Finish, rows: Rows) -> Rows:
    """What the view's finish makes of the rows."""
    types, names = zip(*((column.type, column.name) for column in finish.stored), strict=True)
    coerced = row_coercer(types, names, from_json=True)
    found = finish.answer(list(map(coerced, map(list, rows))), bound.values, bound.count, bound.start)
    return [tuple(map(json_value, row)) for row in found]


def _alike(one: PlannedView, other: PlannedView) -> bool:
    """Whether a view's reader answers the other, with the arguments that were made for it."""
    if (one.columns, one.parameters, one.placeholders) != (other.columns, other.parameters, other.placeholders):
        return False
    if one.finish != other.finish:
        return False
    mine, its = one.reader, other.reader
    return (mine.order, mine.visible, mine.limit, mine.offset, mine.empty) == (
        its.order,
        its.visible,
        its.limit,
        its.offset,
        its.empty,
    )
