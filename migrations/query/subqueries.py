"""Uncorrelated subqueries in expressions become sources of the stage, joined with its rows.

==========================  ================================================================================
``x IN (S)`` under AND      ⋈ δ(S) on x
``x IN (S)`` elsewhere      ⟕ δ(S) on x, × (S is empty?, S has no NULL?), and a CASE that knows all three
``EXISTS (S)`` under AND    × one row if S has any
``EXISTS (S)`` elsewhere    × (number of rows of S) > 0
``(SELECT aggregate …)``    × its one row
``(SELECT … LIMIT 1)``      × MAX of it, which is it, or NULL where there is none
==========================  ================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import keys
from domains.language.types import BIGINT
from domains.plan.graph import AggregateCall, AggregateFunction
from domains.plan.traits import traits_of
from migrations.parse.reading import exp
from migrations.query.expressions.literals import NOTHING, truth
from migrations.query.expressions.scope import Scope
from migrations.query.joins import Leaf
from migrations.query.plan import aggregated, projected
from migrations.query.relation import (
    Output,
    QueryContext,
    Relation,
    bounded,
    deduplicated,
    plain,
    refuse_late,
    refuse_late_conditions,
    settled,
)
from migrations.query.stage import SelectStage, wide

Plan = Callable[[exp.Expr, QueryContext], Relation]
Translate = Callable[[exp.Expr], Expression]


class Subqueries:
    """Joins the subqueries of one stage's expressions to it."""

    def __init__(self, stage: SelectStage, scope: Scope, context: QueryContext, plan: Plan) -> None:
        self._stage = stage
        self._context = context.inside(scope)
        self._plan = plan

    def replace(self, node: exp.Expr, translate: Translate) -> Expression | None:
        """The value of a subquery's node over the stage's row; None where the node is none."""
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._membership(node, translate)
        if isinstance(node, exp.Exists):
            return self._existence(node)
        if isinstance(node, (exp.Subquery, exp.Select, exp.SetOperation)):
            return self._value(node)
        return None

    def restrict(self, node: exp.Expr, translate: Translate) -> bool:
        """Join a condition that keeps rows only if a subquery has something; False where it is no such condition."""
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            relation = self._read(node.args["query"])
            left = self._left(node, relation, translate)
            leaf, columns = self._members(left, relation)
            self._stage.cross(leaf, [call("eq", x, y) for x, y in zip(left, columns, strict=True)])
            return True
        if isinstance(node, exp.Exists):
            relation = self._read(node.this)
            self._stage.cross(self._stage.leaf(plain(deduplicated(_shown_as(relation, [truth(True)])))))
            return True
        return False

    # --- the three kinds ----------------------------------------------------------------------------------------

    def _membership(self, node: exp.In, translate: Translate) -> Expression:
        """TRUE where x is in S; else FALSE for an empty S; else NULL if x is NULL or S has a NULL; else FALSE."""
        relation = self._read(node.args["query"])
        _refuse_parameters(relation, "NOT IN, or IN outside of a WHERE's ANDs")
        left = self._left(node, relation, translate)
        if len(left) != 1:
            raise Unsupported("rows compared by NOT IN", hint="use NOT EXISTS-like LEFT JOIN … IS NULL")
        facts = self._stage.leaf(_facts(relation))
        self._stage.cross(facts)
        leaf, (y,) = self._members(left, relation)
        self._stage.match(leaf, [call("eq", left[0], y)])
        unknown = call("or", call("is_null", left[0]), call("not", wide(facts, 1)))
        found = call("is_not_null", y)
        return call("case", found, truth(True), wide(facts, 0), truth(False), unknown, NOTHING, truth(False))

    def _existence(self, node: exp.Exists) -> Expression:
        relation = self._read(node.this)
        _refuse_parameters(relation, "NOT EXISTS, or EXISTS outside of a WHERE's ANDs")
        counted = aggregated(relation.plan, (), [(_COUNT_ROWS, "rows")], scalar=True)
        plan = projected(counted, [call("gt", counted.field(0), Constant(0, BIGINT))], ["exists"])
        leaf = self._stage.leaf(Relation(plan, (Output("exists", plan.field(0)),)))
        self._stage.cross(leaf)
        return wide(leaf, 0)

    def _value(self, node: exp.Expr) -> Expression:
        inner = node.this if isinstance(node, exp.Subquery) else node
        if isinstance(inner, exp.Select) and inner.args.get("from_") is None:
            raise Unsupported("a scalar subquery without FROM", hint="write its expression")
        relation = self._read(node, keep_limit=True)
        if len(relation.outputs) != 1:
            raise SqlError(f"a subquery that is a value has {len(relation.outputs)} columns instead of one")
        is_single = relation.empty is not None or _has_one_row(relation)
        is_cut = relation.limit == 0 or relation.offset != 0
        if not is_single or is_cut:
            if relation.limit != 1:
                raise Unsupported(
                    "a subquery as a value that may have several rows",
                    hint="make it an aggregate without GROUP BY, or end it with LIMIT 1",
                )
            relation = _largest(bounded(relation))
        relation = plain(replace(relation, order=(), limit=None, offset=0))
        leaf = self._stage.leaf(relation)
        self._stage.cross(leaf)
        field = relation.outputs[0].expression
        assert isinstance(field, Field)
        return wide(leaf, field.position)

    # --- parts --------------------------------------------------------------------------------------------------

    def _read(self, node: exp.Expr, *, keep_limit: bool = False) -> Relation:
        relation = self._plan(node, self._context)
        refuse_late(relation)
        refuse_late_conditions(relation, "a subquery in an expression")
        return relation if keep_limit else bounded(relation)

    def _left(self, node: exp.In, relation: Relation, translate: Translate) -> list[Expression]:
        """The left side of IN, one expression for each column of the subquery."""
        left = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(left) != len(relation.outputs):
            raise SqlError(f"IN compares {len(left)} columns with the {len(relation.outputs)} of its subquery")
        return [translate(x) for x in left]

    def _members(self, left: Sequence[Expression], relation: Relation) -> tuple[Leaf, list[Expression]]:
        """δ of the subquery as a source, and its columns over the wide row.

        They are converted first: ``'1'`` and ``'01'`` are two texts, but a number that is IN them is found once.
        An aggregate with a parameter below it has one row for each of its values, and nothing to convert twice.
        """
        if relation.empty is None:
            compared = [Output(o.name, keys(x, o.expression)[1]) for x, o in zip(left, relation.outputs, strict=True)]
            relation = replace(relation, outputs=tuple(compared))
        relation = plain(deduplicated(relation))
        leaf = self._stage.leaf(relation)
        return leaf, [wide(leaf, _position(output)) for output in relation.outputs]


_COUNT_ROWS = AggregateCall(AggregateFunction.COUNT_ROWS, None, BIGINT)


def _position(output: Output) -> int:
    assert isinstance(output.expression, Field)
    return output.expression.position


def _shown_as(relation: Relation, expressions: Sequence[Expression]) -> Relation:
    if relation.empty is not None:
        raise Unsupported("EXISTS of an aggregate without GROUP BY", hint="it always has a row")
    return replace(relation, outputs=tuple(Output("one", expression) for expression in expressions))


def _facts(relation: Relation) -> Relation:
    """One row about a subquery of one column: is it empty, is it without NULLs."""
    relation = plain(relation)
    column = _position(relation.outputs[0])
    count = AggregateCall(AggregateFunction.COUNT, column, BIGINT)
    counted = aggregated(relation.plan, (), [(_COUNT_ROWS, "rows"), (count, "values")], scalar=True)
    rows, values = counted.field(0), counted.field(1)
    tests = [call("eq", rows, Constant(0, BIGINT)), call("eq", rows, values)]
    plan = projected(counted, tests, ["is_empty", "has_no_null"])
    return Relation(plan, tuple(Output(c.name, plan.field(i)) for i, c in enumerate(plan.columns)))


def _has_one_row(relation: Relation) -> bool:
    """Whether the relation always has exactly one row: an aggregate without GROUP BY, at most projected."""
    plan = relation.plan
    while True:
        traits = traits_of(plan.operator)
        if traits.row_over_nothing or not traits.row_for_row:
            return traits.row_over_nothing
        plan = plan.parents[0]


def _largest(relation: Relation) -> Relation:
    """The only row's value, or NULL where there is none."""
    _refuse_parameters(relation, "a subquery as a value without an aggregate")
    relation, _ = settled(relation)
    largest = AggregateCall(AggregateFunction.MAX, 0, relation.outputs[0].expression.type)
    plan = aggregated(relation.plan, (), [(largest, relation.outputs[0].name)], scalar=True)
    return Relation(plan, (Output(relation.outputs[0].name, plan.field(0)),))


def _refuse_parameters(relation: Relation, construct: str) -> None:
    if relation.carried:
        raise Unsupported(
            f'the parameter "{relation.carried[0].slot.name}" below {construct}',
            hint="only rows that are there can be found by a parameter; ask for the subquery as a view of its own",
        )
