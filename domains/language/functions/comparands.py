"""The rules of comparison: the one place that says how values of two kinds meet in ``=``, ``<`` and their like.

Predicates (``comparison.py``), join keys and IN (SELECT …), the rows that a write looks up, a view's parameters and the
judge's SQL all ask here, so a comparison means the same wherever it is made::

    integer, DECIMAL   integer, DECIMAL    as they are: Python compares the two exactly
    integer, DECIMAL   text, BLOB          the text as the number that it begins with (or 0), exactly
    integer, DECIMAL   DOUBLE              as DOUBLE; but a constant becomes an exact number
    DOUBLE             text, BLOB          as DOUBLE
    text               text                by the collation that ``coercibility.py`` finds: their keys
    text               BLOB                as bytes
    DATE, DATETIME     each other, text    as DATETIME; a text that names no moment is NULL
    TIME               text                as TIME; a text that names no time is NULL
    TIME               number              as numbers: 101112.5 for 10:11:12.5
    DATE, DATETIME     number              as numbers: 20260131 for a day, 20260131080000.5 for a moment
    JSON               anything            as JSON, a text as a JSON string: 1 and 1.0 are equal

Equality by these rules is not transitive: the texts ``'1'`` and ``'01'`` both equal 1, and not each other. So what
stands for a value elsewhere (a key of a join, a look-up by a constant) is made here as well: :func:`keys`,
:func:`comparand`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_FLOOR, Context, Decimal
from functools import lru_cache, partial
from typing import Any

from domains.errors import TypeViolation
from domains.language import documents
from domains.language.collating.coercibility import collated, met
from domains.language.durations import number_of_time, of_number
from domains.language.durations import parsed as parsed_time
from domains.language.exact import EXACT, MAX_SCALE, quantum, zero
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions.conversion import (
    Converter,
    blob_of_text,
    converter,
    document_of_text,
    integer_of_moment,
    number_of_text,
    place_of,
    text_of_blob,
)
from domains.language.functions.source import Emitter, Function, Types, registry
from domains.language.functions.type_rules import comparison_type
from domains.language.temporal import canonical_datetime
from domains.language.types import BIGINT, BLOB, BOOL, DATE, DOUBLE, JSON, Kind, SqlType, Value, decimal_type

_EXACT = frozenset({Kind.INTEGER, Kind.DECIMAL})
_NUMBERS = _EXACT | {Kind.DOUBLE}
_TEXTS = frozenset({Kind.TEXT, Kind.BLOB})
_TEMPORAL = frozenset({Kind.DATE, Kind.DATETIME})

_MIDNIGHT = " 00:00:00"

DIGITS_MAX = 200
"""Digits before the point: more than a column has (65), or a sum or product of columns. A longer number exceeds all of
them, and ``1e999999999`` must not be written out."""

_PLAIN = 2**64
"""Whole numbers below this are taken as they are: 0.3 µs against 3."""

_DOWN = Context(prec=DIGITS_MAX + MAX_SCALE + 1, rounding=ROUND_FLOOR)

_DAYS_BELOW = 10**8
"""A number below this names a day, ``20260131``, as MySQL reads it."""
_MOMENTS_FROM = 10**13
"""A number from here names a moment, ``20260131080000``."""


# --- one pair of values -----------------------------------------------------------------------------------------


@lru_cache(1024)
def comparable(type: SqlType, other: SqlType) -> Converter | None:
    """A function that converts a value of ``type`` for comparison, by Python, with a converted value of ``other``; None
    if values of ``type`` need no conversion."""
    kind, met = type.kind, other.kind
    if Kind.JSON in (kind, met):
        return documents.order_key if kind is Kind.JSON else partial(_chained, document_of(type), documents.order_key)
    if Kind.NULL in (kind, met) or (kind in _EXACT and met in _EXACT):
        return None
    if kind in _EXACT and met in _TEXTS:
        return None
    if type.members and met in _EXACT:
        return place_of(type)
    if kind in _TEXTS and met in _EXACT:
        return number_of_text if kind is Kind.TEXT else _number_of_blob
    if kind is Kind.TIME and met in _NUMBERS:
        return number_of_time
    if met is Kind.TIME and kind in _NUMBERS:
        return partial(_exact_number, kind=Kind.DECIMAL) if kind is Kind.DOUBLE else None
    if kind in _TEMPORAL and met in _NUMBERS:
        return integer_of_moment if kind is Kind.DATE else _number_of_moment
    if kind in _NUMBERS and met in _TEMPORAL:
        return _as_day if met is Kind.DATE else _as_moment
    return converter(type, comparison_type(type, other))


def settled(e: Expression, other: Expression) -> Expression:
    """A constant, converted for comparison with values of ``other``, so that their column needs no conversion: midnight
    becomes a day for a column of days, and a DOUBLE an exact number for a column of exact numbers."""
    if not isinstance(e, Constant):
        return e
    if other.type.kind is Kind.JSON and e.type == BOOL and e.value is not None:
        return Constant("true" if e.value else "false", JSON)
    if other.type.kind is Kind.DATE and isinstance(e.value, str) and e.type.kind is not Kind.DATE:
        moment = canonical_datetime(e.value)
        return Constant(moment[:10], DATE) if moment is not None and moment.endswith(_MIDNIGHT) else e
    if other.type.kind in _EXACT and isinstance(e.value, float) and not isinstance(other, Constant):
        number = _exact_number(e.value, other.type.kind)
        return Constant(number, BIGINT if isinstance(number, int) else decimal_type(MAX_SCALE))
    return e


@lru_cache(256)
def document_of(type: SqlType) -> Converter:
    """A function that makes JSON of a value where JSON is wanted: a text is a string, and no document."""
    if type.kind is Kind.TEXT:
        return document_of_text
    if type.kind is Kind.BLOB:
        return _string_of_blob
    convert = converter(type, JSON)
    return _same if convert is None else convert


def _string_of_blob(value: bytes) -> Value:
    return document_of_text(text_of_blob(value))


def _same(value: Any) -> Value:
    return value  # type: ignore[no-any-return]


def _chained(first: Converter, second: Converter, value: Any) -> Value:
    middle = first(value)
    return None if middle is None else second(middle)


def _number_of_blob(value: bytes) -> int | Decimal:
    return number_of_text(text_of_blob(value))


def _number_of_moment(text: str) -> int | Decimal:
    """2026-01-31 08:00:00.5 as 20260131080000.5."""
    whole = integer_of_moment(text)
    return EXACT.add(Decimal(whole), Decimal(text[19:])) if len(text) > 19 else whole


def _as_day(number: float | Decimal) -> Decimal:
    """A number as it is compared with days: one that names a moment counts the time behind the point."""
    exact = Decimal(_exact_number(number, Kind.DECIMAL))
    return EXACT.scaleb(exact, -6) if exact.copy_abs() >= _MOMENTS_FROM else exact


def _as_moment(number: float | Decimal) -> Decimal:
    """A number as it is compared with moments: one that names a day is that day's midnight."""
    exact = Decimal(_exact_number(number, Kind.DECIMAL))
    return EXACT.scaleb(exact, 6) if exact.copy_abs() < _DAYS_BELOW else exact


def _exact_number(value: float | Decimal, kind: Kind) -> int | Decimal:
    """The value of a DOUBLE for an exact column, as when it is stored there: to integers its value, to DECIMAL its
    shortest digits, so that 0.1 is 0.1."""
    if not isinstance(value, float):
        return value
    return int(value) if kind is Kind.INTEGER and value.is_integer() else Decimal(repr(value))


# --- a constant among a column's values -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Comparand:
    value: Value
    """The greatest value of the column's kind that is not above what was given; None for NULL."""
    exact: bool = True
    """Whether ``value`` equals the given constant."""


def comparand(constant: Constant, type: SqlType) -> Comparand | None:
    """A constant among the values of a column, of whatever range and length: ``7.5`` is behind the integer 7.

    A column's own order and equality then say what SQL's do. None where they cannot: many texts equal one number.
    """
    value, given, kind = constant.value, constant.type.kind, type.kind
    if value is None:
        return Comparand(None)
    if Kind.JSON in (given, kind):
        return None
    if kind in _TEMPORAL:
        return _moment(value, given, kind)
    if kind is Kind.TIME:
        return _time(value, given)
    if given in _TEMPORAL or given is Kind.TIME:
        return None
    if kind is Kind.DOUBLE:
        convert = converter(constant.type, DOUBLE)
        return Comparand(value if convert is None else convert(value))
    if kind in _EXACT:
        number: Any = comparable(constant.type, type)(value) if given in _TEXTS else value  # type: ignore[misc]
        return _floor(_exact_number(number, kind), type)
    if given is kind:
        return Comparand(value)
    if isinstance(value, str) and kind is Kind.BLOB:
        return Comparand(blob_of_text(value))
    return None


def _floor(number: int | Decimal, type: SqlType) -> Comparand:
    if type.kind is Kind.INTEGER and isinstance(number, int) and abs(number) < _PLAIN:
        return Comparand(int(number))
    number = Decimal(number)
    if number and number.adjusted() >= DIGITS_MAX:
        # As good as infinite. Below zero the next value that is not above it is beyond what is compared, too.
        number, beyond = Decimal((int(number < 0), (1,), DIGITS_MAX - 1)), True
    else:
        beyond = False
    scale = 0 if type.kind is Kind.INTEGER else type.scale
    floor = _DOWN.quantize(number, quantum(scale)) or zero(scale)
    return Comparand(int(floor) if type.kind is Kind.INTEGER else floor, not beyond and floor == number)


def _moment(value: Value, given: Kind, kind: Kind) -> Comparand | None:
    if given in _NUMBERS:
        assert isinstance(value, (int, float, Decimal))
        moment = _moment_of_number(value)
        if moment is None:
            return None  # It is compared as a number, which is no day.
    else:
        assert isinstance(value, (str, bytes))
        moment = canonical_datetime(value if isinstance(value, str) else text_of_blob(value))
    if moment is None or kind is Kind.DATETIME:
        return Comparand(moment)
    return Comparand(moment[:10], moment.endswith(_MIDNIGHT))


def _time(value: Value, given: Kind) -> Comparand | None:
    if isinstance(value, timedelta):
        return Comparand(value)
    if isinstance(value, (int, float, Decimal)):
        found = of_number(value) if -_TIMES_BELOW < value < _TIMES_BELOW else None
        equal = found is not None and number_of_time(found) == _exact_number(value, Kind.DECIMAL)
        return Comparand(found) if equal else None  # It is compared as a number, which is no time.
    assert isinstance(value, (str, bytes))
    if given in _TEMPORAL:
        return None
    return Comparand(parsed_time(value if isinstance(value, str) else text_of_blob(value)))


_TIMES_BELOW = 839_00_00
"""The first number beyond those of times."""


def _moment_of_number(number: float | Decimal) -> str | None:
    """The moment whose number this is; None where there is none. :func:`_number_of_moment` leads back."""
    exact = _as_moment(number)
    if not 10**13 <= exact < 10**14:
        return None
    digits = format(EXACT.quantize(exact, quantum(6)), "f")
    return canonical_datetime(digits) if Decimal(digits) == exact else None


# --- keys of joins ----------------------------------------------------------------------------------------------


def keys(left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """What indexes have for the two sides of ``left = right``: of one type, and equal exactly where the two are.

    Where one value alone of a side equals a given one of the other, that side is its own key: a text that meets
    integers is the integer that it names, or NULL, and the integers stay.
    """
    left, right = settled(left, right), settled(right, left)
    if Kind.JSON in (left.type.kind, right.type.kind):
        return Call("json_key", (left,), JSON), Call("json_key", (right,), JSON)
    if left.type.kind is right.type.kind is Kind.TEXT:
        collation = met((left, right), "=")
        return collated(left, collation), collated(right, collation)
    if _is_key(left.type, right.type):
        return left, Call("equal_to", (right,), left.type)
    if _is_key(right.type, left.type):
        return Call("equal_to", (left,), right.type), right
    target = comparison_type(left.type, right.type)
    return _cast(left, target), _cast(right, target)


def _is_key(type: SqlType, other: SqlType) -> bool:
    exact = type.kind in _EXACT and other.kind in _TEXTS
    return exact or (type.kind in (*_TEMPORAL, Kind.TIME) and other.kind in _NUMBERS)


def _cast(e: Expression, target: SqlType) -> Expression:
    """Join columns are compared by kind, and DECIMALs also by scale."""
    same = e.type.kind is target.kind
    if same and (target.kind is not Kind.DECIMAL or e.type.scale == target.scale):
        return e
    return Call("cast", (e,), target)


def is_determined(type: SqlType, other: SqlType) -> bool:
    """Whether one value alone of a type is equal to a given one of another: many a text is 0 as a number."""
    if Kind.JSON in (type.kind, other.kind):
        return False
    times = _TEMPORAL | {Kind.TIME}
    if type.kind in times | _NUMBERS and other.kind in (_NUMBERS if type.kind in times else times):
        return _is_key(type, other)
    if other.kind is Kind.TEXT and other.collation is not None and type.kind is Kind.TEXT and type.collation is None:
        return False
    kind, compared = type.kind, comparison_type(type, other).kind
    if compared is Kind.DOUBLE and kind is Kind.INTEGER:
        return type.low is not None and type.high is not None and max(-type.low, type.high) <= EXACT_IN_DOUBLE
    return kind is compared or (kind, compared) in _EXACTLY or _is_key(type, other)


EXACT_IN_DOUBLE = 2**53
_EXACTLY = {(Kind.INTEGER, Kind.DECIMAL), (Kind.DATE, Kind.DATETIME), (Kind.TEXT, Kind.BLOB)}
"""Kinds of which no two values become one when they are converted."""


def are_alike(one: SqlType, other: SqlType) -> bool:
    """Whether two columns that equal one value equal each other, so that a parameter may be compared with both."""
    kinds = {one.kind, other.kind} - {Kind.NULL}
    if Kind.JSON in kinds or one.collation is not other.collation:
        return False
    return len(kinds) <= 1 or kinds <= _EXACT or kinds <= _TEMPORAL


# --- as functions -----------------------------------------------------------------------------------------------


def equal_value(source: SqlType, target: SqlType, value: Value) -> Value:
    """The value of ``target`` that ``=`` finds equal to one of ``source``; None where there is none."""
    found = comparand(Constant(value, source), target)
    return found.value if found is not None and found.exact else None


def _json_order(emitter: Emitter, call: Call) -> str:
    (argument,) = call.arguments
    convert = emitter.bind(comparable(argument.type, JSON))
    return emitter.strict([emitter.value(argument)], lambda x: f"{convert}({x})")


def _json_key(emitter: Emitter, call: Call) -> str:
    """The one document of all values that are equal as JSON; of such a document it is the document itself."""
    (argument,) = call.arguments
    is_json = argument.type.kind is Kind.JSON
    convert = documents.normal if is_json else partial(_chained, document_of(argument.type), documents.normal)
    return emitter.strict([emitter.value(argument)], lambda x: f"{emitter.bind(convert)}({x})")


def _equal_to(emitter: Emitter, call: Call) -> str:
    (argument,) = call.arguments
    convert = emitter.bind(partial(equal_value, argument.type, call.type))
    return emitter.strict([emitter.value(argument)], lambda x: f"{convert}({x})")


def _looked_up(emitter: Emitter, call: Call) -> str:
    """A column of the row that a table has for a key. The table is a constant: a function of the column and the key."""
    table, column, *key = map(emitter.value, call.arguments)
    return f"{table}({column}, ({''.join(f'{each}, ' for each in key)}))"


def _no_type(_types: Types) -> SqlType:
    raise TypeViolation("this function is of the planner's own", hint="docs/sql.md lists the functions")


FUNCTIONS = registry(
    Function("equal_to", (1, 1), _no_type, _equal_to, by_target=True),
    Function("looked_up", (2, None), _no_type, _looked_up, by_target=True),
    Function("json_order", (1, 1), lambda _types: BLOB, _json_order),
    Function("json_key", (1, 1), lambda _types: JSON, _json_key),
)
