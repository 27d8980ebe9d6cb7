"""How many rows an operator has, as far as statistics tell: for the order of joins, and for EXPLAIN.

An estimate is the number of rows and, of each column, the number of its distinct values. Each operator makes its own
out of its parents' (``traits.py``) by the textbook's rules: values are spread evenly, and conditions do not depend on
each other (Selinger et al., *Access Path Selection*, 1979, table 1)::

    stories  10,000 rows, author: 500 values
    σ author = 7       10,000 / 500                =     20 rows
    ⋈ author = id      10,000 × 500 / max(500, 500) = 10,000 rows
    γ author           min(10,000, 500)             =    500 rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from domains.language.expressions import Call, Constant, Expression, Field
from domains.plan.graph import Columns

UNKNOWN_ROWS = 1000.0
UNKNOWN_DISTINCT = 10.0
"""Values of a column of which nothing is known: an equality leaves a tenth of the rows, as in Selinger's table."""
ELEMENTS = 4.0
"""Rows that JSON_TABLE makes of a document: a list of tags."""
LEAVES = {"ne": 0.9, "is_not_null": 0.9, "is_null": 0.1, **dict.fromkeys(("lt", "le", "gt", "ge", "between"), 1 / 3)}
OTHER = 1 / 4
"""What a condition leaves of the rows, by its function, and what any other does."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """What is known of a base table, all its shards together. Columns are positions in the stored row."""

    rows: int
    distinct: Mapping[Columns, int] = field(default_factory=dict)
    """How many values these columns have together: of keys and indexes, and of single columns."""
    indexes: tuple[Columns, ...] = ()
    """What the table can be looked up by: its primary key and its indexes."""

    def has_index(self, columns: Columns) -> bool:
        """Whether a look-up by these columns reads no more than their rows, or those of some of them."""
        return any(index[: len(columns)] and set(index[: len(columns)]) <= set(columns) for index in self.indexes)


Statistics = Mapping[str, TableStatistics]
"""Keyed by table."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """The size of an operator's output."""

    rows: float
    distinct: tuple[float, ...]
    """The distinct values of each column."""

    def keys(self, columns: Sequence[int]) -> float:
        """The values of several columns together."""
        return max(1.0, min(self.rows, prod(self.distinct[at] for at in columns)))

    def with_rows(self, rows: float) -> Estimated:
        return Estimated(rows, tuple(min(values, max(1.0, rows)) for values in self.distinct))


def of_table(known: TableStatistics | None, columns: Columns) -> Estimated:
    """A base table cut to these columns of its stored row."""
    if known is None:
        return Estimated(UNKNOWN_ROWS, (UNKNOWN_DISTINCT,) * len(columns))
    rows = float(known.rows)
    return Estimated(rows, tuple(float(known.distinct.get((at,), UNKNOWN_DISTINCT)) for at in columns))


def after_filter(given: Estimated, predicate: Expression) -> Estimated:
    return given.with_rows(given.rows * selectivity(predicate, given))


def after_project(given: Estimated, expressions: Sequence[Expression]) -> Estimated:
    return Estimated(given.rows, tuple(_values(e, given) for e in expressions))


def after_join(left: Estimated, right: Estimated, on: tuple[Columns, Columns], *, outer: bool) -> Estimated:
    keys = max(left.keys(on[0]), right.keys(on[1])) if on[0] else 1.0
    rows = left.rows * right.rows / keys
    return Estimated(rows, (*left.distinct, *right.distinct)).with_rows(max(rows, left.rows) if outer else rows)


def after_grouping(given: Estimated, group: Columns, calls: int) -> Estimated:
    rows = given.keys(group) if group else 1.0
    return Estimated(min(rows, max(1.0, given.rows)), (*(given.distinct[at] for at in group), *(rows,) * calls))


def after_cut(given: Estimated, group: Columns, limit: int) -> Estimated:
    return given.with_rows(min(given.rows, limit * (given.keys(group) if group else 1.0)))


def after_windows(given: Estimated, calls: int) -> Estimated:
    return Estimated(given.rows, (*given.distinct, *(max(1.0, given.rows),) * calls))


def after_unnesting(given: Estimated, width: int) -> Estimated:
    return Estimated(given.rows * ELEMENTS, (*given.distinct, *(UNKNOWN_DISTINCT,) * width))


def after_union(given: Sequence[Estimated]) -> Estimated:
    return Estimated(sum(each.rows for each in given), tuple(map(sum, zip(*(e.distinct for e in given), strict=True))))


def _values(expression: Expression, given: Estimated) -> float:
    if isinstance(expression, Field):
        return max(1.0, given.distinct[expression.position])
    return 1.0 if isinstance(expression, Constant) else UNKNOWN_DISTINCT


def selectivity(predicate: Expression, given: Estimated) -> float:
    """The part of the rows that a condition leaves."""
    if isinstance(predicate, Constant):
        return 1.0 if predicate.value else 0.0
    if not isinstance(predicate, Call):
        return OTHER
    arguments = predicate.arguments
    if predicate.function == "and":
        return prod(selectivity(part, given) for part in arguments)
    if predicate.function == "or":
        return 1 - prod(1 - selectivity(part, given) for part in arguments)
    if predicate.function == "not":
        return 1 - selectivity(arguments[0], given)
    if predicate.function in ("eq", "null_safe_eq"):
        return 1 / max(1.0, *(_values(side, given) for side in arguments))
    if predicate.function == "in":
        return min(1.0, (len(arguments) - 1) / _values(arguments[0], given))
    return LEAVES.get(predicate.function, OTHER)
