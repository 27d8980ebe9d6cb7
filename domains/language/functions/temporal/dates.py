"""Parts of dates, and distances between them. Times are UTC: the session's time zone is always ``+00:00``.

The arguments are canonical texts by then (``converter`` made them so), so most parts are slices.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from domains.language.functions.source import Types, implemented, registry
from domains.language.types import BIGINT, DATE, DATETIME, DOUBLE, TEXT, Kind, SqlType

# DATE_FORMAT and STR_TO_DATE: MySQL's format letters, and its eight ways to number weeks.

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")

_MOST_FORMATS = 256
"""Formats are mostly constants; those that come from rows are few at a time."""

MOST_FORMAT = 1000
"""Characters of a format. With a longer one, which names no part of a date that a shorter one cannot, the result is
NULL: a format of 200,000 characters is as much work for each row."""


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
    return tuple((_LETTERS.get(letter) or letter) if letter else text for letter, text in pieces_of(form))


@lru_cache(_MOST_FORMATS)
def pieces_of(form: str) -> tuple[tuple[str, str], ...]:
    """(letter, "") or ("", literal text) in turn."""
    return tuple((match[1] or "", match[2] or "") for match in _PIECE.finditer(form))


def date_format(text: str, form: str) -> str | None:
    if len(form) > MOST_FORMAT:
        return None
    at = datetime.fromisoformat(text)
    return "".join([piece if isinstance(piece, str) else piece(at) for piece in _formatters(form)])


# --- STR_TO_DATE ----------------------------------------------------------------------------------------------------

_SHORT_MONTHS = tuple(name[:3] for name in MONTHS)
_SHORT_DAYS = tuple(name[:3] for name in DAYS)
_READ: dict[str, tuple[str, int | tuple[str, ...]]] = {
    letter: (part, most)
    for letters, part, most in (
        ("Y", "year", 4),
        ("y", "year", 2),
        ("mc", "month", 2),
        ("M", "month", MONTHS),
        ("b", "month", _SHORT_MONTHS),
        ("deD", "day", 2),
        ("j", "day_of_year", 3),
        ("W", "weekday", DAYS),
        ("a", "weekday", _SHORT_DAYS),
        ("Hk", "hour", 2),
        ("hIl", "half_hour", 2),
        ("i", "minute", 2),
        ("sS", "second", 2),
        ("f", "microsecond", 6),
        ("p", "half", 2),
    )
    for letter in letters
}
"""Letter → what it reads, and how many digits at most or which words."""
_COMPOSED = {"T": "%H:%i:%s", "r": "%h:%i:%s %p"}
TIME_LETTERS = frozenset("HkhIlisSfpTr")
DAY_LETTERS = frozenset("YymcMbdeDj")
_BLANKS = " \t\n\v\f\r"
_BLANK = re.compile(f"[{_BLANKS}]*")
_DIGITS = re.compile("[0-9]*")
_WORD = re.compile("[A-Za-z]*")


@lru_cache(_MOST_FORMATS)
def _signs(form: str) -> tuple[tuple[str, str], ...]:
    """(letter, "") or ("", the character that must stand there), without blanks."""
    for letter, longer in _COMPOSED.items():
        form = form.replace(f"%{letter}", longer)
    signs: list[tuple[str, str]] = []
    for match in _PIECE.finditer(form):
        signs += [(match[1], "")] if match[1] else [("", sign) for sign in match[2] if sign not in _BLANKS]
    return tuple(signs)


def letters_of(form: str) -> frozenset[str]:
    return frozenset(match[1] for match in _PIECE.finditer(form) if match[1])


def cannot_read(form: str) -> frozenset[str]:
    """Letters of the format that STR_TO_DATE does not know here: those of weeks."""
    return letters_of(form) - _READ.keys() - _COMPOSED.keys()


def names_time(form: str) -> bool:
    return not TIME_LETTERS.isdisjoint(letters_of(form))


def names_day(form: str) -> bool:
    return not DAY_LETTERS.isdisjoint(letters_of(form))


def _reading(text: str, form: str) -> dict[str, int] | None:
    """What the letters find, None where text and format part. It ends with either, what is behind is ignored; blanks
    may stand before anything."""
    if len(form) > MOST_FORMAT:
        return None
    found: dict[str, int] = {}
    at = 0
    for letter, sign in _signs(form):
        at = _BLANK.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            break
        taken, value = (1, 0) if sign == text[at] else _taken(letter, text, at)
        if not taken or (letter == "p" and "half_hour" not in found):
            return None
        if letter:
            found[_READ[letter][0]] = value
        at += taken
    return found


def _taken(letter: str, text: str, at: int) -> tuple[int, int]:
    """(how many characters a letter takes, what they say); 0 where they are not what it reads."""
    width = _READ[letter][1] if letter in _READ else 0
    if letter == "p":
        half = text[at : at + 2].upper()
        return (2, int(half == "PM")) if half in ("AM", "PM") else (0, 0)
    if isinstance(width, tuple):
        word = _WORD.match(text, at)[0].capitalize()  # type: ignore[index]
        meant = [word] if word in width else [name for name in width if word and name.startswith(word)]
        return (len(word), width.index(meant[0]) + 1) if len(meant) == 1 else (0, 0)
    digits = _DIGITS.match(text, at, at + width)[0]  # type: ignore[index]
    if not digits:
        return 0, 0
    value = int(digits.ljust(6, "0") if letter == "f" else digits)
    if letter in "yY" and len(digits) <= 2:
        value += 2000 if value < 70 else 1900
    return len(digits) + (2 if letter == "D" else 0), value


def str_to_time(text: str, form: str) -> timedelta | None:
    """The time of day that ``text`` names when it is read by a format without a day."""
    moment = _moment_read(text, form, 1, 1, 1)
    return None if moment is None else moment - datetime(1, 1, 1)


def str_to_date(text: str, form: str) -> str | None:
    """The moment that ``text`` names when it is read by ``form``, as MySQL's ``extract_date_time`` reads it; None where
    a part of the day is missing."""
    moment = _moment_read(text, form, 0, 0, 0)
    if moment is None:
        return None
    return str(moment) if names_time(form) else str(moment.date())


def _moment_read(text: str, form: str, year: int, month: int, day: int) -> datetime | None:
    """The moment of a text; the day that is given stands in where the text names none."""
    found = _reading(text, form)
    if found is None or not 1 <= (half_hour := found.get("half_hour", 12)) <= 12:
        return None
    hour = half_hour % 12 + 12 * found.get("half", 0) if "half_hour" in found else found.get("hour", 0)
    year, month, day = found.get("year", year), found.get("month", month), found.get("day", day)
    try:
        if "day_of_year" in found:
            named = date(year, 1, 1) + timedelta(found["day_of_year"] - 1)
            year, month, day = named.year, named.month, named.day
        minute, second, fraction = (found.get(part, 0) for part in ("minute", "second", "microsecond"))
        return datetime(year, month, day, hour, minute, second, fraction)
    except (ValueError, OverflowError):
        return None


_EPOCH = datetime(1970, 1, 1)
_LAST_UNIX_TIME = 32536771199
"""MySQL's bound: 3001-01-18 23:59:59."""
_DAYS_BEFORE_YEAR_ONE = 365
"""TO_DAYS counts from year 0, Python's ordinals from year 1."""

DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def moment(type: SqlType) -> SqlType:
    """DATE and DATETIME as they are, everything else as DATETIME."""
    return type if type.kind in (Kind.DATE, Kind.DATETIME) else DATETIME


def day_of(text: str) -> date:
    return date.fromisoformat(text[:10])


def _year(text: str) -> int:
    return int(text[:4])


def _month(text: str) -> int:
    return int(text[5:7])


def _day(text: str) -> int:
    return int(text[8:10])


def _quarter(text: str) -> int:
    return (int(text[5:7]) + 2) // 3


def _day_of_week(text: str) -> int:
    """1 is Sunday."""
    return day_of(text).isoweekday() % 7 + 1


def _weekday(text: str) -> int:
    """0 is Monday."""
    return day_of(text).weekday()


def _day_of_year(text: str) -> int:
    return day_of(text).timetuple().tm_yday


def _week(text: str, mode: int = 0) -> int:
    return week(day_of(text), mode)[1]


def _yearweek(text: str, mode: int = 0) -> int:
    year, number = week(day_of(text), mode | 2)
    return year * 100 + number


def _day_name(text: str) -> str:
    return DAY_NAMES[day_of(text).weekday()]


def _month_name(text: str) -> str:
    return day_of(text).strftime("%B")


def _date_difference(a: str, b: str) -> int:
    return (day_of(a) - day_of(b)).days


def _last_day(text: str) -> str:
    year, month = int(text[:4]), int(text[5:7])
    return f"{text[:8]}{monthrange(year, month)[1]:02d}"


def _to_days(text: str) -> int:
    return day_of(text).toordinal() + _DAYS_BEFORE_YEAR_ONE


def _from_days(days: int) -> str | None:
    ordinal = days - _DAYS_BEFORE_YEAR_ONE
    return str(date.fromordinal(ordinal)) if 1 <= ordinal <= date.max.toordinal() else None


def _unix_timestamp(text: str) -> int:
    """0 for what lies before 1970, as in MySQL; the fraction is dropped."""
    seconds = (datetime.fromisoformat(text) - _EPOCH) // timedelta(seconds=1)
    return seconds if 0 <= seconds <= _LAST_UNIX_TIME else 0


def _from_unixtime(seconds: float, form: str | None = None) -> str | None:
    if not 0 <= seconds <= _LAST_UNIX_TIME:
        return None
    if isinstance(seconds, int):
        text = str(_EPOCH + timedelta(seconds=seconds))
    else:
        text = str(_EPOCH + timedelta(microseconds=round(seconds * 1_000_000)))
    return text if form is None else date_format(text, form)


def _make_date(year: int, day: int) -> str | None:
    """The ``day``-th of a year, of which two digits are of 1970 to 2069."""
    if not 0 <= year <= 9999 or day < 1:
        return None
    ordinal = date(_full_year(year) or 1, 1, 1).toordinal() + day - 1
    return str(date.fromordinal(ordinal)) if _full_year(year) and ordinal <= date.max.toordinal() else None


def _full_year(year: int) -> int:
    return year + (2000 if year < 70 else 1900) if year < 100 else year


def _months_of(period: int) -> int | None:
    """A period is YYMM or YYYYMM."""
    year, month = divmod(period, 100)
    return _full_year(year) * 12 + month - 1 if period > 0 and 1 <= month <= 12 else None


def _period_add(period: int, months: int) -> int | None:
    start = _months_of(period)
    if start is None or start + months < 0:
        return None
    year, month = divmod(start + months, 12)
    return _full_year(year) * 100 + month + 1


def _period_difference(one: int, other: int) -> int | None:
    a, b = _months_of(one), _months_of(other)
    return None if a is None or b is None else a - b


def _to_seconds(text: str) -> int:
    at = datetime.fromisoformat(text)
    return _to_days(text) * 86_400 + at.hour * 3_600 + at.minute * 60 + at.second


_OFFSET = re.compile(r"([+-])(\d{1,2}):(\d{2})", re.ASCII)
_FIRST_ZONED, _LAST_ZONED = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(3001, 1, 18, 23, 59, 59, tzinfo=UTC)
"""What lies outside, in UTC, is converted to no other zone, as in MySQL."""


@lru_cache(1024)
def _zone(name: str) -> tzinfo | None:
    """``+05:30`` and ``Europe/Berlin``; SYSTEM is UTC here."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        if int(offset[3]) > 59 or not -14 * 60 < (-minutes if offset[1] == "-" else minutes) <= 14 * 60:
            return None
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if name.upper() == "SYSTEM":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _convert_tz(text: str, given: str, wanted: str) -> str | None:
    """A time that the first zone leaves out, in spring, is that of the first moment after the gap."""
    source, target = _zone(given), _zone(wanted)
    if source is None or target is None:
        return None
    at = datetime.fromisoformat(text).replace(tzinfo=source)
    try:
        moment = at.astimezone(UTC)
        if not _FIRST_ZONED <= moment <= _LAST_ZONED:
            return text
        if moment.astimezone(source).replace(tzinfo=None) != at.replace(tzinfo=None):
            moment = _gap_end(at, source)
        return str(moment.astimezone(target).replace(tzinfo=None))
    except OverflowError:
        return text


def _gap_end(at: datetime, zone: tzinfo) -> datetime:
    """The first moment after the hour that clocks leave out: there the earlier offset ends."""
    before, after = at.replace(fold=0).utcoffset(), at.replace(fold=1).utcoffset()
    assert before is not None, "a zone has an offset at any time"
    assert after is not None, "a zone has an offset at any time"
    low, high = at.replace(tzinfo=UTC) - after, at.replace(tzinfo=UTC) - before
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        low, high = (low, middle) if middle.astimezone(zone).utcoffset() == after else (middle, high)
    return high.replace(microsecond=0)


def _unix_number(type: SqlType) -> SqlType:
    return BIGINT if type.kind in (Kind.INTEGER, Kind.DATE, Kind.DATETIME) else DOUBLE


def _text_if_formatted(types: Types) -> SqlType:
    return TEXT if len(types) == 2 else DATETIME


FUNCTIONS = registry(
    implemented("date", [DATE], DATE, lambda text: text),
    implemented("year", [moment], BIGINT, _year),
    implemented("month", [moment], BIGINT, _month),
    implemented("day", [moment], BIGINT, _day),
    implemented("quarter", [moment], BIGINT, _quarter),
    implemented("dayofweek", [moment], BIGINT, _day_of_week),
    implemented("weekday", [moment], BIGINT, _weekday),
    implemented("dayofyear", [moment], BIGINT, _day_of_year),
    implemented("week", [moment, BIGINT], BIGINT, _week, optional=1),
    implemented("yearweek", [moment, BIGINT], BIGINT, _yearweek, optional=1),
    implemented("dayname", [moment], TEXT, _day_name),
    implemented("monthname", [moment], TEXT, _month_name),
    implemented("datediff", [moment, moment], BIGINT, _date_difference),
    implemented("last_day", [moment], DATE, _last_day),
    implemented("to_days", [moment], BIGINT, _to_days),
    implemented("from_days", [BIGINT], DATE, _from_days),
    implemented("to_seconds", [DATETIME], BIGINT, _to_seconds),
    implemented("weekofyear", [moment], BIGINT, lambda text: _week(text, 3)),
    implemented("makedate", [BIGINT, BIGINT], DATE, _make_date),
    implemented("period_add", [BIGINT, BIGINT], BIGINT, _period_add),
    implemented("period_diff", [BIGINT, BIGINT], BIGINT, _period_difference),
    implemented("convert_tz", [DATETIME, TEXT, TEXT], DATETIME, _convert_tz),
    implemented("unix_timestamp", [DATETIME], BIGINT, _unix_timestamp),
    implemented("from_unixtime", [_unix_number, TEXT], _text_if_formatted, _from_unixtime, optional=1),
)
