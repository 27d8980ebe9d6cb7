"""Digits of a quotient that are computed with and not shown.

``a / b`` of exact numbers shows four digits more than ``a`` has, but MySQL goes on computing with more of them, so that
``1 / 3 * 100`` is 33.3333 and not 33.3300. Here this is decided while expressions are built::

    1 / 3          divide(1, 3)                                        0.3333
    1 / 3 * 100    cast(multiply(quotient(1, 3), 100), 4 digits)      33.3333

A ``quotient`` has all the digits; the cast cuts them off where the expression ends, and is taken off again where it
turns out to be a part of a greater one. What is stored, grouped by, compared or shown as text has the digits shown.
"""

from __future__ import annotations

from domains import functions
from domains.expressions import Call, Constant, Expression
from domains.types import Kind, SqlType

_THROUGH = frozenset(
    "add subtract multiply divide negate modulo int_divide abs sign ceil floor round truncate "  # noqa: SIM905
    "if case coalesce ifnull nullif greatest least pow sqrt exp ln log log2 log10".split()
)
"""Functions that compute with the digits that are not shown."""


def call(name: str, *arguments: Expression) -> Expression:
    """A typed call that computes with its arguments' hidden digits, and hides its own."""
    plain = functions.call(name, *arguments)
    if name not in _THROUGH:
        return plain
    fine = [precise(argument) for argument in arguments]
    if all(a is b for a, b in zip(fine, arguments, strict=True)):
        return plain
    wide = functions.call("quotient" if name == "divide" else name, *fine)
    if name in ("round", "truncate") and isinstance(arguments[-1], Constant):
        return wide  # It has the digits that it is asked for.
    return shown(wide, plain.type)


def precise(e: Expression) -> Expression:
    """The expression with the digits that it hides."""
    if not isinstance(e, Call) or e.type.kind is not Kind.DECIMAL:
        return e
    if e.function == "divide":
        return functions.call("quotient", *e.arguments)
    return e.arguments[0] if _hides(e) else e


def shown(e: Expression, type: SqlType) -> Expression:
    """The expression without the digits that ``type`` does not have."""
    if (e.type.kind, e.type.scale) == (type.kind, type.scale):
        return e
    return functions.call("cast", e, type=type)


def _hides(e: Call) -> bool:
    """Whether it is one of our casts. CAST in a statement has a length."""
    return e.function == "cast" and e.type.length is None and e.arguments[0].type.scale > e.type.scale
