"""What a session may have done at the upstream that tables here follow, and what a view answers here.

The upstream is asked under an account of its own, so it is decided here whether who asks may do that: by the rights
that the text needs, as if it were performed here. Whoever has all rights has them for what is not understood, too;
others have to say what we understand as the upstream does. Where policies apply to who asks, no statement may come near
their tables: the upstream knows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from controller.access.session import OPEN, Caller
from controller.lookups.binding import Binding
from controller.statements.planning import PreparedSelect, SentSelect, StatementPort
from controller.statements.selects import Selects
from controller.statements.sequence import Statements
from controller.statements.shapes import LISTED_CHARACTERS, listed_text, never_kept
from domains.errors import Forbidden, HeadraceError, SqlError, Unsupported
from domains.language.functions import FUNCTIONS
from domains.plan.packets import Clock
from migrations.access.rights import ALL, EVERYTHING
from migrations.catalog import names_read
from migrations.parse.reading import exp, nodes
from migrations.query.expressions.calls import spelled
from migrations.statements.adhoc.shapes_of_selects import shape_text
from migrations.statements.prepared import PreparedStatement
from migrations.statements.sessions.session_values import may_ask_session
from migrations.statements.statement import SelectStatement
from worker.adhoc.answer import Question, Rows

PASSED = "it is passed on to the upstream"
_READS = re.compile(r"[\s(]*(?:SELECT|WITH)\b", re.IGNORECASE)
_HIDDEN = re.compile(r"/\*(?:M?!|\+)", re.IGNORECASE)
"""Comments that one server performs and another does not."""


@dataclass(frozen=True, slots=True)
class JudgedText:
    """What a text is that its sender may have performed."""

    view: str | None = None
    """The view that answers it."""
    is_ours: bool = False
    """It names a view, which only we have."""
    tables: frozenset[str] = frozenset()
    """The base tables that this one reads, in lower case."""
    select: PreparedSelect | None = None
    """A SELECT that a view could answer."""


TO_PASS = JudgedText()


class PassingOn:
    """Of one deployment. Lives on its event loop."""

    def __init__(self, deployment: StatementPort, statements: Statements, selects: Selects) -> None:
        self._deployment = deployment
        self._statements = statements
        self._selects = selects

    async def judged(self, sql: str | None, caller: Caller, *, is_plain: bool) -> JudgedText:
        """``sql``: None, where it is no text of ours. ``is_plain``: the session has nothing set by which the upstream
        reads texts in another way.

        :raises Unauthenticated, Forbidden: who asks may not do all that it says."""
        caller.check_known()
        rights, policies = caller.rights, self._deployment.state.catalog.policies
        may_all = rights is None or all(rights.allow(each, EVERYTHING) for each in ALL)
        is_free = may_all and not (policies and caller.policy_claims is not None)
        reads = sql is not None and _READS.match(sql) is not None
        if is_free and not reads:
            return TO_PASS
        try:
            if sql is None:
                raise Unsupported("bytes that are no text")
            await self._statements.check(sql, caller)
            statements = await self._statements.texts.statements(sql)
        except (SqlError, Unsupported) as error:
            if is_free:
                return TO_PASS
            raise _not_understood(error.message) from error
        if not is_free:
            self._check_understood(sql, statements, is_plain=is_plain)
        if not reads or len(statements) != 1 or not is_plain:
            return TO_PASS
        try:
            return await self._of_select(sql, statements[0], caller)
        except HeadraceError:
            return TO_PASS  # Whoever performs it says what is wrong.

    def _check_understood(self, sql: str, statements: Iterable[PreparedStatement], *, is_plain: bool) -> None:
        if not is_plain and any(not isinstance(each.parsed.expression, (exp.Set, exp.Use)) for each in statements):
            raise _not_understood("the session's variables have texts read in another way upstream")
        if _HIDDEN.search(sql):
            raise _not_understood("a comment that is performed")
        for each in statements:
            if each.parsed.account is not None:
                raise _not_understood("a statement about accounts")
            for node in nodes(each.parsed.expression):
                if isinstance(node, exp.Anonymous):
                    name = spelled(node)[0]
                    if name not in FUNCTIONS and not may_ask_session(f"{name}("):
                        raise _not_understood(f'the function "{name}"')

    async def _of_select(self, sql: str, prepared: PreparedStatement, caller: Caller) -> JudgedText:
        values = [1] * prepared.parameters
        statement = await self._statements.interpreted(prepared, values, caller)
        if not isinstance(statement, SelectStatement) or never_kept(statement) or prepared.variables:
            return TO_PASS
        sent = SentSelect(sql, statement, not values and statement.query is prepared.parsed.expression, caller)
        if await self._selects.plans.apart(sent) is not None:
            return TO_PASS
        select = await self._selects.prepared(sent)
        tables = frozenset(each.lower() for each in select.planned.tables)
        views = self._deployment.state.catalog.views
        named = [each for each in names_read(statement.query) if each in views and not views[each].ad_hoc]
        return JudgedText(self._selects.plans.view_of(select), bool(named), tables, select)

    def count(self, judged: JudgedText, seconds: float) -> None:
        """It was passed on, which took so long: ``headrace advise`` tells what would take less."""
        if judged.select is None:
            return
        ad_hoc, shapes = judged.select.ad_hoc, self._selects.shapes
        text = self._selects.shape_of(ad_hoc) or listed_text(shape_text(ad_hoc.view_sql))
        counted = shapes.asked(text, ad_hoc.name, ad_hoc.view_sql[:LISTED_CHARACTERS], ad_hoc.reusable)
        counted[1].waits = PASSED
        for each in counted:
            each.seconds += seconds

    def entered(self, sql: str, number: int) -> AbstractContextManager[None]:
        """While a connection waits for the upstream: listed, and stopped by KILL. Raises Cancelled."""
        return self._statements.running.entered(sql, number)

    # --- how far the follower is ----------------------------------------------------------------------------------

    async def read(self, sql: str) -> tuple[Rows, Clock]:
        """Rows as they are in the base tables, and the positions of all of their shards. It counts as no question."""
        (prepared,) = await self._statements.texts.statements(sql)
        statement = await self._statements.interpreted(prepared, (), OPEN)
        assert isinstance(statement, SelectStatement), "it reads a table"
        sent = SentSelect(sql, statement, asker=OPEN)
        planned, plan, arguments = await self._selects.plans.to_evaluate(sent)
        bound = Binding.of(planned, self._deployment.now).from_arguments(arguments, sent.moment)
        return await self._deployment.evaluate(Question(plan, bound.sent), {}, None)


def _not_understood(why: str) -> Forbidden:
    return Forbidden(
        f"not passed on: {why}: what it reads and writes is not known here",
        hint="an account with all rights may have it passed on: GRANT ALL ON *",
    )
