"""SQL on ``/v1/sql``: statements of any kind, one after the other, each answered before the next begins."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import takewhile
from time import monotonic
from typing import Any

from controller.access.performing import perform
from controller.access.session import OPEN, Caller
from controller.deployment import StatementResult
from controller.hosts import SchemaChanged
from controller.lookups.binding import drawing_start
from controller.statements.eager_choice import with_choices
from controller.statements.evaluating import within
from controller.statements.information import answer_information, columns_of, created, listed, refuse_changing
from controller.statements.planning import SentSelect, StatementPort
from controller.statements.running import Lists, RunningStatements, witnessed
from controller.statements.selects import Selects, constants
from controller.statements.texts import FEW_PARAMETERS, SHORT_TEXT, VERY_LONG
from controller.statements.transacting import choose, in_session, reading_to_write, said_of_transaction, transact
from domains.engine.clock import latest
from domains.errors import HeadraceError, NotFound, RowsChanged, UnknownName, Unsupported
from domains.language.coercion import json_value
from domains.language.types import TEXT, Column, Value
from domains.plan.packets import Clock
from migrations.access.secrets import hidden
from migrations.information.planning import reads_information
from migrations.parse.accounts import AccountStatement
from migrations.parse.grammar import VIRTUAL_SCHEMAS
from migrations.parse.reading import Parsed, deed, exp, lock_of, too_deep
from migrations.parse.temporary import is_temporary_definition
from migrations.parse.transactions import TransactionStatement
from migrations.recipe import RecipeEntry
from migrations.statements.chosen import chosen
from migrations.statements.constants import check_params, miscounted, scalars, with_draws
from migrations.statements.definitions import selected
from migrations.statements.dml import resolve
from migrations.statements.insert import given_id
from migrations.statements.policies.writing import narrowed
from migrations.statements.prepared import PreparedStatement
from migrations.statements.sessions.session_values import may_ask_session
from migrations.statements.sessions.setting import AUTOCOMMIT, assigned, check_size, refuse_zeros, taken
from migrations.statements.sessions.show import session as session_setting
from migrations.statements.sessions.system_variables import SYSTEM_VARIABLES
from migrations.statements.sessions.user_variables import Variables, asked, assignments, with_variables
from migrations.statements.statement import (
    ChosenWrite,
    ConstantSelect,
    Explain,
    Kill,
    NoOperation,
    PendingWrite,
    SelectStatement,
    ShowCreate,
    ShowPolicies,
    ShowProcesslist,
    ShowQueries,
    ShowViews,
    Statement,
    UseSchema,
    WriteStatement,
)
from worker.service.child_pool import Turn

CHOOSING_SECONDS = 10.0
"""The longest that a write chooses its rows anew because others were faster: each of them got something done."""

_READS = re.compile(
    r"(?:[\s(]|/\*.*?\*/|(?:#|--\s)[^\n]*\n)*+(SELECT|WITH|VALUES|TABLE|EXPLAIN)\b", re.IGNORECASE | re.DOTALL
)
"""The beginning of texts whose reading is part of the time that their first SELECT may take."""


_EXCLUSIVE, _SHARED = ("exclusive", False, False), ("shared", False, False)
_MAY_LOCK = re.compile(r"\b(?:FOR\s+(?:UPDATE|SHARE)|LOCK\s+IN\s+SHARE)\b", re.IGNORECASE)


def _locks(sql: str, session: Caller) -> bool:
    """Whether a SELECT may take locks, of which what is known of its text says nothing."""
    own = session.transaction
    return own is not None and own.takes_locks and _MAY_LOCK.search(sql) is not None


class Statements:
    """Performs statements on a deployment."""

    def __init__(self, deployment: StatementPort, selects: Selects) -> None:
        self._deployment = deployment
        self._selects = selects
        self.texts = selects.texts
        self.running = RunningStatements()
        self.lists = Lists(selects.queries, self.running)

    async def execute(
        self, sql: str, params: Sequence[Any], token: Clock | None, session: Caller = OPEN, *, atomic: bool = False
    ) -> tuple[list[StatementResult], Clock]:
        """Definitions that follow one another are one migration, planned jointly. ``atomic``: all of it or nothing."""
        number = session.session.number if session.session is not None else 0
        with self.running.entered(hidden(sql), number):
            began = asyncio.get_running_loop().time()
            sql = await self.texts.said(sql, session, self._deployment.state.catalog)
            if session.claims or session.claimed or session.rights is not None:
                await self.check(sql, session)
            opens = session.session is not None and session.transaction is None and not session.session.autocommit
            in_tables = session.values.schema not in VIRTUAL_SCHEMAS and not _locks(sql, session)
            if not params and not atomic and not opens and in_tables and _READS.match(sql):
                async with within(self._deployment.budget, began):
                    found = await self._selects.recognised(sql, token or {}, session)
                if found is not None:
                    result, read = found
                    return [result], _moved(latest((token or {}, read)), token)
            return await self._performed(sql, params, token, began, session, atomic)

    async def described(self, sql: str, session: Caller) -> tuple[Column, ...]:
        sql = await self.texts.said(sql, session, self._deployment.state.catalog)
        if session.rights is not None:
            await self.check(sql, session)
        (prepared,) = await self.texts.statements(sql)
        if not isinstance(prepared.parsed.expression, (exp.Query, exp.Describe, exp.Show)) or prepared.variables:
            return ()
        for value in (1, None) if len(sql) <= SHORT_TEXT else ():  # 1 is one of LIMIT's, and NULL of every column's.
            try:
                statement = await self.interpreted(prepared, [value] * prepared.parameters, session)
                return await columns_of(statement, self._selects.plans, session)
            except HeadraceError as error:
                if isinstance(error, (UnknownName, NotFound)):
                    raise
        return ()

    async def check(self, sql: str, session: Caller) -> None:
        """:raises LimitExceeded: with the limit's name. :raises Unauthenticated, Forbidden: the session may not do all
        that the text says; that is found out before any of it is done."""
        await self.texts.check(sql)
        if session.claims or session.claimed or session.rights is not None:
            for prepared in await self.texts.statements(sql):
                needed = partial(prepared.needed, self._deployment.state.catalog)
                rights, tables = await self.texts.aside(needed) if self.texts.is_left(prepared.parsed.sql) else needed()
                session.check_all(rights)
                session.check_unfiltered(tables)

    async def _performed(
        self, sql: str, params: Sequence[Any], token: Clock | None, began: float, session: Caller, atomic: bool
    ) -> tuple[list[StatementResult], Clock]:
        budget = self._deployment.budget
        reads = _READS.match(sql) is not None
        if self.texts.is_long(sql) and not atomic and not may_ask_session(sql) and not _locks(sql, session):
            clock = dict(token or {})
            done = await self._deployment.made_anew(partial(self._alone, sql, clock, session, values=not params))
            if done is None and len(sql) > VERY_LONG:
                async with within(budget, began) if reads else nullcontext():
                    done = await self._deployment.made_anew(partial(self._select_alone, sql, params, clock, session))
            if done is not None:
                return [done], _moved(clock, token)
        async with within(budget, began) if reads else nullcontext():
            statements = await self.texts.statements(sql)
        counts = [prepared.parameters for prepared in statements]
        if sum(counts) != len(params):
            raise miscounted("text", sum(counts), len(params))
        if session.session is None and not atomic and all(each.parsed.transaction is None for each in statements):
            return await self._one_by_one(sql, statements, params, token, began, session)
        async with in_session(self._deployment.sessions, statements, session, atomic=atomic) as caller:
            return await self._one_by_one(sql, statements, params, token, began, caller, atomic)

    async def _one_by_one(
        self,
        sql: str,
        statements: Sequence[PreparedStatement],
        params: Sequence[Any],
        token: Clock | None,
        began: float,
        session: Caller,
        atomic: bool = False,
    ) -> tuple[list[StatementResult], Clock]:
        budget, turn, own = self._deployment.budget, Turn(), session.session
        counts = [prepared.parameters for prepared in statements]
        results: list[StatementResult] = []
        clock = dict(token or {})
        lasting = own is not None and own.number > 0
        at, number, variables = 0, 0, own.variables if own is not None and lasting else Variables()
        if atomic and own is not None:
            own.begin()
        while number < len(statements):
            await turn.pause()
            together = _definitions(statements[number:])
            try:
                refuse_changing(statements[number].parsed, session)
                if together:
                    self._deployment.sessions.check_temporary(together)
                    if own is not None and not all(map(is_temporary_definition, together)):  # As in MySQL.
                        clock.update(latest((clock, (await own.commit())[1])))
                    with witnessed(session, together):
                        texts = await with_choices(self._deployment, together)
                        # Places in errors count from the beginning of what was parsed, which is to be the entry's text.
                        same = len(together) == 1 and texts[0] == together[0].sql and sql.startswith(texts[0])
                        await self._deployment.run(RecipeEntry(texts), ";\n".join(texts), together if same else None)
                    results.extend(StatementResult(done=deed(parsed)) for parsed in together)
                else:
                    given = params[at : at + counts[number]]
                    at += counts[number]
                    statement = statements[number]
                    whole = sql if len(statements) == 1 else statement.text
                    if own is not None and not own.autocommit and own.transaction is None and statement.in_transactions:
                        own.begin()
                    if statement.parsed.transaction is not None:
                        one = partial(self._transact, statement.parsed.transaction, clock, session)
                    elif statement.parsed.account is None and (assigned if lasting else assignments)(statement.parsed):
                        one = partial(self._set, statement.parsed, given, clock, variables, session)
                    else:
                        if statement.variables:
                            statement = PreparedStatement(with_variables(statement.parsed, variables, lasting=lasting))
                            whole = ""
                        one = partial(self._one, statement, given, clock, whole, session)
                    begins = began if number == 0 else None
                    with witnessed(session, (statement.parsed,)):
                        async with within(budget, begins) if statements[number].reads else nullcontext():
                            results.append(await self._deployment.made_anew(one))
            except HeadraceError as error:
                _say_which(error, number, max(1, len(together)), len(statements), whole=own is None)
                said_of_transaction(error, session)
                raise
            except RecursionError:
                deep = too_deep()
                _say_which(deep, number, max(1, len(together)), len(statements), whole=own is None)
                raise deep from None
            number += max(1, len(together))
        if atomic and own is not None:
            clock.update(latest((clock, (await own.commit())[1])))
        return results, _moved(clock, token)

    async def _transact(self, statement: TransactionStatement, clock: Clock, session: Caller) -> StatementResult:
        result, moved = await transact(self._deployment.sessions, self._deployment.in_doubt, statement, session)
        clock.update(latest((clock, moved)))
        return result

    async def _alone(self, sql: str, clock: Clock, session: Caller, *, values: bool = True) -> StatementResult | None:
        """A long text that is a single write of values. None: it is something else, and has been measured."""
        catalog = self._deployment.state.catalog
        tables = catalog.tables if values else None
        operation = await self.texts.write_of(sql, tables, catalog.shards, self._deployment.now())
        if operation is None:
            return None
        name = operation.table.lower()
        if self._deployment.state.catalog.tables.get(name) is not catalog.tables[name]:
            raise SchemaChanged(operation.table)
        return await self._write(WriteStatement(operation), clock, session)

    async def _select_alone(
        self, sql: str, params: Sequence[Any], clock: Clock, session: Caller
    ) -> StatementResult | None:
        """A very long text that is a single SELECT, or EXPLAIN of one. None: it is something else."""
        done = await self._selects.answer_alone(sql, params, clock, session)
        match done:
            case None:
                return None
            case str(told):
                return _texts("plan", told.split("\n"))
            case (result, read):
                clock.update(latest((clock, read)))
                return result

    async def _one(
        self, prepared: PreparedStatement, params: Sequence[Any], clock: Clock, whole: str, session: Caller
    ) -> StatementResult:
        """One statement that is no definition; a write moves ``clock`` on, and reads wait for it. ``whole`` is the text
        that was sent, where it is this statement alone."""
        sql = prepared.parsed.sql
        if self._deployment.state.catalog.policies:  # They may have come since the text was checked.
            session.check_unfiltered(prepared.needed(self._deployment.state.catalog)[1])
        if prepared.parsed.account is not None:
            return await self._account(prepared.parsed.account, session)
        if prepared.is_write and not params and self.texts.is_long(sql) and "select" not in sql.lower():
            alone = await self._alone(sql, clock, session)
            if alone is not None:
                return alone
        if prepared.fills:
            return await self._make_of_select(prepared.parsed, params, clock, session)
        if (known := await self._recognised(prepared, clock, session)) is not None:
            return known
        statement = await self.interpreted(prepared, params, session)
        match statement:
            case WriteStatement():
                return await self._write(statement, clock, session)
            case PendingWrite(subqueries=subqueries):
                catalog = self._deployment.state.catalog
                with reading_to_write(session, _SHARED):
                    answers = [await self._selects.values(select, clock, session) for select in subqueries]
                columns, rows = [columns for columns, _ in answers], [rows for _, rows in answers]
                written = resolve(statement, rows, columns, self.texts.limits.max_subquery_rows)
                table = written.operation.table.lower()
                if self._deployment.state.catalog.tables.get(table) != catalog.tables[table]:
                    # The table was altered while the SELECT was read.
                    return await self._one(prepared, params, clock, whole, session)
                return await self._write(written, clock, session)
            case ChosenWrite():
                return await self._choose(statement, clock, session)
            case SelectStatement() if reads_information(statement.query, session.values.schema):
                return await answer_information(self._deployment, statement, session, self.lists)
            case SelectStatement():
                is_learnt = bool(whole) and statement.query is prepared.tree
                sent = SentSelect(whole or statement.sql, statement, is_learnt, session, prepared.start)
                with reading_to_write(session, lock_of(prepared.parsed.expression)):
                    result, read = await self._selects.answer(sent, clock)
                clock.update(latest((clock, read)))
                return result
            case ConstantSelect():
                return constants(statement)
            case ShowViews() | ShowQueries() | ShowProcesslist() | ShowPolicies():
                return await listed(self._deployment, statement, session, self.lists)
            case Kill(number=number, query=query):
                await self.lists.kill(number, query=query)
                return StatementResult()
            case ShowCreate():
                return created(self._deployment, statement, session)
            case Explain(target=str() as view):
                return _texts("plan", self._deployment.explain(view).split("\n"))
            case Explain(target=SelectStatement() as select, analyze=analyze):
                if analyze:
                    told, read = await self._selects.analyze(select, clock, session)
                    clock.update(latest((clock, read)))
                else:
                    told = await self._selects.explain(select)
                return _texts("plan", told.split("\n"))
            case UseSchema(name=name):
                session.use(name)
                return StatementResult()
            case NoOperation():
                return StatementResult()
            case _:
                raise AssertionError(f"{statement} is a definition")

    async def _recognised(self, prepared: PreparedStatement, clock: Clock, session: Caller) -> StatementResult | None:
        """What a SELECT among other statements answers that differs from an earlier one in constants only."""
        if not (prepared.text and prepared.reads) or session.values.schema in VIRTUAL_SCHEMAS:
            return None
        with reading_to_write(session, lock_of(prepared.parsed.expression)):
            found = await self._selects.recognised(prepared.text, clock, session)
        if found is None:
            return None
        clock.update(latest((clock, found[1])))
        return found[0]

    async def _make_of_select(
        self, parsed: Parsed, params: Sequence[Any], clock: Clock, session: Caller
    ) -> StatementResult:
        """The SELECT first, so that nothing is made where it fails."""
        self._deployment.sessions.check_temporary((parsed,))
        state, now = self._deployment.state, self._deployment.now()
        given = scalars(check_params(parsed, params))
        select = selected.asked(parsed, state.catalog, given, now)
        if select is None:
            return StatementResult(done=deed(parsed))
        columns, rows = await self._selects.values(select, clock, session)
        text, made = selected.made(parsed, self._deployment.state.catalog, columns, rows, now)
        await self._deployment.run(RecipeEntry((text,)), parsed.sql, rows=made)
        return StatementResult(rows_affected=len(made.rows), done=deed(parsed))

    async def _choose(self, statement: ChosenWrite, clock: Clock, session: Caller) -> StatementResult:
        """Find the rows, then write them; anew where other writes came to them between.

        :raises RowsChanged: that went on for :data:`CHOOSING_SECONDS`. Where a part was done in other shards it ends.
        """
        deadline, schemas = monotonic() + CHOOSING_SECONDS, [table.schema for table in statement.tables]
        claims, catalog = session.policy_claims, self._deployment.state.catalog
        choosing = statement if claims is None or not catalog.policies else narrowed(statement, catalog, claims)
        while True:
            with reading_to_write(session, _EXCLUSIVE):
                columns, rows = await self._selects.found(choosing.select, clock, session)
            for schema in schemas:
                if self._deployment.state.catalog.tables.get(schema.name.lower()) is not schema:
                    raise SchemaChanged(schema.name)
            try:
                return await self._write(chosen(statement, columns, rows), clock, session)
            except RowsChanged:
                if monotonic() >= deadline:
                    raise
            await asyncio.sleep(0)

    async def interpreted(self, prepared: PreparedStatement, params: Sequence[Any], session: Caller) -> Statement:
        catalog, now = self._deployment.state.catalog, self._deployment.now()
        asker = session.values.under(session.account)
        if prepared.draws:
            prepared = PreparedStatement(with_draws(prepared.parsed, drawing_start))
        quick = prepared.is_bound_quickly(catalog) or len(prepared.parsed.sql) <= SHORT_TEXT
        if (quick and len(params) <= FEW_PARAMETERS) or not self.texts.has_thread:
            return prepared.interpret(catalog, params, now, asker)
        statement = await self.texts.aside(lambda: prepared.interpret(catalog, params, now, asker))
        reads = statement.target if isinstance(statement, Explain) else statement
        if self._deployment.state.catalog is not catalog and not isinstance(reads, SelectStatement):
            # What it writes would go with the version of a table that it was not made for.
            raise SchemaChanged("of the statement")
        return statement

    async def _write(self, statement: WriteStatement, clock: Clock, session: Caller) -> StatementResult:
        if "sql_mode" in session.values.variables:
            refuse_zeros(session.values, statement, self._deployment.state.catalog)
        # At once, in the turn in which the operation was made: it goes with the table's version of now.
        written = await self._deployment.write(statement.operation, session)
        clock.update(latest((clock, written.clock)))
        told = statement.returning
        if told is None:
            matched, first = max(written.matched, written.rows_affected), written.first_id
            given = given_id(statement.operation, self._deployment.state.catalog) if first is None else None
            return StatementResult((), (), written.rows_affected, first, given, matched=matched)
        rows = tuple(tuple(map(json_value, row)) for row in told.rows(written.returned))
        return StatementResult(told.columns, rows, written.rows_affected, written.first_id)

    async def _set(
        self, parsed: Parsed, params: Sequence[Any], clock: Clock, variables: Variables, session: Caller
    ) -> StatementResult:
        """SET of user variables, and of a connection's system variables. All values are computed before any is set, as
        in MySQL."""
        own = session.session
        lasting = own is not None and own.number > 0
        if not lasting:
            session_setting(parsed)
        made, system, at = dict[str, Value](), dict[str, Value | bool](), 0
        for each in assigned(parsed):
            name, written, is_user = each.name, each.value, each.is_user
            if not (is_user or lasting):
                continue
            value: Value = SYSTEM_VARIABLES.get(name)
            if isinstance(written, str):
                value = written
            elif written is not None:
                select = PreparedStatement(asked(written, variables, lasting=lasting))
                given = params[at : at + select.parameters]
                at += select.parameters
                statement = await self.interpreted(select, given, session)
                if isinstance(statement, ConstantSelect):
                    rows = list(statement.rows)
                else:
                    assert isinstance(statement, SelectStatement)
                    _, rows = await self._selects.values(statement, clock, session)
                ((value,),) = rows
            if is_user:
                made[name] = value
            else:
                system[name] = value if written is None and name in SYSTEM_VARIABLES else taken(name, value)
        check_size(variables, made)
        variables.update(made)
        if own is not None and lasting:
            session.values.variables.update(system)
            if (on := system.get(AUTOCOMMIT)) is not None:
                if on:
                    clock.update(latest((clock, (await own.commit())[1])))
                own.autocommit = bool(on)
            choose(self._deployment.sessions, session, system)
        return StatementResult()

    async def _account(self, statement: AccountStatement, session: Caller) -> StatementResult:
        keeper = self._deployment.accounts
        if keeper is None:
            raise Unsupported("accounts", hint="headrace serve, up and embedded keep them")
        told = await perform(statement, keeper, session, self._deployment.state.catalog)
        return StatementResult(tuple(Column(each, TEXT) for each in told.columns), tuple(told.rows), done=told.done)


def _say_which(error: HeadraceError, before: int, failed: int, all_of_them: int, *, whole: bool) -> None:
    """Into the error, which of several statements it is about, and what became of the others; not ``whole``: they are
    in a session, which says that itself."""
    if all_of_them == 1:
        return
    which = f"statement {before + 1}" if failed == 1 else f"statements {before + 1} to {before + failed}"
    error.message = f"{which} of {all_of_them}: {error.message}"
    others = ["those before are done and stay"] if before and whole else []
    others += ["those after are not done"] if before + failed < all_of_them else []
    error.hint = "; ".join([*([error.hint] if error.hint else []), *others]) or None


def _definitions(statements: Sequence[PreparedStatement]) -> list[Parsed]:
    return [prepared.parsed for prepared in takewhile(lambda each: each.defines, statements)]


def _texts(column: str, texts: Sequence[str]) -> StatementResult:
    return StatementResult((Column(column, TEXT),), tuple((text,) for text in texts))


def _moved(clock: Clock, token: Clock | None) -> Clock:
    """The positions that statements have moved."""
    return {table: position for table, position in clock.items() if (token or {}).get(table) != position}
