"""Parts of dates, and distances between them. Times are UTC: the session's time zone is always ``+00:00``.

The arguments are canonical texts by then (``converter`` made them so), so most parts are slices.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date, datetime, timedelta

from domains.functions.date_format import date_format, week
from domains.functions.source import Types, implemented, registry
from domains.types import BIGINT, DATE, DATETIME, DOUBLE, TEXT, Kind, SqlType

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


def _hour(text: str) -> int:
    return int(text[11:13] or 0)


def _minute(text: str) -> int:
    return int(text[14:16] or 0)


def _second(text: str) -> int:
    return int(text[17:19] or 0)


def _microsecond(text: str) -> int:
    return int(text[20:26] or 0)


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


def _unix_number(type: SqlType) -> SqlType:
    return BIGINT if type.kind in (Kind.INTEGER, Kind.DATE, Kind.DATETIME) else DOUBLE


def _text_if_formatted(types: Types) -> SqlType:
    return TEXT if len(types) == 2 else DATETIME


FUNCTIONS = registry(
    implemented("date", [DATE], DATE, lambda text: text),
    implemented("year", [moment], BIGINT, _year),
    implemented("month", [moment], BIGINT, _month),
    implemented("day", [moment], BIGINT, _day),
    implemented("hour", [moment], BIGINT, _hour),
    implemented("minute", [moment], BIGINT, _minute),
    implemented("second", [moment], BIGINT, _second),
    implemented("microsecond", [moment], BIGINT, _microsecond),
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
    implemented("date_format", [DATETIME, TEXT], TEXT, date_format),
    implemented("unix_timestamp", [DATETIME], BIGINT, _unix_timestamp),
    implemented("from_unixtime", [_unix_number, TEXT], _text_if_formatted, _from_unixtime, optional=1),
)
