"""Values from outside become canonical values of their column's type, or a ``TypeViolation`` that says why not.

Values of JSON, DB-API parameters and SQL literals are converted as in MySQL's strict mode: numbers are rounded to
their column (half away from zero), numeric text is a number, but nothing is cut, clipped or guessed. All other code may
rely on the table in ``types.py``.

Writes pass here once a value, so :func:`row_coercer` generates a function whose common case, a value that is canonical
already, is one test in place: about 0.2 µs for a row of two integers and two texts.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache

from domains.errors import TypeViolation
from domains.language import documents, durations
from domains.language.exact import MAX_DIGITS, rounded, text_of_decimal, text_of_double
from domains.language.json_rows import json_encoder, json_value
from domains.language.temporal import canonical_date, canonical_datetime, utc_text
from domains.language.types import BLOB, YEAR, Column, Kind, Row, SqlType, Value

__all__ = ["coerce", "coercer", "exact_number", "json_encoder", "json_value", "named_value", "row_coercer"]

_DECIMAL_TEXT = re.compile(r"[+-]?([0-9]{1,65}(\.[0-9]{0,65})?|\.[0-9]{1,65})")
_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")


def coerce(value: object, type: SqlType, *, column: str = "", from_json: bool = False) -> Value:
    """The canonical value of ``type`` for ``value``; None stays None (NOT NULL is the table's own constraint).

    With ``from_json`` a text for a BLOB is base64, and an object may name the value's own type; otherwise a text stands
    for its UTF-8 bytes.
    """
    if value is None:
        return None
    if from_json and isinstance(value, dict) and type.kind is not Kind.JSON:
        named = named_value(value, column=column)
        value, from_json = value if named is None else named, False
    return _COERCIONS[type.kind](value, type, _Place(column, type, from_json))


def named_value(given: dict[str, object], *, column: str = "") -> bytes | Decimal | None:
    """The value of an object that names a type that JSON lacks: ``{"BLOB": "YWI="}``, ``{"DECIMAL": "0.10"}``.

    None if it is any other object. Raises TypeViolation if the text of a BLOB is not base64.
    """
    match given:
        case {"BLOB": str() as text} if len(given) == 1:
            return _blob(text, BLOB, _Place(column, BLOB, True))
        case {"DECIMAL": str() as text} if len(given) == 1 and _DECIMAL_TEXT.fullmatch(text):
            return Decimal(text)
    return None


def exact_number(value: object, type: SqlType, *, column: str = "") -> int | Decimal:
    """The number to compare a number column with, exactly, whether or not it fits ``type``. In JSON it may be an object
    that names its type.

    Raises TypeViolation if the value is not a number, or not finite.
    """
    if isinstance(value, dict):
        named = named_value(value, column=column)
        value = value if named is None else named
    return _number(value, _Place(column, type, False))


def coercer(type: SqlType, *, column: str = "", from_json: bool = False) -> Callable[[object], Value]:
    """:func:`coerce` for one type, with the canonical case tested first."""
    source = f"def coerce_value(v):\n    return v if v is None or {_test('v', 0, type)} else slowly0(v)"
    names: dict[str, object] = {
        "well_formed": _is_well_formed,
        "slowly0": _slow(type, column, from_json),
        **_bounds(0, type),
    }
    exec(compile(source, "<coercer>", "exec"), names)
    function: Callable[[object], Value] = names["coerce_value"]  # type: ignore[assignment]
    return function


def row_coercer(
    types: Sequence[SqlType], names: Sequence[str], *, from_json: bool = False, ours: bool = False
) -> Callable[[Sequence[object]], Row]:
    """A function from a sequence of values to the canonical row; TypeViolation names the column. ``ours``: a text for
    JSON is a document already, in our own spelling."""
    width = len(types)
    bound: dict[str, object] = {"well_formed": _is_well_formed, "check_width": _width_check(width)}
    lines = ["def coerce_row(row):"]
    lines.append(f"    if len(row) != {width}: check_width(row)")
    if width:
        lines.append(f"    {''.join(f'v{i}, ' for i in range(width))} = row")
    for i, (type, name) in enumerate(zip(types, names, strict=True)):
        bound[f"slowly{i}"] = _slow(type, name, from_json)
        bound.update(_bounds(i, type))
        test = f"type(v{i}) is str" if ours and type.kind is Kind.JSON else _test(f"v{i}", i, type)
        lines.append(f"    if not ({test}) and v{i} is not None: v{i} = slowly{i}(v{i})")
    lines.append(f"    return ({''.join(f'v{i}, ' for i in range(width))})")
    exec(compile("\n".join(lines), "<row coercer>", "exec"), bound)
    function: Callable[[Sequence[object]], Row] = bound["coerce_row"]  # type: ignore[assignment]
    return function


@lru_cache(256)
def json_row_coercer(columns: tuple[Column, ...]) -> Callable[[Sequence[object]], Row]:
    """:func:`row_coercer` for rows of these columns out of our own JSON, in which documents are texts; remembered,
    since a view is read again and again."""
    types = [column.type for column in columns]
    return row_coercer(types, [column.name for column in columns], from_json=True, ours=True)


def _slow(type: SqlType, column: str, from_json: bool) -> Callable[[object], Value]:
    return lambda value: coerce(value, type, column=column, from_json=from_json)


def _width_check(width: int) -> Callable[[Sequence[object]], None]:
    def check(row: Sequence[object]) -> None:
        raise TypeViolation(f"a row of {width} values is expected, not of {len(row)}")

    return check


def _bounds(i: int, type: SqlType) -> dict[str, object]:
    """The names that :func:`_test` uses."""
    canonical = canonical_date if type.kind is Kind.DATE else canonical_datetime
    bounds: dict[str, object] = {
        f"low{i}": type.low,
        f"high{i}": type.high,
        f"length{i}": type.length,
        f"canonical{i}": canonical,
    }
    if type.kind is Kind.TIME:
        bounds |= {"timedelta": timedelta, "longest": durations.LONGEST}
    return {**bounds, f"members{i}": frozenset(type.members)}


def _test(v: str, i: int, type: SqlType) -> str:
    """Source of a test that is true only if ``v`` is canonical; other values are converted by :func:`coerce`."""
    if type.members:
        return "False" if type.is_set else f"type({v}) is str and {v} in members{i}"
    if type.name == YEAR.name:
        return f"type({v}) is int and {FIRST_YEAR} <= {v} <= {LAST_YEAR}"
    if type.kind is Kind.INTEGER:
        low = "" if type.low is None else f"low{i} <= "
        high = "" if type.high is None else f" <= high{i}"
        return f"type({v}) is int" + (f" and {low}{v}{high}" if low or high else "")
    if type.kind is Kind.TEXT:
        length = "" if type.length is None else f" and len({v}) <= length{i}"
        return f"type({v}) is str{length} and ({v}.isascii() or well_formed({v}))"
    if type.kind is Kind.BLOB:
        length = "" if type.length is None else f" and len({v}) <= length{i}"
        return f"type({v}) is bytes{length}"
    if type.kind is Kind.DOUBLE:
        unsigned = "" if type.low is None else f" and {v} > 0.0"
        # Any zero goes the long way, to lose its sign.
        return f"type({v}) is float and {v} - {v} == 0.0 and {v}{unsigned}"
    if type.kind in (Kind.DATE, Kind.DATETIME):
        return f"type({v}) is str and canonical{i}({v}) is {v}"
    if type.kind is Kind.TIME:
        return f"type({v}) is timedelta and -longest <= {v} <= longest"
    return "False"


# --- the long way ---------------------------------------------------------------------------------------------------


class _Place:
    """The destination of a value, for messages."""

    __slots__ = ("column", "from_json", "type")

    def __init__(self, column: str, type: SqlType, from_json: bool) -> None:
        self.column, self.type, self.from_json = column, type, from_json

    def refuse(self, value: object, why: str, hint: str) -> TypeViolation:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        where = f' of column "{self.column}"' if self.column else ""
        return TypeViolation(f"{shown} does not fit type {self.type}{where}: {why}", hint=hint)


def _number(value: object, place: _Place) -> int | Decimal:
    """A finite number that stands in ``value``, exactly."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise place.refuse(value, "it is not a finite number", "use NULL for a missing value")
        return Decimal(repr(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise place.refuse(value, "it is not a finite number", "use NULL for a missing value")
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        try:
            return Decimal(value.strip())
        except InvalidOperation:  # An exponent beyond what Decimal holds.
            raise place.refuse(value, "it is out of range", "give a smaller number") from None
    raise place.refuse(value, "it is not a number", f"give a number, or a text that is one, for {place.type}")


def _bounded_number(value: object, place: _Place) -> int | Decimal:
    """The value as a Decimal; ``1e999999999`` is refused, since its digits would fill the memory."""
    number = _number(value, place)
    if isinstance(number, Decimal):
        if not number or number.adjusted() < -MAX_DIGITS:
            return 0  # Too small to round to anything else.
        if number.adjusted() >= MAX_DIGITS:
            raise place.refuse(value, "it is out of range", "give a smaller number or declare a wider type")
    return number


def _integer(value: object, type: SqlType, place: _Place) -> int:
    if type.name == YEAR.name:
        return _year(value, place)
    number = _bounded_number(value, place)
    if isinstance(number, Decimal):
        number = int(number.to_integral_value(ROUND_HALF_UP))
    low, high = type.low, type.high
    if (low is not None and number < low) or (high is not None and number > high):
        raise place.refuse(value, f"it is out of range ({low} to {high})", "declare a wider integer type")
    return number


def _year(value: object, place: _Place) -> int:
    """1901 to 2155, or 0; of two digits 00 to 69 are after 1999, but the number 0 is the year 0000."""
    number = _bounded_number(value, place)
    year = number if isinstance(number, int) else int(number.to_integral_value(ROUND_HALF_UP))
    if 0 < year < 100 or (year == 0 and isinstance(value, str) and len(value.strip()) < 3):
        year += 2000 if year < 70 else 1900
    if year and not FIRST_YEAR <= year <= LAST_YEAR:
        raise place.refuse(value, f"it is no year from {FIRST_YEAR} to {LAST_YEAR}", "declare SMALLINT for others")
    return year


FIRST_YEAR, LAST_YEAR = 1901, 2155
"""The bounds of a column of type YEAR, as in MySQL."""


def _double(value: object, type: SqlType, place: _Place) -> float:
    try:
        number = float(value) if isinstance(value, float) else float(_number(value, place))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise place.refuse(value, "it is not a finite number", "use NULL for a missing value")
    _check_sign(value, number, type, place)
    return number + 0.0


def _check_sign(value: object, number: float | Decimal, type: SqlType, place: _Place) -> None:
    if type.low is not None and number < type.low:
        raise place.refuse(value, "it is less than 0", "declare the type without UNSIGNED")


def _decimal(value: object, type: SqlType, place: _Place) -> Decimal:
    number = _bounded_number(value, place)
    digits = type.length or MAX_DIGITS
    if isinstance(number, int) and abs(number) >= 10**MAX_DIGITS:
        raise place.refuse(value, "it is out of range", f"at most {digits} digits fit")
    result = rounded(number, type.scale)
    if result and result.adjusted() >= digits - type.scale:
        raise place.refuse(value, "it is out of range", f"at most {digits - type.scale} digits fit before the point")
    _check_sign(value, result, type, place)
    return result


def _plain_text(value: object, place: _Place) -> str:
    """The text of any scalar, spelt as SQL spells it."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode("utf-8")
        except UnicodeDecodeError:
            raise place.refuse(value, "it is not UTF-8 text", "use a BLOB column for binary data") from None
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, (float, Decimal)):
        number = _number(value, place)
        return text_of_double(float(value)) if isinstance(value, float) else text_of_decimal(Decimal(number))
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, date):
        return str(value)
    if isinstance(value, timedelta):
        return durations.text_of_time(value)
    raise place.refuse(value, "it is not a scalar value", "give text, a number or NULL")


def _text(value: object, type: SqlType, place: _Place) -> str:
    if type.members:
        return _chosen(value, type, place) if type.is_set else _member(value, type, place)
    text = _plain_text(value, place)
    if type.length is not None and len(text) > type.length:
        raise place.refuse(value, f"it has {len(text)} characters", f"at most {type.length} characters fit")
    if not text.isascii() and not _is_well_formed(text):
        raise place.refuse(value, "it holds an unpaired surrogate", "send well-formed Unicode")
    return text


def _member(value: object, type: SqlType, place: _Place) -> str:
    """A member's name; a number, or a text that is one and no name, is a member's place."""
    text = _plain_text(value, place)
    if text in type.members:
        return text
    if text.isdecimal() and len(text) < 6 and 1 <= int(text) <= len(type.members):
        return type.members[int(text) - 1]
    raise place.refuse(value, "it is none of its members", "give one of them as it is written")


def _chosen(value: object, type: SqlType, place: _Place) -> str:
    """Names of members with commas between them; a number, or a text that is one and no name, has a bit for each."""
    text = _plain_text(value, place)
    chosen = set(text.split(",")) if text else set()
    if not chosen <= set(type.members):
        if not text.isdecimal() or len(text) > 20 or int(text) >= 1 << len(type.members):
            raise place.refuse(value, "it is not made of its members", "give members, with commas between them")
        chosen = {member for at, member in enumerate(type.members) if int(text) >> at & 1}
    return ",".join([member for member in type.members if member in chosen])


def _is_well_formed(text: str) -> bool:
    """JSON can write half of a surrogate pair, UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _blob(value: object, type: SqlType, place: _Place) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    elif isinstance(value, str) and place.from_json:
        try:
            data = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise place.refuse(value, "it is not base64", "binary values are base64 text in JSON") from None
    else:
        data = _plain_text(value, place).encode("utf-8", "surrogatepass")
    if type.length is not None and len(data) > type.length:
        raise place.refuse(value, f"it has {len(data)} bytes", f"at most {type.length} bytes fit")
    return data


def _moment(value: object, place: _Place, canonical: Callable[[str], str | None], form: str) -> str:
    text: str | None = None
    if isinstance(value, (str, datetime, date)):
        try:
            text = canonical(_plain_text(value, place))
        except OverflowError:  # An offset carries it out of the years 1 to 9999.
            text = None
    if text is None:
        raise place.refuse(value, f"it is not a valid {place.type.kind.lower()}", f"write it like {form}")
    return text


def _date(value: object, _type: SqlType, place: _Place) -> str:
    return _moment(value, place, canonical_date, "'2026-01-31'")


def _datetime(value: object, _type: SqlType, place: _Place) -> str:
    return _moment(value, place, canonical_datetime, "'2026-01-31 08:00:00'")


def _time(value: object, _type: SqlType, place: _Place) -> timedelta:
    if isinstance(value, time) and value.tzinfo is None:
        value = value.isoformat()
    found: timedelta | None = None
    if isinstance(value, timedelta):
        found = value
    elif isinstance(value, datetime) and value.tzinfo is None:
        found = durations.of_moment(str(value))
    elif isinstance(value, str):
        found = durations.parsed(value)
    elif isinstance(value, (int, float, Decimal)):
        number = _number(value, place)
        found = durations.of_number(number) if -_TIMES_BELOW < number < _TIMES_BELOW else None
    if found is None:
        raise place.refuse(value, "it is not a valid time", "write it like '10:11:12' or '-838:59:59.5'")
    if not -durations.LONGEST <= found <= durations.LONGEST:
        raise place.refuse(value, "it is out of range", "a TIME is at most 838:59:59")
    return found


_TIMES_BELOW = 839_00_00
"""The first number beyond those of times."""


def _json(value: object, _type: SqlType, place: _Place) -> str:
    """A text is JSON text; other values of Python and JSON are what they are."""
    try:
        if isinstance(value, (str, bytes, bytearray, memoryview)):
            return documents.canonical(_plain_text(value, place))
        if isinstance(value, (date, datetime, timedelta)):
            return documents.string_text(_plain_text(value, place))
        return documents.text_of_value(value)
    except documents.NotJson as error:
        hint = "give JSON text, in which a string has double quotes; or the value itself, if it is no text"
        raise place.refuse(value, f"it is not JSON: {error}", hint) from None


def _null(value: object, _type: SqlType, place: _Place) -> None:
    raise place.refuse(value, "only NULL has this type", "give NULL")


_COERCIONS: dict[Kind, Callable[[object, SqlType, _Place], Value]] = {
    Kind.INTEGER: _integer,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.TEXT: _text,
    Kind.BLOB: _blob,
    Kind.DATE: _date,
    Kind.DATETIME: _datetime,
    Kind.TIME: _time,
    Kind.JSON: _json,
    Kind.NULL: _null,
}
