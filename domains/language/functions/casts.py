"""CAST: the implicit conversion, then the bounds of the target type, which is the call's own type.

As MySQL's CAST, never an error: integers saturate, a negative number AS UNSIGNED is its two's complement, text is cut
to its length, DECIMAL saturates at its digits, what is no date is NULL, and so are bytes that are no UTF-8 AS CHAR.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

from domains.errors import TypeViolation
from domains.language.collating.collation import OF_TEXTS, Collation, alike
from domains.language.exact import rounded
from domains.language.expressions import Call, Expression, Field
from domains.language.functions.numeric import MASK
from domains.language.functions.source import Emitter, Function, Types, registry
from domains.language.types import BIGINT, TEXT, Kind, SqlType

_SIGN_BIT = 1 << 63


def _unsigned(high: int, value: int) -> int:
    return min(value if value >= 0 else max(value, -_SIGN_BIT) & MASK, high)


def _signed(low: int, high: int, value: int) -> int:
    return max(low, min(value, high))


def _wrapped(low: int, high: int, value: int) -> int:
    """An unsigned INTEGER beyond the sign bit keeps its bits: CAST(18446744073709551615 AS SIGNED) is -1."""
    return _signed(low, high, value - MASK - 1 if _SIGN_BIT <= value <= MASK else value)


def _cut(length: int, value: Any) -> Any:
    return value[:length]


def _saturated(digits: int, scale: int, value: Decimal) -> Decimal:
    most = Decimal((0, (9,) * digits, -scale)) if digits else Decimal(0)
    least = most.copy_negate()  # Not ``-most``, which rounds to 28 digits.
    return rounded(max(least, min(value, most)), scale)


def _bound(source: SqlType, target: SqlType) -> Callable[[Any], Any] | None:
    """A function that keeps a value of the target's kind within the target's bounds."""
    if target.kind is Kind.INTEGER:
        low = BIGINT.low if target.low is None else target.low
        high = BIGINT.high if target.high is None else target.high
        assert low is not None
        assert high is not None
        if low == 0:
            return partial(_unsigned, high)
        return partial(_wrapped if source.kind is Kind.INTEGER else _signed, low, high)
    if target.length is None:
        return None
    if target.kind is Kind.DECIMAL:
        return partial(_saturated, target.length, target.scale)
    return partial(_cut, target.length) if target.kind in (Kind.TEXT, Kind.BLOB) else None


def _within(source: SqlType, target: SqlType) -> bool:
    if source.kind is not target.kind or source.low is None or source.high is None:
        return False
    return target.low is not None and target.high is not None and target.low <= source.low <= source.high <= target.high


def _text_of_bytes(length: int | None, value: bytes) -> str | None:
    try:
        return value.decode()[:length]
    except UnicodeDecodeError:
        return None


def _cast(emitter: Emitter, call: Call) -> str:
    (argument,) = call.arguments
    if argument.type.kind is Kind.BLOB and call.type.kind is Kind.TEXT:
        decode = emitter.bind(partial(_text_of_bytes, call.type.length))
        return emitter.strict([emitter.value(argument)], lambda x: f"{decode}({x})")
    source = emitter.as_type(argument, call.type)
    bound = _bound(argument.type, call.type)
    if bound is None or _is_bounded(argument, call.type):
        return source
    return emitter.strict([source], lambda x: f"{emitter.bind(bound)}({x})")


def _is_bounded(argument: Expression, target: SqlType) -> bool:
    """A base column within the target's bounds needs no test; a computed BIGINT may be beyond its own."""
    return isinstance(argument, Field) and argument.type.name != BIGINT.name and _within(argument.type, target)


def _no_type(_types: Types) -> SqlType:
    raise TypeViolation('function "cast" has no type of its own', hint="give the call the target type")


# A text under another collation is the same text, and no field: a look-up that passes has keys of its column's own.


def _collate(emitter: Emitter, call: Call) -> str:
    return emitter.as_type(call.arguments[0], call.type)


def _alike(collation: Collation) -> Function:
    def value(emitter: Emitter, call: Call) -> str:
        function = emitter.bind(partial(alike, collation=collation))
        return emitter.strict([emitter.as_type(call.arguments[0], TEXT)], lambda x: f"{function}({x})")

    return Function(f"alike_{collation}", (1, 1), lambda _types: TEXT, value)


FUNCTIONS = registry(
    Function("cast", (1, 1), _no_type, _cast, by_target=True),
    Function("collate", (1, 1), lambda types: types[0], _collate, by_target=True),
    *map(_alike, OF_TEXTS),
)
