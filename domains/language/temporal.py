"""DATE and DATETIME as text: one canonical spelling, so that order, equality and JSON are those of the text.

``2026-01-31`` and ``2026-01-31 08:00:00``, with ``.ffffff`` only where the fraction is not zero. Years run from 1 to
9999. Everything is in UTC: an offset that a text carries is applied and dropped, and digits after the sixth of a
fraction are cut off.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

MOMENTS_KNOWN = 1024
"""Number of texts whose canonical form is cached. Rows that are written together mostly have the same moments; to parse
and print one takes 0.8 µs, and a cached one 0.06."""

_SEPARATED = re.compile(
    r"\s*([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})"
    r"(?:(?:[Tt]|\s+)([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?"
    r"\s*([Zz]|[+-][0-9]{2}:?[0-9]{2})?)?\s*"
)
_DIGITS = re.compile(r"\s*([0-9]{4})([0-9]{2})([0-9]{2})(?:[Tt]?([0-9]{2})([0-9]{2})([0-9]{2})(?:\.([0-9]*))?)?()\s*")


def parse_moment(text: str) -> datetime | None:
    """The moment (UTC, without a zone) that a text names, or None where it names none.

    ``2026-01-31``, ``2026-01-31 08:00[:00[.5]]``, ``2026-01-31T08:00:00Z``, ``…+02:00``, ``20260131[080000]``;
    one-digit months, days and hours, and ``/`` or ``.`` between the parts of the date, as MySQL takes them.
    """
    match = _SEPARATED.fullmatch(text) or _DIGITS.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "")[:6].ljust(6, "0")),
        )
        if zone and zone not in "Zz":
            offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            moment = moment - offset if zone[0] == "+" else moment + offset
    except (ValueError, OverflowError):
        return None
    return moment


def canonical_date(text: str) -> str | None:
    """The canonical DATE of a text (the day of a DATETIME), or None."""
    if _is_canonical_date(text):
        return text
    moment = parse_moment(text)
    return None if moment is None else str(moment.date())


def canonical_datetime(text: str) -> str | None:
    """The canonical DATETIME of a text (midnight of a DATE), or None."""
    if _is_canonical_datetime(text):
        return text
    moment = parse_moment(text)
    return None if moment is None else str(moment)


def _is_canonical_date(text: str) -> bool:
    """Python's C parser accepts more texts than we do, but it prints our canonical form."""
    try:
        return len(text) == 10 and str(date.fromisoformat(text)) == text
    except ValueError:
        return False


@lru_cache(MOMENTS_KNOWN)
def _is_canonical_datetime(text: str) -> bool:
    if len(text) < 19:
        return False
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    return moment.tzinfo is None and str(moment) == text


def datetime_of_number(number: int) -> str | None:
    """20260131 and 20260131080000 as canonical DATETIME, as MySQL reads numbers where it wants a date."""
    return canonical_datetime(str(number)) if 10_00_00_00 <= number < 10**14 else None


def utc_text(moment: datetime) -> str:
    """The canonical DATETIME of a Python datetime; one without a zone is taken as UTC.

    Raises OverflowError if its offset moves it out of the years 1 to 9999.
    """
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return str(moment)
