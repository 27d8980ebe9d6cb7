"""What a subquery comes to before it is joined: its different values, their counts, or one row of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.types import BIGINT, Kind, Value
from domains.plan.graph import AggregateCall, AggregateFunction
from domains.plan.traits import traits_of
from migrations.query.expressions.late import fields_of, has_parameter
from migrations.query.plan import aggregated, distinct, projected
from migrations.query.relation import (
    LOWER,
    ORDERS,
    SEVERAL,
    Carried,
    Output,
    Relation,
    is_made_late,
    refuse_late,
    refuse_late_conditions,
    require_single,
    settled,
)

COUNT_ROWS = AggregateCall(AggregateFunction.COUNT_ROWS, None, BIGINT)


def is_correlated(relation: Relation) -> bool:
    return bool(relation.linked) or any(c.slot.outer is not None for c in relation.carried)


def is_unique(relation: Relation, members: Sequence[int] = ()) -> bool:
    """Whether there is one row at most for what the relation carries, and for each of its members."""
    carried = {*members, *(c.column for c in relation.carried if c.slot.outer is not None)}
    return any(unique <= carried for unique in relation.uniques)


def ranged(relation: Relation, members: Sequence[int] = ()) -> Relation:
    """One row for all that EXISTS (or IN, of each of its ``members``) is asked with ``column > ?``: some value is above
    the bound if the greatest is. (Of a row for each value, several would keep the row outside.) Raises Unsupported for
    other parameters of many values."""
    several = [c for c in relation.carried if c.slot.kind in SEVERAL]
    if not several or is_unique(relation, members):
        return replace(relation, key=())
    single = tuple(c for c in relation.carried if c.slot.kind not in SEVERAL)
    (at, slot), compared = (several[0].column, several[0].slot), relation.plan.columns[several[0].column]
    if len(several) > 1 or slot.kind not in ORDERS or compared.type.members or compared.type.kind is Kind.JSON:
        require_single(several, "IN" if members else "EXISTS", ())
    extreme = AggregateCall(AggregateFunction.MAX if slot.kind in LOWER else AggregateFunction.MIN, at, compared.type)
    own = tuple(Carried(at, slot) for at in members)
    summary = summarised(replace(relation, carried=(*own, *single)), [(extreme, compared.name)])
    own, single = summary.carried[: len(own)], summary.carried[len(own) :]
    outputs = tuple(Output(o.name, summary.plan.field(c.column)) for o, c in zip(relation.outputs, own, strict=False))
    return replace(
        summary, outputs=outputs, carried=(*single, Carried(column_of(summary.outputs[0]), slot)), empty=None
    )


def keyed(relation: Relation) -> Relation:
    """The different values of what is carried; those of a unique key are different anyway."""
    if is_unique(relation):
        return replace(relation, outputs=(), key=())
    group = tuple(dict.fromkeys(c.column for c in relation.carried))
    carried = tuple(Carried(group.index(c.column), c.slot) for c in relation.carried)
    uniques = (frozenset(range(len(group))),)
    return Relation(distinct(relation.plan, group), (), carried, late=relation.late, uniques=uniques)


Shown = Callable[[Sequence[Expression]], list[tuple[str, Expression]]]


def summarised(relation: Relation, calls: Sequence[tuple[AggregateCall, str]], shown: Shown | None = None) -> Relation:
    """γ by what is carried, and what is computed of the calls; of nothing, where counts are 0."""
    group = tuple(dict.fromkeys(c.column for c in relation.carried))
    carried = tuple(Carried(group.index(c.column), c.slot) for c in relation.carried)
    plan = aggregated(relation.plan, group, calls, scalar=not group)
    if shown is not None:
        computed = shown([plan.field(len(group) + at) for at in range(len(calls))])
        fields = [plan.field(at) for at in range(len(group))]
        names = [*(plan.columns[at].name for at in range(len(group))), *(name for name, _ in computed)]
        plan = projected(plan, [*fields, *(e for _, e in computed)], names)
    places = range(len(group), plan.width)
    nothing: list[Value] = [0] * len(places)
    outputs = tuple(Output(plan.columns[at].name, plan.field(at)) for at in places)
    uniques = (frozenset(range(len(group))),)
    empty = tuple(nothing) if group else None
    return Relation(plan, outputs, carried, empty=empty, late=relation.late, uniques=uniques)


def facts(counts: Sequence[Expression]) -> list[tuple[str, Expression]]:
    """About a subquery of one column: is it empty, is it without NULLs."""
    rows, values = counts
    return [("is_empty", call("eq", rows, Constant(0, BIGINT))), ("has_no_null", call("eq", rows, values))]


def has_one_row(relation: Relation) -> bool:
    """Whether the relation always has exactly one row: an aggregate without GROUP BY, at most projected."""
    plan = relation.plan
    while True:
        traits = traits_of(plan.operator)
        if traits.row_over_nothing or not traits.row_for_row:
            return traits.row_over_nothing
        plan = plan.parents[0]


def largest(relation: Relation, *, counted: bool) -> Relation:
    """The only row's values, or NULLs where there is none; ``counted``: and how many there are."""
    relation, _ = settled(relation)
    outputs = relation.outputs
    calls = [(AggregateCall(AggregateFunction.MAX, column_of(o), o.expression.type), o.name) for o in outputs]
    calls += [(COUNT_ROWS, "rows")] if counted else []
    summary = summarised(relation, calls)
    return replace(summary, empty=None)


def column_of(output: Output) -> int:
    assert isinstance(output.expression, Field)
    return output.expression.position


def is_put_off(relation: Relation) -> bool:
    """Whether something of a query is done when the answer is read, which is more than to find its rows by keys."""
    return is_made_late(relation) or bool(relation.late.conditions)


def with_operands(relation: Relation) -> Relation:
    """A query whose columns have parameters in them, with what these columns are computed of instead of them."""
    if not any(has_parameter(output.expression) for output in relation.outputs):
        return relation
    fields = list(dict.fromkeys(f for output in relation.outputs for f in fields_of(output.expression)))
    outputs = tuple(Output(relation.plan.columns[f.position].name, f) for f in fields)
    return replace(relation, outputs=outputs, empty=None if relation.empty is None else (None,) * len(outputs))


def refuse_put_off(relation: Relation) -> None:
    """:raises Unsupported: a part of a subquery in an expression is done when the answer is read."""
    refuse_late(relation)
    refuse_late_conditions(relation, "a subquery in an expression")
