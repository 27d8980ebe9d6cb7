"""The dataflow graph as data: operators, nodes, and what is kept at each of them.

An operator says *what* a node computes, by an equation over its parents; ``Materialization`` says what the node
*keeps* of it. Column positions count from 0 in the node's output row.

====================  ======================================================================================
operator              equation
====================  ======================================================================================
Base(t)               the rows of base table t
Filter(p)             σ_p(X): rows for which p is true (not false, not NULL)
Project(e…)           π_e(X), a bag: duplicates stay
Unnest(d; t)          each row of X followed by each row that JSON_TABLE t makes of document d
Unnest(outer; p)      … that meets p; and each row of X without one, followed by NULLs
Union()               X₁ ∪ X₂ ∪ …, a bag (UNION ALL)
Join(inner)           L ⋈ R on left_on = right_on; output is the left row followed by the right row
Join(left)            … and each left row without a match, followed by NULLs
Join(mark)            L ⊳ R: each left row once, followed by 1 where it has a match and 0 where it has none
Aggregate(g; f…)      γ_{g; f}(X); output is the group columns followed by one column a function
Aggregate(all; -)     DISTINCT
TopK(g; o; k)         of each group of X, the ``limit`` first rows by ``order`` after ``offset``
Over(g; o; f…)        each row of X, followed by window functions over the rows of its partition g by order o
FixedPoint(s; c)      the least Y of Y = X₁ ∪ s(Y, X₂, …): s is done again and again, and keeps the columns c
Ingress / Egress      a link from and to another domain
Reader                the end of a view: keyed, ordered, published to the outside
====================  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from domains.language.description import literal
from domains.language.expressions import Expression
from domains.language.functions.json.table import JsonLevel
from domains.language.types import Column, Row, SqlType

NodeIndex = NewType("NodeIndex", int)
DomainIndex = NewType("DomainIndex", int)
Columns = tuple[int, ...]

AUTOMATIC = 1 << 40
"""Numbers of nodes that a recipe makes are below: a thousand a second would reach it in 35 years. From here on they are
of a cluster's automatic views (``migrations/flow/automatic.py``)."""


def is_automatic(index: NodeIndex) -> bool:
    return index >= AUTOMATIC


class JoinKind(StrEnum):
    INNER = "inner"
    LEFT = "left"
    MARK = "mark"


@dataclass(frozen=True, slots=True)
class Sharding:
    """The place of a node: ``shards`` shards of its group, numbered from ``first``.

    A row is at ``first + shard_of(row[c], shards)`` for every ``c`` of ``columns`` (an equi-join's output has the
    column twice); with none of them it may be at any.
    """

    shards: int = 1
    columns: frozenset[int] = frozenset()
    first: int = 0

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.shards)


@dataclass(frozen=True, slots=True)
class Base:
    """A base table, cut to ``columns`` (positions in the stored row).

    ALTER TABLE only ever appends positions, so a running view keeps the Base node it was planned on.
    """

    table: str
    columns: Columns
    primary_key: Columns
    """Positions in the node's output; () for a bag."""
    generation: int = 0
    """The table's (``TableSchema``)."""


@dataclass(frozen=True, slots=True)
class Filter:
    predicate: Expression


@dataclass(frozen=True, slots=True)
class Project:
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Unnest:
    document: Expression
    table: JsonLevel
    outer: bool = False
    residual: Expression | None = None
    """Where outer: a further condition of the match, over the row ++ a row of the table."""


@dataclass(frozen=True, slots=True)
class Union:
    pass


@dataclass(frozen=True, slots=True)
class Join:
    """``left_on[i] = right_on[i]`` for all i; both empty for a join without =. NULL equals nothing."""

    kind: JoinKind
    left_on: Columns
    right_on: Columns
    residual: Expression | None = None
    """A further condition of the match, over left row ++ right row. (Of an inner join only what compares a column of a
    side; other conditions are a Filter above it.)"""


class AggregateFunction(StrEnum):
    COUNT_ROWS = "count_rows"
    COUNT = "count"
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    SUM_DISTINCT = "sum_distinct"
    AVG = "avg"
    AVG_DISTINCT = "avg_distinct"
    MIN = "min"
    MAX = "max"
    VAR_POP = "var_pop"
    VAR_SAMP = "var_samp"
    STDDEV_POP = "stddev_pop"
    STDDEV_SAMP = "stddev_samp"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    GROUP_CONCAT = "group_concat"
    GROUP_CONCAT_DISTINCT = "group_concat_distinct"
    JSON_ARRAYAGG = "json_arrayagg"
    JSON_OBJECTAGG = "json_objectagg"


RENDERED = frozenset(
    (
        AggregateFunction.GROUP_CONCAT,
        AggregateFunction.GROUP_CONCAT_DISTINCT,
        AggregateFunction.JSON_ARRAYAGG,
        AggregateFunction.JSON_OBJECTAGG,
    )
)
"""The functions whose value is a text of all elements of the group."""

MERGED: dict[AggregateFunction, AggregateFunction | None] = {
    AggregateFunction.COUNT_ROWS: AggregateFunction.SUM,
    AggregateFunction.COUNT: AggregateFunction.SUM,
    AggregateFunction.COUNT_DISTINCT: None,
    AggregateFunction.SUM: AggregateFunction.SUM,
    AggregateFunction.SUM_DISTINCT: None,
    AggregateFunction.AVG: None,
    AggregateFunction.AVG_DISTINCT: None,
    AggregateFunction.MIN: AggregateFunction.MIN,
    AggregateFunction.MAX: AggregateFunction.MAX,
    AggregateFunction.VAR_POP: None,
    AggregateFunction.VAR_SAMP: None,
    AggregateFunction.STDDEV_POP: None,
    AggregateFunction.STDDEV_SAMP: None,
    AggregateFunction.BIT_AND: AggregateFunction.BIT_AND,
    AggregateFunction.BIT_OR: AggregateFunction.BIT_OR,
    AggregateFunction.BIT_XOR: AggregateFunction.BIT_XOR,
    AggregateFunction.GROUP_CONCAT: None,
    AggregateFunction.GROUP_CONCAT_DISTINCT: None,
    AggregateFunction.JSON_ARRAYAGG: None,
    AggregateFunction.JSON_OBJECTAGG: None,
}
"""What makes one value of the values of all shards; None where that would need more than a value of each."""


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """One term of ORDER BY. NULL sorts first ascending and last descending, as in MySQL."""

    column: int
    descending: bool = False


@dataclass(frozen=True, slots=True)
class AggregateCall:
    function: AggregateFunction
    argument: int | None
    """The parent's column; None for COUNT(*)."""
    type: SqlType
    separator: str = ","
    order: tuple[OrderTerm, ...] = ()
    """GROUP_CONCAT and JSON_ARRAYAGG … ORDER BY, over the parent's columns; else the values are sorted (MySQL leaves it
    open)."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    group: Columns
    calls: tuple[AggregateCall, ...]
    scalar: bool = False
    """No GROUP BY clause: the group () has its one row also over no input (COUNT(*) is 0, the rest NULL)."""


@dataclass(frozen=True, slots=True)
class TopK:
    """Ties are broken by the whole row, so that the answer is a function of the input."""

    group: Columns
    order: tuple[OrderTerm, ...]
    limit: int
    offset: int = 0


class WindowFunction(StrEnum):
    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"
    PERCENT_RANK = "percent_rank"
    CUME_DIST = "cume_dist"
    NTILE = "ntile"
    LAG = "lag"
    LEAD = "lead"
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    NTH_VALUE = "nth_value"
    COUNT_ROWS = "count_rows"
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    VAR_POP = "var_pop"
    VAR_SAMP = "var_samp"
    STDDEV_POP = "stddev_pop"
    STDDEV_SAMP = "stddev_samp"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    JSON_ARRAYAGG = "json_arrayagg"
    JSON_OBJECTAGG = "json_objectagg"


class BoundKind(StrEnum):
    """The kind of a frame's beginning or end, in the order of the partition."""

    UNBOUNDED_PRECEDING = "unbounded preceding"
    PRECEDING = "preceding"
    CURRENT_ROW = "current row"
    FOLLOWING = "following"
    UNBOUNDED_FOLLOWING = "unbounded following"


@dataclass(frozen=True, slots=True)
class FrameBound:
    kind: BoundKind
    by: int = 0
    """PRECEDING and FOLLOWING: of ROWS so many rows; of RANGE the parent's column that has the bound itself, a value
    like that of the one column of the order."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Which rows of its partition a row's window function sees. Of RANGE, the current row stands for all its peers,
    the rows that the order does not tell from it."""

    rows: bool
    """ROWS; else RANGE."""
    start: FrameBound = FrameBound(BoundKind.UNBOUNDED_PRECEDING)
    end: FrameBound = FrameBound(BoundKind.CURRENT_ROW)


@dataclass(frozen=True, slots=True)
class WindowCall:
    function: WindowFunction
    argument: int | None
    """The parent's column."""
    type: SqlType
    frame: Frame = Frame(rows=False)
    """The frame of the aggregates and of FIRST_VALUE, LAST_VALUE, NTH_VALUE."""
    number: int = 1
    """LAG, LEAD: so many rows away; NTH_VALUE: the n-th; NTILE: so many parts."""
    default: int | None = None
    """LAG, LEAD: the parent's column that is the value where there is no such row; None: NULL."""


@dataclass(frozen=True, slots=True)
class Over:
    """Ties of the order are broken by the whole row, so that the answer is a function of the input."""

    partition: Columns
    order: tuple[OrderTerm, ...]
    calls: tuple[WindowCall, ...]


@dataclass(frozen=True, slots=True)
class RoundStep:
    """One of the operators that a recursion does in each round."""

    operator: Operator
    inputs: tuple[int, ...]
    """0: what there is of the recursion; from 1 on its further parents; behind these the steps, in their order."""
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The last of ``steps`` makes rows of the recursion out of those that there are (WITH RECURSIVE)."""

    title: str
    steps: tuple[RoundStep, ...]
    distinct: bool
    """UNION: a row is there once, as long as it is derived in a way that does not need itself. Else, of UNION ALL, as
    often as it is derived."""
    carried: Columns
    """The columns that each round leaves as they are. What has the same values in them is a recursion of its own."""
    further: int = 0
    """The number of its parents behind the first."""
    best: OrderTerm | None = None
    """Of rows that are alike but for this column only the first by it is there (MIN, MAX); where it ``distinct``."""
    ends: bool = False
    """Whether the best surely come to an end, though each round computes new values."""


@dataclass(frozen=True, slots=True)
class Ingress:
    """Receives what ``source`` (a node of another domain) sends; the node's only parent edge crosses the link.

    Where ``source`` is sharded, each of its shards has a link of its own, in the order of their numbers; a row comes
    from the shard that column ``by`` decides (None: from any of them).
    """

    source: NodeIndex
    by: int | None = None


@dataclass(frozen=True, slots=True)
class Egress:
    """Sends its parent's deltas, evictions and fills down the links to ``ingress`` nodes of other domains."""


class ParameterKind(StrEnum):
    EQUAL = "="
    IN = "in"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    LIMIT = "limit"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One ``?`` of a view: how it constrains the reader, in the order in which the statement names them."""

    name: str
    """The column's name (``limit``/``offset`` for those), made unique within the view."""
    kind: ParameterKind
    column: int | None
    """The reader's column that it is compared with; None for LIMIT and OFFSET."""
    type: SqlType


@dataclass(frozen=True, slots=True)
class RangeTerm:
    """``column kind parameter``: a part of a condition by which a reader's rows are sought in their order."""

    column: int
    kind: ParameterKind
    """Equality, or one of the four orders."""
    parameter: int
    """The place of the parameter in the reader's."""


Ranges = tuple[tuple[tuple[RangeTerm, ...], ...], ...]
"""Conditions that hold all, of each an alternative, of this all terms: equalities, and an order of the next column.

``(a, b) < (?, ?)`` is one condition of two alternatives: ``a < ?``, and ``a = ?`` with ``b < ?``.
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """The end of a view. The node's rows are the parent's rows; ``visible`` of them are shown to the user.

    ``key`` are the columns by which entries are filled and evicted (those equality parameters that have a
    provenance). A look-up walks ``key ‖ seek ‖ order``: ``seek`` are the further equality columns and then those of a
    range that ``order`` does not begin with; rows come out by ``order`` (ties by the row itself).
    """

    view: str
    key: Columns
    seek: Columns
    order: tuple[OrderTerm, ...]
    visible: int
    """The first ``visible`` columns are shown; hidden ones (keys, order) follow them."""
    parameters: tuple[Parameter, ...] = ()
    limit: int | None = None
    """A constant LIMIT that is applied when reading (IN lists, ranges); a TopK has applied it before where it can."""
    offset: int = 0
    empty: Row | None = None
    """The visible row that a look-up answers where there are none (a COUNT(*) without GROUP BY is 0, not absent)."""
    ranges: Ranges = ()
    """They begin at the first column of ``seek ‖ order`` that is compared by no equality of its own."""


Operator = (
    Base | Filter | Project | Unnest | Union | Join | Aggregate | TopK | Over | FixedPoint | Ingress | Egress | Reader
)


class Materialization(StrEnum):
    NONE = "none"
    PARTIAL = "partial"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Node:
    """A vertex of the dataflow. ``indexes`` are the column sets that its state is held by (also for a Base)."""

    index: NodeIndex
    operator: Operator
    parents: tuple[NodeIndex, ...]
    columns: tuple[Column, ...]
    materialization: Materialization = Materialization.NONE
    indexes: tuple[Columns, ...] = ()
    reason: str = ""
    """Why the state is full, for EXPLAIN."""
    domain: DomainIndex = DomainIndex(0)
    drives: tuple[tuple[Columns, int], ...] = ()
    """Joins: for each look-up that passes through, the side that it is pulled from (0 left, 1 right)."""


def call_text(call: AggregateCall, names: Sequence[str]) -> str:
    """An aggregate for people; ``names`` are the columns' of its input."""
    argument = "*" if call.argument is None else names[call.argument]
    name = call.function.value.upper().removesuffix("_ROWS")
    if name.endswith("_DISTINCT"):
        name, argument = name.removesuffix("_DISTINCT"), f"DISTINCT {argument}"
    separator = f" SEPARATOR {literal(call.separator)}" if call.separator != "," else ""
    return f"{name}({argument}{order_text(call.order, names)}{separator})"


def order_text(order: Sequence[OrderTerm], names: Sequence[str]) -> str:
    terms = [f"{names[term.column]}{' DESC' if term.descending else ''}" for term in order]
    return f" by {', '.join(terms)}" if terms else ""
