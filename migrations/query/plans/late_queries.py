"""The parts of a query that no key stands for, which are done to the reader's rows at each look-up (``finish.py``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from domains.errors import Unsupported
from domains.language.expressions import Constant, Expression, Field
from domains.language.types import Value
from domains.plan.graph import AggregateCall, Over
from migrations.query.expressions.terms import moved, positions

Put = Callable[[Expression], Expression]


@dataclass(frozen=True, slots=True)
class Sorting:
    """One term of ORDER BY, over the plan's row."""

    expression: Expression
    descending: bool = False


@dataclass(frozen=True, slots=True)
class LateCall:
    """An aggregate that is worked out when rows are read. Expressions are over the plan's row."""

    call: AggregateCall
    """Its column and order are not those of a row: ``argument`` and ``order`` are instead."""
    argument: Expression | None
    order: tuple[Expression, ...]
    weight: Expression | None
    """How many rows a row of the plan stands for; None: ``argument`` is an aggregate of them already."""
    of_nothing: Value

    def over(self, put: Put) -> LateCall:
        argument = None if self.argument is None else put(self.argument)
        weight = None if self.weight is None else put(self.weight)
        return replace(self, argument=argument, order=tuple(map(put, self.order)), weight=weight)


@dataclass(frozen=True, slots=True)
class LateGroups:
    """Groups that are made when rows are read: the group's values, then the calls'."""

    group: tuple[Expression, ...]
    calls: tuple[LateCall, ...]
    scalar: bool
    having: tuple[Expression, ...] = ()
    """Over the groups' rows, as the relation's outputs and order are."""
    spare: frozenset[int] = frozenset()
    """Places in the group that have one value where the others have: they tell no groups apart."""

    def over(self, put: Put) -> LateGroups:
        calls = tuple(each.over(put) for each in self.calls)
        return replace(self, group=tuple(map(put, self.group)), calls=calls)


@dataclass(frozen=True, slots=True)
class LateMatch:
    """An outer join by a condition with a parameter (``joins.LateLeft``), over the plan's rows."""

    matched: Expression
    """1 in rows of both sides, NULL in those of the left side alone."""
    conditions: tuple[Expression, ...]
    """With parameters: whether the two match."""
    left: tuple[Expression, ...]
    """What of the left side decides which rows it matches."""

    def over(self, put: Put) -> LateMatch:
        return LateMatch(put(self.matched), tuple(map(put, self.conditions)), tuple(map(put, self.left)))


@dataclass(frozen=True, slots=True)
class LateWindows:
    """Window functions of rows that come to be when they are read."""

    row: tuple[Expression, ...]
    """The whole row, by which ties are broken, and behind it what the functions are of."""
    overs: tuple[Over, ...]
    """One after the other; each has its functions' values behind the row."""


@dataclass(frozen=True, slots=True)
class LateQuery:
    """What one SELECT does when rows are read, to those of the plan or of the query below it."""

    outputs: tuple[Expression, ...]
    conditions: tuple[Expression, ...] = ()
    groups: LateGroups | None = None
    windows: LateWindows | None = None
    """Over the groups' rows, where there are any; outputs and order are over what comes of them."""
    distinct: bool = False
    order: tuple[Sorting, ...] = ()
    limit: int | None = None
    offset: int = 0

    def over(self, put: Put) -> LateQuery:
        """With each expression over the rows that it begins with put elsewhere."""
        conditions = tuple(map(put, self.conditions))
        if self.groups is not None:
            return replace(self, conditions=conditions, groups=self.groups.over(put))
        if self.windows is not None:
            windows = replace(self.windows, row=tuple(map(put, self.windows.row)))
            return replace(self, conditions=conditions, windows=windows)
        order = tuple(replace(term, expression=put(term.expression)) for term in self.order)
        return replace(self, conditions=conditions, outputs=tuple(map(put, self.outputs)), order=order)

    def changed(self, change: Put) -> LateQuery:
        """With all expressions changed, whichever rows they are over."""
        having = () if self.groups is None else tuple(map(change, self.groups.having))
        groups = None if self.groups is None else replace(self.groups.over(change), having=having)
        order = tuple(replace(term, expression=change(term.expression)) for term in self.order)
        outputs, conditions = tuple(map(change, self.outputs)), tuple(map(change, self.conditions))
        windows = self.windows and replace(self.windows, row=tuple(map(change, self.windows.row)))
        return LateQuery(outputs, conditions, groups, windows, self.distinct, order, self.limit, self.offset)

    def without(self, reading: LateQuery) -> LateQuery:
        """With NULL for columns of the answer that the one that reads it does not read."""
        if self.distinct or self.limit is not None:
            return self.without_spare()
        read = set[int]()

        def noted(expression: Expression) -> Expression:
            read.update(positions(expression))
            return expression

        reading.over(noted)
        outputs = (e if at in read else Constant(None, e.type) for at, e in enumerate(self.outputs))
        return replace(self, outputs=tuple(outputs), order=()).without_spare()

    def without_spare(self) -> LateQuery:
        """With NULL for what tells no groups apart and is not read of them."""
        if self.groups is None or self.windows is not None or not self.groups.spare:
            return self
        shown = (*self.outputs, *self.groups.having, *(term.expression for term in self.order))
        read = frozenset[int]().union(*map(positions, shown))
        group = enumerate(self.groups.group)
        kept = tuple(Constant(None, e.type) if at in self.groups.spare - read else e for at, e in group)
        return replace(self, groups=replace(self.groups, group=kept))


def traced(queries: Sequence[LateQuery], at: int) -> int | None:
    """The column of the rows that a chain of queries begins with, which all rows have that are made to one with this
    value of its ``at``-th column; None where that is computed of several."""
    for query in reversed(queries):
        e = query.outputs[at]
        if query.windows is not None or query.limit is not None or not isinstance(e, Field):
            return None
        if query.groups is not None:
            if e.position >= len(query.groups.group):
                return None
            e = query.groups.group[e.position]
            if not isinstance(e, Field):
                return None
        at = e.position
    return at


def narrowed(queries: Sequence[LateQuery]) -> tuple[LateQuery, ...]:
    """A chain of queries in which each has what those behind it read."""
    found = [queries[-1].without_spare()]
    for query in reversed(queries[:-1]):
        found.insert(0, query.without(found[0]))
    return tuple(found)


def carried_on(query: LateQuery, further: Sequence[Expression], spare: Sequence[int] = ()) -> LateQuery:
    """A query of rows with further columns, which its own rows have behind theirs, and which tell them apart, but for
    the ``spare`` ones of them.

    :raises Unsupported: its LIMIT or its windows go over rows with several values of these.
    """
    if query.windows is not None or query.limit is not None or query.offset:
        raise Unsupported(
            "a join with a query whose LIMIT or window functions are worked out when the answer is read",
            hint="ask for it by itself",
        )
    if query.groups is None:
        return replace(query, outputs=(*query.outputs, *further), order=())
    groups = query.groups
    own = len(groups.group)

    def behind(e: Expression) -> Expression:
        return moved(e, lambda place: place if place < own else place + len(further))

    keys = (Field(own + at, e.type) for at, e in enumerate(further))
    spares = groups.spare.union(own + at for at in spare)
    having = tuple(map(behind, groups.having))
    groups = LateGroups((*groups.group, *further), groups.calls, scalar=False, having=having, spare=spares)
    return replace(query, outputs=(*map(behind, query.outputs), *keys), groups=groups, order=())


def all_carried_on(
    queries: Sequence[LateQuery], further: Sequence[Expression], spare: Sequence[int] = ()
) -> tuple[list[LateQuery], list[Expression]]:
    """A chain of queries, each carried on; and where the further columns are in the rows of the last one."""
    found: list[LateQuery] = []
    for query in queries:
        found.append(carried_on(query, further, spare))
        width = len(query.outputs)
        further = [Field(width + at, e.type) for at, e in enumerate(further)]
    return found, list(further)
