"""Conditions that are ranges of several columns: ``(a, b) < (?, ?)``, and the same as libraries write it out.

::

    (a, b) < (p, q)   =   a < p OR (a = p AND b < q)        as MySQL's manual has it
                          ───┬─    ────────┬────────
                          alternatives, each an interval in the order of (a, b): values of the first columns, and an
                          order of the next one

A condition is brought into alternatives, each of comparisons that all hold. It is a range if there is one order of
columns in which all alternatives of all conditions are intervals. A comparison is never true of NULL, and so is none of
these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from domains.language.expressions import Call, Expression, Field
from domains.language.types import Column, Kind
from domains.plan.graph import Parameter, ParameterKind, Ranges
from migrations.query.expressions.late import PARAMETER, key_of
from migrations.query.plans.late_queries import Sorting

MOST_ALTERNATIVES = 32
"""Intervals of one condition. A row of so many columns is none that a page goes by."""

_KINDS = {
    "eq": ParameterKind.EQUAL,
    "lt": ParameterKind.LESS,
    "le": ParameterKind.LESS_EQUAL,
    "gt": ParameterKind.GREATER,
    "ge": ParameterKind.GREATER_EQUAL,
}
ORDERS = tuple(kind for name, kind in _KINDS.items() if name != "eq")
_MIRRORED = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True, slots=True)
class RangedColumn:
    """``column kind parameter``"""

    column: int
    kind: ParameterKind
    key: str
    """The parameter's, in expressions."""


Alternatives = tuple[tuple[RangedColumn, ...], ...]


@dataclass(frozen=True, slots=True)
class SoughtRange:
    columns: tuple[int, ...]
    """In the order by which the conditions are intervals."""
    conditions: tuple[Alternatives, ...]


def sought_range(conditions: Iterable[Expression]) -> SoughtRange | None:
    """What the conditions come to as a range; None if one of them is none, or they go by several orders of columns."""
    found: list[Alternatives] = []
    for condition in conditions:
        alternatives = _alternatives(condition)
        if alternatives is None:
            return None
        found.append(tuple(alternatives))
    columns = _order_of([each for alternatives in found for each in alternatives])
    if not columns:
        return None
    found = [some for some in found if not any(other is not some and _implies(other, some) for other in found)]
    in_order = [tuple(tuple(sorted(terms, key=lambda t: columns.index(t.column))) for terms in some) for some in found]
    return SoughtRange(columns, tuple(in_order))


def _implies(condition: Alternatives, bound: Alternatives) -> bool:
    """Whether ``a <= p`` holds where the condition does: all its alternatives have ``a = p``, or ``a < p``."""
    if len(bound) > 1 or len(bound[0]) > 1 or bound[0][0].kind not in _STRICT or bound == condition:
        return False
    closed = bound[0][0]
    kinds = (ParameterKind.EQUAL, closed.kind, _STRICT[closed.kind])
    implying = {RangedColumn(closed.column, kind, closed.key) for kind in kinds}
    return all(not implying.isdisjoint(terms) for terms in condition)


_STRICT = {
    ParameterKind.LESS_EQUAL: ParameterKind.LESS,
    ParameterKind.GREATER_EQUAL: ParameterKind.GREATER,
}


def _alternatives(e: Expression) -> list[tuple[RangedColumn, ...]] | None:
    if not isinstance(e, Call):
        return None
    if e.function in ("or", "and"):
        parts = []
        for argument in e.arguments:
            part = _alternatives(argument)
            if part is None:
                return None
            parts.append(part)
        if e.function == "or":
            return [each for part in parts for each in part]
        if prod(map(len, parts)) > MOST_ALTERNATIVES:
            return None
        return [tuple(term for some in chosen for term in some) for chosen in product(*parts)]
    compared = _compared(e)
    return None if compared is None else [(compared,)]


def _compared(e: Call) -> RangedColumn | None:
    if e.function not in _KINDS:
        return None
    one, other = e.arguments
    function = e.function
    if isinstance(other, Field):
        one, other, function = other, one, _MIRRORED[function]
    if not isinstance(one, Field) or not isinstance(other, Call) or other.function != PARAMETER:
        return None
    if one.type.kind is Kind.JSON or one.type.members:
        return None  # They are compared otherwise than they are ordered.
    return RangedColumn(one.position, _KINDS[function], key_of(other))


def _order_of(alternatives: Sequence[tuple[RangedColumn, ...]]) -> tuple[int, ...] | None:
    columns: list[int] = []
    for terms in sorted(alternatives, key=lambda terms: len(_equal(terms))):
        equal = _equal(terms)
        ranged = {term.column for term in terms} - set(equal)
        if len(equal) < sum(term.kind is ParameterKind.EQUAL for term in terms) or len(ranged) > 1:
            return None
        if set(columns[: len(equal)]) != set(equal):
            return None
        if any(term.column in equal for term in terms if term.kind is not ParameterKind.EQUAL):
            return None
        for column in ranged:
            if len(columns) == len(equal):
                columns.append(column)
            if columns[len(equal)] != column:
                return None
    return tuple(columns)


def _equal(terms: Sequence[RangedColumn]) -> list[int]:
    """The columns that are compared by equality."""
    return list(dict.fromkeys(term.column for term in terms if term.kind is ParameterKind.EQUAL))


def begins_with(order: Sequence[Sorting], columns: Sequence[int]) -> bool:
    first = [t.expression.position if isinstance(t.expression, Field) else None for t in order[: len(columns)]]
    return first == list(columns)


def ranged_parameters(
    parameters: Sequence[Parameter], ranges: Ranges, columns: Sequence[Column]
) -> tuple[Parameter, ...]:
    """The parameters of which a range's have its columns, and an order."""
    found = list(parameters)
    for term in (term for alternatives in ranges for terms in alternatives for term in terms):
        known = found[term.parameter]
        kinds = [known.kind, term.kind, ParameterKind.LESS_EQUAL]
        kind = next(each for each in kinds if each in ORDERS)
        found[term.parameter] = Parameter(known.name, kind, term.column, columns[term.column].type)
    return tuple(found)
