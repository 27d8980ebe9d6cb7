"""Columns that nobody reads are dropped where rows are kept: below a join, above a join.

A join keeps its inputs as state. An input that is a base table costs nothing (its rows are on disk), but one that is
itself a join would be kept with all columns of both its sides. So it is narrowed to what is read further down, by a
projection, and it is the projection's rows that are kept::

    before:  (stories ⋈ comments) ⋈ votes on 2 of 31 columns      after:  π 5 columns (stories ⋈ comments) ⋈ votes
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from domains.graph import Aggregate, Filter, Join, OrderTerm, Project, Union
from migrations.query.plan import Plan, projected
from migrations.query.terms import moved, positions

Places = dict[int, int]
"""A column's old position → its new one; those that nobody reads are not in it."""


def pruned(plan: Plan) -> Plan:
    """The same columns, out of narrower inputs."""
    narrow, places = _narrowed(plan, frozenset(range(plan.width)))
    assert all(old == new for old, new in places.items()), "a plan's own columns stay where they are"
    return replace(narrow, columns=plan.columns)


def _narrowed(plan: Plan, read: frozenset[int]) -> tuple[Plan, Places]:
    """The plan with at least the columns that are read, and where they are. COUNT(*) reads none; a row has one at
    least all the same."""
    read = read or frozenset((0,))
    operator = plan.operator
    match operator:
        case Filter(predicate=predicate):
            below, places = _narrowed(plan.parents[0], read | positions(predicate))
            return Plan(Filter(moved(predicate, places.__getitem__)), (below,), below.columns), places
        case Project(expressions=expressions):
            used = frozenset(position for e in expressions for position in positions(e))
            below, places = _narrowed(plan.parents[0], used)
            computed = tuple(moved(e, places.__getitem__) for e in expressions)
            return Plan(Project(computed), (below,), plan.columns), _unmoved(plan)
        case Join():
            return _narrowed_join(plan, operator, read)
        case Aggregate():
            return _narrowed_aggregate(plan, operator), _unmoved(plan)
    return Plan(operator, tuple(pruned(parent) for parent in plan.parents), plan.columns), _unmoved(plan)


def _unmoved(plan: Plan) -> Places:
    return {position: position for position in range(plan.width)}


def _narrowed_join(plan: Plan, join: Join, read: frozenset[int]) -> tuple[Plan, Places]:
    left, right = plan.parents
    read |= positions(join.residual) if join.residual is not None else frozenset()
    left, on_left = _side(left, frozenset(c for c in read if c < left.width) | set(join.left_on))
    width = plan.parents[0].width
    right, on_right = _side(right, frozenset(c - width for c in read if c >= width) | set(join.right_on))
    places = {**on_left, **{width + old: left.width + new for old, new in on_right.items()}}
    operator = replace(
        join,
        left_on=tuple(on_left[c] for c in join.left_on),
        right_on=tuple(on_right[c] for c in join.right_on),
        residual=None if join.residual is None else moved(join.residual, places.__getitem__),
    )
    return Plan(operator, (left, right), left.columns + right.columns), places


def _side(plan: Plan, read: frozenset[int]) -> tuple[Plan, Places]:
    """An input of a join: where it rests on a join, only what is read of it."""
    read = read or frozenset((0,))
    narrow, places = _narrowed(plan, read)
    if len(read) == narrow.width or not _rests_on_join(narrow):
        return narrow, places
    kept = sorted(read)
    fields = [narrow.field(places[c]) for c in kept]
    names = [narrow.columns[places[c]].name for c in kept]
    return projected(narrow, fields, names), {c: place for place, c in enumerate(kept)}


def _rests_on_join(plan: Plan) -> bool:
    if isinstance(plan.operator, Filter | Project | Union):
        return any(_rests_on_join(parent) for parent in plan.parents)
    return isinstance(plan.operator, Join)


def _narrowed_aggregate(plan: Plan, aggregate: Aggregate) -> Plan:
    used: set[int] = set(aggregate.group)
    for call in aggregate.calls:
        used.update(_columns(call.argument, call.order))
    below, places = _narrowed(plan.parents[0], frozenset(used))
    calls = tuple(
        replace(
            call,
            argument=None if call.argument is None else places[call.argument],
            order=tuple(replace(term, column=places[term.column]) for term in call.order),
        )
        for call in aggregate.calls
    )
    operator = replace(aggregate, group=tuple(places[c] for c in aggregate.group), calls=calls)
    return Plan(operator, (below,), plan.columns)


def _columns(argument: int | None, order: Iterable[OrderTerm]) -> Iterable[int]:
    if argument is not None:
        yield argument
    yield from (term.column for term in order)
