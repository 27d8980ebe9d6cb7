"""SELECTs over the base tables: evaluated here, or by Spark over the archive where they read very many rows.

::

    evaluation in a process beside ── more than spark_threshold rows ──► archive up to now ─► the text as Spark's SQL
                                                                         over the folds at these positions ─► rows

The positions that the archive has then are the answer's. Whatever keeps Spark from it (no archive, no Java, a function
that it has not, a job that fails) leaves the query to the process beside, which reads all of its rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from controller.access.session import Caller
from controller.deployment import ArchivedPositions
from controller.hosts import Hosts, SchemaChanged
from controller.lookups.binding import Binding, FinishedLookup, RequestMoment
from controller.migrating.bulk.building import started
from controller.statements.listing import view_of
from domains.engine.evaluation import EvaluationPlan, RowsExceeded
from domains.errors import BadRequest, ReadTimeout, StorageFailure, Unavailable, Unsupported
from domains.language.coercion import json_row_coercer, json_value
from domains.language.json_rows import schema_to_json
from domains.language.types import TableSchema
from domains.plan.graph import DomainIndex, ParameterKind
from domains.plan.packets import Clock
from domains.plan.sharding import base_shards
from migrations.access.rights import Privilege
from migrations.backfill.stages import columns_read
from migrations.catalog import ViewDefinition
from migrations.flow.evaluation_plan import plan_evaluation
from migrations.flow.plan import State
from migrations.parse.reading import exp
from migrations.parse.syntax import nodes
from migrations.query.finish import Finish
from migrations.query.view import PlannedView
from migrations.spark_sql import in_order
from migrations.statements.adhoc.shapes_of_selects import verbatim
from migrations.statements.policies.defining import for_claims
from worker.adhoc.answer import Question, Rows, rows_in
from worker.adhoc.pool import Budget, timed_out
from worker.reader_map import BoundLookup

_log = logging.getLogger("headrace.controller")

AGAIN_SECONDS = 0.01
"""Seconds after which tables are read again that have not reached a token. Those of this deployment they have reached
at once: what was answered is stored."""
LOOK_SECONDS = 0.05
"""Seconds between two looks at a job."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The one that answers a SELECT that reads more rows than ``beyond``."""

    beyond: int
    answer: Callable[[Budget], Awaitable[tuple[Rows, Clock] | None]]
    """See :meth:`SparkSelects.answer`."""


@asynccontextmanager
async def within(budget: Budget, began: float | None = None) -> AsyncIterator[None]:
    """A SELECT from its reading to its answer, which may take as long as the budget says, since ``began`` by the event
    loop's clock, or now. What a thread has begun for it goes on, as far as the limits of texts let it; nobody waits.

    :raises ReadTimeout: it takes longer.
    """
    start = asyncio.get_running_loop().time() if began is None else began
    try:
        async with asyncio.timeout_at(start + budget.seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise timed_out(budget) from error


async def evaluate(
    hosts: Hosts,
    bases: Sequence[DomainIndex],
    question: Question,
    wanted: Clock,
    budget: Budget,
    patience: float,
    elsewhere: Elsewhere | None,
) -> tuple[Rows, Clock]:
    """The answer as of now, which is at least as of the token ``wanted``: it is waited for, for ``patience`` seconds.

    :raises LimitExceeded: it exceeds its budget in rows or bytes; its caller holds it :func:`within` its time.
    :raises ReadTimeout: the token takes too long.
    """
    if elsewhere is not None:
        try:
            few = replace(budget, read_rows=elsewhere.beyond)
            return await _evaluated(hosts, bases, question, wanted, few, patience)
        except RowsExceeded:
            found = await elsewhere.answer(budget)
        if found is not None and _reaches(found[1], wanted):
            return found
    return await _evaluated(hosts, bases, question, wanted, budget, patience)


async def _evaluated(
    hosts: Hosts, bases: Sequence[DomainIndex], question: Question, wanted: Clock, budget: Budget, patience: float
) -> tuple[Rows, Clock]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while True:
        rows, clock = await hosts.evaluate(bases, question, budget)
        if _reaches(clock, wanted):
            return rows, clock
        if loop.time() >= deadline:
            raise ReadTimeout(f"the tables did not reach the token within {patience:g} s", hint="try again")
        await asyncio.sleep(AGAIN_SECONDS)


def _reaches(clock: Clock, token: Clock) -> bool:
    return all(clock.get(base, position) >= position for base, position in token.items())


class Evaluates(Protocol):
    """What lineage needs of a deployment."""

    @property
    def state(self) -> State: ...

    def now(self) -> str: ...

    async def evaluate(self, question: Question, token: Clock) -> tuple[Rows, Clock]: ...

    async def read(self, view: str, bind: Callable[[Binding], BoundLookup]) -> bytes: ...


async def lineage(port: Evaluates, view: str, key: Any, place: int, session: Caller) -> Rows:
    """Which base rows a row of a view's answer comes from, the one at ``place`` from 0.

    :raises NotFound, BadRequest: there is no such view, or the key is not one of it. :raises Forbidden: one of the
    tables, or the view, is not for the session to read. :raises Unsupported: nothing can be told."""
    state = port.state
    planned = view_of(state, view)
    for name in (planned.name, *sorted(planned.tables)):
        session.check(Privilege.SELECT, name)
    definition, claims = state.catalog.views[planned.name.lower()], session.policy_claims
    _, plan = plan_evaluation(state, definition)
    moment = RequestMoment(asker=session)
    bound = Binding.of(planned, port.now).from_json(key, moment)
    question = Question(plan, bound.sent)
    finish = planned.finish if isinstance(bound, FinishedLookup) else None
    policed = claims is not None and bool(state.catalog.policed([planned.name]))
    if finish is None and not policed:
        return (await port.evaluate(replace(question, traced=place), {}))[0]
    page = await port.read(planned.name, lambda binding: binding.from_json(key, moment))
    answer = [row for part in rows_in(page, planned.columns) for row in part]
    if not 0 <= place < len(answer):
        raise BadRequest(f"the answer has {len(answer)} rows, and none at {place}", hint="rows are counted from 0")
    if claims is not None and policed:
        # Policies are filters of constants then, which all rows on the way back have passed: none is of another.
        state = replace(state, catalog=for_claims(state.catalog, claims))
        planned, plan = plan_evaluation(state, definition)
        bound = Binding.of(planned, port.now).from_json(key, moment)
        question = Question(plan, bound.sent)
    if isinstance(bound, FinishedLookup) and planned.finish is not None:
        question = _with_values(state, definition, planned, bound, port.now)
    seen = tuple(map(json_value, answer[place]))
    return (await port.evaluate(replace(question, traced=place, seen=seen), {}))[0]


def _with_values(
    state: State, definition: ViewDefinition, planned: PlannedView, bound: FinishedLookup, now: Callable[[], str]
) -> Question:
    """The view's query with the values of a look-up in its text: then nothing of it is left for later.

    :raises Unsupported: not all of its parameters are in its text."""
    marks = sum(isinstance(node, exp.Placeholder) for node in nodes(definition.relation))
    if planned.hidden or marks != len(planned.placeholders):
        asked = "the time, or of parameters of views that it reads"
        raise Unsupported(f'lineage of view "{planned.name}", which asks for {asked}', hint="ask by SQL instead")
    counts = {ParameterKind.LIMIT: bound.count, ParameterKind.OFFSET: bound.start}
    values = [counts.get(each.kind, value) for each, value in zip(planned.parameters, bound.values, strict=True)]
    written = verbatim(definition.relation, state.catalog, [values[at] for at in planned.placeholders])
    again, plan = plan_evaluation(state, written.meant())
    return Question(plan, Binding.of(again, now).from_json([]).sent)


def finished_rows(bound: FinishedLookup, finish: Finish, rows: Rows) -> Rows:
    """What the view's finish makes of the rows."""
    stored = list(map(json_row_coercer(finish.stored), rows))
    found = finish.answer(stored, bound.values, bound.count, bound.start)
    return [tuple(map(json_value, row)) for row in found]


class SelectJob(Protocol):
    """A job that answers one SELECT: :class:`migrations.backfill.spark.launching.SparkJob`."""

    rows: Rows

    def result(self) -> Any:
        """None while it runs; raises what made it fail."""

    def cancel(self) -> None: ...


class ArchivedTables(Protocol):
    """What is needed of a deployment."""

    @property
    def state(self) -> State: ...

    async def archive(self) -> ArchivedPositions: ...


@dataclass(frozen=True, slots=True)
class SparkSelects:
    start: Callable[[dict[str, Any]], SelectJob]
    """Begins a job, in a moment. Raises Unavailable where there is no Java."""
    threshold: int
    """Rows that a query reads in a process here; past them it is Spark's."""

    async def answer(
        self, tables: ArchivedTables, definition: ViewDefinition, plan: EvaluationPlan, budget: Budget
    ) -> tuple[Rows, Clock] | None:
        """None where it is to be answered here after all. When this is cancelled, so is the job.

        :raises SchemaChanged: a table is another by now. :raises LimitExceeded: the answer exceeds the budget.
        """
        try:
            return await self._answered(tables, definition, plan, budget)
        except SchemaChanged:
            raise
        except (Unsupported, Unavailable, BadRequest, StorageFailure) as error:
            _log.warning("not answered by Spark: %s: %s", error.message, definition.sql)
            return None

    async def _answered(
        self, tables: ArchivedTables, definition: ViewDefinition, plan: EvaluationPlan, budget: Budget
    ) -> tuple[Rows, Clock]:
        state, read = tables.state, plan.tables
        names = {schema.name.lower(): f"table_{number}" for number, schema in enumerate(read)}
        query = in_order(state.catalog, names, definition.relation)
        archived = await tables.archive()
        if tables.state is not state:
            raise SchemaChanged(", ".join(schema.name for schema in read))
        clock = {base: archived.positions[base] for schema in read for base in base_shards(schema, archived.shards)}
        columns = columns_read(plan.nodes)
        what = {
            "archive": archived.url,
            "clock": clock,
            "tables": {
                names[schema.name.lower()]: {"schema": schema_to_json(schema), "columns": _read_of(schema, columns)}
                for schema in read
            },
            "text": query.text,
            "types": [asdict(column.type) for column in query.columns],
            "rows": budget.rows,
            "bytes": budget.answer_bytes,
        }
        job = await started(lambda: self.start(what))
        try:
            while job.result() is None:
                await asyncio.sleep(LOOK_SECONDS)
            return job.rows, clock
        finally:
            await asyncio.shield(asyncio.to_thread(job.cancel))


def _read_of(schema: TableSchema, columns: Mapping[str, frozenset[int]]) -> Sequence[int]:
    """The stored columns that are read of it; where its rows are only counted, its first one."""
    return sorted(columns[schema.name]) or schema.live()[:1]
