"""Columns that nobody reads are dropped where rows are kept: below a join, above a join.

A join keeps its inputs as state. An input that is a base table costs nothing (its rows are on disk), but one that
is itself a join would be kept with all columns of both its sides. So it is narrowed to what is read further down,
by a projection, and it is the projection's rows that are kept::

    before:  (stories ⋈ comments) ⋈ votes on 2 of 31 columns      after:  π 5 columns (stories ⋈ comments) ⋈ votes
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from domains.plan.graph import (
    Aggregate,
    Base,
    Egress,
    Filter,
    FixedPoint,
    Ingress,
    Join,
    JoinKind,
    OrderTerm,
    Over,
    Project,
    Reader,
    TopK,
    Union,
    Unnest,
)
from domains.plan.questions import ForJoin
from domains.plan.traits import traits_of
from migrations.query.expressions.terms import moved, positions
from migrations.query.plan import RelationalPlan, projected

Places = dict[int, int]
"""A column's old position → its new one; those that nobody reads are not in it."""


def pruned(plan: RelationalPlan) -> RelationalPlan:
    """The same columns, out of narrower inputs."""
    narrow, places = _narrowed(plan, frozenset(range(plan.width)))
    assert all(old == new for old, new in places.items()), "a plan's own columns stay where they are"
    return replace(narrow, columns=plan.columns)


def _narrowed(plan: RelationalPlan, read: frozenset[int]) -> tuple[RelationalPlan, Places]:
    """The plan with at least the columns that are read, and where they are. COUNT(*) reads none; a row has one at
    least all the same."""
    read = read or frozenset((0,))
    operator = plan.operator
    match operator:
        case Filter(predicate=predicate):
            below, places = _narrowed(plan.parents[0], read | positions(predicate))
            return RelationalPlan(Filter(moved(predicate, places.__getitem__)), (below,), below.columns), places
        case Project(expressions=expressions):
            used = frozenset(position for e in expressions for position in positions(e))
            below, places = _narrowed(plan.parents[0], used)
            computed = tuple(moved(e, places.__getitem__) for e in expressions)
            return RelationalPlan(Project(computed), (below,), plan.columns), _unmoved(plan)
        case Unnest():
            return _narrowed_unnest(plan, operator, read)
        case Join():
            return _narrowed_join(plan, operator, read)
        case Aggregate():
            return _narrowed_aggregate(plan, operator), _unmoved(plan)
        case Over():
            return _narrowed_over(plan, operator, read)
        case Base() | Union() | TopK() | FixedPoint() | Ingress() | Egress() | Reader():  # They read every column.
            parents = tuple(pruned(parent) for parent in plan.parents)
            return RelationalPlan(operator, parents, plan.columns), _unmoved(plan)
        case _:
            assert_never(operator)


def _unmoved(plan: RelationalPlan) -> Places:
    return {position: position for position in range(plan.width)}


def _narrowed_unnest(plan: RelationalPlan, unnest: Unnest, read: frozenset[int]) -> tuple[RelationalPlan, Places]:
    """All of the table's columns stay: a row of it is made as a whole."""
    width = plan.parents[0].width
    read |= positions(unnest.document) | (positions(unnest.residual) if unnest.residual is not None else frozenset())
    below, places = _side(plan.parents[0], frozenset(c for c in read if c < width))
    places = places | {width + at: below.width + at for at in range(unnest.table.width)}
    operator = replace(
        unnest,
        document=moved(unnest.document, places.__getitem__),
        residual=None if unnest.residual is None else moved(unnest.residual, places.__getitem__),
    )
    return RelationalPlan(operator, (below,), below.columns + plan.columns[width:]), places


def _narrowed_join(plan: RelationalPlan, join: Join, read: frozenset[int]) -> tuple[RelationalPlan, Places]:
    left, right = plan.parents
    width, is_mark = left.width, join.kind is JoinKind.MARK
    if is_mark:
        read = frozenset(c for c in read if c < width)
    read |= positions(join.residual) if join.residual is not None else frozenset()
    left, on_left = _side(left, frozenset(c for c in read if c < width) | set(join.left_on))
    right, on_right = _side(right, frozenset(c - width for c in read if c >= width) | set(join.right_on))
    places = {**on_left, **{width + old: left.width + new for old, new in on_right.items()}}
    operator = replace(
        join,
        left_on=tuple(on_left[c] for c in join.left_on),
        right_on=tuple(on_right[c] for c in join.right_on),
        residual=None if join.residual is None else moved(join.residual, places.__getitem__),
    )
    if is_mark:
        return RelationalPlan(operator, (left, right), left.columns + plan.columns[-1:]), {**on_left, width: left.width}
    return RelationalPlan(operator, (left, right), left.columns + right.columns), places


def _side(plan: RelationalPlan, read: frozenset[int]) -> tuple[RelationalPlan, Places]:
    """An input of a join: where it rests on a join, only what is read of it."""
    read = read or frozenset((0,))
    narrow, places = _narrowed(plan, read)
    if len(read) == narrow.width or not _rests_on_join(narrow):
        return narrow, places
    kept = sorted(read)
    fields = [narrow.field(places[c]) for c in kept]
    names = [narrow.columns[places[c]].name for c in kept]
    return projected(narrow, fields, names), {c: place for place, c in enumerate(kept)}


def _rests_on_join(plan: RelationalPlan) -> bool:
    for_join = traits_of(plan.operator).for_join
    if for_join in (ForJoin.PASSES, ForJoin.NARROWS):
        return any(_rests_on_join(parent) for parent in plan.parents)
    return for_join is ForJoin.KEEPS


def _narrowed_aggregate(plan: RelationalPlan, aggregate: Aggregate) -> RelationalPlan:
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
    return RelationalPlan(operator, (below,), plan.columns)


def _narrowed_over(plan: RelationalPlan, over: Over, read: frozenset[int]) -> tuple[RelationalPlan, Places]:
    """The windows without the functions that nobody reads, over all columns of the parent, by which ties are broken."""
    width = plan.parents[0].width
    used = [at for at in range(len(over.calls)) if width + at in read]
    if not used:
        return _narrowed(plan.parents[0], read)
    places = {at: at for at in range(width)} | {width + at: width + new for new, at in enumerate(used)}
    operator = replace(over, calls=tuple(over.calls[at] for at in used))
    columns = (*plan.columns[:width], *(plan.columns[width + at] for at in used))
    return RelationalPlan(operator, (pruned(plan.parents[0]),), columns), places


def _columns(argument: int | None, order: Iterable[OrderTerm]) -> Iterable[int]:
    if argument is not None:
        yield argument
    yield from (term.column for term in order)
