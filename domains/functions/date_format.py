"""DATE_FORMAT and STR_TO_DATE: MySQL's format letters, and its eight ways to number weeks."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime
from functools import lru_cache

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

_MOST_FORMATS = 256
"""Formats are mostly constants; those that come from rows are few at a time."""


def week(day: date, mode: int) -> tuple[int, int]:
    """(year, week) of WEEK(day, mode).

    Bit 0 of the mode: weeks begin on Monday. Bit 1: weeks run from 1 to 53, so that a day may belong to a
    neighbouring year. Bit 2 (turned round when weeks begin on Sunday): the first week is the first that begins in the
    year, else the first that has four days of it.
    """
    monday_first, year_weeks = bool(mode & 1), bool(mode & 2)
    whole_first = bool(mode & 4) is monday_first
    start = date(day.year, 1, 1)
    offset = start.weekday() if monday_first else start.isoweekday() % 7
    year, begin = day.year, start.toordinal()

    def first_week_begins(begin: int, offset: int) -> int:
        skipped = offset != 0 if whole_first else offset >= 4
        return begin + 7 - offset if skipped else begin - offset

    if day.toordinal() < first_week_begins(begin, offset):
        if not year_weeks:
            return year, 0
        year -= 1
        length = 366 if _is_leap(year) else 365
        begin -= length
        offset = (offset - length) % 7
    number = (day.toordinal() - first_week_begins(begin, offset)) // 7 + 1
    if year_weeks and number == 53:
        length = 366 if _is_leap(year) else 365
        if day.toordinal() >= first_week_begins(begin + length, (offset + length) % 7):
            return year + 1, 1
    return year, number


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _ordinal(day: int) -> str:
    suffix = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{suffix}"


def _twelve(hour: int) -> int:
    return (hour + 11) % 12 + 1


def _half(hour: int) -> str:
    return "AM" if hour < 12 else "PM"


_LETTERS: dict[str, Callable[[datetime], str]] = {
    "a": lambda t: DAYS[t.isoweekday() % 7][:3],
    "b": lambda t: MONTHS[t.month - 1][:3],
    "c": lambda t: f"{t.month}",
    "D": lambda t: _ordinal(t.day),
    "d": lambda t: f"{t.day:02d}",
    "e": lambda t: f"{t.day}",
    "f": lambda t: f"{t.microsecond:06d}",
    "H": lambda t: f"{t.hour:02d}",
    "h": lambda t: f"{_twelve(t.hour):02d}",
    "I": lambda t: f"{_twelve(t.hour):02d}",
    "i": lambda t: f"{t.minute:02d}",
    "j": lambda t: f"{t.timetuple().tm_yday:03d}",
    "k": lambda t: f"{t.hour}",
    "l": lambda t: f"{_twelve(t.hour)}",
    "M": lambda t: MONTHS[t.month - 1],
    "m": lambda t: f"{t.month:02d}",
    "p": lambda t: _half(t.hour),
    "r": lambda t: f"{_twelve(t.hour):02d}:{t.minute:02d}:{t.second:02d} {_half(t.hour)}",
    "S": lambda t: f"{t.second:02d}",
    "s": lambda t: f"{t.second:02d}",
    "T": lambda t: f"{t.hour:02d}:{t.minute:02d}:{t.second:02d}",
    "U": lambda t: f"{week(t, 0)[1]:02d}",
    "u": lambda t: f"{week(t, 1)[1]:02d}",
    "V": lambda t: f"{week(t, 2)[1]:02d}",
    "v": lambda t: f"{week(t, 3)[1]:02d}",
    "W": lambda t: DAYS[t.isoweekday() % 7],
    "w": lambda t: f"{t.isoweekday() % 7}",
    "X": lambda t: f"{week(t, 2)[0]:04d}",
    "x": lambda t: f"{week(t, 3)[0]:04d}",
    "Y": lambda t: f"{t.year:04d}",
    "y": lambda t: f"{t.year % 100:02d}",
}

_PIECE = re.compile(r"%(.)|([^%]+|%\Z)", re.DOTALL)


@lru_cache(_MOST_FORMATS)
def _formatters(form: str) -> tuple[str | Callable[[datetime], str], ...]:
    """Literal text and letters in turn; an unknown letter stands for itself."""
    return tuple((_LETTERS.get(match[1]) or match[1]) if match[1] else str(match[2]) for match in _PIECE.finditer(form))


def date_format(text: str, form: str) -> str:
    at = datetime.fromisoformat(text)
    return "".join([piece if isinstance(piece, str) else piece(at) for piece in _formatters(form)])


# --- STR_TO_DATE ----------------------------------------------------------------------------------------------------

_MONTH_NUMBERS = {name[:3]: number for number, name in enumerate(MONTHS, 1)}
_NAMES = "|".join([*MONTHS, *(m[:3] for m in MONTHS)])
_READ: dict[str, str] = {
    "Y": r"(?P<year>[0-9]{4})",
    "y": r"(?P<short_year>[0-9]{2})",
    "m": r"(?P<month>[0-9]{1,2})",
    "M": rf"(?P<month_name>{_NAMES})",
    "d": r"(?P<day>[0-9]{1,2})",
    "H": r"(?P<hour>[0-9]{1,2})",
    "h": r"(?P<half_hour>[0-9]{1,2})",
    "i": r"(?P<minute>[0-9]{1,2})",
    "s": r"(?P<second>[0-9]{1,2})",
    "f": r"(?P<fraction>[0-9]{1,6})",
    "p": r"(?P<half>[AaPp][Mm])",
}
_SAME = {"c": "m", "b": "M", "e": "d", "k": "H", "I": "h", "l": "h", "S": "s"}
_COMPOSED = {"T": "%H:%i:%s", "r": "%h:%i:%s %p"}
TIME_LETTERS = frozenset("HkhIlisSfpTr")


@lru_cache(_MOST_FORMATS)
def _reader(form: str) -> re.Pattern[str] | None:
    for letter, longer in _COMPOSED.items():
        form = form.replace(f"%{letter}", longer)
    pieces = []
    for match in _PIECE.finditer(form):
        letter = _SAME.get(match[1], match[1]) if match[1] else ""
        literal = (match[1] or match[2]).split()
        pieces.append(_READ.get(letter) or r"\s*".join(map(re.escape, literal)))
    try:
        return re.compile(r"\s*" + r"\s*".join(pieces))  # As in MySQL, blanks may stand between any two.
    except re.error:  # A letter stands twice.
        return None


def names_time(form: str) -> bool:
    return any(f"%{letter}" in form for letter in TIME_LETTERS)


def str_to_date(text: str, form: str) -> str | None:
    """The moment that ``text`` names when it is read by ``form``; text behind it is ignored."""
    reader = _reader(form)
    match = reader.match(text) if reader else None
    if match is None:
        return None
    found = match.groupdict()

    def number(name: str, otherwise: int) -> int:
        return int(found.get(name) or otherwise)

    short = number("short_year", 0)
    month = number("month", 0) or _MONTH_NUMBERS.get((found.get("month_name") or "")[:3], 1)
    hour = number("hour", -1)
    if hour < 0:
        hour = number("half_hour", 12) % 12 + (12 if (found.get("half") or "").lower() == "pm" else 0)
    try:
        moment = datetime(
            number("year", short + (2000 if short < 70 else 1900)),
            month,
            number("day", 0),
            hour,
            number("minute", 0),
            number("second", 0),
            int((found.get("fraction") or "").ljust(6, "0")),
        )
    except ValueError:
        return None
    return str(moment) if names_time(form) else str(moment.date())
