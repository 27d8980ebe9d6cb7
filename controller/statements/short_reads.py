"""The short way of a SELECT that a view answers: parameters → key → rows as they lie there, in one call without a wait.

::

    prepared text ──► its tree ────► the plan that was made of it ┐                         ┌─► has reached the token?
    text          ──► its tokens ──► the plan of its shape        ├─► the view, its key ────┤   are all keys filled?
                                                                  ┘    rights, session      └─► the view's bytes

What is not there at once (a text that was not asked before, a hole, a position that is still to be reached) and all
that is out of the ordinary (a transaction, a policy, a value that is none of its column's, a right that is missing) is
left to the full way, which is the one that says what is wrong. The full way takes ten times as long: it has a task, a
number to stop it by, a budget, and the statement's tree and meaning.

What is remembered here stands as long as the deployment's ``State`` does, so each definition begins it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from controller.access.session import Caller
from controller.deployment import SelectPage
from controller.lookups.view_lookup import ViewLookup
from controller.statements.planning import PreparedSelect, StatementPort
from controller.statements.selects import Selects
from controller.statements.shapes import LISTED_CHARACTERS
from domains.errors import HeadraceError
from domains.language.types import Kind
from domains.plan.graph import ParameterKind
from domains.plan.packets import Clock
from migrations.access.statements import Needed
from migrations.catalog import names_read
from migrations.flow.plan import State
from migrations.parse.grammar import SCHEMA, VIRTUAL_SCHEMAS
from migrations.statements.adhoc.recognising import LAST_CHARACTERS
from migrations.statements.adhoc.shapes_of_selects import Given
from migrations.statements.constants import parameter
from migrations.statements.prepared import PreparedStatement
from worker.adhoc.answer import LONG_PAGE
from worker.reader_map import BoundLookup, in_one_state

READS = 1_000
"""Texts, and plans, that are remembered: an application asks some hundred."""


@dataclass(frozen=True, slots=True)
class ShortRead:
    """A SELECT and the view that answers it."""

    select: PreparedSelect
    view: str
    needed: Needed
    """The rights that its text needs."""
    count: Callable[[], object]
    """Counts it among what is asked."""
    low: int
    high: int
    """The range of its one parameter, where that is a whole number that is looked up as it is; else an empty one."""

    def is_plain(self, values: Sequence[Any]) -> bool:
        value = values[0] if len(values) == 1 else None
        return type(value) is int and self.low <= value <= self.high


class ShortReads:
    """Those of one deployment. Lives on its event loop."""

    def __init__(self, deployment: StatementPort, selects: Selects) -> None:
        self._deployment = deployment
        self._selects = selects
        self._state: State | None = None
        self._by_text: dict[str, ShortRead] = {}
        """Of texts with parameters."""
        self._by_plan: dict[int, ShortRead] = {}
        """Of texts without, by what their shape is planned as."""

    def answer(self, sql: str, params: Sequence[Any], token: Clock, asker: Caller) -> SelectPage | None:
        """What :meth:`controller.statements.sequence.Statements.execute` answers; None: it is to be asked."""
        own = asker.session
        if own is not None and (own.transaction is not None or not own.autocommit or own.temporary is not None):
            return None
        schema = asker.values.schema
        if len(sql) > LAST_CHARACTERS or schema in VIRTUAL_SCHEMAS:
            return None
        said = sql if schema == SCHEMA else self._selects.texts.qualified_before(sql, schema)
        if said is None:
            return None
        if self._state is not self._deployment.state:
            self._state = self._deployment.state
            self._by_text.clear()
            self._by_plan.clear()
        try:
            found = self._with(said, params) if params else self._without(said)
            if found is None:
                return None
            short, values = found
            rights, may_show = asker.rights, asker.values.may_show
            if may_show is not None and not may_show(short.select.planned.tables):
                return None
            if rights is not None and not all(rights.allow(*right) for right in short.needed):
                return None
            page = self._page(short, values, token)
        except HeadraceError:
            return None  # The full way says it.
        if page is None or len(page) > LONG_PAGE:
            return None
        short.count()
        return SelectPage(short.select.planned.columns, page)

    def _page(self, short: ShortRead, values: Sequence[Any], token: Clock) -> bytes | None:
        lookup = self._deployment.prepare(short.view)
        if not lookup.is_here:
            return None
        if short.is_plain(values):
            key = (values[0],)
            page = lookup.try_integer(values[0]) if _has_reached(lookup, token, BoundLookup((key,))) else None
            if page is not None:
                return page
        arguments = short.select.exact([parameter(value, number) for number, value in enumerate(values, 1)])
        if arguments is None:
            return None
        bound = lookup.binding.from_arguments(arguments)
        return in_one_state(lambda reading: lookup.read(bound, reading)) if _has_reached(lookup, token, bound) else None

    def _with(self, sql: str, params: Sequence[Any]) -> tuple[ShortRead, Sequence[Any]] | None:
        short = self._by_text.get(sql)
        if short is None:
            statement = self._selects.texts.one_known(sql)
            select = None if statement is None else self._of_tree(statement)
            if select is None or statement is None or statement.parameters != len(params):
                return None
            short = self._made(select, statement)
            if short is None:
                return None
            _keep(self._by_text, sql, short)
        return short, params

    def _without(self, sql: str) -> tuple[ShortRead, Sequence[Any]] | None:
        found = self._selects.plans.shape_of(sql)
        if found is None:
            return None
        select, values = found
        short = self._by_plan.get(id(select))
        if short is None:
            short = self._made(select, self._selects.texts.of_known_shape(sql))
            if short is None:
                return None
            _keep(self._by_plan, id(select), short)
        return short, values

    def _of_tree(self, statement: PreparedStatement) -> PreparedSelect | None:
        """The plan of a statement in which nothing is replaced when it is asked: user variables, the session's values,
        the time. Each makes another tree."""
        return self._selects.plans.of_tree(statement.parsed.expression, self._deployment.state)

    def _made(self, select: PreparedSelect, statement: PreparedStatement) -> ShortRead | None:
        """None where no view answers it, or what it shows depends on more than its parameters."""
        view, text = self._selects.plans.view_of(select), self._selects.shape_of(select.ad_hoc)
        catalog, query, ad_hoc = self._deployment.state.catalog, statement.parsed.expression, select.ad_hoc
        if view is None or text is None or select.planned.hidden or catalog.policed(names_read(query)):
            return None
        shapes, view_sql = self._selects.shapes, ad_hoc.view_sql[:LISTED_CHARACTERS]
        low, high = _range(select)
        return ShortRead(
            select,
            view,
            statement.needed(catalog)[0],
            lambda: shapes.asked(text, ad_hoc.name, view_sql, ad_hoc.reusable),
            low,
            high,
        )


def _range(select: PreparedSelect) -> tuple[int, int]:
    """Of the one parameter that is compared with a whole number, given by itself; (1, 0): it has others."""
    parameters, given = select.planned.parameters, select.ad_hoc.arguments
    if len(parameters) != 1 or given != (Given(0),):
        return 1, 0
    (one,) = parameters
    is_plain = one.kind is ParameterKind.EQUAL and one.column is not None and one.type.kind is Kind.INTEGER
    if not is_plain or one.type.low is None or one.type.high is None:
        return 1, 0
    return one.type.low, one.type.high


def _has_reached(lookup: ViewLookup, token: Clock, bound: BoundLookup) -> bool:
    return not token or lookup.has_reached(token, [bound])


def _keep(known: dict[Any, ShortRead], name: object, short: ShortRead) -> None:
    known[name] = short
    if len(known) > READS:
        del known[next(iter(known))]
