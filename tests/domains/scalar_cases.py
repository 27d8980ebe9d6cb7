"""Evaluating one call in every way that it can be compiled, for the tables of the function tests."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from domains.language.compile import (
    compile_expression,
    compile_filter_batch,
    compile_predicate,
    compile_project_batch,
    fold,
)
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import UNSIGNED, call
from domains.language.types import BIGINT, BLOB, DATE, DATETIME, DOUBLE, NULL, TEXT, Kind, SqlType, Value, decimal_type


class Day(str):
    """A DATE in a table of cases."""


class Moment(str):
    """A DATETIME in a table of cases."""


class Unit(str):
    """A text that must be a constant."""


def dec(text: str) -> Decimal:
    return Decimal(text)


def type_of(value: Value) -> SqlType:
    if value is None:
        return NULL
    if isinstance(value, Decimal):
        return decimal_type(-value.as_tuple().exponent)
    if type(value) is int and value > 2**63 - 1:
        return UNSIGNED
    kinds = {int: BIGINT, float: DOUBLE, bytes: BLOB, Day: DATE, Moment: DATETIME}
    return kinds.get(type(value), TEXT)


def plain(value: Value) -> Value:
    return str(value) if isinstance(value, str) else value


def is_canonical(value: Value, declared: SqlType) -> bool:
    """Whether the value is one that ``types.py`` allows in a column of the type, but for its declared bounds."""
    if value is None:
        return True
    if declared.kind is Kind.DECIMAL:
        return (
            value.__class__ is Decimal
            and value.is_finite()
            and -value.as_tuple().exponent == declared.scale
            and not (value == 0 and value.is_signed())
        )
    if declared.kind is Kind.DOUBLE:
        return value.__class__ is float and value - value == 0.0 and str(value) != "-0.0"
    expected = {Kind.INTEGER: int, Kind.BLOB: bytes, Kind.TIME: timedelta, Kind.NULL: type(None)}.get(
        declared.kind, str
    )
    return value.__class__ is expected


def evaluate(name: str, *values: Value, type: SqlType | None = None) -> Value:
    """The call over a row of the values, and over constants: both must agree and be canonical."""
    row = tuple(plain(v) for v in values)
    constants = [Constant(plain(v), type_of(v)) for v in values]
    fields: list[Expression] = [
        constants[i] if isinstance(v, Unit) else Field(i, type_of(v)) for i, v in enumerate(values)
    ]
    over_row, over_constants = call(name, *fields, type=type), call(name, *constants, type=type)
    result = agreed(over_row, row)
    # A constant argument may make the type narrower (ROUND's digits), never the value different.
    folded = fold(over_constants)
    assert isinstance(folded, Constant), folded
    assert folded.value == result, (folded.value, result)
    assert is_canonical(folded.value, over_constants.type), (folded.value, over_constants.type)
    return folded.value


def agreed(e: Expression, row: tuple[Value, ...]) -> Value:
    """The value of an expression for a row, after every compiled form has given the same."""
    result = compile_expression(e)(row)
    assert is_canonical(result, e.type), (result, e.type)
    batch = [(row, 2)]
    assert compile_project_batch([e])(batch) == [((result,), 2)]
    is_true = compile_predicate(e)(row)
    assert compile_filter_batch(e)(batch) == (batch if is_true else [])
    is_false = compile_predicate(call("not", e))(row)
    truth = compile_expression(call("is_true", e))(row), compile_expression(call("is_false", e))(row)
    assert truth == (int(is_true), int(is_false))
    negated = compile_expression(call("not", e))(row)
    assert negated == (None if result is None else 0 if is_true else 1), (result, is_true, negated)
    assert is_false == (negated == 1)
    assert result is not None or not (is_true or is_false)
    return result
