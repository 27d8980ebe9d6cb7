"""DATE_ADD, DATE_SUB, TIMESTAMPDIFF, STR_TO_DATE: where a constant argument decides what the function does.

A unit is a constant text: MICROSECOND, SECOND, MINUTE, HOUR, DAY, WEEK, MONTH, QUARTER or YEAR. It may be two of them,
from one to another (DAY_SECOND): then its amount is a text with a number for each. A DATE moved by whole days stays a
DATE, moved by hours it becomes a DATETIME; a text stays a text. Months end where the month ends (2024-01-31 + 1 MONTH
is 2024-02-29); a TIME is moved by hours and less. What leaves the years 1 to 9999 is NULL.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from domains.errors import Unsupported
from domains.language.durations import LONGEST, micros_of, of_micros, parts_of
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions.conversion import refuse_day_of_time
from domains.language.functions.source import Emitter, Function, Types, registry
from domains.language.functions.temporal.dates import (
    cannot_read,
    moment,
    names_day,
    names_time,
    str_to_date,
    str_to_time,
)
from domains.language.temporal import canonical_date, canonical_datetime
from domains.language.types import BIGINT, DATE, DATETIME, DOUBLE, TEXT, TIME, Kind, SqlType

_MICROSECONDS = {
    "MICROSECOND": 1,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
OF_TIMES = frozenset({"MICROSECOND", "SECOND", "MINUTE", "HOUR"})
"""Units of which no part is a day."""
_WHOLE_DAYS = frozenset({"DAY", "WEEK", "YEAR_MONTH", *_MONTHS})


_FINER = ("DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND")
COMPOUND = {
    "YEAR_MONTH": ("YEAR", "MONTH"),
    **{f"{a}_{b}": _FINER[i : j + 1] for i, a in enumerate(_FINER) for j, b in enumerate(_FINER) if i < j},
}
"""Units from one to another, with all that lie between."""

_NUMBERS = re.compile(r"\d{1,18}", re.ASCII)


def _spelled_out(text: str, units: tuple[str, ...]) -> list[tuple[int, str]]:
    """The numbers of a compound amount, whatever stands between them; with fewer, the last units have them."""
    found = _NUMBERS.findall(text)[: len(units)]
    if len(found) == len(units) and units[-1] == "MICROSECOND":
        found[-1] = found[-1].ljust(6, "0")
    sign = -1 if text.lstrip().startswith("-") else 1
    named = list(zip(found, units[len(units) - len(found) :], strict=True))
    if units == COMPOUND["YEAR_MONTH"]:
        # One step: 14 months before 2024-02-29 is 2022-12-29, by way of 2023-02-28 it would be a day sooner.
        return [(sign * sum(int(n) * _MONTHS[unit] for n, unit in named), "MONTH")]
    return [(sign * int(number), unit) for number, unit in named]


def unit_of(e: Expression, *, compound: bool = True) -> str:
    """:raises Unsupported: it is none, or ``compound`` and not to be."""
    unit = e.value.upper() if isinstance(e, Constant) and isinstance(e.value, str) else ""
    if unit not in _MICROSECONDS and unit not in _MONTHS and not (compound and unit in COMPOUND):
        raise Unsupported(
            f'interval unit "{unit.lower()}" is not supported' if unit else "an interval unit must be a constant",
            hint="use microsecond, second, minute, hour, day, week, month, quarter, year, or two, as in day_hour",
        )
    return unit


def _in_months(at: datetime, months: int) -> datetime:
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    day = min(at.day, monthrange(year, month + 1)[1])
    return at.replace(year=year, month=month + 1, day=day)


def shift(at: datetime, amount: int | float, unit: str) -> datetime | None:
    """``at`` moved by an amount of one unit; None: it leaves the years 1 to 9999."""
    try:
        if unit in _MONTHS:
            return _in_months(at, int(amount) * _MONTHS[unit])
        return at + timedelta(microseconds=round(amount * _MICROSECONDS[unit]))
    except (ValueError, OverflowError):
        return None


def _mover(unit: str, sign: int, source: Kind, result: Kind) -> Callable[[str, Any], str | None]:
    """A function of (canonical moment or text, amount)."""

    def move(text: str, amount: Any) -> str | None:
        start = canonical_datetime(text) if source is Kind.TEXT else text
        if start is None:
            return None
        moved: datetime | None = datetime.fromisoformat(start)
        parts = _spelled_out(amount, COMPOUND[unit]) if unit in COMPOUND else [(amount, unit)]
        for number, part in parts:
            moved = None if moved is None else shift(moved, sign * number, part)
        if moved is None:
            return None
        if result is Kind.TEXT:
            stays_day = unit in _WHOLE_DAYS and canonical_date(text) == text
            return str(moved.date()) if stays_day else str(moved)
        return str(moved.date()) if result is Kind.DATE else str(moved)

    return move


def _time_mover(unit: str, sign: int) -> Callable[[timedelta, Any], timedelta | None]:
    def move(value: timedelta, amount: Any) -> timedelta | None:
        parts = _spelled_out(amount, COMPOUND[unit]) if unit in COMPOUND else [(amount, unit)]
        micros = micros_of(value) + sign * sum(round(number * _MICROSECONDS[part]) for number, part in parts)
        return of_micros(micros) if abs(micros) <= micros_of(LONGEST) else None

    return move


def _moved_type(types: Types) -> SqlType:
    """The type while the unit is not known: a DATE may become a DATETIME."""
    if types[0].kind is Kind.TIME:
        return TIME
    return DATETIME if types[0].kind in (Kind.DATE, Kind.DATETIME) else TEXT


def _moved_type_by_unit(arguments: tuple[Expression, ...]) -> SqlType:
    unit = unit_of(arguments[2])
    if arguments[0].type.kind is Kind.TIME and not OF_TIMES.issuperset(COMPOUND.get(unit, (unit,))):
        raise Unsupported(
            f"a TIME moved by {unit}", hint="move it by HOUR, MINUTE, SECOND, MICROSECOND, or use ADDTIME and SUBTIME"
        )
    by_days = unit in _WHOLE_DAYS
    return DATE if by_days and arguments[0].type.kind is Kind.DATE else _moved_type((arguments[0].type,))


def _moving(name: str, sign: int) -> Function:
    def value(emitter: Emitter, call: Call) -> str:
        start, amount, unit_argument = call.arguments
        unit = unit_of(unit_argument)
        # Only seconds take a fraction; every other amount is rounded as a cast to INTEGER rounds it.
        amount_type = DOUBLE if unit == "SECOND" and amount.type.kind is not Kind.INTEGER else BIGINT
        amount_type = TEXT if unit in COMPOUND else amount_type
        natural = _moved_type_by_unit(call.arguments)
        source = moment(start.type) if start.type.kind in (Kind.DATE, Kind.DATETIME) else TEXT
        if natural.kind is Kind.TIME:
            source = TIME
        mover = emitter.bind(
            _time_mover(unit, sign) if source is TIME else _mover(unit, sign, source.kind, natural.kind)
        )
        sources = [emitter.as_type(start, source), emitter.as_type(amount, amount_type)]
        moved = emitter.strict(sources, lambda text, count: f"{mover}({text}, {count})")
        return emitter.converted(moved, natural, call.type)

    return Function(name, (3, 3), _moved_type, value, by_target=True, refine=_moved_type_by_unit)


# --- differences ----------------------------------------------------------------------------------------------------


def _months_between(a: datetime, b: datetime) -> int:
    """Whole months from a to b: the last one counts once its day and time are reached."""
    if b < a:
        return -_months_between(b, a)
    months = (b.year - a.year) * 12 + b.month - a.month
    return months - ((b.day, b.time()) < (a.day, a.time()))


def difference(a: str, b: str, unit: str) -> int:
    start, end = datetime.fromisoformat(a), datetime.fromisoformat(b)
    if unit in _MONTHS:
        months = _months_between(start, end)
        return months // _MONTHS[unit] if months >= 0 else -(-months // _MONTHS[unit])
    span = (end - start) // timedelta(microseconds=1)
    size = _MICROSECONDS[unit]
    return span // size if span >= 0 else -(-span // size)


def _difference_type(arguments: tuple[Expression, ...]) -> SqlType:
    """:raises Unsupported: the unit is not one, or a TIME's day would decide."""
    unit = unit_of(arguments[0], compound=False)
    if _are_times(arguments[1:]) and unit not in _MONTHS:
        return BIGINT
    for argument in arguments[1:]:
        refuse_day_of_time(argument.type, DATETIME)
    return BIGINT


def _are_times(arguments: tuple[Expression, ...]) -> bool:
    """Of the same day, to MySQL: their difference does not depend on which."""
    return all(argument.type.kind is Kind.TIME for argument in arguments)


def _difference_of_times(a: timedelta, b: timedelta, unit: str) -> int:
    span, size = micros_of(b) - micros_of(a), _MICROSECONDS[unit]
    return span // size if span >= 0 else -(-span // size)


def _timestamp_difference(emitter: Emitter, call: Call) -> str:
    unit = emitter.bind(unit_of(call.arguments[0], compound=False))
    are_times = _are_times(call.arguments[1:])
    between = emitter.bind(_difference_of_times if are_times else difference)
    sources = [emitter.as_type(e, TIME if are_times else DATETIME) for e in call.arguments[1:]]
    return emitter.strict(sources, lambda a, b: f"{between}({a}, {b}, {unit})")


# --- EXTRACT of several parts ---------------------------------------------------------------------------------------

_PARTS = {"YEAR": (0, 4), "MONTH": (5, 7), "DAY": (8, 10), "HOUR": (11, 13), "MINUTE": (14, 16), "SECOND": (17, 19)}


def _units_of(arguments: tuple[Expression, ...]) -> tuple[str, ...]:
    unit = unit_of(arguments[0])
    if unit in OF_TIMES and arguments[1].type.kind is Kind.TIME:
        return (unit,)  # Unlike HOUR(…) it has the sign.
    if unit not in COMPOUND:
        raise Unsupported(f'EXTRACT of one part by "{unit}"', hint=f"{unit}(moment)")
    return COMPOUND[unit]


def _extracted_type(arguments: tuple[Expression, ...]) -> SqlType:
    """:raises Unsupported: the unit is none of several parts, or has days, and is that of a TIME."""
    units = _units_of(arguments)
    if not OF_TIMES.issuperset(units):
        refuse_day_of_time(arguments[1].type, DATETIME)
    return BIGINT


def _extract(emitter: Emitter, call: Call) -> str:
    """EXTRACT(DAY_MINUTE FROM x): the digits of all parts as one number."""
    units = _units_of(call.arguments)

    def digits(text: str) -> int:
        places = [_PARTS[unit] for unit in units if unit in _PARTS]
        micros = text[20:].ljust(6, "0") if units[-1] == "MICROSECOND" else ""
        return int("".join(text[start:end] for start, end in places) + micros)

    def digits_of_time(value: timedelta) -> int:
        text = "".join(f"{part:02d}" for part in parts_of(value)[:3]) + f"{parts_of(value)[3]:06d}"
        start = {"HOUR": 0, "MINUTE": -10, "SECOND": -8, "MICROSECOND": -6}[units[0]]
        end = {"HOUR": -10, "MINUTE": -8, "SECOND": -6, "MICROSECOND": len(text)}[units[-1]]
        number = int(text[start or None : end])
        return -number if value.days < 0 else number

    is_time = call.arguments[1].type.kind is Kind.TIME
    source = emitter.as_type(call.arguments[1], TIME if is_time else DATETIME)
    function = emitter.bind(digits_of_time if is_time else digits)
    return emitter.strict([source], lambda name: f"{function}({name})")


# --- STR_TO_DATE ----------------------------------------------------------------------------------------------------


def _type_by_format(arguments: tuple[Expression, ...]) -> SqlType:
    """:raises Unsupported: the format asks for weeks."""
    form = arguments[1]
    if not isinstance(form, Constant) or not isinstance(form.value, str):
        return DATETIME
    unknown = min(cannot_read(form.value), default=None)
    if unknown is not None:
        raise Unsupported(f'STR_TO_DATE by "%{unknown}"', hint="read year, month and day, or the day of the year (%j)")
    if not names_time(form.value):
        return DATE
    if not names_day(form.value):
        return TIME
    return DATETIME


def _str_to_date(emitter: Emitter, call: Call) -> str:
    sources = [emitter.as_type(e, TEXT) for e in call.arguments]
    is_time = _type_by_format(call.arguments) is TIME
    function = emitter.bind(str_to_time if is_time else str_to_date)
    source = emitter.strict(sources, lambda text, form: f"{function}({text}, {form})")
    return emitter.converted(source, TIME if is_time else TEXT, call.type)


FUNCTIONS = registry(
    _moving("date_add", 1),
    _moving("date_sub", -1),
    Function("extract", (2, 2), lambda _types: BIGINT, _extract, refine=_extracted_type),
    Function("timestampdiff", (3, 3), lambda _types: BIGINT, _timestamp_difference, refine=_difference_type),
    Function("str_to_date", (2, 2), lambda _types: DATETIME, _str_to_date, by_target=True, refine=_type_by_format),
)
