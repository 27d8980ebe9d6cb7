"""Window functions, over the rows that WHERE, GROUP BY and HAVING have left, in Spark's words.

What a function means (its partition, order and frame, over typed expressions) is the planner's reading of the text;
the rows, their order and the sums are Spark's. Ties are broken by the row: of a frame by ROWS, and of a function that
goes by places, ORDER BY goes on with all columns of the sources in FROM's order. A frame by RANGE has whole peers, so
its last row is the last of those that agree in the order::

    LAST_VALUE(x) OVER (PARTITION BY g ORDER BY o)
      ──► last_value(x) OVER (PARTITION BY g, o ORDER BY row ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant, Expression
from domains.language.types import Kind
from domains.plan.graph import AggregateFunction, BoundKind, WindowFunction
from migrations.query.expressions.aggregates import Summary
from migrations.query.windows.meaning import FrameEnd, WindowMeaning
from migrations.spark_sql.aggregates import aggregate, sorted_by
from migrations.spark_sql.expressions import Names
from migrations.spark_sql.values import literal, refuse_told_apart

_RANKS = frozenset(
    (WindowFunction.RANK, WindowFunction.DENSE_RANK, WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST)
)
_PLACES = frozenset((WindowFunction.ROW_NUMBER, WindowFunction.NTILE, WindowFunction.LAG, WindowFunction.LEAD))
_PICKED = frozenset((WindowFunction.FIRST_VALUE, WindowFunction.LAST_VALUE, WindowFunction.NTH_VALUE))
_EVERYTHING = " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
_DAYS = {"day": 1, "week": 7}
_TIMES = ("second", "minute", "hour", "month", "year")


@dataclass(frozen=True, slots=True)
class WindowWriter:
    """Writes the windows of one SELECT. ``carried`` are part of every PARTITION BY, ``ties`` of an order of rows."""

    names: Names
    carried: Sequence[Expression]
    ties: Sequence[Expression]

    def write(self, meant: WindowMeaning) -> str:
        """The function as a value of its type.

        :raises Unsupported: Spark has no way to say it.
        """
        function = meant.function
        argument = None if meant.argument is None else self.names.value(meant.argument)
        if function in _RANKS:
            return f"CAST({function}(){self._over(meant, self._terms(meant) or ['1L'])} AS {_type_of(meant)})"
        if function in _PLACES:
            return f"{self._by_place(meant, argument)}{self._over(meant, self._rows(meant))}{_ENDINGS[function]}"
        if function in _PICKED:
            assert argument is not None, f"{function} has an argument"
            return self._picked(meant, argument)
        summary = Summary(AggregateFunction(function.value), meant.argument, meant.type, shown=meant.shown)
        if not meant.by_rows and not meant.order:
            return aggregate(summary, self.names, self._over(meant, []))
        order = self._rows(meant) if meant.by_rows else self._terms(meant)
        return aggregate(summary, self.names, self._over(meant, order, _frame(meant)))

    def _by_place(self, meant: WindowMeaning, argument: str | None) -> str:
        if meant.function is WindowFunction.ROW_NUMBER:
            return "CAST(row_number()"
        if meant.function is WindowFunction.NTILE:
            return f"CAST(ntile({meant.number})"
        default = "" if meant.default is None else f", {self.names.value(meant.default)}"
        return f"{meant.function}({argument}, {meant.number}{default})"

    def _picked(self, meant: WindowMeaning, argument: str) -> str:
        """FIRST_VALUE and its like."""
        function, terms = meant.function, self._terms(meant)
        which = (
            f"nth_value({argument}, {meant.number})"
            if function is WindowFunction.NTH_VALUE
            else f"{function}({argument})"
        )
        if meant.by_rows:
            return f"{which}{self._over(meant, self._rows(meant), _frame(meant))}"
        end = meant.end if function is WindowFunction.LAST_VALUE else meant.start
        if end.kind is BoundKind.CURRENT_ROW and function is not WindowFunction.NTH_VALUE:
            peers = [self.names.value(term.expression) for term in meant.order]
            return f"{which}{self._over(meant, self._rows(meant), _EVERYTHING, peers)}"
        if end.kind not in (BoundKind.UNBOUNDED_PRECEDING, BoundKind.UNBOUNDED_FOLLOWING):
            raise Unsupported(f"{function.upper()} over a frame by RANGE, whose rows Spark leaves in any order")
        value = f"{which}{self._over(meant, self._rows(meant), _EVERYTHING)}"
        if function is not WindowFunction.NTH_VALUE:
            return value
        reached = f"count(1){self._over(meant, terms, _frame(meant) if terms else '')}"
        return f"IF({reached} >= {meant.number}, {value}, NULL)"

    # --- the window -------------------------------------------------------------------------------------------------

    def _over(self, meant: WindowMeaning, order: Sequence[str], frame: str = "", peers: Sequence[str] = ()) -> str:
        partition = (*self.carried, *meant.partition)
        refuse_told_apart(each.type for each in partition)
        by = [*map(self.names.value, partition), *peers]
        parts = [f"PARTITION BY {', '.join(by)}"] if by else []
        parts += [f"ORDER BY {', '.join(order)}"] if order else []
        return f" OVER ({' '.join(parts)}{frame})"

    def _terms(self, meant: WindowMeaning) -> list[str]:
        return [sorted_by(self.names.value(term.expression), term.descending) for term in meant.order]

    def _rows(self, meant: WindowMeaning) -> list[str]:
        """The order in which no two rows are peers, but equal ones."""
        refuse_told_apart(each.type for each in self.ties)
        return [*self._terms(meant), *(sorted_by(self.names.value(each), False) for each in self.ties)] or ["1L"]


_ENDINGS = {
    WindowFunction.ROW_NUMBER: " AS BIGINT)",
    WindowFunction.NTILE: " AS BIGINT)",
    WindowFunction.LAG: "",
    WindowFunction.LEAD: "",
}


def _type_of(meant: WindowMeaning) -> str:
    return "DOUBLE" if meant.type.kind is Kind.DOUBLE else "BIGINT"


def _frame(meant: WindowMeaning) -> str:
    unit = "ROWS" if meant.by_rows else "RANGE"
    return f" {unit} BETWEEN {_bound(meant.start)} AND {_bound(meant.end)}"


def _bound(end: FrameEnd) -> str:
    if end.kind not in (BoundKind.PRECEDING, BoundKind.FOLLOWING):
        return end.kind.upper()
    return f"{end.rows if end.bound is None else _distance(end.bound)} {end.kind.upper()}"


def _distance(bound: Expression) -> str:
    """The number or interval in ``order + distance``, which is what a bound by value is."""
    while isinstance(bound, Call) and bound.function == "cast":
        bound = bound.arguments[0]
    if isinstance(bound, Call) and len(bound.arguments) > 1 and isinstance(bound.arguments[1], Constant):
        amount = bound.arguments[1]
        if bound.function in ("add", "subtract") and isinstance(amount.value, (int, float, Decimal)):
            return literal(amount.value, amount.type)
        if bound.function in ("date_add", "date_sub") and isinstance(amount.value, (int, str)):
            unit = str(getattr(bound.arguments[2], "value", "")).lower()
            if unit in _DAYS and str(amount.value).isdigit():
                return f"INTERVAL '{int(amount.value) * _DAYS[unit]}' DAY"
            if unit in _TIMES and str(amount.value).isdigit():
                return f"INTERVAL '{int(amount.value)}' {unit.upper()}"
    raise Unsupported("a frame by RANGE whose distance Spark has no word for")
