"""The two sides of a join, and which of its columns come from which."""

from __future__ import annotations

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
