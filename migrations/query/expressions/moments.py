"""The time of a request in a view: a parameter that whoever binds a look-up fills in, and no client gives.

An expression of NOW() and constants alone is a *moment*: one value for each time. Compared with a column it is a key or
the range of one, as ``column > ?`` is, and anywhere else it is applied when the view is read::

    created > NOW() - INTERVAL 1 DAY    =    created > ?      where ? is that of the request's time t
    TIMESTAMPDIFF(DAY, created, NOW())  =    f(created, ?)    where ? is t

So no node of the dataflow and no reader depends on the time, and each answer is that of the same query with the moment
as a literal. All moments of a look-up are of one time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant, Expression
from domains.language.rewriting import FoldBudget, fold
from domains.language.types import DATETIME, TEXT, Kind, SqlType, Value
from domains.plan.graph import Parameter
from migrations.parse.policies import CLAIM, is_claim
from migrations.parse.reading import children, exp, text_of
from migrations.query.expressions.calls import AGGREGATES, DRAWN, asks_time, spelled
from migrations.query.expressions.late import (
    ANY_INTEGER,
    PARAMETER,
    key_of,
    parameter_call,
    type_beside,
    with_values,
)
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
    claim: str = ""
    """The name of the claim that is its value instead: see :func:`claim_call`."""


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
        return spelled(node)[0] in AGGREGATES | DRAWN or is_claim(node)
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


# A claim is such a parameter, too: what is known of the user for whom a request comes, who need not be the client.
#
# It is a whole number or a text, as the column is that it is compared with; a claim that is absent, or another thing,
# is NULL. No number equals a text that is not written as that number is, and so no two subjects are one user.


def is_claimed(type: SqlType) -> bool:
    """Whether values of a type are compared with claims."""
    return type.kind in (Kind.INTEGER, Kind.TEXT, Kind.NULL)


def claim_call(node: exp.Expr, type: SqlType) -> tuple[Call, str]:
    """The call that stands for ``CURRENT_CLAIM('sub')`` beside values of a type, and its name.

    :raises Unsupported: claims are not compared with such values.
    """
    if not is_claimed(type):
        raise Unsupported(
            f"{text_of(node)} beside {type}", hint="a claim is compared with a whole number or a text: CAST the column"
        )
    wanted = ANY_INTEGER if type.kind is Kind.INTEGER else TEXT
    name = f"{CLAIM}('{node.expressions[0].name}') AS {wanted.kind.value}"
    return parameter_call(f"@{name}", wanted), name


def claim_beside(node: exp.Expr, translate: Callable[[exp.Expr], Expression]) -> tuple[Call, str]:
    """The same where it is no comparison with a column: ``CURRENT_CLAIM('role') IN ('editor', 'owner')``."""
    return claim_call(node, type_beside(node, translate))


def claim_of(moment: Expression) -> str:
    """The claim whose call it is; "" where it is none."""
    key = key_of(moment) if isinstance(moment, Call) and moment.function == PARAMETER else ""
    begins = f"@{CLAIM}('"
    return key[len(begins) : key.rindex("') AS ")] if key.startswith(begins) else ""


_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_UNPAIRED = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs, which JSON can write and no text has."""


def claim_value(given: Any, type: SqlType) -> Value:
    """What is claimed, as a value of a type; None where it is none."""
    if isinstance(given, bool):
        given = int(given)
    if type.kind is Kind.INTEGER:
        if isinstance(given, str) and _NUMBER.fullmatch(given):
            given = int(given)
        return given if isinstance(given, int) and abs(given) < 2**63 else None
    if isinstance(given, int):
        return str(given) if abs(given) < 2**63 else None
    return given if isinstance(given, str) and (given.isascii() or not _UNPAIRED.search(given)) else None
