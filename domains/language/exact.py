"""DECIMAL arithmetic that never depends on the thread's own decimal context, and numbers as text.

Python's operators on Decimal round to 28 digits; MySQL promises 65. Every DECIMAL result goes through these contexts,
whose precision no product or sum of such numbers reaches, and is rounded half up (away from zero) to its scale.
"""

from __future__ import annotations

from decimal import (
    ROUND_DOWN,
    ROUND_HALF_UP,
    Context,
    Decimal,
    DivisionByZero,
    FloatOperation,
    InvalidOperation,
    Overflow,
)

MAX_SCALE = 30
"""MySQL's own bound on digits after the point."""

MAX_DIGITS = 65
"""MySQL's bound on a DECIMAL's digits; here on those before the point."""

_TRAPS = [InvalidOperation, DivisionByZero, Overflow, FloatOperation]

EXACT = Context(prec=1000, rounding=ROUND_HALF_UP, traps=_TRAPS)
TOWARDS_ZERO = Context(prec=1000, rounding=ROUND_DOWN, traps=_TRAPS)

DIVISION = Context(prec=150, rounding=ROUND_HALF_UP, traps=_TRAPS)
"""65 digits before the point and 34 after it, and enough behind them that rounding twice is rounding once."""


def quantum(scale: int) -> Decimal:
    """``10 ** -scale``, the unit that a DECIMAL of that scale counts in."""
    return Decimal((0, (1,), -scale))


def zero(scale: int) -> Decimal:
    """The one canonical zero of a scale; ``quantize`` alone may give ``-0.00``."""
    return Decimal((0, (0,), -scale))


def rounded(value: Decimal | int, scale: int, context: Context = EXACT) -> Decimal:
    """``value`` with exactly ``scale`` digits after the point."""
    return context.quantize(value, quantum(scale)) or zero(scale)


def rounded_integer(value: Decimal) -> int:
    """The nearest integer, half away from zero."""
    return int(EXACT.to_integral_value(value))


def text_of_double(value: float) -> str:
    """MySQL's spelling: the shortest digits that read back, ``1e20`` beyond 15 places, no ``.0``."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    text = "".join(map(str, digits))
    prefix = "-" if sign else ""
    if point > 15 or point < -14:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        return f"{prefix}{text[0]}{fraction}e{point - 1}"
    if point <= 0:
        return f"{prefix}0.{'0' * -point}{text}" if value else "0"
    if exponent >= 0:
        return prefix + text + "0" * exponent
    return f"{prefix}{text[:point]}.{text[point:]}"


def text_of_decimal(value: Decimal) -> str:
    return format(value, "f")
