"""The time of a request in a view: a parameter that whoever binds a look-up fills in, and no client gives.

An expression of NOW() and constants alone is a *moment*: one value for each time. Compared with a column it is a key or
the range of one, as ``column > ?`` is, and anywhere else it is applied when the view is read::

    created > NOW() - INTERVAL 1 DAY    =    created > ?      where ? is that of the request's time t
    TIMESTAMPDIFF(DAY, created, NOW())  =    f(created, ?)    where ? is t

So no node of the dataflow and no reader depends on the time, and each answer is that of the same query with the moment
as a literal. All moments of a look-up are of one time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from domains.language.expressions import Constant, Expression
from domains.language.rewriting import FoldBudget, fold
from domains.language.types import DATETIME, Kind, SqlType
from domains.plan.graph import Parameter
from migrations.parse.reading import children, exp
from migrations.query.expressions.calls import AGGREGATES, DRAWN, asks_time, spelled
from migrations.query.expressions.late import parameter_call, with_values
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope

NOW_NAME = "NOW()"
NOW = parameter_call(f"@{NOW_NAME}", DATETIME, exact=False)
"""The time of the request, to the second."""


@dataclass(frozen=True, slots=True)
class HiddenParameter:
    """A parameter of a view whose value follows from the time of the request."""

    parameter: Parameter
    value: Expression


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of an expression in the order of the text, without identifiers and what is inside its subqueries."""
    pending = [node]
    while pending:
        part = pending.pop()
        yield part
        if not isinstance(part, exp.Query):
            pending += reversed(children(part))


def is_moment(node: exp.Expr) -> bool:
    """Whether an expression is of the time and constants alone."""
    parts = list(own_nodes(node))
    return any(map(asks_time, parts)) and not any(map(_is_other, parts))


def _is_other(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return spelled(node)[0] in AGGREGATES | DRAWN
    return isinstance(node, (exp.Column, exp.Star, exp.Placeholder, exp.Query, exp.AggFunc, exp.Window, exp.Tuple))


def moment_of(node: exp.Expr) -> Expression:
    """The meaning of an expression that is a moment."""
    return fold(scalar(node, Scope(()), Setting(moment=lambda: NOW, place="a moment")), FoldBudget())


@lru_cache(256)
def at_moment(e: Expression, now: str) -> Constant:
    """The value of a moment at a time, ``2026-01-31 08:00:00``."""
    found = with_values(e, {f"@{NOW_NAME}": now})
    assert isinstance(found, Constant), "a moment depends on the time alone"
    return found


_SOUGHT = (
    frozenset((Kind.DATE, Kind.DATETIME)),
    frozenset((Kind.INTEGER, Kind.DECIMAL)),
    frozenset((Kind.TIME,)),
)
"""Kinds that are placed among one another by their own order."""


def is_sought(moment: Expression, columns: Iterable[SqlType]) -> bool:
    """Whether columns compared with a moment may be keys or ranges: the moment has a place among their values."""
    return all(any({moment.type.kind, column.kind} <= kinds for kinds in _SOUGHT) for column in columns)
