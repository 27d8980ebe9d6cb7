"""Expressions evaluated while planning: over the one row that a counting query answers where it finds nothing."""

from __future__ import annotations

from collections.abc import Mapping

from domains.compile import compile_expression, compile_predicate
from domains.expressions import Expression
from domains.types import Row, Value
from migrations.query.terms import positions


def value_of(expression: Expression, row: Mapping[int, Value]) -> Value:
    """The expression's value over a row of which only some columns are not NULL."""
    return compile_expression(expression)(_spread(expression, row))


def is_satisfied(predicate: Expression, row: Mapping[int, Value]) -> bool:
    return compile_predicate(predicate)(_spread(predicate, row))


def _spread(expression: Expression, row: Mapping[int, Value]) -> Row:
    width = max(positions(expression), default=-1) + 1
    return tuple(row.get(position) for position in range(width))
