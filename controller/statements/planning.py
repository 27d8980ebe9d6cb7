"""What a SELECT is planned as, and what is remembered of that: by its tokens, its tree, and its view's text."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from time import monotonic
from typing import Protocol, TypeVar

from controller.access.keeper import Keeper
from controller.access.session import ANONYMOUS, Caller
from controller.deployment import ArchivedPositions, ViewInfo, WriteResult
from controller.hosts import SchemaChanged
from controller.lookups.binding import Binding, RequestMoment
from controller.lookups.view_lookup import ViewLookup
from controller.statements.evaluating import Elsewhere
from controller.statements.texts import Texts
from controller.transactions.in_doubt import InDoubt
from controller.transactions.sessions import Sessions
from controller.transactions.transaction import Transaction
from domains.engine.evaluation import EvaluationPlan
from domains.errors import HeadraceError, SqlError, Unsupported
from domains.language.types import TableSchema
from domains.plan.estimates import Statistics
from domains.plan.packets import Clock, Insert, Operation
from migrations.catalog import Catalog, names_read
from migrations.flow.evaluation_plan import may_be_reordered, plan_evaluation, scans_joins
from migrations.flow.plan import State, one_domain, plan_readers
from migrations.parse.reading import Parsed, exp, same_tree
from migrations.query.view import PlannedView
from migrations.recipe import RecipeEntry
from migrations.statements.adhoc.recognising import LAST_CHARACTERS, LAST_TEXTS, KnownShapes, Starts
from migrations.statements.adhoc.shapes_of_selects import (
    AdHoc,
    Given,
    comparands,
    exact_arguments,
    parameterise,
    verbatim,
)
from migrations.statements.constants import Argument
from migrations.statements.interpret import interpret_one, split
from migrations.statements.policies.defining import for_claims
from migrations.statements.statement import SelectStatement
from worker.adhoc.answer import Question, Rows
from worker.adhoc.pool import Budget
from worker.reader_map import BoundLookup
from worker.service.child_pool import Turn

Answer = TypeVar("Answer")

PLANS = 1_000
"""Plans that are remembered while the schema stays: an application asks some hundred shapes."""
PLANNED_CHARACTERS = 200_000
"""Characters of the texts of these plans, in all: a plan takes some hundred bytes for each."""

PLANNED_ROWS = 5_000
"""Rows of tables that are scanned: reading them costs more than a plan of these constants."""
SIZES_SECONDS = 10.0
"""Seconds after which tables are sampled again for the order of joins: it takes a few milliseconds."""


class StatementPort(Protocol):
    """What statements need of the deployment that they are performed on; ``controller/serving.py`` implements it."""

    accounts: Keeper | None
    sessions: Sessions
    in_doubt: InDoubt

    @property
    def state(self) -> State: ...

    @property
    def budget(self) -> Budget: ...

    async def run(
        self, entry: RecipeEntry, sql: str, parsed: Sequence[Parsed] | None = None, rows: Insert | None = None
    ) -> None: ...

    def prepare(self, view: str) -> ViewLookup: ...

    async def read(self, view: str, bind: Callable[[Binding], BoundLookup], token: Clock | None = None) -> bytes: ...

    async def write(self, operation: Operation, asker: Caller) -> WriteResult: ...

    async def made_anew(self, attempt: Callable[[], Awaitable[Answer]]) -> Answer: ...

    def now(self) -> str: ...

    def tables(self) -> list[TableSchema]: ...

    def views(self) -> list[ViewInfo]: ...

    def explain(self, view: str) -> str: ...

    async def evaluate(
        self, question: Question, token: Clock, elsewhere: Elsewhere | None, transaction: Transaction | None = None
    ) -> tuple[Rows, Clock]: ...

    async def archive(self) -> ArchivedPositions: ...

    def writes(self, tables: Collection[str]) -> int:
        """The number of writes to these tables so far, by their lower-case names; 0 where no automatic view is kept."""

    def automatic_bytes(self) -> int:
        """Bytes of all automatic views; 0 where others keep them."""

    async def statistics(self, tables: Sequence[TableSchema]) -> Statistics: ...


@dataclass(frozen=True, slots=True)
class PreparedSelect:
    """A SELECT as what can be asked: of a view of it, or of the base tables."""

    ad_hoc: AdHoc
    planned: PlannedView
    plan: EvaluationPlan
    arguments: Sequence[Argument]
    view: str | None
    """A declared view, in lower case, whose reader has just this answer."""

    def exact(self, params: Sequence[Argument]) -> tuple[Argument, ...] | None:
        bound, planned = self.ad_hoc.bind(params), self.planned
        return exact_arguments(bound, planned.placeholders, planned.parameters)

    def for_constants(self) -> PreparedSelect:
        """The same plan for a caller that has the constants which became its parameters, in their order."""
        ad_hoc = self.ad_hoc
        given = (((Given(n),) if isinstance(a, tuple) else Given(n)) for n, a in enumerate(ad_hoc.arguments))
        return replace(self, ad_hoc=replace(ad_hoc, arguments=tuple(given)), arguments=())


Apart = tuple[PlannedView, EvaluationPlan, Sequence[Argument]]
"""A plan for one asking alone, and its arguments."""


@dataclass(slots=True)
class SentSelect:
    """A SELECT as it was sent."""

    sql: str
    statement: SelectStatement | None = None
    """None: it was recognised, and is parsed if that is needed after all."""
    is_learnt: bool = False
    """Whether it is the whole text, as it was parsed: its constants are then at their places."""
    asker: Caller = ANONYMOUS
    start: int = 0
    """Where it stands in the text that was parsed."""
    moment: RequestMoment = field(init=False)

    def __post_init__(self) -> None:
        self.moment = RequestMoment("" if self.statement is None else self.statement.now, self.asker)


class SelectPlans:
    """The plans of one deployment."""

    def __init__(self, deployment: StatementPort, texts: Texts) -> None:
        self._deployment = deployment
        self._texts = texts
        self._lock = Lock()
        """Around plans that are remembered, not their making: a text that is long is planned in a thread."""
        self._plans: dict[str, PreparedSelect] = {}
        """Keyed by name, without arguments."""
        self._characters = 0
        """Characters of their texts."""
        self._ordered: dict[str, tuple[float, PlannedView, EvaluationPlan]] = {}
        """The plans over several tables, with the time when the tables were sampled."""
        self._by_tree: dict[int, tuple[exp.Query, PreparedSelect]] = {}
        """Keyed by a statement's tree, which a text that was asked before has again: what does not depend on
        parameters."""
        self._lately: dict[str, tuple[PreparedSelect, PreparedSelect]] = {}
        """What texts were recognised as that were asked lately: the plan of their shape, without and with arguments."""
        self._plans_of: tuple[object, ...] = ()
        self._seen: State | None = None
        """The state for which these plans were found to hold."""
        self._compared: dict[str, tuple[exp.Query | None, exp.Query]] = {}
        """Trees of a SELECT, and of the automatic view of its name, that are the same."""
        self.known_shapes: KnownShapes[PreparedSelect] = KnownShapes()

    async def unless_long(self, sql: str, work: Callable[[State], Answer]) -> Answer:
        """What is done with a text, on the event loop only where that is short; and then others have their turn.

        What comes of it is of the schema of the beginning; whoever evaluates it looks at its tables again.

        :raises SchemaChanged: what the text names was altered meanwhile.
        """
        state, turn = self._deployment.state, Turn()
        if self._texts.is_planned_aside(sql):
            found = await self._texts.aside(lambda: work(state))
        else:
            found = work(state)
            await turn.pause()
        now = self._deployment.state
        if now is not state and not _names_the_same(sql, state.catalog, now.catalog):
            raise SchemaChanged("of the statement")
        return found

    def recognised(self, sql: str) -> PreparedSelect | None:
        """What to read a text with that differs from an earlier one in constants only; None: it takes the full way."""
        found = self.shape_of(sql)
        if found is None:
            return None
        known, values = found
        lately = self._lately.get(sql)
        if lately is not None and lately[0] is known:
            return lately[1]
        arguments = known.exact(values)
        if arguments is None:
            return None
        select = replace(known, arguments=arguments)
        if len(sql) <= LAST_CHARACTERS:
            self._lately[sql] = known, select
            if len(self._lately) > LAST_TEXTS:
                del self._lately[next(iter(self._lately))]
        return select

    def shape_of(self, sql: str) -> tuple[PreparedSelect, Sequence[Argument]] | None:
        """The plan of the text's shape, and the constants that are its parameters."""
        if not self._holds(self._deployment.state):
            return None
        return self.known_shapes.recognised(sql, self._texts.most_items)

    async def prepare(self, sent: SentSelect) -> PreparedSelect:
        """The full way: what to read it with, which is learnt where its text alone tells that."""
        state = self._deployment.state
        known = sent.statement is not None and self.of_tree(sent.statement.query, state) is not None
        text = "" if known else sent.sql
        select = await self.unless_long(text, lambda state: self.prepared(self.statement_of(sent, state), state))
        if self._deployment.state is not state:
            return replace(select, view=None)  # It may be another by now.
        self.learn(sent, select)
        return select

    def learn(self, sent: SentSelect, select: PreparedSelect) -> None:
        """What was planned of the schema of now."""
        statement = sent.statement
        if statement is not None and sent.is_learnt and not statement.params and not statement.of_now:
            ad_hoc, query = select.ad_hoc, statement.query
            arguments, known, start = ad_hoc.bind(()), select.for_constants(), sent.start
            turned, general = _from(start, ad_hoc.turned), lambda: _from(start, comparands(query))
            self.known_shapes.learn(sent.sql, turned, general, arguments, known)

    async def whole(self, sql: str) -> PreparedSelect | None:
        """The plan of a text with a parameter for each constant that can be one; None where all of them are parameters
        already."""
        found = self.known_shapes.general(sql)
        if found is None:
            return None
        text, values = found

        def made(state: State) -> PreparedSelect | None:
            statement = self._read(text, values, state.catalog)
            return None if statement is None else self.prepared(statement, state)

        return await self.unless_long(sql, made)

    def statement_of(self, sent: SentSelect, state: State) -> SelectStatement:
        if sent.statement is None:
            sent.statement = self._read(sent.sql, (), state.catalog)
            assert sent.statement is not None, "what was recognised reads tables"
        return sent.statement

    def _read(self, sql: str, values: Sequence[Argument], catalog: Catalog) -> SelectStatement | None:
        """None where it reads no table. Raises what reading the text raises."""
        (parsed,) = split(sql)
        statement = interpret_one(parsed, catalog, values, self._deployment.now())
        return statement if isinstance(statement, SelectStatement) else None

    def prepared(self, statement: SelectStatement, state: State) -> PreparedSelect:
        """What to read it with: with its constants as parameters, or else with them in its text."""
        made = self.of_tree(statement.query, state)
        if made is None:
            ad_hoc = parameterise(statement.query, state.catalog, statement.params)
            if statement.of_now:
                ad_hoc = replace(ad_hoc, reusable=False)
            try:
                made = self._planned(ad_hoc, state)
            except Unsupported:  # With its constants in the text it may be supported.
                return self._verbatim(statement, state)
            finish = made.planned.finish
            if finish is not None and finish.gathers and not made.planned.reader.key:
                return self._verbatim(statement, state)  # A view for all values would keep the whole join.
            self._remember(statement, made, state)
        arguments = made.exact(statement.params)
        return self._verbatim(statement, state) if arguments is None else replace(made, arguments=arguments)

    def of_tree(self, tree: exp.Expr, state: State) -> PreparedSelect | None:
        """The plan of this very tree, without arguments, where nothing in it depends on who asks, or when."""
        with self._lock:
            known = self._by_tree.get(id(tree)) if self._holds(state) else None
        return known[1] if known is not None and known[0] is tree else None

    def _remember(self, statement: SelectStatement, made: PreparedSelect, state: State) -> None:
        """Remember a plan by its tree, where it does not depend on the values of its own parameters."""
        with self._lock:
            if made.ad_hoc.reusable and self._holds(state):
                self._by_tree[id(statement.query)] = statement.query, made
                if len(self._by_tree) > PLANS:
                    del self._by_tree[next(iter(self._by_tree))]

    async def verbatim(self, sent: SentSelect) -> PreparedSelect:
        """The plan with all constants in the text."""
        return await self.unless_long(sent.sql, lambda state: self._verbatim(self.statement_of(sent, state), state))

    def _verbatim(self, statement: SelectStatement, state: State) -> PreparedSelect:
        reusable = not statement.params and not statement.of_now
        ad_hoc = replace(verbatim(statement.query, state.catalog, statement.params), reusable=reusable)
        made = self._planned(ad_hoc, state)
        return replace(made, arguments=made.exact(statement.params) or ())

    def _planned(self, ad_hoc: AdHoc, state: State) -> PreparedSelect:
        """The plan without arguments; the plan of the same tree is remembered.

        :raises Unsupported: it is right SQL that is not done.
        """
        name, tree = ad_hoc.name, ad_hoc.tree
        with self._lock:
            if not self._holds(state):
                self._plans.clear()
                self._ordered.clear()
                self._by_tree.clear()
                self.known_shapes.forget_plans()
                self._plans_of, self._seen, self._characters = declared(state), state, 0
            known = self._plans.pop(name, None)
            if known is not None:
                self._plans[name] = known
        if known is not None and same_tree(tree, known.ad_hoc.tree):
            return replace(known, ad_hoc=ad_hoc)
        planned, plan = plan_evaluation(state, ad_hoc.meant())
        made = PreparedSelect(ad_hoc, planned, plan, (), _declared_view_of(planned, state))
        with self._lock:
            if self._holds(state) and name not in self._plans:
                self._plans[name] = made
                self._characters += len(ad_hoc.view_sql)
                while len(self._plans) > PLANS or self._characters > PLANNED_CHARACTERS:
                    oldest = next(iter(self._plans))
                    self._ordered.pop(oldest, None)
                    self._characters -= len(self._plans.pop(oldest).ad_hoc.view_sql)
        return made

    def _holds(self, state: State) -> bool:
        """Whether what was planned is what would be planned now: automatic views change nothing in that."""
        if state is not self._seen and self._plans_of == declared(state):
            self._seen = state
        return state is self._seen

    async def to_evaluate(self, sent: SentSelect) -> Apart:
        """What answers it over the base tables, and no view, for who asks."""
        found = await self.apart(sent)
        if found is not None:
            return found
        try:
            evaluated = await self.evaluated(sent, await self.prepare(sent))
        except (Unsupported, SqlError) as error:
            return await self.apart_after(sent, error)
        return *await self.in_order(evaluated), evaluated.arguments

    def is_bypassed(self, asker: Caller, names: Iterable[str]) -> bool:
        """Whether policies of the tables below do not apply to who asks."""
        return asker.policy_claims is None and bool(self._deployment.state.catalog.policed(names))

    async def apart(self, sent: SentSelect) -> Apart | None:
        """The plan for whom no policy applies, which is remembered nowhere; None: it is planned as for all."""
        if not self._deployment.state.catalog.policies or sent.asker.policy_claims is not None:
            return None
        statement = self.statement_of(sent, self._deployment.state)
        if not self.is_bypassed(sent.asker, names_read(statement.query)):
            return None
        return await self._apart(sent, Catalog.without_policies)

    async def apart_after(self, sent: SentSelect, error: HeadraceError) -> Apart:
        """The plan with the claims of who asks as constants, where they cannot be the parameters of one for all: below
        an outer join, NOT IN and the like. It is remembered nowhere, since nobody else has these.

        :raises HeadraceError: the error, if it was not for policies."""
        claims, catalog = sent.asker.policy_claims, self._deployment.state.catalog
        if claims is None or not catalog.policed(names_read(self.statement_of(sent, self._deployment.state).query)):
            raise error
        return await self._apart(sent, lambda catalog: for_claims(catalog, claims))

    async def _apart(self, sent: SentSelect, seen: Callable[[Catalog], Catalog]) -> Apart:
        def made(state: State) -> Apart:
            own, statement = replace(state, catalog=seen(state.catalog)), self.statement_of(sent, state)
            ad_hoc = verbatim(statement.query, own.catalog, statement.params)
            planned, plan = plan_evaluation(own, ad_hoc.meant())
            bound = ad_hoc.bind(statement.params)
            return planned, plan, exact_arguments(bound, planned.placeholders, planned.parameters) or ()

        return await self.unless_long(sent.sql, made)

    async def evaluated(self, sent: SentSelect, select: PreparedSelect) -> PreparedSelect:
        """What answers it over the base tables: with its constants in the text where they are then nearer to these."""
        if select.planned.finish is None:
            sizes = (await self._deployment.statistics(select.plan.tables)).values() if scans_joins(select.plan) else ()
            if sum(each.rows for each in sizes) < PLANNED_ROWS:
                return select
        return await self.verbatim(sent)

    async def in_order(self, select: PreparedSelect) -> tuple[PlannedView, EvaluationPlan]:
        """The plan that is evaluated: with its joins in the order that the tables' sizes suggest."""
        if not may_be_reordered(select.plan):
            return select.planned, select.plan
        now, name = monotonic(), select.ad_hoc.name
        known = self._ordered.get(name)
        if known is None or now - known[0] > SIZES_SECONDS:
            statistics = await self._deployment.statistics(select.plan.tables)
            plan = await self.unless_long(
                select.ad_hoc.view_sql, lambda state: plan_evaluation(state, select.ad_hoc.meant(), statistics)
            )
            known = now, *plan
            if name in self._plans:  # They go together.
                self._ordered[name] = known
        return known[1], known[2]

    def view_of(self, select: PreparedSelect) -> str | None:
        """The view, declared or automatic, whose reader has just this answer, by its lower-case name."""
        if select.view is not None:
            return select.view
        state, name, tree = self._deployment.state, select.ad_hoc.name, select.ad_hoc.tree
        kept = state.catalog.views.get(name)
        if kept is None or name not in state.flow.readers:
            return None
        ours, its = self._compared.get(name, (None, None))
        if ours is not tree or its is not kept.relation:
            if not same_tree(tree, kept.relation):
                return None  # Two trees may have the same text.
            self._compared[name] = tree, kept.relation
            if len(self._compared) > PLANS:
                del self._compared[next(iter(self._compared))]
        return name


def is_partial(ad_hoc: AdHoc, state: State) -> bool:
    """Whether a view of a SELECT would hold what is asked for, and not all of its rows."""
    after, _ = plan_readers(state, [ad_hoc.definition()], one_domain)
    return bool(after.planned[ad_hoc.name].reader.key)


_NAME = re.compile(r"`([^`]+)`|([\w$\x80-\uffff]+)")


def _from(start: int, places: Sequence[Starts]) -> list[Starts]:
    """Places in a text as those in a statement of it."""
    return [tuple([each - start for each in starts]) for starts in places]


def _names_the_same(sql: str, before: Catalog, after: Catalog) -> bool:
    """Whether all tables and views that a text can mean are in two catalogs what they are in the other."""
    pending, seen = {(quoted or name).lower() for quoted, name in _NAME.findall(sql)}, set[str]()
    while pending:
        name = pending.pop()
        seen.add(name)
        view = before.views.get(name)
        if before.named(name) != after.named(name) or view != after.views.get(name):
            return False
        if before.policies != after.policies:
            return False
        if view is not None:
            pending |= view.reads - seen
    return True


def declared(state: State) -> tuple[object, ...]:
    """All that was declared, and not made of traffic: tables, policies, and views with whether they have readers."""
    views, readers = state.catalog.views, state.flow.readers
    known = ((name, planned, name in readers) for name, planned in state.planned.items() if not views[name].ad_hoc)
    return (*state.catalog.tables.values(), *state.catalog.policies.items(), *known)


def _declared_view_of(wanted: PlannedView, state: State) -> str | None:
    for name, planned in state.planned.items():
        stands = name in state.flow.readers and not state.catalog.views[name].ad_hoc
        if stands and planned.root == wanted.root and _alike(planned, wanted):
            return name
    return None


def _alike(one: PlannedView, other: PlannedView) -> bool:
    """Whether a view's reader answers the other, with the arguments that were made for it."""
    if (one.columns, one.parameters, one.placeholders) != (other.columns, other.parameters, other.placeholders):
        return False
    if (one.finish, one.hidden) != (other.finish, other.hidden):
        return False
    mine, its = one.reader, other.reader
    return (mine.order, mine.visible, mine.limit, mine.offset, mine.empty) == (
        its.order,
        its.visible,
        its.limit,
        its.offset,
        its.empty,
    )
