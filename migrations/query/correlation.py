"""Correlation: what a subquery reads of the queries around it.

A column that is not in reach of a subquery's own FROM is looked for in the queries around it, and is ``outer(level,
place)`` then: a call of no function that there is, as a parameter is one (``expressions/late.py``). Level 0 is the
outermost query; the place is a column of that query's row. No node of the dataflow holds such a call. A block gets rid
of all of its own in one of three ways, which together unnest any subquery (T. Neumann, A. Kemper: *Unnesting Arbitrary
Queries*; the third is theirs, and the first two are what it comes to where less will do):

============  =============================================  ====================================================
way           where                                          what becomes of ``outer(l, p)``
============  =============================================  ====================================================
carried       all conditions are ``f(own columns) = g(p)``   the column f is carried up as that of a parameter is:
                                                             it joins the groups, DISTINCT and LIMIT on its way,
                                                             and the query around joins it by ``f = g``
marked        other conditions too, in a plain block below   they are a part of the match of a mark join (⊳) of
              EXISTS or IN                                   the query around
domain        else                                           D = δ π_p (rows of the query around) is a source of
                                                             the block, ``outer(l, p)`` its column, and carried
============  =============================================  ====================================================

So correlation by equality costs no DISTINCT of the outer rows, and what is grouped is partial by the outer row's key.
A NULL of the outer row is lost where D is joined by ``=``. That is right where no row of the block survives it anyway;
otherwise D is joined by ``p IS NULL`` and ``COALESCE(p, a constant)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import groupby

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import keys
from domains.language.types import TEXT, Kind, Value
from domains.plan.graph import ParameterKind
from migrations.query.expressions.terms import equality, null_rejected, positions
from migrations.query.plan import distinct, extended
from migrations.query.relation import OUTER, Around, Carried, Output, Relation, Slot
from migrations.query.stage import SelectStage, Wide, wide


def outer_columns(e: Expression) -> list[Call]:
    """Each column of a query around, once."""
    found: dict[Call, None] = {}
    pending = [e]
    while pending:
        part = pending.pop()
        if isinstance(part, Call):
            if part.function == OUTER:
                found[part] = None
            else:
                pending += reversed(part.arguments)
    return list(found)


def levels(e: Expression) -> frozenset[int]:
    """The levels of the queries around that an expression reads."""
    return frozenset(_numbers(each)[0] for each in outer_columns(e))


def with_columns(e: Expression, columns: Callable[[Call], Expression]) -> Expression:
    """The expression with something else for each column of a query around."""
    if not isinstance(e, Call):
        return e
    if e.function == OUTER:
        return columns(e)
    arguments = tuple(with_columns(argument, columns) for argument in e.arguments)
    return e if arguments == e.arguments else Call(e.function, arguments, e.type)


def inward(e: Expression, level: int) -> Expression:
    """What a subquery reads of the query of this level, over that query's own row."""

    def column(outer: Call) -> Expression:
        at, place = _numbers(outer)
        return Field(place, outer.type) if at == level else outer

    return with_columns(e, column)


def _numbers(outer: Call) -> tuple[int, int]:
    level, place = outer.arguments
    assert isinstance(level, Constant)
    assert isinstance(place, Constant)
    assert isinstance(level.value, int)
    assert isinstance(place.value, int)
    return level.value, place.value


# A block's conditions, sorted into the three ways.


class Correlations:
    """What one block reads of the queries around it, and where that is in the block's own row."""

    def __init__(self, around: Around | None) -> None:
        self._around = around
        self._local: dict[Call, Expression] = {}

    def take(self, stage: SelectStage, further: Sequence[Expression], *, marks: bool) -> None:
        """Sort the stage's conditions. ``further`` is what else of the block reads columns of queries around;
        ``marks``: conditions may be a part of a mark join of the query around."""
        if self._around is None:
            return
        own = [c for c in stage.conditions if not outer_columns(c)]
        found = [c for c in stage.conditions if outer_columns(c)]
        links = [_link(c) for c in found]
        rest = [c for c, link in zip(found, links, strict=True) if link is None]
        marks = marks and not self._local and all(levels(c) == {self._around.level} for c in rest)
        needed = {each: None for e in further for each in outer_columns(e)}
        if (not rest or marks) and not needed:
            stage.conditions = own
            stage.carried += [link for link in links if link is not None]
            stage.linked += rest
            return
        needed.update((each, None) for e in found for each in outer_columns(e))
        self._join(stage, [each for each in needed if each not in self._local], _strict(found))
        stage.conditions = [self.put(c, stage) for c in stage.conditions]

    def put(self, e: Expression, stage: SelectStage) -> Expression:
        """The expression over the stage's row alone, which gets the columns that it lacks."""
        found = outer_columns(e)
        if not found:
            return e
        self._join(stage, [each for each in found if each not in self._local], frozenset())
        return with_columns(e, self._local.__getitem__)

    def columns(self) -> list[Expression]:
        return list(dict.fromkeys(self._local.values()))

    def grouped(self, groups: Sequence[Expression]) -> None:
        """Go on over groups, of which these are the first columns."""
        self._local = {e: Field(groups.index(own), own.type) for e, own in self._local.items()}

    def reads(self, e: Expression) -> bool:
        """Whether an expression over the stage's row reads such a column."""
        places = frozenset[int]().union(*map(positions, self._local.values()))
        return not places.isdisjoint(positions(e))

    def _join(self, stage: SelectStage, missing: Sequence[Call], strict: frozenset[Call]) -> None:
        """A domain for each of the levels."""
        ordered = sorted(missing, key=_numbers)
        for level, columns in groupby(ordered, key=lambda each: _numbers(each)[0]):
            assert self._around is not None, "there is a query around"
            mine = list(columns)
            relation = _domain(self._around.at(level), mine, strict)
            leaf = stage.leaf(relation)
            stage.cross(leaf)
            self._local.update((each, wide(leaf, place)) for place, each in enumerate(mine))


def _link(condition: Expression) -> Wide | None:
    """``own = outer`` as a column that is carried; None where the condition is something else."""
    sides = equality(condition)
    if sides is None:
        return None
    for own, other in (sides, sides[::-1]):
        if positions(own) and not outer_columns(own) and not positions(other) and len(levels(other)) == 1:
            outer, inner = keys(other, own)
            return Wide(inner, correlation(outer), is_condition=True)
    return None


Links = list[tuple[int, Expression]]
"""A subquery's columns, and what of the row around they are equal to."""


def parted(
    relation: Relation, level: int, stage: SelectStage, own: Correlations, *, optional: bool
) -> tuple[Relation, Links]:
    """What the subquery carries of the row of the query around, which has this level, as links. ``optional``: its rows
    may be missing, so that what it carries of rows further out is linked with columns of that row too."""
    links: Links = []
    kept: list[Carried] = []
    for carried in relation.carried:
        outer = carried.slot.outer
        if outer is not None and levels(outer) == {level}:
            links.append((carried.column, inward(outer, level)))
        elif outer is not None and optional:
            links.append((carried.column, own.put(outer, stage)))
        else:
            kept.append(carried)
    return replace(relation, carried=tuple(kept)), links


def correlation(outer: Expression) -> Slot:
    """The slot that a column of the query around feeds."""
    return Slot("correlation", ParameterKind.EQUAL, outer.type, (), outer=outer)


def _strict(conditions: Sequence[Expression]) -> frozenset[Call]:
    """The columns of queries around whose NULL no condition is true of."""
    known = list(dict.fromkeys(each for c in conditions for each in outer_columns(c)))
    beyond = 1 + max((p for c in conditions for p in positions(c)), default=-1)
    rejected = frozenset[int]().union(
        *(null_rejected(with_columns(c, lambda e: Field(beyond + known.index(e), e.type))) for c in conditions)
    )
    return frozenset(each for at, each in enumerate(known) if beyond + at in rejected)


def _domain(around: Around, columns: Sequence[Call], strict: frozenset[Call]) -> Relation:
    """D: the different values of some columns of a query around, by which it is joined with that query."""
    plan = around.rows([_numbers(each)[1] for each in columns])
    inside: list[Expression] = []
    outside: list[Expression] = []
    for place, each in enumerate(columns):
        field = plan.field(place)
        own, other = ([field], [each]) if each in strict else (_sides(field), _sides(each))
        inside += own
        outside += other
    plan, places = extended(plan, inside, ["domain_key"] * len(inside))
    plan = distinct(plan, tuple(range(plan.width)))
    carried = [Carried(at, correlation(e)) for at, e in zip(places, outside, strict=True)]
    outputs = tuple(Output(plan.columns[at].name, plan.field(at)) for at in range(len(columns)))
    return Relation(plan, outputs, tuple(carried), uniques=(frozenset(places),))


def _sides(value: Expression) -> list[Expression]:
    """What is equal where two values are, two NULLs as well. Of documents their texts: 1 and 1.0 are not one."""
    if value.type.kind is Kind.JSON:
        value = call("cast", value, type=TEXT)
    if value.type.kind not in _SOME:
        raise Unsupported(f"a correlated subquery that reads a column of the type {value.type} by more than =")
    return [call("is_null", value), call("coalesce", value, Constant(_SOME[value.type.kind], value.type))]


_SOME: dict[Kind, Value] = {
    Kind.INTEGER: 0,
    Kind.DOUBLE: 0.0,
    Kind.DECIMAL: Decimal(0),
    Kind.TEXT: "",
    Kind.BLOB: b"",
    Kind.DATE: "1970-01-01",
    Kind.DATETIME: "1970-01-01 00:00:00",
    Kind.TIME: timedelta(),
}
"""Some value of each kind, in the place of NULL."""
