"""The two sides of a join: which of its columns come from which, and in which range of a column a side's rows are that
match a row of the other side::

    a JOIN b ON a.x < b.y AND b.y <= a.x + 7        of b    y: above x, up to x + 7         of a    x: below y
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from domains.language.expressions import Call, Expression, Field
from domains.language.rewriting import fields_of, remap
from domains.language.types import Kind, SqlType
from domains.plan.graph import Columns, JoinKind

LEFT, RIGHT = 0, 1
COMPUTED = -1
"""The origin of a column that is not a column of that parent."""


def side_columns(kind: JoinKind, on: tuple[Columns, Columns], left_width: int, columns: Columns, side: int) -> Columns:
    """The position on ``side`` of each output column, or -1. An inner join's join columns are on both sides; a left
    join's right columns may be NULL where the right side has no such row, which only a check after the join can tell. A
    mark is a column of neither.
    """
    result = []
    for column in columns:
        if kind is JoinKind.MARK and column >= left_width:
            result.append(COMPUTED)
            continue
        own = LEFT if column < left_width else RIGHT
        local = column if own == LEFT else column - left_width
        if own == side:
            result.append(local)
        elif local in on[own] and (kind is JoinKind.INNER or side == LEFT):
            result.append(on[side][on[own].index(local)])
        else:
            result.append(COMPUTED)
    return tuple(result)


@dataclass(frozen=True, slots=True)
class SideRange:
    """What a match asks of one column of a side."""

    column: int
    tests: tuple[tuple[str, Expression], ...]
    """``column function value``, each value over the other side's row."""


Ranges = tuple[SideRange | None, SideRange | None]
"""Of each side; None where no column of it is compared by itself."""


def ranges_of(residual: Expression | None, left_width: int) -> Ranges:
    """The ranges in a condition over left row ++ right row. Of several columns of a side, the one with most tests."""
    found: tuple[dict[int, list[tuple[str, Expression]]], ...] = ({}, {})
    for function, one, other in _comparisons(residual):
        read = fields_of(other)
        if not isinstance(one, Field) or not read or not _in_one_order(one.type, other.type):
            continue
        side = LEFT if one.position < left_width else RIGHT
        if all((position < left_width) is (side == RIGHT) for position in read):
            own, its = (0, left_width) if side == LEFT else (left_width, 0)
            value = remap(other, {position: position - its for position in read})
            found[side].setdefault(one.position - own, []).append((function, value))
    best = [max(columns.items(), key=lambda item: len(item[1]), default=None) for columns in found]
    left, right = (None if each is None else SideRange(each[0], tuple(each[1])) for each in best)
    return left, right


_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _comparisons(condition: Expression | None) -> Iterator[tuple[str, Expression, Expression]]:
    """``one function other`` for each comparison that has to hold, both ways round."""
    if not isinstance(condition, Call):
        return
    arguments = condition.arguments
    if condition.function == "and":
        for part in arguments:
            yield from _comparisons(part)
    elif condition.function == "between":
        value, low, high = arguments
        if len({each.type.kind for each in arguments}) == 1:  # Else all three are compared as what none of them is.
            yield from _comparisons(Call("ge", (value, low), condition.type))
            yield from _comparisons(Call("le", (value, high), condition.type))
    elif condition.function in _MIRRORED:
        one, other = arguments
        yield condition.function, one, other
        yield _MIRRORED[condition.function], other, one


_EXACT = frozenset({Kind.INTEGER, Kind.DECIMAL})


def _in_one_order(column: SqlType, value: SqlType) -> bool:
    """Whether a column is compared with such values as its keys lie."""
    if column.kind in _EXACT and value.kind in _EXACT:
        return True
    alike = column.kind is value.kind and column.equality is value.equality
    return alike and column.kind not in (Kind.JSON, Kind.NULL) and not column.members and not value.members
