"""What a comparison answers, and what Headrace's predicates answer.

An answer has a character a row: how the row's value stands to what it is compared with (``<``, ``=``, ``>``), and ``N``
where no comparison with it is true. All operators must agree on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from domains.language.coercion import coerce
from domains.language.compile import compile_expression
from domains.language.expressions import Constant, Expression, Field
from domains.language.rewriting import fold
from domains.language.types import SqlType, Value
from migrations.catalog import Catalog
from migrations.parse.reading import parse
from migrations.query.expressions.scalar import scalar
from migrations.query.expressions.scope import Bound, Scope
from migrations.statements.interpret import interpret_one, split
from migrations.statements.statement import CreateTableStatement
from tests.comparisons.matrix import COLUMNS, CONSTANTS, OPERATORS

_SIGNS = {
    (1, 0, 0, 1, 0, 1, 1): "=",
    (0, 1, 1, 1, 0, 0, 0): "<",
    (0, 1, 0, 0, 1, 1, 0): ">",
}
"""By what ``= <> < <= > >= <=>`` are."""
_UNKNOWN = (None,) * (len(OPERATORS) - 1)

Answers = Mapping[str, Sequence[int | None]]
"""By operator: 1, 0 or None for each row."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sides; ``other`` is a constant, or a column."""

    column: str
    other: str

    @property
    def name(self) -> str:
        return f"{self.column} ? {self.other}"


def pairs() -> Iterator[Pair]:
    for column in COLUMNS:
        for constant in CONSTANTS:
            yield Pair(column, constant)
        for other in COLUMNS:
            yield Pair(column, other)


def signs(answers: Answers) -> str:
    """The answer of all operators together."""
    found = ""
    for row in zip(*(answers[operator] for operator in OPERATORS), strict=True):
        is_unknown = row[:-1] == _UNKNOWN and row[-1] is not None
        assert is_unknown or row in _SIGNS, (len(found), row)
        found += "N" if is_unknown else _SIGNS[row]
    return found


# --- Headrace ---------------------------------------------------------------------------------------------------


@cache
def column_type(name: str) -> SqlType:
    (parsed,) = split(f"CREATE TABLE t (k INT PRIMARY KEY, {name} {COLUMNS[name][0]})")
    statement = interpret_one(parsed, Catalog(), (), "2024-01-01 00:00:00")
    assert isinstance(statement, CreateTableStatement)
    return statement.schema.columns[1].type


@cache
def column_values(name: str) -> tuple[Value, ...]:
    """The rows' values, as they are stored; the last is NULL."""
    constants = [constant(text) for text in COLUMNS[name][1]]
    return (*(coerce(each.value, column_type(name)) for each in constants), None)


def constant(text: str) -> Constant:
    found = fold(_expression(text, Scope(())))
    assert isinstance(found, Constant)
    return found


def _expression(text: str, scope: Scope) -> Expression:
    return scalar(parse(f"SELECT {text}")[0].expression.expressions[0], scope)


def _scope(pair: Pair) -> Scope:
    bounds = [Bound("a", pair.column, Field(0, column_type(pair.column)))]
    if pair.other in COLUMNS:
        bounds.append(Bound("b", pair.other, Field(1, column_type(pair.other))))
    return Scope(tuple(bounds))


def rows_of(pair: Pair) -> list[tuple[Value, ...]]:
    ours = column_values(pair.column)
    if pair.other in COLUMNS:
        return [(one, other) for one in ours for other in column_values(pair.other)]
    return [(one,) for one in ours]


@cache
def compiled(pair: Pair) -> str:
    """The answer of the engine's predicates. Cached: comparisons with one another take each of them many times."""
    sides = (f"a.{pair.column}", f"b.{pair.other}" if pair.other in COLUMNS else pair.other)
    rows = rows_of(pair)
    answers = {}
    for operator in OPERATORS:
        holds: Callable[..., Any] = compile_expression(_expression(f"{sides[0]} {operator} {sides[1]}", _scope(pair)))
        answers[operator] = [holds(row) for row in rows]
    return signs(answers)


def column_of(condition: str) -> str:
    """The one column that a condition is about."""
    (name,) = set(re.findall(r"\b[a-z]\b", re.sub(r"'[^']*'", "", condition)))
    return str(name)


def met(condition: str) -> str:
    """What the engine answers for each value of a condition's column."""
    column = column_of(condition)
    scope = Scope((Bound("a", column, Field(0, column_type(column))),))
    holds = compile_expression(_expression(condition, scope))
    return shown([holds((value,)) for value in column_values(column)])


def shown(values: Iterable[Any]) -> str:
    return "".join("N" if value is None else str(value) for value in values)
