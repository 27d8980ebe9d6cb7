"""How a tree of joins and a heap of conditions become a plan.

The columns of all sources are numbered once, in the order of the text (*the wide row*), and every condition is written
over that row. :func:`arrange` then decides what is joined with what: conditions on one source sink into it, equalities
between two become join columns whichever clause they came from, an outer join whose missing side a condition rules out
becomes an inner one, and sources that nothing connects are crossed last. Since the order of joining may differ from
that of the text, the result says where each column of the wide row has come to stand.

Inner joins follow the text, but where there are statistics of the tables: then they begin with few rows and go on to
what adds least. Views are planned without any: the same recipe gives the same graph, whatever the tables hold by then.
Statistics are for a SELECT that is evaluated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import keys
from domains.plan.estimates import Statistics
from domains.plan.graph import JoinKind
from domains.plan.sides import RIGHT, ranges_of
from domains.plan.traits import traits_of
from migrations.query.expressions.terms import conjunction, equality, moved, positions
from migrations.query.plan import (
    RelationalPlan,
    crossed,
    estimated,
    extended,
    filtered,
    joined,
    parts,
    projected,
    stored_columns,
    united,
    unnested,
)
from migrations.query.sources.tree import (
    Computed,
    Full,
    Inner,
    LateLeft,
    Leaf,
    Left,
    Mark,
    Source,
    Unnested,
    columns_of,
)


@dataclass(frozen=True, slots=True)
class Arranged:
    """A plan, and which column of the wide row each of its columns is (-1: a computed join column)."""

    plan: RelationalPlan
    layout: tuple[int, ...]

    def place(self, wide: int) -> int:
        """The place of a column of the wide row."""
        return self.layout.index(wide)

    def field(self, wide: int) -> Field:
        return self.plan.field(self.place(wide))

    def put(self, expression: Expression) -> Expression:
        """An expression over the wide row, over this plan's row."""
        return moved(expression, self.place)


def arrange(source: Source, conditions: Sequence[Expression] = (), statistics: Statistics | None = None) -> Arranged:
    """The joins as a plan in which all of the conditions hold."""
    match source:
        case Leaf(plan, offset):
            layout = tuple(range(offset, offset + plan.width))
            return Arranged(filtered(plan, [moved(c, lambda p: p - offset) for c in conditions]), layout)
        case Inner(children, own):
            return _inner(children, [*own, *conditions], statistics)
        case Left() | Mark():
            return _optional(source, conditions, statistics)
        case Full():
            return _full(source, conditions, statistics)
        case LateLeft(left, right, own):
            return _asked(left, _inner((left, right), own, statistics), conditions, statistics)
        case Computed(left, expressions):
            above = [condition for condition in conditions if not positions(condition).isdisjoint(source.columns)]
            below = arrange(left, [condition for condition in conditions if condition not in above], statistics)
            made = [*below.plan.fields(), *map(below.put, expressions)]
            titles = [*(column.name for column in below.plan.columns), *("computed" for _ in expressions)]
            met = Arranged(projected(below.plan, made, titles), (*below.layout, *source.columns))
            return Arranged(filtered(met.plan, list(map(met.put, above))), met.layout)
        case Unnested():
            return _unnested(source, conditions, statistics)


def _inner(children: Sequence[Source], conditions: Sequence[Expression], statistics: Statistics | None) -> Arranged:
    owned = [columns_of(child) for child in children]
    private: list[list[Expression]] = [[] for _ in children]
    open_conditions: list[Expression] = []
    for condition in conditions:
        reads = positions(condition)
        home = next((i for i, columns in enumerate(owned) if reads <= columns), None)
        if home is None:
            open_conditions.append(condition)
        else:
            private[home].append(condition)
    remaining = [arrange(child, own, statistics) for child, own in zip(children, private, strict=True)]
    islands: list[Arranged] = []
    while remaining:
        island, remaining = _island(remaining, open_conditions)
        islands.append(
            _met(island, open_conditions) if statistics is None else _best(island, open_conditions, statistics)
        )
    return _met(islands, open_conditions)


def _island(remaining: list[Arranged], conditions: Sequence[Expression]) -> tuple[list[Arranged], list[Arranged]]:
    """The first source and all that equalities connect to it, in the order of the text; and what is left over."""
    found, rest = remaining[:1], remaining[1:]
    while True:
        ours = frozenset(column for each in found for column in each.layout)
        linked = next((other for other in rest if _links(ours, frozenset(other.layout), conditions)), None)
        if linked is None:
            return found, rest
        rest = [other for other in rest if other is not linked]
        found.append(linked)


def _met(island: Sequence[Arranged], conditions: list[Expression]) -> Arranged:
    result = island[0]
    for other in island[1:]:
        result = meet(result, other, conditions)
    return result


MOST_BEGINNINGS = 6
"""Sources up to which each of an island is tried as the first one: some 200 joins are weighed then."""


def _best(island: Sequence[Arranged], conditions: list[Expression], statistics: Statistics) -> Arranged:
    """The island in the order that costs least: from each beginning, on to what adds least."""
    by_rows = sorted(island, key=lambda each: estimated(each.plan, statistics).rows)
    beginnings = by_rows if len(island) <= MOST_BEGINNINGS else by_rows[:1]
    ways = [_grown(first, island, conditions, statistics) for first in beginnings]
    _, result, left = min(ways, key=lambda way: way[0])
    conditions[:] = left
    return result


def _grown(
    first: Arranged, island: Sequence[Arranged], conditions: Sequence[Expression], statistics: Statistics
) -> tuple[float, Arranged, list[Expression]]:
    """The cost in rows, the joins, and the conditions that are left."""
    rest, result, left = [each for each in island if each is not first], first, list(conditions)
    cost = estimated(first.plan, statistics).rows
    while rest:
        ours = frozenset(result.layout)
        steps: list[tuple[float, int, Arranged, list[Expression]]] = []
        for at, other in enumerate(rest):
            if _links(ours, frozenset(other.layout), left):
                after = list(left)
                met = meet(result, other, after)
                steps.append((_cost(result, other, met, statistics), at, met, after))
        added, at, result, left = min(steps, key=lambda step: step[:2])
        del rest[at]
        cost += added
    return cost, result, left


def _cost(left: Arranged, right: Arranged, met: Arranged, statistics: Statistics) -> float:
    """The rows that come out, and those of the right side that are read: by an index, or all of them once."""
    join = next(part for part in parts(met.plan) if len(part.parents) == 2)
    matching = traits_of(join.operator).matching
    assert matching is not None, "what has two parents here is a join"
    read = estimated(right.plan, statistics).rows
    found = stored_columns(join.parents[RIGHT], matching.on[RIGHT])
    known = None if found is None else statistics.get(found[0])
    if known is not None and found is not None:
        read = float(known.rows)
        if known.has_index(found[1]):
            read = min(read, LOOKUP * estimated(left.plan, statistics).rows)
    return estimated(met.plan, statistics).rows + read


LOOKUP = 4
"""Rows of a table that are read in the time of one look-up in an index of it."""


def _links(left: frozenset[int], right: frozenset[int], conditions: Sequence[Expression]) -> bool:
    return any(link_of(condition, left, right) is not None for condition in conditions)


def link_of(condition: Expression, left: frozenset[int], right: frozenset[int]) -> tuple[Expression, Expression] | None:
    """Both sides of an equality between the two, the left one's first; None where it is none."""
    sides = equality(condition)
    if sides is None:
        return None
    one, other = sides
    reads, other_reads = positions(one), positions(other)
    if not reads or not other_reads:
        return None
    if reads <= left and other_reads <= right:
        return one, other
    if reads <= right and other_reads <= left:
        return other, one
    return None


def meet(left: Arranged, right: Arranged, conditions: list[Expression]) -> Arranged:
    """⋈ of two plans by every condition that spans them; those are taken off the list."""
    ours, theirs = frozenset(left.layout), frozenset(right.layout)
    links: list[tuple[Expression, Expression]] = []
    others: list[Expression] = []
    for condition in list(conditions):
        if positions(condition) <= ours | theirs:
            conditions.remove(condition)
            link = link_of(condition, ours, theirs)
            if link is None or _meets_again(link, links):
                others.append(condition)
            else:
                links.append(link)
    left, right, left_on, right_on = _keyed(left, right, links)
    met = Arranged(left.plan, left.layout + right.layout)
    wanted = list(map(met.put, others))
    ranged = [each for each in wanted if any(ranges_of(each, left.plan.width))]
    if left_on or ranged:
        rest = conjunction(ranged) if ranged else None
        plan = joined(JoinKind.INNER, left.plan, right.plan, left_on, right_on, rest)
    else:
        plan = crossed(left.plan, right.plan)
    return Arranged(filtered(plan, [each for each in wanted if each not in ranged]), met.layout)


def _meets_again(link: tuple[Expression, Expression], links: Sequence[tuple[Expression, Expression]]) -> bool:
    """Whether one of its sides is a join column already: an index has no column twice."""
    return any(link[0] == one or link[1] == other for one, other in links)


def _parted(
    conditions: Sequence[Expression], left: frozenset[int], right: frozenset[int]
) -> tuple[list[tuple[Expression, Expression]], list[Expression]]:
    """Equalities of both sides that become join columns, and the other conditions of the match."""
    links: list[tuple[Expression, Expression]] = []
    residual: list[Expression] = []
    for condition in conditions:
        link = link_of(condition, left, right)
        if link is not None and not _meets_again(link, links):
            links.append(link)
        else:
            residual.append(condition)
    return links, residual


def _optional(source: Left | Mark, conditions: Sequence[Expression], statistics: Statistics | None) -> Arranged:
    """⟕ or ⊳: every row of the left side stays."""
    ours, theirs = columns_of(source.left), columns_of(source.right)
    inside = [condition for condition in source.conditions if positions(condition) and positions(condition) <= theirs]
    links, residual = _parted([each for each in source.conditions if each not in inside], ours, theirs)
    above = [condition for condition in conditions if not positions(condition) <= ours]
    left = arrange(source.left, [condition for condition in conditions if positions(condition) <= ours], statistics)
    right = arrange(source.right, inside, statistics)
    left, right, left_on, right_on = _keyed(left, right, links)
    both = Arranged(left.plan, left.layout + right.layout)
    rest = both.put(conjunction(residual)) if residual else None
    if isinstance(source, Mark):
        plan = joined(JoinKind.MARK, left.plan, right.plan, left_on, right_on, rest)
        met = Arranged(plan, (*left.layout, source.at))
    else:
        plan = joined(JoinKind.LEFT, left.plan, right.plan, left_on, right_on, rest)
        met = Arranged(plan, both.layout)
    return Arranged(filtered(plan, [met.put(condition) for condition in above]), met.layout)


def _unnested(source: Unnested, conditions: Sequence[Expression], statistics: Statistics | None) -> Arranged:
    """Conditions on the left side's columns hold before its rows are multiplied."""
    above = [condition for condition in conditions if not positions(condition).isdisjoint(source.columns)]
    left = arrange(source.left, [condition for condition in conditions if condition not in above], statistics)
    layout = (*left.layout, *source.columns)
    residual = moved(conjunction(source.conditions), layout.index) if source.conditions else None
    plan = unnested(left.plan, left.put(source.document), source.table, source.titles, source.outer, residual)
    met = Arranged(plan, layout)
    return Arranged(filtered(plan, list(map(met.put, above))), layout)


def _full(source: Full, conditions: Sequence[Expression], statistics: Statistics | None) -> Arranged:
    """Both sides' rows stay: those of the left one by a left join, and those of the right one that a mark join with
    the left one does not find."""
    links, residual = _parted(source.conditions, columns_of(source.left), columns_of(source.right))
    left, right = arrange(source.left, (), statistics), arrange(source.right, (), statistics)
    left, right, left_on, right_on = _keyed(left, right, links)
    met = Arranged(left.plan, left.layout + right.layout)
    swapped = Arranged(left.plan, right.layout + left.layout)
    rest = conjunction(residual) if residual else None
    mine = joined(JoinKind.LEFT, left.plan, right.plan, left_on, right_on, None if rest is None else met.put(rest))
    found = joined(JoinKind.MARK, right.plan, left.plan, right_on, left_on, None if rest is None else swapped.put(rest))
    alone = filtered(found, [call("not", found.field(right.plan.width))])
    nothing = [Constant(None, column.type) for column in left.plan.columns]
    titles = [column.name for column in mine.columns]
    unmatched = projected(alone, [*nothing, *map(alone.field, range(right.plan.width))], titles)
    return Arranged(filtered(united([mine, unmatched]), list(map(met.put, conditions))), met.layout)


def _asked(left: Source, met: Arranged, conditions: Sequence[Expression], statistics: Statistics | None) -> Arranged:
    """Each row of the left side by itself, and each with each of its matches."""
    alone, ours = arrange(left, (), statistics), columns_of(left)
    columns = list(zip(met.layout, met.plan.columns, strict=True))
    row = [alone.plan.field(alone.place(at)) if at in ours else Constant(None, column.type) for at, column in columns]
    single = projected(alone.plan, row, [column.name for _, column in columns])
    plan = replace(united([single, met.plan]), columns=met.plan.columns)
    return Arranged(filtered(plan, list(map(met.put, conditions))), met.layout)


def _keyed(
    left: Arranged, right: Arranged, links: Sequence[tuple[Expression, Expression]]
) -> tuple[Arranged, Arranged, list[int], list[int]]:
    """Both sides with a column for every join key, of one type on both sides."""
    ours: list[Expression] = []
    theirs: list[Expression] = []
    for one, other in links:
        our_key, their_key = keys(one, other)
        ours.append(left.put(our_key))
        theirs.append(right.put(their_key))
    left, left_on = _with_columns(left, ours)
    right, right_on = _with_columns(right, theirs)
    return left, right, left_on, right_on


def _with_columns(side: Arranged, keys: Sequence[Expression]) -> tuple[Arranged, list[int]]:
    plan, places = extended(side.plan, keys, ["join_key"] * len(keys))
    return Arranged(plan, side.layout + (-1,) * (plan.width - side.plan.width)), places
