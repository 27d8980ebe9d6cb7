"""TIME: how long something takes, or a time of day, from −838:59:59 to 838:59:59 with microseconds.

The value is Python's ``timedelta``: its order and equality are SQL's, which those of a text are not ('-01:00:00' is
greater than '-02:00:00', '100:00:00' than '99:00:00'). A text shows it, ``-01:02:03.500000``, with six digits behind
the point where they are not all zero; as a number it is ``-10203``.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from domains.language.temporal import parse_moment

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3_600 * SECOND, 86_400 * SECOND
_MICROSECOND = timedelta(microseconds=1)

LONGEST = timedelta(hours=838, minutes=59, seconds=59)
"""The longest TIME, as in MySQL."""

_SEPARATED = re.compile(
    r"\s*(-?)(?:([0-9]{1,2})\s+)?([0-9]{1,7})(?::([0-9]{1,2}))?(?::([0-9]{1,2}))?(?:\.([0-9]*))?\s*", re.ASCII
)
_DIGITS = re.compile(r"\s*(-?)([0-9]{1,7})(?:\.([0-9]*))?\s*", re.ASCII)


def micros_of(value: timedelta) -> int:
    return value // _MICROSECOND


def of_micros(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


def clipped(micros: int) -> timedelta:
    """The nearest TIME."""
    most = micros_of(LONGEST)
    return of_micros(max(-most, min(micros, most)))


def parsed(text: str) -> timedelta | None:
    """What a text names, whether or not it is within the bounds; None where it names no time.

    ``10:11[:12[.5]]``, ``2 10[:11[:12]]`` (days before), ``[[HHH]MM]SS``; of a date with a time the time.
    """
    digits = _DIGITS.fullmatch(text)
    if digits is not None:
        sign, number, fraction = digits.groups()
        return _of_parts(sign == "-", int(number) // 10_000, int(number) // 100 % 100, int(number) % 100, fraction)
    separated = _SEPARATED.fullmatch(text)
    if separated is None:
        moment = parse_moment(text) if len(text) > _LONGEST_DATE else None
        if moment is None:
            return None
        return timedelta(0, (moment.hour * 60 + moment.minute) * 60 + moment.second, moment.microsecond)
    sign, days, hours, minutes, seconds, fraction = separated.groups()
    if days is None and minutes is None:
        return None  # Digits alone, and too many.
    return _of_parts(sign == "-", int(days or 0) * 24 + int(hours), int(minutes or 0), int(seconds or 0), fraction)


_LONGEST_DATE = 10


def _of_parts(negative: bool, hours: int, minutes: int, seconds: int, fraction: str | None) -> timedelta | None:
    if minutes > 59 or seconds > 59:
        return None
    micros = hours * HOUR + minutes * MINUTE + seconds * SECOND + int((fraction or "")[:6].ljust(6, "0"))
    return of_micros(-micros if negative else micros)


def within(value: timedelta | None) -> timedelta | None:
    """The value, or the bound that it lies behind."""
    return None if value is None else max(-LONGEST, min(value, LONGEST))


def of_text(text: str) -> timedelta | None:
    """The duration that CAST makes of a text: what is out of range is the bound."""
    return within(parsed(text))


def of_number(number: float | Decimal) -> timedelta | None:
    """101112.5 is 10:11:12.5, a number of eleven digits or more a moment, of which the time is taken."""
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    if exact.adjusted() >= 14:
        return None
    text = format(exact.copy_abs(), "f")
    whole, _, fraction = text.partition(".")
    if len(whole.lstrip("0")) > 10:
        moment = parse_moment(f"{whole.lstrip('0').rjust(14, '0')}.{fraction}")
        return None if moment is None or exact < 0 else of_micros(_since_midnight(str(moment)))
    value = int(whole)
    found = _of_parts(exact < 0, value // 10_000, value // 100 % 100, value % 100, fraction)
    return within(found)


def of_moment(text: str) -> timedelta:
    """The time of a canonical DATETIME; of a DATE it is midnight."""
    return of_micros(_since_midnight(text))


def _since_midnight(text: str) -> int:
    if len(text) == _LONGEST_DATE:
        return 0
    whole = (int(text[11:13]) * 60 + int(text[14:16])) * 60 + int(text[17:19])
    return whole * SECOND + int(text[20:26] or 0)


def parts_of(value: timedelta) -> tuple[int, int, int, int]:
    """Hours, minutes, seconds and microseconds of its length, without the sign."""
    seconds, micros = divmod(abs(micros_of(value)), SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return hour, minute, second, micros


def text_of_time(value: timedelta) -> str:
    hour, minute, second, micros = parts_of(value)
    sign, fraction = "-" if value.days < 0 else "", f".{micros:06d}" if micros else ""
    return f"{sign}{hour:02d}:{minute:02d}:{second:02d}{fraction}"


def integer_of_time(value: timedelta) -> int:
    """10:11:12.5 as 101112: like a moment's, its fraction is dropped."""
    hour, minute, second, _ = parts_of(value)
    number = (hour * 100 + minute) * 100 + second
    return -number if value.days < 0 else number


def number_of_time(value: timedelta) -> int | Decimal:
    """10:11:12.5 as 101112.5."""
    whole, micros = abs(integer_of_time(value)), parts_of(value)[3]
    number = Decimal((0, tuple(map(int, str(whole * SECOND + micros))), -6)) if micros else whole
    return (
        number.copy_negate()
        if isinstance(number, Decimal) and value.days < 0
        else -number
        if value.days < 0
        else number
    )


def document_of_time(value: timedelta) -> str:
    """The form that MySQL gives a TIME in JSON: a string with all six digits of the fraction."""
    text = text_of_time(value)
    return f'"{text}{"" if "." in text else ".000000"}"'
