"""Values of one type as those of another, in Spark's words; and the Spark types that stand for ours.

INTEGER is BIGINT (DECIMAL(20,0) where it is unsigned), DECIMAL of scale s is DECIMAL(20+s, s): twenty digits before the
point hold any integer, and leave room for those behind it that a product or a quotient needs before it is rounded.
TIME is the BIGINT of its microseconds. What does not fit fails the query (ANSI mode) and is never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import assert_never

from domains.errors import Unsupported
from domains.language.durations import HOUR, MINUTE, SECOND, micros_of
from domains.language.functions import comparison_type
from domains.language.types import BIGINT, Kind, SqlType, Value

DIGITS = 38
"""The most digits of Spark's DECIMAL."""
WHOLE_DIGITS = 20

_NUMBER = r"^\\s*([+-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_INTEGER = r"^\\s*([+-]?[0-9]+)"


def spark_type(type: SqlType) -> str:
    """The Spark type that values of ``type`` have in a query's text."""
    match type.kind:
        case Kind.INTEGER:
            return "DECIMAL(20,0)" if type.high is not None and type.high >= 2**63 else "BIGINT"
        case Kind.DECIMAL:
            return decimal(type.scale)
        case Kind.DOUBLE:
            return "DOUBLE"
        case Kind.TEXT | Kind.JSON:
            return "STRING"
        case Kind.BLOB:
            return "BINARY"
        case Kind.DATE:
            return "DATE"
        case Kind.DATETIME:
            return "TIMESTAMP_NTZ"
        case Kind.TIME | Kind.NULL:
            return "BIGINT"


def decimal(scale: int, whole: int = WHOLE_DIGITS) -> str:
    """Raises Unsupported where Spark has not so many digits."""
    if scale > DIGITS - 8:
        raise Unsupported(f"a DECIMAL with {scale} digits after the point, which Spark does not compute exactly")
    return f"DECIMAL({min(DIGITS, whole + scale)},{scale})"


def quoted(text: str) -> str:
    """A text literal; Spark reads backslashes in it as MySQL does."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\0", "\\0")
    return f"'{escaped}'"


def literal(value: Value, type: SqlType) -> str:
    if value is None:
        return f"CAST(NULL AS {spark_type(type)})"
    if isinstance(value, Decimal):
        return f"CAST({quoted(format(value, 'f'))} AS {decimal(type.scale)})"
    if isinstance(value, int):
        if not -(2**63) < value < 2**63:
            return f"CAST('{value}' AS DECIMAL(38,0))"
        return f"{value}L" if value >= 0 else f"({value}L)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, timedelta):
        return literal(micros_of(value), BIGINT)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if type.kind is Kind.DATE:
        return f"DATE{quoted(value)}"
    if type.kind is Kind.DATETIME:
        return f"TIMESTAMP_NTZ{quoted(value)}"
    return quoted(value)


def converted(text: str, source: SqlType, target: SqlType) -> str:
    """A value of ``source`` as one of ``target``, as MySQL converts where two types meet.

    :raises Unsupported: Spark has no way to say it.
    """
    if source.kind is Kind.NULL:
        return f"CAST({text} AS {spark_type(target)})"
    if source.members and target.kind in _NUMBERS:
        raise Unsupported("ENUM and SET as numbers, which Spark has not")
    if target.kind is Kind.NULL or (source.kind is target.kind and source.kind is not Kind.DECIMAL):
        return text
    if source.kind is Kind.DECIMAL and target.kind is Kind.DECIMAL:
        return text if source.scale == target.scale else f"CAST({text} AS {decimal(target.scale)})"
    made = _MADE.get(target.kind)
    found = None if made is None else made(text, source, target)
    if found is None:
        raise Unsupported(f"{source.kind} as {target.kind}, which Spark writes otherwise")
    return found


def refuse_told_apart(types: Iterable[SqlType]) -> None:
    """:raises Unsupported: values of these types are told apart otherwise than as Spark compares its own."""
    if any(type.kind is Kind.JSON for type in types):
        raise Unsupported("JSON told apart by value, which Spark compares as text")


_EXACT = (Kind.INTEGER, Kind.DECIMAL)
_NUMBERS = (*_EXACT, Kind.DOUBLE)
_TEXTS = (Kind.TEXT, Kind.BLOB)
_TEMPORAL = (Kind.DATE, Kind.DATETIME)

_SCALE_COMPARED = 18
"""Digits behind the point of a text that is compared with an exact number; twenty before it are left."""


def compared_with(text: str, type: SqlType, other: SqlType) -> str:
    """A value of ``type`` where it is compared with one of ``other`` (``domains/language/functions/comparands.py``).

    :raises Unsupported: Spark has no way to say it.
    """
    kind, met = type.kind, other.kind
    if Kind.JSON in (kind, met):
        raise Unsupported("a comparison of JSON, which Spark has not")
    if type.members and met in _NUMBERS:
        raise Unsupported("ENUM and SET as numbers, which Spark has not")
    times = (*_TEMPORAL, Kind.TIME)
    if (kind in times and met in _NUMBERS) or (kind in _NUMBERS and met in times):
        raise Unsupported(f"{kind} compared with {met}, which Spark does otherwise")
    if kind in _EXACT and met in (*_EXACT, *_TEXTS):
        return text  # Numbers of different scales are compared as they are: exactly.
    if kind in _TEXTS and met in _EXACT:
        return _exact_number(text if kind is Kind.TEXT else f"decode({text}, 'UTF-8')")
    return converted(text, type, comparison_type(type, other))


def _exact_number(text: str) -> str:
    """The number that a text begins with. One that does not fit fails the query, and is never rounded."""
    number = f"COALESCE(NULLIF(regexp_extract({text}, '{_NUMBER}', 1), ''), '0')"
    fits = f"{number} RLIKE '^[+-]?[0-9]{{0,{WHOLE_DIGITS}}}([.][0-9]{{0,{_SCALE_COMPARED}}})?$'"
    held = f"CAST({number} AS DECIMAL({DIGITS},{_SCALE_COMPARED}))"
    fails = f"CAST(raise_error('a text has more digits than are compared') AS DECIMAL({DIGITS},{_SCALE_COMPARED}))"
    return f"CASE WHEN {text} IS NULL THEN NULL WHEN {fits} THEN {held} ELSE {fails} END"


def exact_literal(value: int | Decimal) -> str:
    """A number with the digits that it has, whatever its column's.

    :raises Unsupported: Spark's DECIMAL cannot hold it.
    """
    number = Decimal(value)
    places = max(0, -int(number.as_tuple().exponent))
    if not -DIGITS < number.adjusted() < DIGITS - places or places > DIGITS:
        raise Unsupported("a number with more digits than Spark compares")
    digits = format(number, "f")
    return literal(value, BIGINT) if isinstance(value, int) else f"CAST({quoted(digits)} AS DECIMAL({DIGITS},{places}))"


def _integer(text: str, source: SqlType, target: SqlType) -> str | None:
    match source.kind:
        case Kind.DECIMAL:
            return f"CAST(round({text}, 0) AS BIGINT)"
        case Kind.DOUBLE:
            return f"CAST(rint({text}) AS BIGINT)"
        case Kind.TEXT:
            digits = f"NULLIF(regexp_extract({text}, '{_INTEGER}', 1), '')"
            return f"IF({text} IS NULL, NULL, CAST(COALESCE({digits}, '0') AS BIGINT))"
        case Kind.DATE:
            return f"CAST(date_format({text}, 'yyyyMMdd') AS BIGINT)"
        case Kind.DATETIME:
            return f"CAST(date_format({text}, 'yyyyMMddHHmmss') AS BIGINT)"
        case Kind.TIME:
            return _number_of_time(text)
        case Kind.INTEGER | Kind.BLOB | Kind.JSON | Kind.NULL:
            return None
        case _:
            assert_never(source.kind)


def _double(text: str, source: SqlType, target: SqlType) -> str | None:
    match source.kind:
        case Kind.INTEGER | Kind.DECIMAL:
            return f"CAST({text} AS DOUBLE)"
        case Kind.TEXT:
            number = f"NULLIF(regexp_extract({text}, '{_NUMBER}', 1), '')"
            return f"IF({text} IS NULL, NULL, CAST(COALESCE({number}, '0') AS DOUBLE))"
        case Kind.DATE | Kind.DATETIME | Kind.TIME:
            return f"CAST({_integer(text, source, target)} AS DOUBLE)"
        case Kind.DOUBLE | Kind.BLOB | Kind.JSON | Kind.NULL:
            return None
        case _:
            assert_never(source.kind)


def _decimal(text: str, source: SqlType, target: SqlType) -> str | None:
    match source.kind:
        case Kind.INTEGER:
            return f"CAST({text} AS {decimal(target.scale)})"
        case Kind.DOUBLE:
            # By way of its shortest digits, as MySQL does it; Spark would take all that its bits come to.
            return f"CAST(CAST({text} AS STRING) AS {decimal(target.scale)})"
        case Kind.TEXT:
            number = f"NULLIF(regexp_extract({text}, '{_NUMBER}', 1), '')"
            return f"IF({text} IS NULL, NULL, CAST(COALESCE({number}, '0') AS {decimal(target.scale)}))"
        case Kind.DATE | Kind.DATETIME | Kind.TIME:
            return f"CAST({_integer(text, source, target)} AS {decimal(target.scale)})"
        case Kind.DECIMAL | Kind.BLOB | Kind.JSON | Kind.NULL:
            return None
        case _:
            assert_never(source.kind)


def _text(text: str, source: SqlType, target: SqlType) -> str | None:
    match source.kind:
        case Kind.INTEGER | Kind.DECIMAL | Kind.DATE:
            return f"CAST({text} AS STRING)"
        case Kind.DATETIME:
            short, long = (
                f"date_format({text}, 'yyyy-MM-dd HH:mm:ss')",
                f"date_format({text}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
            )
            return f"IF(date_format({text}, 'SSSSSS') = '000000', {short}, {long})"
        case Kind.TIME:
            return _text_of_time(text)
        case Kind.BLOB:
            return f"decode({text}, 'UTF-8')"
        case Kind.JSON:
            return text
        case Kind.DOUBLE | Kind.TEXT | Kind.NULL:
            return None
        case _:
            assert_never(source.kind)


def _blob(text: str, source: SqlType, target: SqlType) -> str | None:
    as_text = text if source.kind is Kind.TEXT else _text(text, source, target)
    return None if as_text is None else f"encode({as_text}, 'UTF-8')"


def _date(text: str, source: SqlType, target: SqlType) -> str | None:
    return f"CAST({text} AS DATE)" if source.kind is Kind.DATETIME else _try(text, source, "DATE")


def _datetime(text: str, source: SqlType, target: SqlType) -> str | None:
    return f"CAST({text} AS TIMESTAMP_NTZ)" if source.kind is Kind.DATE else _try(text, source, "TIMESTAMP_NTZ")


def _time(text: str, source: SqlType, target: SqlType) -> str | None:
    if source.kind is Kind.DATE:
        return f"IF({text} IS NULL, NULL, 0L)"
    if source.kind is not Kind.DATETIME:
        return None
    seconds = f"((hour({text}) * 60L + minute({text})) * 60L + second({text}))"
    return f"({seconds} * {SECOND}L + CAST(date_format({text}, 'SSSSSS') AS BIGINT))"


def time_part(text: str, unit: int, most: int | None = None) -> str:
    """How many whole units (in microseconds) a TIME is long, of ``most`` that make the next one."""
    whole = f"(abs({text}) div {unit}L)"
    return whole if most is None else f"({whole} % {most}L)"


def _number_of_time(text: str) -> str:
    hours, minutes, seconds = time_part(text, HOUR), time_part(text, MINUTE, 60), time_part(text, SECOND, 60)
    return f"IF({text} < 0L, -1L, 1L) * (({hours} * 100L + {minutes}) * 100L + {seconds})"


def _text_of_time(text: str) -> str:
    def two(part: str) -> str:
        return f"lpad(CAST({part} AS STRING), 2, '0')"

    hours = f"CAST({time_part(text, HOUR)} AS STRING)"
    micros = time_part(text, 1, SECOND)
    parts = [
        f"IF({text} < 0L, '-', '')",
        f"IF(length({hours}) < 2, concat('0', {hours}), {hours})",
        "':'",
        two(time_part(text, MINUTE, 60)),
        "':'",
        two(time_part(text, SECOND, 60)),
        f"IF({micros} = 0L, '', concat('.', lpad(CAST({micros} AS STRING), 6, '0')))",
    ]
    return f"concat({', '.join(parts)})"


def _try(text: str, source: SqlType, target: str) -> str | None:
    return f"try_cast({text} AS {target})" if source.kind is Kind.TEXT else None


_MADE = {
    Kind.INTEGER: _integer,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.TEXT: _text,
    Kind.BLOB: _blob,
    Kind.DATE: _date,
    Kind.DATETIME: _datetime,
    Kind.TIME: _time,
}
