"""What the subjects without a server share: statements planned and performed on one thread, domains simulated.

``Planned`` turns text into plans and writes with the production planner. How a view is read is each subject's own:
``evaluated`` recomputes the planned query from the stored rows, ``simulated`` asks the readers of simulated domains.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any, cast

from controller.lookups.binding import Binding, FinishedLookup
from controller.statements.planning import SelectPlans, SentSelect, StatementPort
from controller.statements.texts import Texts
from domains.engine.evaluation import EvaluationPlan, Slices
from domains.errors import ConstraintViolation, NotFound, Unsupported
from domains.language.collating.collation import BINARY
from domains.language.types import Column, Row, Value
from domains.plan.graph import DomainIndex
from domains.plan.packets import Failed, Operation, Outcome, Write, Written
from domains.plan.sharding import physical
from domains.store.storage import Store
from migrations.catalog import ViewDefinition
from migrations.change import BASES, change_of
from migrations.flow.dataflow import Placement
from migrations.flow.evaluation_plan import plan_evaluation
from migrations.flow.plan import MigrationPlan, State, one_domain, spread_over, understand
from migrations.flow.routing import split
from migrations.query.expressions.moments import at_moment
from migrations.query.view import PlannedView
from migrations.recipe import RecipeEntry
from migrations.statements import interpret
from migrations.statements.adhoc.recognising import scanned
from migrations.statements.adhoc.shapes_of_selects import AdHoc, exact_arguments, parameterise, verbatim
from migrations.statements.chosen import chosen
from migrations.statements.dml import resolve
from migrations.statements.interpret import interpret_one
from migrations.statements.sessions.user_variables import Variables, asked, assignments, with_variables
from migrations.statements.statement import (
    AlterTableStatement,
    ChosenWrite,
    ConstantSelect,
    CreateIndex,
    CreateTableStatement,
    CreateView,
    DropIndex,
    DropTableStatement,
    DropView,
    NoOperation,
    PendingWrite,
    SelectStatement,
    WriteStatement,
)
from tests.campaign.kinds import NOW
from tests.campaign.subject import Answer, Setting
from tests.simulation.simulation import Simulation
from worker.adhoc.answer import Question, answer_rows, part_of
from worker.adhoc.cut import ShardedTables
from worker.adhoc.pushing import divided

_DEFINITIONS = (
    CreateTableStatement,
    AlterTableStatement,
    CreateIndex,
    DropIndex,
    DropTableStatement,
    CreateView,
    DropView,
)


CONSTANTS: dict[type, Sequence[Value]] = {
    int: (0, 1, 2, 3, 7, 10, 4_000_000_000),
    Decimal: (Decimal("0.5"), Decimal("1.50"), Decimal("2.00"), Decimal("1.5")),
    str: ("x", "ab", "B", "", "10", "2024-01-01", "2023-11-05 10:00:00"),
}


def with_another_constant(sql: str, random: Random) -> str:
    """The text with one constant, or one list of them, as another of its kind."""
    found = scanned(sql)
    if found is None or not found[1]:
        return sql
    group = random.choice(found[1])
    several = random.choices(CONSTANTS[type(group.values[0])], k=random.randrange(1, 4) if group.is_list else 1)
    written = ", ".join(f"'{each}'" if isinstance(each, str) else str(each) for each in several)
    return f"{sql[: group.start]}{written}{sql[group.end :]}"


def _in_parts(question: Question, stores: Sequence[Store]) -> list[Row]:
    """The answer as a cluster makes it: parts of it over each shard."""
    division = divided(question)

    def rows_of(part: Question) -> Slices:
        (schema,) = part.plan.tables
        having = stores[: schema.shards or len(stores)]
        return lambda: (rows for store in having for rows in part_of(part, ShardedTables([store], [schema])))

    elsewhere = {node: rows_of(part) for node, part in division.parts.items()}
    tables = ShardedTables(stores, question.plan.tables)
    return [row for part in answer_rows(division.rest, tables, elsewhere=elsewhere) for row in part]


class Planned:
    """Base of the two. Group 0 has the base tables."""

    def __init__(self, setting: Setting, groups: int, shards: int) -> None:
        self.setting = setting
        self.groups = groups
        self.placement = self._placement()
        self.state = State(partial=setting.partial, shards=shards)
        self.simulation = Simulation(groups, shards, check=False)
        self.random = Random(f"subject {setting.seed}")
        self._writes = 0
        self._evaluations: tuple[State, dict[str, tuple[PlannedView, EvaluationPlan]]] = (self.state, {})
        """Of the views of a state, which migrations replace: planning took a fifth of a case's time."""

    def _placement(self) -> Placement:
        """As a worker places, or anywhere: neighbours in different groups, and paths from one to another and back."""
        if self.groups == 1:
            return one_domain
        if self.setting.seed % 2:
            return spread_over(self.groups)
        return lambda node: DomainIndex(Random(f"{self.setting.seed} {node.index}").randrange(self.groups))

    # --- statements -----------------------------------------------------------------------------------------------

    def execute(self, sql: str) -> list[Answer]:
        answers, variables = list[Answer](), Variables()
        for parsed in interpret.split(sql):
            if pairs := assignments(parsed):
                variables |= {name: self._one(asked(value, variables)).rows[0][0] for name, value in pairs}
                answers.append(Answer())
            else:
                answers.append(self._one(with_variables(parsed, variables) if variables else parsed))
        return answers

    def _one(self, parsed: Any) -> Answer:
        statement = interpret_one(parsed, self.state.catalog, (), NOW)
        if isinstance(statement, _DEFINITIONS):
            self._migrate(RecipeEntry((parsed.sql,), collation=BINARY))
            return Answer()
        match statement:
            case WriteStatement(operation=operation, returning=told):
                answer = self._write(operation)
                return answer if told is None else replace(answer, rows=tuple(told.rows(answer.rows)))
            case PendingWrite(subqueries=subqueries):
                return self._write(resolve(statement, [self._select(each)[1] for each in subqueries]).operation)
            case ChosenWrite(select=select):
                return self._write(chosen(statement, *self._found(select)).operation)
            case SelectStatement():
                planned, rows = self._select(statement)
                return Answer(tuple(column.name for column in planned.columns), tuple(rows))
            case ConstantSelect(columns=columns, rows=rows):
                return Answer(tuple(column.name for column in columns), tuple(rows))
            case NoOperation():
                return Answer()
            case _:
                raise AssertionError(f"{statement} in a campaign")

    def _migrate(self, entry: RecipeEntry) -> None:
        change = change_of(self.state, entry, self.placement)
        try:
            self.simulation.migrate(MigrationPlan(change.steps, ()), self.between)
        except ConstraintViolation:  # Rows are not what is asked of them.
            self.simulation.migrate(MigrationPlan(change.undo, ()))
            raise
        self.state = change.state

    def _write(self, operation: Operation) -> Answer:
        """To each shard that it concerns. What is on its way is delivered meanwhile, now and then."""
        self._writes += 1
        schema = self.state.catalog.tables[operation.table.lower()]  # By the name that it is stored by.
        divided = split(operation, schema, self.state.shards, self._writes)
        affected, returned = 0, list[Row]()
        for number, part in enumerate(divided):
            asked = part if divided.limit is None else divided.limited(number, affected)
            if asked is None:
                break
            written = self._write_part(*asked)
            affected += written.rows_affected
            returned += written.returned
            if len(divided) > 1:
                self.between()
        return Answer(rows=tuple(returned), rows_affected=affected)

    def _write_part(self, shard: int, operation: Operation) -> Written:
        request = self.simulation.request()
        self.simulation.send(physical(BASES, shard, self.state.shards), Write(request, operation))
        outcome = self._outcome(self.simulation.outcomes.pop(request))
        assert isinstance(outcome, Written)
        return outcome

    @staticmethod
    def _outcome(outcome: Outcome) -> Outcome:
        if isinstance(outcome, Failed):
            raise outcome.error
        return outcome

    def _select(self, statement: SelectStatement) -> tuple[PlannedView, list[Row]]:
        planned, ad_hoc, arguments = self._exact(statement)
        return planned, self.read_ad_hoc(ad_hoc, arguments)

    def _found(self, select: SelectStatement) -> tuple[tuple[Column, ...], list[Row]]:
        """Over the base tables as they are. It may draw values, which no view does."""
        ad_hoc = verbatim(select.query, self.state.catalog, select.params)
        planned, plan = plan_evaluation(self.state, ad_hoc.meant())
        arguments = exact_arguments(ad_hoc.bind(select.params), planned.placeholders, planned.parameters)
        assert arguments is not None, "all constants are in the text"
        return tuple(planned.columns), self.answered(planned, plan, arguments)

    def _exact(self, statement: SelectStatement) -> tuple[PlannedView, AdHoc, Sequence[Any]]:
        """With the constants as parameters, or where that is not exact, with them in the text."""
        catalog = self.state.catalog
        for way in (parameterise, verbatim):
            ad_hoc = way(statement.query, catalog, statement.params)
            try:
                planned = self.state.planned.get(ad_hoc.name) or understand(self.state, ad_hoc.definition())
            except Unsupported:
                if way is verbatim:
                    raise
                continue
            arguments = exact_arguments(ad_hoc.bind(statement.params), planned.placeholders, planned.parameters)
            if arguments is None:
                continue
            return planned, ad_hoc, arguments
        raise AssertionError("an ad-hoc SELECT has no exact form")

    def lookup(self, view: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return list(self.read(view, self.arguments(view, values)))

    def arguments(self, view: str, values: Sequence[Any]) -> tuple[Any, ...]:
        """One argument a parameter, from one value a ``?``; a tuple for IN."""
        planned = self.planned(view)
        given: list[Any] = [None] * len(planned.parameters)
        for index, value in zip(planned.placeholders, values, strict=True):
            given[index] = tuple(value) if isinstance(value, list) else value
        return tuple(given)

    def planned(self, view: str) -> PlannedView:
        found = self.state.planned.get(view.lower())
        if found is None:
            raise NotFound(f'no view "{view}"')
        return found

    @abstractmethod
    def read(self, view: str, arguments: Sequence[Any]) -> list[Row]:
        """The view's answer for one argument a parameter."""

    def read_ad_hoc(self, ad_hoc: AdHoc, arguments: Sequence[Any]) -> list[Row]:
        """The same for a SELECT, which becomes a view."""
        if ad_hoc.name not in self.state.catalog.views:
            self._migrate(RecipeEntry((ad_hoc.view_sql,), ad_hoc=True))
        return self.read(ad_hoc.name, arguments)

    def evaluated(self, definition: ViewDefinition, arguments: Sequence[Any]) -> list[Row]:
        """The same over the base tables as they are, without a view. Raises Unsupported."""
        return self.answered(*plan_evaluation(self.state, definition), arguments)

    def answered(self, planned: PlannedView, plan: EvaluationPlan, arguments: Sequence[Any]) -> list[Row]:
        bound = Binding.of(planned, self.now).from_arguments(arguments)
        shards = self.state.shards
        stores = [self.simulation.stores[physical(BASES, shard, shards)] for shard in range(shards)]
        question = Question(plan, bound.sent)
        parts = answer_rows(question, ShardedTables(stores, plan.tables))
        rows = [row for part in parts for row in part]
        if shards > 1:
            again = _in_parts(question, stores)
            ordered = plan.reader.order or bound.sent.limit is not None or plan.reader.limit is not None
            assert again == rows if ordered else Counter(again) == Counter(rows), "parts come to something else"
        if not isinstance(bound, FinishedLookup) or planned.finish is None:
            return rows
        return planned.finish.answer(rows, bound.values, bound.count, bound.start)

    def select_evaluated(self, sql: str) -> list[Row]:
        """And again with other constants, where it is recognised by its tokens."""
        statement = self._select_of(sql).statement
        assert statement is not None
        _, ad_hoc, arguments = self._exact(statement)
        rows = self.evaluated(ad_hoc.meant(), arguments)
        for other in (sql, with_another_constant(sql, self.random)):
            self._ask_recognised(sql, other)
        return rows

    def _select_of(self, sql: str, *, learnt: bool = False) -> SentSelect:
        (parsed,) = interpret.split(sql)
        statement = interpret_one(parsed, self.state.catalog, (), NOW)
        assert isinstance(statement, SelectStatement)
        return SentSelect(sql, statement, learnt and statement.query is parsed.expression)

    def _ask_recognised(self, sql: str, other: str) -> None:
        """What is learnt of one text is what the full way makes of the other: rows, and names and types of columns. By
        the constants that are parameters by themselves, and by all that could be."""
        plans = SelectPlans(cast(StatementPort, self), Texts())
        sent = self._select_of(sql, learnt=True)
        assert sent.statement is not None
        plans.learn(sent, plans.prepared(sent.statement, self.state))
        self._compare_recognised(plans, other)
        try:
            whole = asyncio.run(plans.whole(sql))
        except Unsupported:
            return
        if whole is not None and whole.ad_hoc.reusable and whole.planned.finish is None and whole.plan.reader.key:
            plans.known_shapes.keep(sql, None, whole)
            self._compare_recognised(plans, other)

    def _compare_recognised(self, plans: SelectPlans, other: str) -> None:
        known = plans.recognised(other)
        if known is None:
            return
        statement = self._select_of(other).statement
        assert statement is not None
        planned, ad_hoc, arguments = self._exact(statement)
        ours = self.answered(known.planned, known.plan, known.arguments)
        theirs = self.evaluated(ad_hoc.meant(), arguments)
        assert known.planned.columns == planned.columns, f"recognised as {known.ad_hoc.view_sql}: {other}"
        assert Counter(ours) == Counter(theirs), f"recognised as {known.ad_hoc.view_sql}: {other}"

    def now(self) -> str:
        return NOW

    @staticmethod
    def whole(planned: PlannedView, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """One argument for each of the reader's parameters: also what follows from the time."""
        return (*arguments, *(at_moment(each.value, NOW).value for each in planned.hidden))

    def view_evaluated(self, view: str, values: Sequence[Any]) -> list[Row]:
        if self._evaluations[0] is not self.state:
            self._evaluations = (self.state, {})
        known = self._evaluations[1]
        if view not in known:
            known[view] = plan_evaluation(self.state, self.state.catalog.views[view.lower()])
        return self.answered(*known[view], self.arguments(view, values))

    def between(self) -> None:
        """Between two slices of a migration, and two parts of a write."""

    def stored(self) -> dict[str, list[Row]]:
        """The rows of every base table, duplicates repeated."""
        stores = self.simulation.stores
        return {
            schema.name: [
                row
                for store in stores[: schema.shards or self.state.shards]
                for row, weight in store.table(schema.name).find((), ())
                for _ in range(weight)
            ]
            for schema in self.state.catalog.tables.values()
        }

    def close(self) -> None:
        """Nothing is open."""
