"""What the planner and the engine have to know of each operator: one table, :data:`TRAITS`.

An operator is data (``graph.py``) and, at run time, code (``domains/operators/``). Everything else asks its traits and
never its class, so that a new operator answers every question once, in here, and none of them by a default::

    traits_of(Filter(p)).origins((2, 0), [5])          ((2, 0),)     its columns are those of its parent
    traits_of(Aggregate((3,), calls)).groups_by        (0,)          it can be partial by its group alone
    traits_of(TopK((), order, 10)).phases              the first 10 of each shard, and the first 10 of those

The ends of a graph (base tables, links and readers) are no relational operators: code that deals with one of them asks
:func:`is_base`, :func:`is_ingress`, :func:`is_egress` or :func:`is_reader`. ``tests/domains/test_traits.py`` holds that
nothing else looks at the class of an operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from domains.language.description import describe
from domains.language.expressions import Constant, Field
from domains.language.rewriting import fields_of
from domains.language.types import Kind
from domains.plan.estimates import (
    Estimated,
    Statistics,
    after_cut,
    after_filter,
    after_grouping,
    after_join,
    after_project,
    after_union,
    after_unnesting,
    after_windows,
    of_table,
)
from domains.plan.graph import (
    MERGED,
    RENDERED,
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Base,
    Columns,
    Egress,
    Filter,
    FixedPoint,
    Ingress,
    Join,
    JoinKind,
    Operator,
    Over,
    Project,
    Reader,
    TopK,
    Union,
    Unnest,
    call_text,
    order_text,
)
from domains.plan.questions import ForJoin, Matching, Phases, Traits
from domains.plan.sides import COMPUTED, LEFT, RIGHT, side_columns
from domains.plan.wording import join_text, over_text, topk_text, unnest_text

ROUNDS_GUESSED = 10.0
"""Rows of a recursion for each that it begins with, where nothing is known."""


class _RowByRow(Traits):
    """Operators of one parent or more whose rows are the parents' rows, each for itself."""

    own_state = False
    for_join = ForJoin.PASSES
    row_for_row = False
    groups_by: Columns | None = None
    matching = None
    refills = ()
    grows = True
    row_over_nothing = False
    merging = None

    def __init__(self, operator: Operator) -> None: ...

    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        return tuple(columns for _ in widths)


class _Base(_RowByRow):
    for_join = ForJoin.ANSWERS

    def __init__(self, operator: Base) -> None:
        self._table, self._columns = operator.table, operator.columns

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        return []

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return of_table(statistics.get(self._table), self._columns)

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return self._table


class _Filter(_RowByRow):
    def __init__(self, operator: Filter) -> None:
        self._predicate = self.demands = operator.predicate

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        return [wanted | fields_of(self._predicate)]

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return after_filter(given[0], self._predicate)

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return f"σ {describe(self._predicate, names[0])}"


class _Project(_RowByRow):
    for_join = ForJoin.NARROWS
    row_for_row = True

    def __init__(self, operator: Project) -> None:
        self._expressions = operator.expressions
        self.computes = not all(isinstance(e, (Field, Constant)) for e in operator.expressions)

    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        outputs = (self._expressions[column] for column in columns)
        return (tuple(e.position if isinstance(e, Field) else COMPUTED for e in outputs),)

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        return [set[int]().union(*map(fields_of, self._expressions))]

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return after_project(given[0], self._expressions)

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return f"π {', '.join(describe(e, names[0]) for e in self._expressions)}"


class _Unnest(_RowByRow):
    def __init__(self, operator: Unnest) -> None:
        self._unnest, self.computes = operator, True

    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        return (tuple(column if column < widths[0] else COMPUTED for column in columns),)

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        parts = (self._unnest.document, self._unnest.residual)
        read = wanted.union(*(fields_of(part) for part in parts if part is not None))
        return [{column for column in read if column < widths[0]}]

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return after_unnesting(given[0], self._unnest.table.width)

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return unnest_text(self._unnest, names[0])


class _Union(_RowByRow):
    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        return [wanted for _ in widths]

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return after_union(given)

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return "∪"


class _End(_RowByRow):
    """Links and readers: rows leave the domain whole."""

    row_for_row = True

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return given[0]

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        return [set(range(width)) for width in widths]


class _Ingress(_End):
    own_state = True

    def __init__(self, operator: Ingress) -> None:
        self._source = operator.source

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return f"ingress of {self._source}"


class _Egress(_End):
    def text(self, names: Sequence[Sequence[str]]) -> str:
        return "egress"


class _Reader(_End):
    own_state = True
    for_join = ForJoin.ANSWERS

    def __init__(self, operator: Reader) -> None:
        self._reader = operator
        self.groups_by = operator.key

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return f"reader {self._reader.view}{order_text(self._reader.order, names[0])}"


class _Join(Traits):
    own_state = False
    for_join = ForJoin.KEEPS
    row_for_row = False
    groups_by = None
    refills = ()
    row_over_nothing = False
    merging = None

    def __init__(self, operator: Join) -> None:
        self._join, self.residual = operator, operator.residual
        self._on = (operator.left_on, operator.right_on)

    @property
    def matching(self) -> Matching:
        return Matching(self._on, self._join.kind is not JoinKind.INNER)

    @property
    def grows(self) -> bool:
        return self._join.kind is JoinKind.INNER

    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        return tuple(side_columns(self._join.kind, self._on, widths[LEFT], columns, side) for side in (LEFT, RIGHT))

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        residual, width = self.residual, widths[LEFT]
        if self._join.kind is JoinKind.MARK:
            wanted = {c for c in wanted if c < width}
        both = wanted | (fields_of(residual) if residual is not None else set())
        left, right = ({c for c in both if c < width}, {c - width for c in both if c >= width})
        return [left | set(self._on[LEFT]), right | set(self._on[RIGHT])]

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        if self._join.kind is JoinKind.MARK:
            return Estimated(given[LEFT].rows, (*given[LEFT].distinct, 2.0))
        return after_join(given[LEFT], given[RIGHT], self._on, outer=self.matching.outer)

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return join_text(self._join, *names)


class _Aggregate(Traits):
    own_state = True
    for_join = ForJoin.ANSWERS
    row_for_row = False
    matching = None
    refills = ()
    grows = False

    def __init__(self, operator: Aggregate) -> None:
        self._aggregate = operator
        self._group, self._calls = operator.group, operator.calls
        self.renders = any(call.function in RENDERED for call in self._calls)

    @property
    def row_over_nothing(self) -> bool:
        return self._aggregate.scalar

    @property
    def groups_by(self) -> Columns:
        return tuple(range(len(self._group)))

    @property
    def merging(self) -> Phases | None:
        merged = [_merged(call, len(self._group) + at) for at, call in enumerate(self._calls)]
        calls = tuple(call for call in merged if call is not None)
        if len(calls) < len(merged) or not (self._group or calls):
            return None
        return Phases(self._aggregate, replace(self._aggregate, group=self.groups_by, calls=calls))

    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        group = self._group
        return (tuple(group[column] if column < len(group) else COMPUTED for column in columns),)

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        ordered = {term.column for call in self._calls for term in call.order}
        return [{*self._group, *(call.argument for call in self._calls if call.argument is not None), *ordered}]

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return after_grouping(given[0], self._group, len(self._calls))

    def text(self, names: Sequence[Sequence[str]]) -> str:
        functions = ", ".join(call_text(call, names[0]) for call in self._calls)
        group = ", ".join(names[0][column] for column in self._group) or "()"
        return f"γ {group}; {functions}" if functions else f"γ {group}"


class _Ranked(Traits):
    """Operators that put the rows of a group in order."""

    own_state = True
    for_join = ForJoin.ANSWERS
    groups_by: Columns | None = None
    matching = None
    refills: tuple[Columns, ...] = ()
    grows = False
    row_over_nothing = False

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        return [set(range(widths[0]))]  # Rows are ranked whole.


class _TopK(_Ranked):
    row_for_row = False

    def __init__(self, operator: TopK) -> None:
        self._topk = self.cut = operator
        self.groups_by = operator.group
        self.refills = (operator.group, ())  # The group of NULLs from all of the parent.

    @property
    def merging(self) -> Phases | None:
        return Phases(replace(self._topk, limit=self._topk.limit + self._topk.offset, offset=0), self._topk)

    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        return (columns,)

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return after_cut(given[0], self._topk.group, self._topk.limit)

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return topk_text(self._topk, names[0])


class _Over(_Ranked):
    row_for_row = True
    merging = None

    def __init__(self, operator: Over) -> None:
        self._over = operator
        self.groups_by = operator.partition

    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        return (tuple(column if column < widths[0] else COMPUTED for column in columns),)

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return after_windows(given[0], len(self._over.calls))

    def text(self, names: Sequence[Sequence[str]]) -> str:
        return over_text(self._over, names[0])


class FixedPointTraits(Traits):
    own_state = True
    groups_by: Columns | None = None
    for_join = ForJoin.ANSWERS
    row_for_row = False
    matching = None
    refills = ()
    row_over_nothing = False
    merging = None

    def __init__(self, operator: FixedPoint) -> None:
        self._fixed_point = operator
        self.groups_by = operator.carried
        self.goes_round = tuple(dict.fromkeys(self._sought()))
        self._computes = any(traits_of(step.operator).computes for step in operator.steps)

    @property
    def ends(self) -> bool:
        return self._fixed_point.distinct and (self._fixed_point.ends or not self._computes)

    def _sought(self) -> Iterator[tuple[int, Columns]]:
        steps = self._fixed_point.steps
        outer = self._fixed_point.further
        for step in steps:
            matching = traits_of(step.operator).matching
            for place, at in enumerate(step.inputs):
                if 0 < at <= outer:
                    yield at, () if matching is None else matching.on[place]

    @property
    def grows(self) -> bool:
        grow = all(traits_of(step.operator).grows for step in self._fixed_point.steps)
        return grow and self._fixed_point.best is None

    def origins(self, columns: Columns, widths: Sequence[int]) -> tuple[Columns, ...]:
        carried = self._fixed_point.carried
        own = tuple(column if column in carried else COMPUTED for column in columns)
        return (own, *((COMPUTED,) * len(columns) for _ in widths[1:]))

    def reads(self, wanted: set[int], widths: Sequence[int]) -> list[set[int]]:
        return [set(range(width)) for width in widths]

    def estimate(self, given: Sequence[Estimated], statistics: Statistics) -> Estimated:
        return given[0].with_rows(ROUNDS_GUESSED * given[0].rows)

    def text(self, names: Sequence[Sequence[str]]) -> str:
        best = self._fixed_point.best
        if best is None:
            return f"fix {self._fixed_point.title}"
        return f"fix {self._fixed_point.title}, {'MAX' if best.descending else 'MIN'}({names[0][best.column]})"


TRAITS: dict[type[Operator], Callable[[Any], Traits]] = {
    Base: _Base,
    Filter: _Filter,
    Project: _Project,
    Unnest: _Unnest,
    Union: _Union,
    Join: _Join,
    Aggregate: _Aggregate,
    TopK: _TopK,
    Over: _Over,
    FixedPoint: FixedPointTraits,
    Ingress: _Ingress,
    Egress: _Egress,
    Reader: _Reader,
}


def traits_of(operator: Operator) -> Traits:
    return TRAITS[type(operator)](operator)


def is_base(operator: Operator) -> TypeGuard[Base]:
    return isinstance(operator, Base)


def is_ingress(operator: Operator) -> TypeGuard[Ingress]:
    return isinstance(operator, Ingress)


def is_egress(operator: Operator) -> TypeGuard[Egress]:
    return isinstance(operator, Egress)


def is_reader(operator: Operator) -> TypeGuard[Reader]:
    return isinstance(operator, Reader)


def _merged(call: AggregateCall, at: int) -> AggregateCall | None:
    # A sum of doubles is exact until its end, where it is rounded: a sum of rounded sums could differ in the last bit.
    rounded = call.function is AggregateFunction.SUM and call.type.kind is Kind.DOUBLE
    function = None if rounded else MERGED[call.function]
    return None if function is None else AggregateCall(function, at, call.type)
