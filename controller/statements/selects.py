"""SELECTs: a look-up of the view that answers it, or else an evaluation over the base tables, kept if that pays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic, perf_counter
from typing import Any, TypeVar

from controller.access.session import Caller
from controller.deployment import StatementResult
from controller.hosts import SchemaChanged
from controller.lookups.binding import Binding, FinishedLookup, RequestMoment
from controller.statement_lists import QueryInfo
from controller.statements.evaluating import Elsewhere, SparkSelects, finished_rows, within
from controller.statements.planning import PreparedSelect, SelectPlans, SentSelect, StatementPort, is_partial
from controller.statements.shapes import (
    FULL_ROWS,
    LISTED_CHARACTERS,
    REVIEW_SECONDS,
    TRY_AGAIN,
    AdHocMode,
    AskedShapes,
    Shape,
    Variant,
    listed_text,
    never_kept,
)
from controller.statements.texts import VERY_LONG, Texts
from domains.engine.evaluation import EvaluationPlan
from domains.errors import (
    AlreadyExists,
    BadRequest,
    HeadraceError,
    NotFound,
    ReadTimeout,
    SqlError,
    Unavailable,
    Unsupported,
)
from domains.language.coercion import json_row_coercer, json_value
from domains.language.types import Column, Row
from domains.plan.graph import NodeIndex
from domains.plan.packets import Clock
from domains.store.storage import AUTOMATIC_BYTES
from migrations.flow.evaluation_plan import explained, finds_by_index, is_unique, may_be_reordered, plan_evaluation
from migrations.flow.plan import State
from migrations.flow.planned_alone import PlannedAlone, explained_as_view
from migrations.query.select import constant_select, reads_nothing
from migrations.query.view import PlannedView
from migrations.recipe import RecipeEntry
from migrations.statements.adhoc.shapes_of_selects import AdHoc, shape_text
from migrations.statements.constants import Argument
from migrations.statements.statement import ConstantSelect, SelectStatement
from worker.adhoc.answer import LONG_PAGE, ROWS_TOGETHER, Question, Rows, rows_in
from worker.adhoc.measured import NodeMeasure, milliseconds
from worker.adhoc.pool import Budget

Answer = TypeVar("Answer")
Answered = tuple[tuple[Column, ...], Rows, Clock]
"""Columns, rows, and the positions that they reflect where they were evaluated."""

Keeper = Callable[[str, int], Awaitable[None]]
"""Has a view of the SELECT that was asked so often lately. Raises why there is none; Unavailable: not now."""

TEXTS = 2_000
"""Shapes' texts that are remembered, by the names of views: they take a millisecond to write."""
NOT_KEPT = f"its text is longer than {VERY_LONG:,} characters"
KEEP_AGAIN_SECONDS = 1.0
"""Seconds after which a keeper is asked again that could not."""

_log = logging.getLogger("headrace.controller")


class Selects:
    """Answers SELECTs of one deployment."""

    def __init__(self, deployment: StatementPort, shapes: AskedShapes, texts: Texts) -> None:
        self._deployment = deployment
        self.shapes = shapes
        self.texts = texts
        self.plans = SelectPlans(deployment, texts)
        self.known_shapes = self.plans.known_shapes
        self._texts: dict[str, str] = {}
        self._keeping: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._giving_way = False
        self.keeper: Keeper | None = None
        """Where a cluster's leader makes automatic views."""
        self._again_at = -inf
        """When the keeper is asked again that could not."""
        self._reviewing: asyncio.Task[None] | None = None
        """While there are automatic views."""
        self.kept_bytes = AUTOMATIC_BYTES
        """What automatic views may hold together."""
        self.by_spark: SparkSelects | None = None
        """Answers what reads many rows, where there are an archive and a Spark master."""

    async def recognised(self, sql: str, token: Clock, asker: Caller) -> tuple[StatementResult, Clock] | None:
        """What :meth:`answer` gives, of a text that differs from an earlier one in constants only; None for others."""
        select = self.plans.recognised(sql)
        if select is None or self.plans.is_bypassed(asker, select.planned.tables):
            return None
        try:
            columns, rows, clock = await self._read(select, SentSelect(sql, asker=asker), token)
        except (SchemaChanged, SqlError, BadRequest, NotFound):
            return None  # The full way says what is wrong with the text as it was sent.
        return StatementResult(columns, tuple(rows)), clock

    async def answer(self, sent: SentSelect, token: Clock) -> tuple[StatementResult, Clock]:
        """The answer, and the positions that it reflects, where it was evaluated."""
        columns, rows, clock = await self._answered(sent, token)
        return StatementResult(columns, tuple(rows)), clock

    async def _answered(self, sent: SentSelect, token: Clock) -> Answered:
        apart = await self.plans.apart(sent)
        if apart is None:
            try:
                select = await self.prepared(sent)
            except (Unsupported, SqlError) as error:
                apart = await self.plans.apart_after(sent, error)
            else:
                return await self._read(select, sent, token)
        self._refuse_if_off("name AS SELECT …")
        return await self._asked(*apart, sent.moment, None, token, None)

    async def values(
        self, statement: SelectStatement, token: Clock, asker: Caller
    ) -> tuple[tuple[Column, ...], list[Row]]:
        """The columns, and the answer as the engine's values (JSON knows no DECIMAL and no BLOB)."""
        if reads_nothing(statement.query):
            constant = constant_select(statement.query)
            return constant.columns, list(constant.rows)
        sent = SentSelect(statement.sql, statement, asker=asker)
        async with within(self._deployment.budget):
            columns, rows, _ = await self._answered(sent, token)
        return columns, list(map(json_row_coercer(columns), rows))

    async def found(
        self, statement: SelectStatement, token: Clock, asker: Caller
    ) -> tuple[tuple[Column, ...], list[Row]]:
        """The columns and the answer as the engine's values, from the base tables as they are now and from no view,
        which may be behind: for a write that changes what it finds. It counts as none of the SELECTs that are asked."""
        if self.shapes.mode is AdHocMode.OFF:
            raise Unsupported("a write whose rows a SELECT chooses: ad_hoc is off", hint="name its rows by their keys")
        sent = SentSelect(statement.sql, statement, asker=asker)
        async with within(self._deployment.budget):
            columns, rows, _ = await self._asked(*await self.plans.to_evaluate(sent), sent.moment, None, token, None)
        return columns, list(map(json_row_coercer(columns), rows))

    async def prepared(self, sent: SentSelect) -> PreparedSelect:
        select = await self.plans.prepare(sent)
        if sent.is_learnt and self.known_shapes.waits_for_plan(sent.sql):
            whole = await self.plans.whole(sent.sql)
            if whole is not None and whole.ad_hoc.name in self.shapes.kept:
                self.known_shapes.keep(sent.sql, whole.ad_hoc.name, whole)
        return select

    async def explain(self, statement: SelectStatement) -> str:
        """The view that answers it; else how it is evaluated, and the dataflow that a view of it would have. Nothing is
        run, and nothing kept."""
        sent = SentSelect(statement.sql, statement)
        select = await self.plans.prepare(sent)
        view = self.plans.view_of(select)
        if view is not None:
            return f'answered by the view "{view}"\n{self._deployment.explain(view)}'
        variant = self.shapes.variant(await self._shape(select.ad_hoc, sent), select.ad_hoc.name)
        never = never_kept(statement) or "it was not asked yet"
        why = self._why(variant) if variant else f"not kept: {never}"
        evaluated = await self.plans.evaluated(sent, select)
        statistics = await self._deployment.statistics(evaluated.plan.tables)
        if (spark := self.by_spark) is not None:
            why = f"{why}; by Spark past {spark.threshold:,} rows read"

        def told(state: State) -> str:
            _, ordered = plan_evaluation(state, evaluated.ad_hoc.meant(), statistics)
            return explained_as_view(state, select.ad_hoc.definition(), ordered)

        return f"answered over the base tables; {why}\n{await self.plans.unless_long(statement.sql, told)}"

    async def answer_alone(
        self, sql: str, params: Sequence[Any], token: Clock, asker: Caller
    ) -> tuple[StatementResult, Clock] | str | None:
        """The answer to a very long text, or what EXPLAIN says of it. None where it is no SELECT."""
        state, now = self._deployment.state, self._deployment.now()
        if state.catalog.policies:
            return None  # They may need another plan: it takes the way of shorter texts.
        made = await self.texts.planned(sql, params, state, now)
        if made is None or isinstance(made, ConstantSelect):
            return None if made is None else (constants(made), {})
        if may_be_reordered(made.plan) or made.told:
            statistics = await self._deployment.statistics(made.plan.tables)
            ordered = await self.texts.planned(sql, params, state, now, statistics)
            assert isinstance(ordered, PlannedAlone)
            made = ordered
        if made.told:
            return f"answered over the base tables; not kept: {NOT_KEPT}\n{made.told}"
        if self.shapes.mode is AdHocMode.OFF:
            raise Unsupported("a SELECT that no view answers: ad_hoc is off", hint="CREATE EXT VIEW it, and read that")
        shape, variant = self.shapes.asked(listed_text(made.shape), made.name, sql[:LISTED_CHARACTERS], reusable=False)
        variant.refused = NOT_KEPT
        asked = made.planned, made.plan, made.arguments, RequestMoment(now, asker), (shape, variant)
        columns, rows, clock = await self._asked(*asked, token, None)
        return StatementResult(columns, tuple(rows)), clock

    async def analyze(self, statement: SelectStatement, token: Clock, asker: Caller) -> tuple[str, Clock]:
        """Run it within its budget, and tell what was expected and what was done at each node; its rows are counted."""
        sent = SentSelect(statement.sql, statement, asker=asker)
        select = await self.plans.prepare(sent)
        view, began = self.plans.view_of(select), perf_counter()
        if view is not None:
            _, rows, _ = await self._looked_up(view, select, sent, token)
            took = f"{len(rows):,} rows in {milliseconds(perf_counter() - began)}"
            return f'answered by the view "{view}": {took}\n{self._deployment.explain(view)}', {}
        self._refuse_if_off(f"name AS {select.ad_hoc.view_sql}")
        evaluated = await self.plans.evaluated(sent, select)
        statistics = await self._deployment.statistics(evaluated.plan.tables)
        planned, plan = await self.plans.unless_long(
            statement.sql, lambda state: plan_evaluation(state, evaluated.ad_hoc.meant(), statistics)
        )
        bound = self._binding(planned).from_arguments(evaluated.arguments, sent.moment)
        question = Question(plan, bound.sent, measured=True)
        began = perf_counter()
        rows, clock = await self._deployment.evaluate(question, token, None, asker.transaction)
        took = milliseconds(perf_counter() - began)
        whole, *nodes = sorted(NodeMeasure(*row) for row in rows)
        done = {NodeIndex(each.node): each.done() for each in nodes}
        where = "in a process beside" if whole.is_aside else "between two steps"
        head = f"evaluated over the base tables {where}: {whole.rows:,} rows in {took}"
        rest = f"ordering and the rest: {milliseconds(whole.seconds)}"
        return "\n".join((head, explained(plan, done), rest)), clock

    def _refuse_if_off(self, definition: str) -> None:
        if self.shapes.mode is AdHocMode.OFF:
            raise Unsupported("a SELECT that no view answers: ad_hoc is off", hint=f"CREATE EXT VIEW {definition}")

    async def _read(self, select: PreparedSelect, sent: SentSelect, token: Clock) -> Answered:
        """Raises SchemaChanged where another view came to stand under its name meanwhile, which ALTER TABLE can do."""
        view = self.plans.view_of(select)
        if view is not None and sent.asker.transaction is None:
            try:
                return await self._looked_up(view, select, sent, token)
            except (Unavailable, ReadTimeout) as error:
                if select.view is not None or self.keeper is None:
                    raise
                _log.info("an automatic view does not answer: %s", error.message)
        if view is None or sent.asker.transaction is None:
            self._refuse_if_off(f"name AS {select.ad_hoc.view_sql}")
        if view is None and (gone := self.shapes.kept.pop(select.ad_hoc.name, None)) is not None:
            gone.view = None  # With a table that it read.
            self.known_shapes.forget(select.ad_hoc.name)
        return await self._evaluated(select, sent, token)

    async def _looked_up(self, view: str, select: PreparedSelect, sent: SentSelect, token: Clock) -> Answered:
        planned, arguments = select.planned, select.arguments
        served = self._deployment.state.planned[view]
        await self._counted(select, sent)
        moment = sent.moment
        try:
            page = await self._deployment.read(view, lambda binding: binding.from_arguments(arguments, moment), token)
        except NotFound:
            page = None
        if page is None or self._deployment.state.planned.get(view) is not served:
            raise SchemaChanged(", ".join(sorted(planned.tables)))
        return planned.columns, await self.texts.parts(rows_in, page, planned.columns, few=len(page) <= LONG_PAGE), {}

    async def _evaluated(self, select: PreparedSelect, sent: SentSelect, token: Clock) -> Answered:
        evaluated = await self.plans.evaluated(sent, select)
        planned, plan = await self.plans.in_order(evaluated)
        shape, variant = await self._counted(select, sent)
        spark = self.by_spark
        elsewhere = None if spark is None else Elsewhere(spark.threshold, partial(self._by_spark, sent, spark))
        asked = planned, plan, evaluated.arguments, sent.moment, (shape, variant)
        answer = await self._asked(*asked, token, elsewhere)
        if self.shapes.keeps and not self._keeping and monotonic() >= self._again_at and sent.asker.transaction is None:
            if is_unique(plan):
                variant.refused = "it is a look-up by a unique key, which its table answers"
            elif shape.pays and shape.waits_until <= self.shapes.askings:
                self._begin(self._keep_all(shape, sent.sql))
            elif variant.pays:
                self._begin(self.keep(select, variant))
        return answer

    async def _asked(
        self,
        planned: PlannedView,
        plan: EvaluationPlan,
        arguments: Sequence[Argument],
        moment: RequestMoment,
        counted: tuple[Shape, Variant] | None,
        token: Clock,
        elsewhere: Elsewhere | None,
    ) -> Answered:
        bound = self._binding(planned).from_arguments(arguments, moment)
        began = perf_counter()
        try:
            question = Question(plan, bound.sent)
            rows, clock = await self._deployment.evaluate(question, token, elsewhere, moment.asker.transaction)
        finally:  # What was stopped has taken its time as well.
            took = perf_counter() - began
            for each in counted or ():
                each.seconds += took
        if counted is not None:
            counted[0].rows += len(rows)
        if isinstance(bound, FinishedLookup) and planned.finish is not None:
            finish = partial(finished_rows, bound, planned.finish, rows)
            rows = await self.texts.aside(finish) if self.texts.has_thread and len(rows) > ROWS_TOGETHER else finish()
        return planned.columns, rows, clock

    def _binding(self, planned: PlannedView) -> Binding:
        return Binding.of(planned, lambda: self._deployment.now())

    async def _by_spark(self, sent: SentSelect, spark: SparkSelects, budget: Budget) -> tuple[Rows, Clock] | None:
        select = await self.plans.verbatim(sent)
        return await spark.answer(self._deployment, select.ad_hoc.definition(), select.plan, budget)

    async def _counted(self, select: PreparedSelect, sent: SentSelect) -> tuple[Shape, Variant]:
        ad_hoc = select.ad_hoc
        text = await self._shape(ad_hoc, sent)
        asked = self.shapes.asked(text, ad_hoc.name, ad_hoc.view_sql[:LISTED_CHARACTERS], ad_hoc.reusable)
        if sent.statement is not None and (never := never_kept(sent.statement)):
            asked[1].refused = never
        return asked

    async def _shape(self, ad_hoc: AdHoc, sent: SentSelect) -> str:
        text = self._texts.get(ad_hoc.name)
        if text is None:
            written = await self.plans.unless_long(sent.sql, lambda _: shape_text(ad_hoc.view_sql))
            text = self._texts[ad_hoc.name] = listed_text(written)
            if len(self._texts) > TEXTS:
                del self._texts[next(iter(self._texts))]
        return text

    def shape_of(self, ad_hoc: AdHoc) -> str | None:
        """What it is counted as; None where it was not asked before."""
        return self._texts.get(ad_hoc.name)

    def _why(self, variant: Variant) -> str:
        return variant.why(self.shapes.mode, self.shapes.obstacle)

    # --- what pays ------------------------------------------------------------------------------------------

    async def keep(self, select: PreparedSelect, variant: Variant) -> None:
        """Make an automatic view, and drop those that are asked much less where there are too many."""
        planned, ad_hoc = select.planned, select.ad_hoc
        if planned.finish is not None and not planned.reader.key:
            variant.refused = "a view of it has no key: all of its rows would be gone through at each read"
            return
        tables = frozenset(name.lower() for name in planned.tables)
        if self.keeper is not None:
            await self._have_kept(self.keeper, ad_hoc, variant, tables)
            return
        going = self.shapes.going(variant, tables)
        if going is None:
            return
        try:
            if not await self.plans.unless_long(ad_hoc.view_sql, lambda state: is_partial(ad_hoc, state)):
                rows = sum(each.rows for each in (await self._deployment.statistics(select.plan.tables)).values())
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
        self.shapes.keep(ad_hoc.name, variant, tables)
        if self._reviewing is None or self._reviewing.done():
            self._reviewing = asyncio.create_task(self._review())
        for name in going:
            if name in self.shapes.kept:
                await self.forget(name)

    async def _have_kept(self, keeper: Keeper, ad_hoc: AdHoc, variant: Variant, tables: frozenset[str]) -> None:
        try:
            await keeper(ad_hoc.view_sql, variant.lately)
        except Unavailable as error:
            variant.waits, self._again_at = error.message, monotonic() + KEEP_AGAIN_SECONDS
        except HeadraceError as error:
            variant.refused = error.message
        else:
            self.shapes.keep(ad_hoc.name, variant, tables)

    def kept_by_leader(self, views: Mapping[str, tuple[str, frozenset[str]]]) -> None:
        """These are what a cluster's leader keeps now: by name, the SELECT and the tables that it reads."""
        for name in self.shapes.shown(views):
            self.known_shapes.forget(name)

    async def _keep_all(self, shape: Shape, sql: str) -> None:
        """Make an automatic view that answers the shape whatever its constants are."""
        shape.refused = "its constants cannot all be parameters"
        try:
            select = await self.plans.whole(sql)
        except HeadraceError as error:
            shape.refused = error.message
            return
        if select is None:
            return
        ad_hoc = select.ad_hoc
        if not ad_hoc.reusable:
            return
        if select.planned.finish is None and finds_by_index(select.plan):
            self.known_shapes.keep(sql, None, select)  # It is evaluated as fast as with the constants in its text.
        variant = Variant(ad_hoc.view_sql[:LISTED_CHARACTERS], reusable=True, general=True)
        variant.lately = sum(each.lately for each in shape.variants.values())
        await self.keep(select, variant)
        shape.refused = variant.refused
        if variant.waits:
            shape.waits_until = self.shapes.askings + TRY_AGAIN
        if variant.view is not None:
            shape.variants[ad_hoc.name] = variant
            self.known_shapes.keep(sql, ad_hoc.name, select)

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
            if "`#" not in shape.text  # A session's own tables.
        ]

    async def forget(self, name: str) -> None:
        """Drop an automatic view."""
        kept = self.shapes.kept.pop(name, None)
        if kept is None:
            return
        kept.view = None
        self.known_shapes.forget(name)
        if name in self._deployment.state.catalog.views:
            await self._deployment.run(RecipeEntry(forget=(name,)), f"forget {name}")

    async def _review(self) -> None:
        """Drop what costs writes more than it saves, and what is too large."""
        while self.shapes.kept:
            await asyncio.sleep(REVIEW_SECONDS)
            await self.drop_dear()
            self.check_size()

    async def drop_dear(self) -> None:
        for name in self.shapes.too_dear(self._deployment.writes):
            try:
                await self.forget(name)
            except HeadraceError as error:
                _log.warning("an automatic view is not dropped, though it is asked seldom: %s", error.message)

    def check_size(self) -> None:
        if self._deployment.automatic_bytes() > self.kept_bytes:
            self.give_way()

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
                await self.forget(self.shapes.first())
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
        tasks = [*self._keeping, *([self._reviewing] if self._reviewing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def constants(select: ConstantSelect) -> StatementResult:
    return StatementResult(select.columns, tuple(tuple(map(json_value, row)) for row in select.rows))
