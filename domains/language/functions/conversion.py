"""Implicit conversion between kinds, as MySQL does it: lossy, and never an error.

``converter(source, target)`` gives the function for one pair of types, None where the value can stay as it is. It is
never called with NULL, and may answer NULL (a text that is no date). Text becomes a number by its leading numeric
prefix, ``'12abc'`` is 12 and ``'abc'`` is 0. DOUBLE becomes an integer half to even (C's ``rint``), DECIMAL half up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from domains.errors import Unsupported
from domains.language import documents
from domains.language.durations import document_of_time, integer_of_time, of_moment, of_number, of_text, text_of_time
from domains.language.exact import MAX_DIGITS, rounded, rounded_integer, text_of_decimal, text_of_double
from domains.language.temporal import canonical_date, canonical_datetime, datetime_of_number
from domains.language.types import Kind, SqlType, Value

Converter = Callable[[Any], Value]

_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_INTEGER = re.compile(r"\s*([+-]?)0*([0-9]+)")

MAX_DOUBLE = 1.7976931348623157e308


def clamped(value: float) -> float:
    """A finite DOUBLE without a negative zero; infinities saturate."""
    if -MAX_DOUBLE <= value <= MAX_DOUBLE:
        return value + 0.0
    return MAX_DOUBLE if value > 0 else -MAX_DOUBLE


def double_of_text(text: str) -> float:
    match = _NUMBER.match(text)
    return clamped(float(match[1])) if match else 0.0


def double_of_number(value: int | Decimal) -> float:
    """A DOUBLE of an exact number; intermediate integers have no bounds, so this one may saturate."""
    try:
        return clamped(float(value))
    except OverflowError:
        return MAX_DOUBLE if value > 0 else -MAX_DOUBLE


def integer_of_text(text: str) -> int:
    match = _INTEGER.match(text)
    if match is None:
        return 0
    digits = match[2]
    magnitude = int(digits) if len(digits) <= MAX_DIGITS else 10**MAX_DIGITS - 1
    return -magnitude if match[1] == "-" else magnitude


def number_of_text(text: str) -> int | Decimal:
    """The number that a text begins with, with all its digits; 0 where it begins with none."""
    match = _NUMBER.match(text)
    if match is None:
        return 0
    digits = match[1]
    if len(digits) <= MAX_DIGITS and digits.lstrip("+-").isdigit():
        return int(digits)
    try:
        return Decimal(digits)
    except InvalidOperation:  # An exponent beyond what Decimal holds.
        mantissa, _, exponent = digits.lower().partition("e")
        return (
            0
            if exponent.startswith("-") or not Decimal(mantissa)
            else Decimal(("-" if mantissa.startswith("-") else "") + _HUGE)
        )


_HUGE = "1e999999"
"""Larger than any number of a column, and still one that Decimal compares at once."""


def decimal_of_text(text: str, scale: int) -> Decimal:
    match = _NUMBER.match(text)
    return _saturated(Decimal(match[1]), scale) if match else rounded(0, scale)


def decimal_of_double(value: float, scale: int) -> Decimal:
    return _saturated(Decimal(repr(value)), scale)


def _saturated(value: Decimal, scale: int) -> Decimal:
    """MySQL's DECIMAL holds 65 digits; a text or a DOUBLE beyond them is the greatest there is."""
    if value and value.adjusted() >= MAX_DIGITS:
        value = Decimal((value.is_signed(), (9,) * MAX_DIGITS, 0))
    return rounded(value, scale)


def _number_of_document(text: str) -> int | float | Decimal:
    """The number of a JSON number, string or boolean; 0 of all else."""
    value = documents.value_of(text)
    if isinstance(value, str):
        return number_of_text(value)
    return value if isinstance(value, (int, float, Decimal)) else 0


def integer_of_document(text: str) -> int:
    value = documents.value_of(text)
    if isinstance(value, str):
        return integer_of_text(value)
    number = _number_of_document(text)
    return rounded_integer(number) if isinstance(number, Decimal) else round(number)


def double_of_document(text: str) -> float:
    number = _number_of_document(text)
    return number + 0.0 if isinstance(number, float) else double_of_number(number)


def decimal_of_document(text: str, scale: int) -> Decimal:
    number = _number_of_document(text)
    return decimal_of_double(number, scale) if isinstance(number, float) else _saturated(Decimal(number), scale)


def unquoted(text: str) -> str:
    """The text of a document; of a JSON string the text that it holds."""
    return str(documents.value_of(text)) if text[:1] == '"' else text


def _day_of_document(text: str) -> str | None:
    return canonical_date(unquoted(text))


def _moment_of_document(text: str) -> str | None:
    return canonical_datetime(unquoted(text))


def _time_of_document(text: str) -> timedelta | None:
    return of_text(unquoted(text))


def document_of_moment(text: str) -> str:
    """The form that MySQL gives a DATETIME in JSON: a string with all six digits of the fraction."""
    return f'"{text}{"" if len(text) > 19 else ".000000"}"'


def document_of_text(text: str) -> str | None:
    """A text as a JSON string; NULL where no JSON can hold it."""
    try:
        return documents.string_text(text)
    except documents.NotJson:
        return None


def text_of_blob(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def text_of(value: int | float | str | bytes | Decimal | timedelta) -> str:
    """A canonical value as CONCAT and GROUP_CONCAT show it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return text_of_blob(value)
    if isinstance(value, float):
        return text_of_double(value)
    if isinstance(value, timedelta):
        return text_of_time(value)
    return text_of_decimal(value) if isinstance(value, Decimal) else str(value)


def blob_of_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def integer_of_moment(text: str) -> int:
    """2026-01-31 08:00:00 as 20260131080000; the fraction is dropped."""
    return int(text[:19].translate(_NO_PUNCTUATION))


_NO_PUNCTUATION = str.maketrans("", "", "-: ")


def _date_of_number(value: int) -> str | None:
    text = datetime_of_number(value)
    return None if text is None else text[:10]


def _first_ten(text: str) -> str:
    return text[:10]


def _at_midnight(text: str) -> str:
    return f"{text} 00:00:00"


_DIRECT: dict[tuple[Kind, Kind], Converter] = {
    (Kind.DECIMAL, Kind.INTEGER): rounded_integer,
    (Kind.DOUBLE, Kind.INTEGER): round,
    (Kind.TEXT, Kind.INTEGER): integer_of_text,
    (Kind.DATE, Kind.INTEGER): integer_of_moment,
    (Kind.DATETIME, Kind.INTEGER): integer_of_moment,
    (Kind.INTEGER, Kind.DOUBLE): double_of_number,
    (Kind.DECIMAL, Kind.DOUBLE): double_of_number,
    (Kind.TEXT, Kind.DOUBLE): double_of_text,
    (Kind.INTEGER, Kind.TEXT): str,
    (Kind.DOUBLE, Kind.TEXT): text_of_double,
    (Kind.DECIMAL, Kind.TEXT): text_of_decimal,
    (Kind.BLOB, Kind.TEXT): text_of_blob,
    (Kind.TEXT, Kind.BLOB): blob_of_text,
    (Kind.INTEGER, Kind.DATE): _date_of_number,
    (Kind.DATETIME, Kind.DATE): _first_ten,
    (Kind.TEXT, Kind.DATE): canonical_date,
    (Kind.INTEGER, Kind.DATETIME): datetime_of_number,
    (Kind.DATE, Kind.DATETIME): _at_midnight,
    (Kind.TEXT, Kind.DATETIME): canonical_datetime,
    (Kind.TIME, Kind.INTEGER): integer_of_time,
    (Kind.TIME, Kind.TEXT): text_of_time,
    (Kind.INTEGER, Kind.TIME): of_number,
    (Kind.DOUBLE, Kind.TIME): of_number,
    (Kind.DECIMAL, Kind.TIME): of_number,
    (Kind.TEXT, Kind.TIME): of_text,
    (Kind.DATE, Kind.TIME): of_moment,
    (Kind.DATETIME, Kind.TIME): of_moment,
    (Kind.JSON, Kind.TIME): _time_of_document,
    (Kind.TIME, Kind.JSON): document_of_time,
    (Kind.JSON, Kind.INTEGER): integer_of_document,
    (Kind.JSON, Kind.DOUBLE): double_of_document,
    (Kind.JSON, Kind.DATE): _day_of_document,
    (Kind.JSON, Kind.DATETIME): _moment_of_document,
    (Kind.INTEGER, Kind.JSON): str,
    (Kind.DOUBLE, Kind.JSON): documents.double_text,
    (Kind.DECIMAL, Kind.JSON): text_of_decimal,
    (Kind.TEXT, Kind.JSON): documents.canonical_or_null,
    (Kind.DATE, Kind.JSON): document_of_text,
    (Kind.DATETIME, Kind.JSON): document_of_moment,
}

_TEMPORAL = (Kind.DATE, Kind.DATETIME)
_ARE_TEXT = (*_TEMPORAL, Kind.JSON)

_THROUGH: dict[tuple[Kind, Kind], Kind] = {
    (Kind.BLOB, Kind.INTEGER): Kind.TEXT,
    (Kind.BLOB, Kind.DOUBLE): Kind.TEXT,
    (Kind.BLOB, Kind.DECIMAL): Kind.TEXT,
    (Kind.BLOB, Kind.DATE): Kind.TEXT,
    (Kind.BLOB, Kind.DATETIME): Kind.TEXT,
    (Kind.BLOB, Kind.TIME): Kind.TEXT,
    (Kind.TIME, Kind.BLOB): Kind.TEXT,
    (Kind.TIME, Kind.DOUBLE): Kind.INTEGER,
    (Kind.TIME, Kind.DECIMAL): Kind.INTEGER,
    (Kind.DATE, Kind.DOUBLE): Kind.INTEGER,
    (Kind.DATETIME, Kind.DOUBLE): Kind.INTEGER,
    (Kind.DATE, Kind.DECIMAL): Kind.INTEGER,
    (Kind.DATETIME, Kind.DECIMAL): Kind.INTEGER,
    (Kind.DOUBLE, Kind.DATE): Kind.INTEGER,
    (Kind.DECIMAL, Kind.DATE): Kind.INTEGER,
    (Kind.DOUBLE, Kind.DATETIME): Kind.INTEGER,
    (Kind.DECIMAL, Kind.DATETIME): Kind.INTEGER,
    (Kind.INTEGER, Kind.BLOB): Kind.TEXT,
    (Kind.DOUBLE, Kind.BLOB): Kind.TEXT,
    (Kind.DECIMAL, Kind.BLOB): Kind.TEXT,
    (Kind.DATE, Kind.BLOB): Kind.TEXT,
    (Kind.DATETIME, Kind.BLOB): Kind.TEXT,
    (Kind.JSON, Kind.BLOB): Kind.TEXT,
    (Kind.BLOB, Kind.JSON): Kind.TEXT,
}
"""Pairs that MySQL itself converts in two steps."""


def place_of(type: SqlType) -> Callable[[str], int]:
    """A function from a value of an ENUM or SET to its number: 0 for what is no member."""
    if not type.is_set:
        places = {member: place for place, member in enumerate(type.members, 1)}
        return lambda text: places.get(text, 0)
    bits = {member: 1 << place for place, member in enumerate(type.members)}
    return lambda text: sum({bits.get(member, 0) for member in text.split(",")})


_INDEX = SqlType(Kind.INTEGER, "BIGINT UNSIGNED")


def converter(source: SqlType, target: SqlType) -> Converter | None:
    """A function from a value of ``source`` to the canonical value of ``target``; None if it is that already.

    Declared bounds (integer range, text length) are not applied: that is CAST's and the column's business.
    """
    if Kind.NULL in (source.kind, target.kind):
        return None
    if source.members and target.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE):
        place, further = place_of(source), converter(_INDEX, target)
        return place if further is None else partial(_chain, place, further)
    if target.kind is Kind.DECIMAL:
        return _to_decimal(source, target.scale)
    if source.kind is target.kind or (source.kind in _ARE_TEXT and target.kind is Kind.TEXT):
        return None
    direct = _DIRECT.get((source.kind, target.kind))
    if direct is not None:
        return direct
    refuse_day_of_time(source, target)
    middle = SqlType(_THROUGH[source.kind, target.kind], "")
    first, second = converter(source, middle), converter(middle, target)
    assert second is not None
    return second if first is None else partial(_chain, first, second)


def refuse_day_of_time(source: SqlType, target: SqlType) -> None:
    """:raises Unsupported: a TIME would be one of the current day, as in MySQL, and change with it."""
    if source.kind is Kind.TIME and target.kind in _TEMPORAL:
        raise Unsupported(
            "a TIME as a DATE or DATETIME, which would be that of the current day",
            hint="make a TIME of the other one, with TIME(…), or add it to a day: TIMESTAMP(day, time)",
        )


def _chain(first: Converter, second: Converter, value: Any) -> Value:
    middle = first(value)
    return None if middle is None else second(middle)


def _to_decimal(source: SqlType, scale: int) -> Converter | None:
    if source.kind is Kind.DECIMAL:
        return None if source.scale == scale else partial(rounded, scale=scale)
    if source.kind is Kind.INTEGER:
        return partial(rounded, scale=scale)
    if source.kind is Kind.DOUBLE:
        return partial(decimal_of_double, scale=scale)
    if source.kind is Kind.TEXT:
        return partial(decimal_of_text, scale=scale)
    if source.kind is Kind.JSON:
        return partial(decimal_of_document, scale=scale)
    through = Kind.TEXT if source.kind is Kind.BLOB else Kind.INTEGER
    middle = SqlType(through, "")
    first, second = converter(source, middle), _to_decimal(middle, scale)
    assert first is not None
    assert second is not None
    return partial(_chain, first, second)
