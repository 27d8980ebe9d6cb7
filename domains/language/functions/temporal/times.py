"""TIME: its parts, sums and differences. What is beyond 838:59:59 is that bound, as in MySQL.

TIMEDIFF, ADDTIME and SUBTIME take moments as well as times, and a text for the one that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from domains.errors import Unsupported
from domains.language.durations import (
    DAY,
    LONGEST,
    SECOND,
    clipped,
    micros_of,
    of_micros,
    parsed,
    parts_of,
    text_of_time,
)
from domains.language.exact import EXACT, rounded_integer
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions.source import Emitter, Function, Types, implemented, registry
from domains.language.functions.temporal.dates import MOST_FORMAT, TIME_LETTERS, date_format, letters_of, pieces_of
from domains.language.temporal import parse_moment
from domains.language.types import BIGINT, DATETIME, TEXT, TIME, Kind, SqlType, decimal_type

_MICROS = decimal_type(6)
_MOMENTS = (Kind.DATE, Kind.DATETIME)


# --- parts ----------------------------------------------------------------------------------------------------------


def _part(name: str, start: int, end: int, place: int) -> Function:
    """A part of a moment, which stands in its text from ``start`` on, or of a time. A text is a time first, as in
    MySQL: '272:59:59' has 272 hours."""

    def value(emitter: Emitter, call: Call) -> str:
        (argument,) = call.arguments
        if argument.type.kind in _MOMENTS:
            source = emitter.value(argument)
            digits = f"[{start}:{end}]" + (".ljust(6, '0')" if name == "microsecond" else "")
            return emitter.strict([source], lambda x: f"{emitter.bind(int)}({x}{digits} or 0)")
        source = emitter.as_type(argument, TIME)
        return emitter.strict([source], lambda x: f"{emitter.bind(parts_of)}({x})[{place}]")

    return Function(name, (1, 1), lambda _types: BIGINT, value)


def _time_to_sec(value: timedelta) -> int:
    seconds = abs(micros_of(value)) // SECOND
    return -seconds if value.days < 0 else seconds


def _sec_to_time(seconds: int | Decimal) -> timedelta:
    return clipped(rounded_integer(EXACT.multiply(Decimal(seconds), Decimal(SECOND))))


def _number(type: SqlType) -> SqlType:
    return BIGINT if type.kind is Kind.INTEGER else _MICROS


def _make_time(hour: int, minute: int, second: Decimal) -> timedelta | None:
    if not (0 <= minute <= 59 and 0 <= second < 60):
        return None
    if abs(hour) > LONGEST // timedelta(hours=1):
        return LONGEST if hour > 0 else -LONGEST
    micros = (abs(hour) * 60 + minute) * 60 * SECOND + int(second * SECOND)
    return clipped(-micros if hour < 0 else micros)


# --- formats --------------------------------------------------------------------------------------------------------

_LETTERS: dict[str, Callable[[int, int, int, int], str]] = {
    "f": lambda h, m, s, f: f"{f:06d}",
    "H": lambda h, m, s, f: f"{h:02d}",
    "k": lambda h, m, s, f: f"{h}",
    "h": lambda h, m, s, f: f"{_twelve(h):02d}",
    "I": lambda h, m, s, f: f"{_twelve(h):02d}",
    "l": lambda h, m, s, f: f"{_twelve(h)}",
    "i": lambda h, m, s, f: f"{m:02d}",
    "p": lambda h, m, s, f: _half(h),
    "r": lambda h, m, s, f: f"{_twelve(h):02d}:{m:02d}:{s:02d} {_half(h)}",
    "S": lambda h, m, s, f: f"{s:02d}",
    "s": lambda h, m, s, f: f"{s:02d}",
    "T": lambda h, m, s, f: f"{h:02d}:{m:02d}:{s:02d}",
}


def _twelve(hour: int) -> int:
    return (hour % 24 + 11) % 12 + 1


def _half(hour: int) -> str:
    return "AM" if hour % 24 < 12 else "PM"


def _time_format(value: timedelta, form: str) -> str | None:
    """NULL where the format names a part of a day, of which MySQL shows zeros or nothing."""
    if len(form) > MOST_FORMAT:
        return None
    parts = parts_of(value)
    shown = ["-"] if value.days < 0 else []
    for letter, text in pieces_of(form):
        if letter and letter not in _LETTERS and letter.isalpha():
            return None
        shown.append(_LETTERS[letter](*parts) if letter in _LETTERS else letter or text)
    return "".join(shown)


def _formatted_of_day(value: timedelta, form: str) -> str | None:
    """DATE_FORMAT of a TIME is that of a moment of the current day, which a format of the time alone does not show."""
    return date_format(str(datetime(2000, 1, 1) + of_micros(micros_of(value) % DAY)), form)


def _refused_by_format(arguments: tuple[Expression, ...]) -> SqlType:
    """:raises Unsupported: of a TIME a part of the day is wanted, which would be the current one."""
    value, form = arguments
    if value.type.kind is Kind.TIME:
        text = form.value if isinstance(form, Constant) and isinstance(form.value, str) else "%Y"
        if not letters_of(text) <= TIME_LETTERS:
            raise Unsupported("DATE_FORMAT of a TIME by parts of a day", hint="use TIME_FORMAT, or letters of the time")
    return TEXT


def _date_format(emitter: Emitter, call: Call) -> str:
    value, form = call.arguments
    of_time = value.type.kind is Kind.TIME
    sources = [emitter.as_type(value, TIME if of_time else DATETIME), emitter.as_type(form, TEXT)]
    function = emitter.bind(_formatted_of_day if of_time else date_format)
    return emitter.strict(sources, lambda x, y: f"{function}({x}, {y})")


# --- sums and differences -------------------------------------------------------------------------------------------

Operand = datetime | timedelta | None


def _of_text(text: str) -> Operand:
    moment = parse_moment(text) if len(text) > 10 and text.strip()[4:5] in "-/." else None
    return parsed(text) if moment is None else moment


def _operand(emitter: Emitter, e: Expression) -> str:
    """Source of the moment or the time that an argument is."""
    if e.type.kind is Kind.TIME:
        return emitter.value(e)
    read: Callable[[Any], Operand] = datetime.fromisoformat if e.type.kind in _MOMENTS else _of_text
    source = emitter.value(e) if e.type.kind in _MOMENTS else emitter.as_type(e, TEXT)
    return emitter.strict([source], lambda x: f"{emitter.bind(read)}({x})")


def _difference(one: Operand, other: Operand) -> timedelta | None:
    """NULL of a moment and a time."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        return clipped(micros_of(one - other))
    if isinstance(one, timedelta) and isinstance(other, timedelta):
        return clipped(micros_of(one - other))
    return None


def _time_difference(emitter: Emitter, call: Call) -> str:
    sources = [_operand(emitter, e) for e in call.arguments]
    return emitter.strict(sources, lambda a, b: f"{emitter.bind(_difference)}({a}, {b})")


def _sum_type(types: Types) -> SqlType:
    if types[0].kind is Kind.TIME:
        return TIME
    return DATETIME if types[0].kind in _MOMENTS else TEXT


def _adding(name: str, sign: int) -> Function:
    def added(start: Operand, by: Operand) -> datetime | timedelta | None:
        if start is None or not isinstance(by, timedelta):
            return None
        if isinstance(start, timedelta):
            return clipped(micros_of(start + sign * by))
        try:
            return start + sign * by
        except OverflowError:
            return None

    def as_text(start: Operand, by: Operand) -> str | None:
        found = added(start, by)
        return text_of_time(found) if isinstance(found, timedelta) else None if found is None else str(found)

    def value(emitter: Emitter, call: Call) -> str:
        natural = _sum_type(tuple(e.type for e in call.arguments))
        function = emitter.bind(added if natural is TIME else as_text)
        sources = [_operand(emitter, e) for e in call.arguments]
        return emitter.strict(sources, lambda a, b: f"{function}({a}, {b})")

    return Function(name, (2, 2), _sum_type, value)


def _timestamp(text: str, by: timedelta = timedelta()) -> str | None:
    try:
        return str(datetime.fromisoformat(text) + by)
    except OverflowError:
        return None


FUNCTIONS = registry(
    _part("hour", 11, 13, 0),
    _part("minute", 14, 16, 1),
    _part("second", 17, 19, 2),
    _part("microsecond", 20, 26, 3),
    implemented("time", [TIME], TIME, lambda value: value),
    implemented("time_to_sec", [TIME], BIGINT, _time_to_sec),
    implemented("sec_to_time", [_number], TIME, _sec_to_time),
    implemented("maketime", [BIGINT, BIGINT, _MICROS], TIME, _make_time),
    implemented("time_format", [TIME, TEXT], TEXT, _time_format),
    Function("date_format", (2, 2), lambda _types: TEXT, _date_format, refine=_refused_by_format),
    Function("timediff", (2, 2), lambda _types: TIME, _time_difference),
    _adding("addtime", 1),
    _adding("subtime", -1),
    implemented("timestamp", [DATETIME, TIME], DATETIME, _timestamp, optional=1),
)
