"""A subquery that reads the query around it, and whose rows come to be when the answer is read.

S are its rows, and k the columns by which it is correlated: k = g(the row around). A look-up asks first for the answer
to all of them, each k by itself (f), as it asks first what reads nothing around (``parts.py``); each row around finds
its own in it::

    (SELECT SUM(y) FROM S WHERE k = g AND p)      =   f(g)                 where f = γ_{k; SUM y} σ_p S
    EXISTS (SELECT … FROM S WHERE k = g AND p)    =   f(g) IS NOT NULL     where f = γ_{k; COUNT(*)} σ_p S
    x IN (SELECT y FROM S WHERE k = g AND p)      =   f(g, x) IS NOT NULL  where f = δ_{k, y} σ_p S, and NULL or FALSE
                                                      as the rows and values are that k has
    x > ALL (SELECT y FROM S WHERE k = g AND p)   =   x > MAX(g) …         where f = γ_{k; MIN y, MAX y, …} σ_p S

What f has no row for is what the query answers of no row: 0 for COUNT. So it may stand anywhere in an expression, and
rows around need not be told apart.

A row around that is looked up by ``c = ?`` asks for the k of such rows alone: S is joined with these, so that c is a
column of both parts, and a key of the reader::

    S ⋈_{k = g} δ_{c, g}(R)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import keys
from domains.language.types import BIGINT
from domains.plan.graph import AggregateCall, AggregateFunction, ParameterKind
from migrations.query.correlation import Correlations, Links, parted
from migrations.query.expressions.late import fields_of, parameter_call
from migrations.query.expressions.literals import NOTHING, truth
from migrations.query.expressions.terms import moved
from migrations.query.joins import Arranged, meet
from migrations.query.plan import RelationalPlan, distinct, projected
from migrations.query.plans.late_queries import LateCall, LateGroups, LateQuery, all_carried_on
from migrations.query.plans.summaries import COUNT_ROWS, is_correlated, is_put_off, is_unique
from migrations.query.relation import (
    EQUALITIES,
    Around,
    Carried,
    Output,
    QueryContext,
    Relation,
    Slot,
    bounded,
    several_rows,
)
from migrations.query.stage import SelectStage, Wide


class EachRow:
    """The subqueries of one stage that a look-up asks first for each of its rows."""

    def __init__(self, stage: SelectStage, around: Around, context: QueryContext, correlations: Correlations) -> None:
        self._stage, self._around, self._context = stage, around, context
        self._correlations = correlations

    def answers(self, relation: Relation, *, alone: bool = False) -> bool:
        """Whether a subquery is asked so; ``alone``: also one that reads nothing around."""
        own = any(c.slot.outer is None for c in relation.carried)
        return self._context.asks_each and (alone or is_correlated(relation)) and (own or is_put_off(relation))

    def values(self, relation: Relation) -> list[Expression]:
        """The columns of its only row."""
        relation = relation if relation.limit is None else bounded(relation)
        nothing, late = _of_nothing(relation), relation.late
        own = [c.column for c in relation.carried if c.slot.outer is None and c.slot.kind is ParameterKind.EQUAL]
        made = late.groups or late.windows or late.below or late.matches
        if not nothing and (made or not is_unique(relation, own)):
            raise several_rows("a part of a query that is worked out when the answer is read")
        return self._asked(relation, nothing=nothing)

    def existence(self, relation: Relation) -> Expression:
        if _of_nothing(relation):
            return truth(True)
        return call("is_not_null", self.summary(relation, [COUNT_ROWS])[0])

    def membership(self, left: Sequence[Expression], relation: Relation) -> Expression:
        if len(left) != 1:
            raise Unsupported(
                "a row compared by IN with a subquery that has a parameter, and reads the query around",
                hint="write it as EXISTS",
            )
        x = self._correlations.put(left[0], self._stage)
        if _of_nothing(relation):
            return call("eq", x, *self.values(relation))
        y = Field(0, relation.outputs[0].expression.type)
        own, theirs = keys(x, y)
        rows, values = self.summary(relation, [COUNT_ROWS, AggregateCall(AggregateFunction.COUNT, 0, BIGINT)])
        member = self._asked(relation, lambda by: LateQuery((truth(True), *by, theirs), distinct=True), [own])
        unknown = call("or", call("is_null", x), call("ne", rows, values))
        rest: list[Expression] = [call("is_null", rows), truth(False), unknown, NOTHING, truth(False)]
        return call("case", call("is_not_null", member[0]), truth(True), *rest)

    def summary(self, relation: Relation, calls: Sequence[AggregateCall]) -> list[Expression]:
        """Aggregates of its rows; NULLs where there is none. An argument is one of its columns."""

        def made(by: Sequence[Expression]) -> LateQuery:
            of = [None if c.argument is None else relation.outputs[c.argument].expression.type for c in calls]
            late = tuple(
                LateCall(each, None if type is None else Field(each.argument or 0, type), (), None, None)
                for each, type in zip(calls, of, strict=True)
            )
            shown = [Field(len(by) + at, each.type) for at, each in enumerate(calls)]
            fields = (Field(at, e.type) for at, e in enumerate(by))
            return LateQuery((*shown, *fields), groups=LateGroups(tuple(by), late, scalar=False))

        return self._asked(relation, made)

    def _asked(
        self,
        relation: Relation,
        made: Callable[[Sequence[Expression]], LateQuery] | None = None,
        beside: Sequence[Expression] = (),
        nothing: tuple[LateQuery, ...] = (),
    ) -> list[Expression]:
        """The columns that the row around finds: of the subquery, or of what is ``made`` of its columns and of those by
        which it is correlated, which come last in it; ``beside``: what else finds it, of columns behind these."""
        if relation.linked or relation.late.single:
            raise Unsupported("a parameter below EXISTS or IN with a condition that is no equality of a column")
        relation, links = parted(relation, self._around.level, self._stage, self._correlations, optional=True)
        relation = _kept_alike(relation, links, self._stage, self._around)
        chain, by = all_carried_on(_queries(relation), [relation.plan.field(column) for column, _ in links])
        *below, last = chain if made is None else (*chain, made(by))
        outputs = tuple(Output(f"column_{at}", e) for at, e in enumerate(last.outputs))
        late = replace(
            relation.late, below=tuple(below), groups=last.groups, distinct=last.distinct, filters=last.conditions
        )
        table = replace(relation, outputs=outputs, order=(), empty=None, key=(), late=late, uniques=())
        found, known = (*(outer for _, outer in links), *beside), self._context.answers
        width, marks = len(outputs) - len(found), ((-1 - len(known),),)
        known.append(Slot("answer", ParameterKind.EQUAL, BIGINT, marks, answer=table, each=nothing, width=width))
        self._stage.slots.append(known[-1])
        key, types = known[-1].key, [o.expression.type for o in outputs[:width]]
        tables = [parameter_call(key, type, exact=False) for type in types]
        return [Call("looked_up", (t, Constant(at, BIGINT), *found), t.type) for at, t in enumerate(tables)]


def _queries(relation: Relation) -> tuple[LateQuery, ...]:
    return (*relation.late.below, relation.outermost)


def _of_nothing(relation: Relation) -> tuple[LateQuery, ...]:
    """What answers, of no row, the row that an aggregate without GROUP BY has then; nothing for another query.

    :raises Unsupported: of some rows it may have none, which would be taken for it.
    """
    *below, last = _queries(relation)
    if any(query.groups is not None and query.groups.scalar for query in below):
        raise Unsupported("a query around an aggregate without GROUP BY that has a parameter below it, as a subquery")
    if last.groups is not None and last.groups.scalar:
        if last.groups.having:
            raise Unsupported(
                "HAVING without GROUP BY in a subquery that has a parameter", hint="test the value outside of it"
            )
        return (*below, last)
    if relation.empty is None:
        return ()
    values = zip(relation.empty, relation.outputs, strict=True)
    shown = tuple(Constant(value, output.expression.type) for value, output in values)
    return (LateQuery(shown, groups=LateGroups((), (), scalar=True)),)


def _kept_alike(relation: Relation, links: Links, stage: SelectStage, around: Around) -> Relation:
    """The subquery's rows for what the query around is looked up by."""
    asked = [c for c in stage.carried if c.slot.outer is None and c.slot.moment is None and c.slot.kind in EQUALITIES]
    plan = relation.plan
    own = [
        Carried(column, wide.slot)
        for column, outer in links
        for wide in asked
        if wide.expression == outer and plan.columns[column].type == outer.type
    ]
    single = [wide for wide in asked if wide.slot.kind is ParameterKind.EQUAL]
    if own or not links or not single:
        return replace(relation, carried=(*relation.carried, *own))
    plan, places = _met(relation, links, single, around)
    carried = tuple(Carried(at, wide.slot) for at, wide in zip(places, single, strict=True))
    return replace(relation, plan=plan, carried=(*relation.carried, *carried))


def _met(relation: Relation, links: Links, asked: Sequence[Wide], around: Around) -> tuple[RelationalPlan, list[int]]:
    """S ⋈ δ(R), and where in it are the columns of R that are asked for."""
    plan = relation.plan
    row = [*(wide.expression for wide in asked), *(outer for _, outer in links)]
    read = list(dict.fromkeys(field.position for e in row for field in fields_of(e)))
    rows = around.rows(read)
    values = list(dict.fromkeys(moved(e, read.index) for e in row))
    keys_of_rows = projected(rows, values, [f"around_{at}" for at in range(len(values))])
    keys_of_rows = distinct(keys_of_rows, tuple(range(keys_of_rows.width)))
    width = plan.width
    theirs = [Field(width + values.index(moved(e, read.index)), e.type) for e in row]
    conditions: list[Expression] = [
        call("eq", plan.field(column), own) for (column, _), own in zip(links, theirs[len(asked) :], strict=True)
    ]
    ours = Arranged(plan, tuple(range(width)))
    met = meet(ours, Arranged(keys_of_rows, tuple(range(width, width + keys_of_rows.width))), conditions)
    return met.plan, [met.place(field.position) for field in theirs[: len(asked)]]
