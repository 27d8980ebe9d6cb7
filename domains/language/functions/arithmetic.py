"""``+ - * / DIV % -``: exact for INTEGER and DECIMAL, finite for DOUBLE, NULL for division by zero.

INTEGER results are exact Python integers, also beyond 64 bits (MySQL refuses them; a column that they are written to
does too). What passes MySQL's 65 digits is NULL, so that stacked views cannot grow numbers without end, and so is a
DOUBLE that overflows. DECIMAL scales: the greater one for ``+ - %``, the sum for ``*`` (at most
30), the left one plus four for ``/`` (INTEGER counts as scale 0). ``quotient`` is a ``/`` that is computed with
further: it has more digits, and is cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from functools import partial
from typing import Any

from domains.language.exact import (
    DIVISION,
    EXACT,
    MAX_DIGITS,
    MAX_SCALE,
    TOWARDS_ZERO,
    quantum,
    rounded,
    zero,
)
from domains.language.expressions import Call
from domains.language.functions.source import Emitter, Function, Types, registry
from domains.language.functions.type_rules import capped_decimal, numeric_type, quotient_scale
from domains.language.types import BIGINT, DOUBLE, Kind, SqlType, Value

_LIMIT = 10**MAX_DIGITS


def _operand_type(types: Types) -> SqlType:
    """The widest kind among the operands; a DECIMAL with the greatest scale."""
    numbers = [t for t in map(numeric_type, types) if t.kind is not Kind.NULL]
    if any(t.kind is Kind.DOUBLE for t in numbers):
        return DOUBLE
    if any(t.kind is Kind.DECIMAL for t in numbers):
        return capped_decimal(max(t.scale for t in numbers))
    return BIGINT


def _product_type(types: Types) -> SqlType:
    widest = _operand_type(types)
    return capped_decimal(sum(t.scale for t in types)) if widest.kind is Kind.DECIMAL else widest


def _quotient_type(types: Types) -> SqlType:
    widest = _operand_type(types)
    return DOUBLE if widest.kind is Kind.DOUBLE else capped_decimal(numeric_type(types[0]).scale + 4)


def _fine_quotient_type(types: Types) -> SqlType:
    if _operand_type(types).kind is Kind.DOUBLE:
        return DOUBLE
    return capped_decimal(quotient_scale(*(numeric_type(t).scale for t in types)))


def finite(source: str, name: str) -> str:
    """A DOUBLE, or NULL where it overflowed: only a finite number minus itself is zero. ``+ 0.0`` ends a -0.0."""
    return f"({name} if ({name} := {source} + 0.0) - {name} == 0.0 else None)"


def _operands(emitter: Emitter, call: Call, kind: Kind) -> list[str]:
    if kind is Kind.DOUBLE:
        return [emitter.as_type(a, DOUBLE) for a in call.arguments]
    return [emitter.number(a) for a in call.arguments]


def _ring(name: str, symbol: str, exactly: Callable[..., Decimal], result: Callable[[Types], SqlType]) -> Function:
    """``+``, ``-`` and ``*``, inlined for INTEGER and DOUBLE."""

    def value(emitter: Emitter, call: Call) -> str:
        types = tuple(a.type for a in call.arguments)
        kind = result(types).kind

        def body(x: str, y: str) -> str:
            if kind is Kind.INTEGER:
                return f"{x} {symbol} {y}" if name != "multiply" else _bounded(emitter, f"{x} * {y}")
            if kind is Kind.DOUBLE:
                return finite(f"{x} {symbol} {y}", emitter.temporary())
            chosen = _multiplier(types, result(types).scale) if name == "multiply" else exactly
            return f"{emitter.bind(chosen)}({x}, {y})"

        return emitter.strict(_operands(emitter, call, kind), body)

    return Function(name, (2, 2), result, value)


def _bounded(emitter: Emitter, source: str) -> str:
    name = emitter.temporary()
    return f"({name} if {emitter.bind(-_LIMIT)} < ({name} := {source}) < {emitter.bind(_LIMIT)} else None)"


def _multiplier(types: Types, scale: int) -> Callable[[Any, Any], Decimal | None]:
    """Only a product whose scales exceed the cap is rounded; ``-0.00`` becomes ``0.00``."""
    multiply, nought = EXACT.multiply, zero(scale)
    is_cut = sum(t.scale for t in types) > MAX_SCALE

    def product(x: Decimal | int, y: Decimal | int) -> Decimal | None:
        exact = multiply(x, y)
        if exact.adjusted() >= MAX_DIGITS:
            return None
        return rounded(exact, scale) if is_cut else exact or nought

    return product


def _dividing(name: str, result: Callable[[Types], SqlType], implementation: Callable[[SqlType], Any]) -> Function:
    """``/``, ``DIV`` and ``%``: a function chosen by the operands' type; it answers None for a zero divisor."""

    def value(emitter: Emitter, call: Call) -> str:
        types = tuple(a.type for a in call.arguments)
        widest = _operand_type(types)
        chosen = implementation(result(types) if name in ("divide", "quotient") else widest)
        operands = _operands(emitter, call, Kind.DECIMAL if name == "int_divide" else widest.kind)
        return emitter.strict(operands, lambda x, y: f"{emitter.bind(chosen)}({x}, {y})")

    return Function(name, (2, 2), result, value)


def _quotient(result: SqlType, context: Context = EXACT) -> Callable[[Any, Any], Value]:
    if result.kind is Kind.DOUBLE:
        return divide_doubles
    unit, nought = quantum(result.scale), zero(result.scale)

    def divide(x: Decimal | int, y: Decimal | int) -> Decimal | None:
        if not y:
            return None
        quotient = DIVISION.divide(x, y)
        return context.quantize(quotient, unit) or nought if quotient.adjusted() < MAX_DIGITS else None

    return divide


def divide_doubles(x: float, y: float) -> float | None:
    if not y:
        return None
    quotient = x / y + 0.0
    return quotient if math.isfinite(quotient) else None


def divide_integers(x: int, y: int) -> int | None:
    """Towards zero, unlike Python's ``//``."""
    if not y:
        return None
    return x // y if (x < 0) is (y < 0) else -(-x // y)


def _integer_quotient(result: SqlType) -> Callable[[Any, Any], int | None]:
    return divide_integers if result.kind is Kind.INTEGER else _divide_exactly


def _divide_exactly(x: float | Decimal | int, y: float | Decimal | int) -> int | None:
    """Through fractions of integers, so that no digit is lost before the cut. A DOUBLE counts as the digits that it
    shows, as in MySQL: 0.3e0 DIV 0.1e0 is 3, though as binary fractions it is less."""
    if not y:
        return None
    (a, b), (c, d) = (
        (Decimal(repr(number)) if isinstance(number, float) else number).as_integer_ratio() for number in (x, y)
    )
    quotient = divide_integers(a * d, b * c)
    return quotient if quotient is not None and -_LIMIT < quotient < _LIMIT else None


def modulo_integers(x: int, y: int) -> int | None:
    """The remainder, which has the sign of the dividend."""
    if not y:
        return None
    rest = abs(x) % abs(y)
    return -rest if x < 0 else rest


def _modulo(result: SqlType) -> Callable[[Any, Any], Value]:
    if result.kind is Kind.INTEGER:
        return modulo_integers
    if result.kind is Kind.DOUBLE:
        return lambda x, y: math.fmod(x, y) + 0.0 if y else None
    scale = result.scale
    return lambda x, y: rounded(TOWARDS_ZERO.remainder(x, y), scale) if y else None


def _negate(emitter: Emitter, call: Call) -> str:
    kind = _operand_type((call.arguments[0].type,)).kind

    def body(x: str) -> str:
        if kind is Kind.DECIMAL:
            return f"{emitter.bind(EXACT.minus)}({x})"
        return f"0.0 - {x}" if kind is Kind.DOUBLE else f"-{x}"

    return emitter.strict(_operands(emitter, call, kind), body)


FUNCTIONS = registry(
    _ring("add", "+", EXACT.add, _operand_type),
    _ring("subtract", "-", EXACT.subtract, _operand_type),
    _ring("multiply", "*", EXACT.multiply, _product_type),
    _dividing("divide", _quotient_type, _quotient),
    _dividing("quotient", _fine_quotient_type, partial(_quotient, context=TOWARDS_ZERO)),
    _dividing("int_divide", lambda _types: BIGINT, _integer_quotient),
    _dividing("modulo", _operand_type, _modulo),
    _dividing("mod", _operand_type, _modulo),
    Function("negate", (1, 1), _operand_type, _negate),
)
