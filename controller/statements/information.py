"""What there is, asked by SQL: SELECTs of ``information_schema``, and SHOW, which mostly are such SELECTs."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import chain
from typing import Any, assert_never

from controller.access.session import Caller
from controller.deployment import StatementResult
from controller.lookups.binding import Binding, FinishedLookup, RequestMoment
from controller.statement_lists import Listing, MissingProcess, RunningInfo
from controller.statements.evaluating import finished_rows
from controller.statements.planning import SelectPlans, SentSelect, StatementPort
from controller.statements.running import Lists
from domains.errors import Forbidden
from domains.language.compile import compile_predicate
from domains.language.types import TEXT, Column, TableSchema
from migrations.access.rights import Privilege
from migrations.information.layout import table_layout, view_layout
from migrations.information.planning import VirtualTables, plan_information, reads_information
from migrations.information.visible import Visible
from migrations.parse.grammar import SCHEMA, VIRTUAL_SCHEMAS
from migrations.parse.reading import Parsed, exp
from migrations.statements.definitions.written import policy_rows
from migrations.statements.statement import (
    ConstantSelect,
    Explain,
    SelectStatement,
    ShowCreate,
    Shown,
    ShowPolicies,
    ShowProcesslist,
    ShowQueries,
    ShowViews,
    Statement,
)
from worker.adhoc.answer import Question, answered


def visible_to(deployment: StatementPort, caller: Caller) -> Visible:
    state = deployment.state
    return Visible(state.catalog, state.planned, caller.values.under(caller.account), caller.may)


async def answer_information(
    deployment: StatementPort, statement: SelectStatement, caller: Caller, lists: Lists
) -> StatementResult:
    """The answer of now, made on the loop: there are as many rows as columns of tables."""
    planned, plan, arguments = plan_information(statement, caller.values.schema)
    seen = visible_to(deployment, caller)
    if caller.session is not None and (temporary := caller.session.temporary) and temporary.secret in statement.sql:
        seen = replace(seen, own=temporary.known(seen.catalog))
    if any(table.name == "PROCESSLIST" for table in plan.tables) and caller.may(Privilege.PROCESS):
        seen = replace(seen, running=_processes(await lists.running(), full=True))
    bound = Binding.of(planned, deployment.now).from_arguments(arguments, RequestMoment(statement.now, caller))
    rows = list(chain.from_iterable(answered(Question(plan, bound.sent), VirtualTables(seen))))
    if isinstance(bound, FinishedLookup) and planned.finish is not None:
        rows = finished_rows(bound, planned.finish, rows)
    return StatementResult(planned.columns, tuple(rows))


def refuse_changing(parsed: Parsed, caller: Caller) -> None:
    """:raises Forbidden: it would change what only says what there is."""
    schema, changes = caller.values.schema, (exp.Insert, exp.Update, exp.Delete, exp.TruncateTable)
    if schema in VIRTUAL_SCHEMAS and isinstance(parsed.expression, (*changes, exp.Create, exp.Alter, exp.Drop)):
        raise Forbidden(f'nothing in "{schema}" can be changed', hint=f"USE {SCHEMA}")


async def columns_of(statement: Statement, plans: SelectPlans, session: Caller) -> tuple[Column, ...]:
    """Those that a statement would answer, as far as it is a SELECT, or EXPLAIN of one. Nothing is asked.

    :raises HeadraceError: what is wrong with it."""
    if not isinstance(statement, ConstantSelect | SelectStatement | Explain):
        return ()
    match statement:
        case ConstantSelect(columns=columns):
            return columns
        case SelectStatement(query=query) if reads_information(query, session.values.schema):
            return plan_information(statement, session.values.schema)[0].columns
        case SelectStatement(sql=sql):
            return (await plans.prepare(SentSelect(sql, statement, asker=session))).planned.columns
        case Explain():
            return (Column("plan", TEXT),)
        case _:
            assert_never(statement)


def created(deployment: StatementPort, statement: ShowCreate, caller: Caller) -> StatementResult:
    """SHOW CREATE TABLE and VIEW."""
    relation = deployment.state.catalog.relation(statement.name)
    name = deployment.state.catalog.placed(relation.title)[1]
    if isinstance(relation, TableSchema):
        row: tuple[str, ...] = (name, table_layout(relation, visible_to(deployment, caller)))
    else:
        row = (name, view_layout(relation, deployment.state.catalog), "utf8mb4", "utf8mb4_bin")
    return StatementResult(tuple(Column(each, TEXT) for each in statement.columns), (row,))


async def listed(deployment: StatementPort, statement: Shown, caller: Caller, lists: Lists) -> StatementResult:
    """What is ours alone, or of all api processes; of tables and views those that the session has a right on."""
    rows: list[tuple[Any, ...]]
    match statement:
        case ShowViews():
            rows = [(view.name,) for view in visible_to(deployment, caller).views()]
        case ShowQueries():
            told = await lists.queries()
            rows = [tuple(asdict(each).values()) for each in told.found]
            rows += [(_missing(each), None, None, None, None, each.why, None) for each in told.missing]
        case ShowPolicies(table=table):
            rows = [row for row in policy_rows(deployment.state.catalog, table) if caller.may(None, row[1])]
        case ShowProcesslist(full=full):
            rows = _processes(await lists.running(), full)
        case _:
            assert_never(statement)
    if statement.where is not None:
        rows = list(filter(compile_predicate(statement.where), rows))
    return StatementResult(tuple(Column(name, TEXT) for name in statement.columns), tuple(rows))


def _processes(told: Listing[RunningInfo], full: bool) -> list[tuple[Any, ...]]:
    """Statements, and the api processes that do not answer."""
    rows: list[tuple[Any, ...]] = [
        (each.id, None, each.process, None, "Query", int(each.seconds), "", each.sql if full else each.sql[:100])
        for each in told.found
    ]
    rows += [(None, None, each.process, None, _missing(each), None, each.why, None) for each in told.missing]
    return rows


def _missing(each: MissingProcess) -> str:
    return f'-- missing: what api process "{each.process}" would tell'
