"""ABS, ROUND, POW, LN …: functions of numbers.

Rounding follows MySQL: INTEGER and DECIMAL half away from zero, DOUBLE half to even (C's ``rint``). What has no value
(the root of a negative number, an overflow) is NULL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

from domains.errors import Unsupported
from domains.language.exact import EXACT, TOWARDS_ZERO, quantum, rounded
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions.conversion import clamped, converter
from domains.language.functions.source import Emitter, Function, Types, implemented, registry
from domains.language.functions.type_rules import UNSIGNED, numeric_type
from domains.language.types import BIGINT, DOUBLE, TEXT, Kind, SqlType, decimal_type

# ``& | ^ ~ << >>`` over 64 unsigned bits, as in MySQL: a negative operand is its two's complement.

MASK = 2**64 - 1


def _shift_left(x: int, count: int) -> int:
    return (x & MASK) << count & MASK if 0 <= count < 64 else 0


def _shift_right(x: int, count: int) -> int:
    return (x & MASK) >> count if 0 <= count < 64 else 0


def _binary(name: str, implementation: Callable[[int, int], int]) -> Function:
    return implemented(name, [BIGINT, BIGINT], UNSIGNED, implementation)


BITS = registry(
    _binary("bit_and", lambda x, y: x & y & MASK),
    _binary("bit_or", lambda x, y: (x | y) & MASK),
    _binary("bit_xor", lambda x, y: (x ^ y) & MASK),
    _binary("shift_left", _shift_left),
    _binary("shift_right", _shift_right),
    implemented("bit_count", [BIGINT], BIGINT, lambda x: (x & MASK).bit_count()),
    implemented("bit_not", [BIGINT], UNSIGNED, lambda x: ~x & MASK),
)


_MOST_DIGITS = 400
"""ROUND's second argument is cut to this: no DOUBLE has digits that far from the point."""


def _number(type: SqlType) -> SqlType:
    number = numeric_type(type)
    return DOUBLE if number.kind is Kind.NULL else number


def _same(types: Types) -> SqlType:
    number = _number(types[0])
    return BIGINT if number.kind is Kind.INTEGER else number


def _whole(types: Types) -> SqlType:
    """CEIL and FLOOR: exact numbers give integers, a DOUBLE stays one."""
    return DOUBLE if _number(types[0]).kind is Kind.DOUBLE else BIGINT


def _abs(x: float | Decimal) -> float | Decimal:
    return EXACT.abs(x) if isinstance(x, Decimal) else abs(x)


def _ceil(x: float | Decimal) -> float | int:
    return math.ceil(x) + 0.0 if isinstance(x, float) else math.ceil(x)


def _floor(x: float | Decimal) -> float | int:
    return math.floor(x) + 0.0 if isinstance(x, float) else math.floor(x)


def _sign(x: float | Decimal) -> int:
    return (x > 0) - (x < 0)


# --- ROUND and TRUNCATE ---------------------------------------------------------------------------------------------


def _scale_of_result(arguments: tuple[Expression, ...]) -> SqlType:
    """The type of a rounded DECIMAL: the constant number of digits is its scale, at most its own; else it keeps its
    own."""
    type = _same((arguments[0].type,))
    if type.kind is not Kind.DECIMAL:
        return type
    if len(arguments) == 1:
        return decimal_type(0)
    digits = arguments[1]
    if not isinstance(digits, Constant) or digits.value is None:
        return type
    convert = converter(digits.type, BIGINT)
    wanted = digits.value if convert is None else convert(digits.value)
    return decimal_type(min(type.scale, max(0, wanted))) if isinstance(wanted, int) else type


def _scale_unknown(types: Types) -> SqlType:
    return decimal_type(0) if len(types) == 1 and _same(types).kind is Kind.DECIMAL else _same(types)


def round_double(x: float, digits: int, rounding: Callable[[float], int]) -> float:
    """Scaled, rounded and scaled back, as MySQL does it: ROUND(1.15e0, 1) is 1.2 although 1.15 is a little less."""
    power = 10.0 ** abs(digits) if abs(digits) <= 308 else math.inf
    if digits < 0:
        return clamped(rounding(x / power) * power) if power != math.inf else 0.0
    scaled = x * power
    return rounding(scaled) / power + 0.0 if math.isfinite(scaled) else x


def _rounder(kind: Kind, scale: int, *, down: bool) -> Callable[..., Any]:
    if kind is Kind.DOUBLE:
        rounding: Callable[[float], int] = math.trunc if down else round
        return lambda x, digits=0: round_double(x, max(-_MOST_DIGITS, min(digits, _MOST_DIGITS)), rounding)
    mode = ROUND_DOWN if down else ROUND_HALF_UP
    context = TOWARDS_ZERO if down else EXACT

    def exactly(x: int | Decimal, digits: int = 0) -> int | Decimal:
        if isinstance(x, int) and digits >= 0:
            return x
        unit = quantum(max(-_MOST_DIGITS, min(digits, scale)))
        cut = Decimal(x).quantize(unit, mode, context)
        return int(cut) if isinstance(x, int) else rounded(cut, scale)

    return exactly


def _rounding(name: str, arity: tuple[int, int], *, down: bool) -> Function:
    def value(emitter: Emitter, call: Call) -> str:
        type = _same((call.arguments[0].type,))
        rounder = emitter.bind(_rounder(type.kind, type.scale, down=down))
        sources = [emitter.as_type(call.arguments[0], type)]
        sources += [emitter.as_type(e, BIGINT) for e in call.arguments[1:]]
        source = emitter.strict(sources, lambda *names: f"{rounder}({', '.join(names)})")
        return emitter.converted(source, type, call.type)

    return Function(name, arity, _scale_unknown, value, by_target=True, refine=_scale_of_result)


# --- functions of DOUBLE --------------------------------------------------------------------------------------------


def guarded(function: Callable[..., float]) -> Callable[..., float | None]:
    """NULL where the function has no finite value."""

    def call(*arguments: float) -> float | None:
        try:
            result = function(*arguments)
        except (ValueError, OverflowError, ZeroDivisionError):
            return None
        return result + 0.0 if math.isfinite(result) else None

    return call


def _log(*arguments: float) -> float:
    """LOG(x), or LOG(base, x)."""
    if len(arguments) == 1:
        return math.log(arguments[0])
    base, x = arguments
    return math.log(x) / math.log(base)


def _atan(x: float, below: float = 1.0) -> float:
    """ATAN(x), or ATAN(y, x)."""
    return math.atan2(x, below)


# --- numbers as texts -----------------------------------------------------------------------------------------------

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LEADING = re.compile(r"\s*([+-]?)([0-9A-Za-z]*)", re.ASCII)
MOST_DECIMALS = 30


def in_base(number: int, base: int) -> str:
    """A number that is not negative."""
    digits = ""
    while number:
        number, digit = divmod(number, base)
        digits = DIGITS[digit] + digits
    return digits or "0"


def _conv(text: str, given: int, wanted: int) -> str | None:
    """CONV: of the digits that the text begins with; 64 bits, signed where a base is negative."""
    if not text or not 2 <= abs(given) <= 36 or not 2 <= abs(wanted) <= 36:
        return None
    leading = _LEADING.match(text)
    assert leading is not None, "it matches no text, too"
    number = 0
    for digit in leading[2].upper():
        if DIGITS.index(digit) >= abs(given):
            break
        number = number * abs(given) + DIGITS.index(digit)
    low, high = (-(2**63), 2**63 - 1) if given < 0 else (-MASK, MASK)
    number = max(low, min(-number if leading[1] == "-" else number, high)) & MASK
    if wanted < 0 and number >= 2**63:
        return f"-{in_base(2**64 - number, -wanted)}"
    return in_base(number, abs(wanted))


_SIGNS = {"en_us": None, "de_de": str.maketrans(",.", ".,")}
"""By a locale in lower case: what FORMAT has for the comma after thousands and the point."""


def _format(x: int | float | Decimal, decimals: int, locale: str = "en_US") -> str:
    """FORMAT: with a comma after thousands, as in en_US; MySQL takes a locale that it does not know for that, too."""
    decimals = max(0, min(decimals, MOST_DECIMALS))
    if isinstance(x, float):
        text = f"{round_double(x, decimals, round):,.{decimals}f}"
    else:
        text = f"{Decimal(x).quantize(quantum(decimals), ROUND_HALF_UP, EXACT):,f}"
    signs = _SIGNS[locale.lower()]
    return text if signs is None else text.translate(signs)


def _formatted_type(arguments: tuple[Expression, ...]) -> SqlType:
    """:raises Unsupported: the locale is another one, or not known before a row is."""
    locale = arguments[2] if len(arguments) > 2 else None
    if locale is not None and not (isinstance(locale, Constant) and str(locale.value).lower() in _SIGNS):
        raise Unsupported("FORMAT by this locale", hint="'en_US' and 'de_DE' are there, or REPLACE the signs")
    return TEXT


def _pi(emitter: Emitter, _call: Call) -> str:
    return emitter.bind(math.pi)


FUNCTIONS = registry(
    implemented("abs", [_number], _same, _abs),
    implemented("ceil", [_number], _whole, _ceil),
    implemented("floor", [_number], _whole, _floor),
    implemented("sign", [_number], BIGINT, _sign),
    _rounding("round", (1, 2), down=False),
    _rounding("truncate", (2, 2), down=True),
    implemented("pow", [DOUBLE, DOUBLE], DOUBLE, guarded(math.pow)),
    implemented("sqrt", [DOUBLE], DOUBLE, guarded(math.sqrt)),
    implemented("exp", [DOUBLE], DOUBLE, guarded(math.exp)),
    implemented("ln", [DOUBLE], DOUBLE, guarded(math.log)),
    implemented("log", [DOUBLE, DOUBLE], DOUBLE, guarded(_log), optional=1),
    implemented("log2", [DOUBLE], DOUBLE, guarded(math.log2)),
    implemented("log10", [DOUBLE], DOUBLE, guarded(math.log10)),
    *(
        implemented(name, [DOUBLE], DOUBLE, guarded(function))
        for name, function in {
            "sin": math.sin,
            "cos": math.cos,
            "tan": math.tan,
            "cot": lambda x: 1 / math.tan(x),
            "asin": math.asin,
            "acos": math.acos,
            "degrees": lambda x: x * (180 / math.pi),
            "radians": lambda x: x * (math.pi / 180),
        }.items()
    ),
    implemented("atan", [DOUBLE, DOUBLE], DOUBLE, guarded(_atan), optional=1),
    implemented("conv", [TEXT, BIGINT, BIGINT], TEXT, _conv),
    implemented("bin", [TEXT], TEXT, lambda text: _conv(text, 10, 2)),
    implemented("oct", [TEXT], TEXT, lambda text: _conv(text, 10, 8)),
    replace(implemented("format", [_number, BIGINT, TEXT], TEXT, _format, optional=1), refine=_formatted_type),
    Function("pi", (0, 0), lambda _types: DOUBLE, _pi),
)
