"""Dates and times, with the results of the MySQL 8 manual (section 14.7)."""

from datetime import date, timedelta

import pytest
from scalar_cases import Day, Moment, Unit, dec, evaluate

from domains.errors import Unsupported
from domains.language.expressions import Constant, Field
from domains.language.functions import call
from domains.language.functions.temporal.dates import week
from domains.language.types import BIGINT, DATE, DATETIME, TEXT, Value

PARTS = [
    ("date", (Moment("2003-12-31 01:02:03"),), "2003-12-31"),
    ("date", ("2003-12-31 01:02:03",), "2003-12-31"),
    ("date", ("2003-2-3",), "2003-02-03"),
    ("date", (20031231,), "2003-12-31"),
    ("date", ("2003-02-30",), None),
    ("date", ("abc",), None),
    ("date", (5,), None),
    ("year", (Day("1987-01-01"),), 1987),
    ("month", ("2008-02-03",), 2),
    ("day", (Day("2007-02-03"),), 3),
    ("hour", (Moment("2008-02-03 10:05:03"),), 10),
    ("hour", (Day("2008-02-03"),), 0),
    ("minute", ("2008-02-03 10:05:03",), 5),
    ("second", (Moment("2008-02-03 10:05:03"),), 3),
    ("microsecond", (Moment("2019-12-31 23:59:59.000010"),), 10),
    ("dayofweek", ("2007-02-03",), 7),
    ("weekday", ("2008-02-03 22:23:00",), 6),
    ("weekday", ("2007-11-06",), 1),
    ("dayofyear", ("2007-02-03",), 34),
    ("dayname", ("2007-02-03",), "Saturday"),
    ("monthname", ("2008-02-03",), "February"),
    ("quarter", ("2008-04-01",), 2),
    ("week", ("2008-02-20",), 7),
    ("week", ("2008-02-20", 0), 7),
    ("week", ("2008-02-20", 1), 8),
    ("week", ("2008-12-31", 1), 53),
    ("week", ("2000-01-01", 0), 0),
    ("week", ("2000-01-01", 2), 52),
    ("yearweek", ("1987-01-01",), 198652),
    ("datediff", ("2007-12-31 23:59:59", "2007-12-30"), 1),
    ("datediff", (Day("2010-11-30"), "2010-12-31"), -31),
    ("last_day", ("2003-02-05",), "2003-02-28"),
    ("last_day", ("2004-02-05",), "2004-02-29"),
    ("last_day", ("2003-03-32",), None),
    ("to_days", ("2007-10-07",), 733321),
    ("from_days", (730669,), "2000-07-03"),
    ("from_days", (5,), None),
    ("unix_timestamp", ("2015-11-13 10:20:19",), 1447410019),
    ("unix_timestamp", ("1969-12-31",), 0),
    ("from_unixtime", (1447430881,), "2015-11-13 16:08:01"),
    ("from_unixtime", (1447430881.5,), "2015-11-13 16:08:01.500000"),
    ("from_unixtime", (-1,), None),
    ("from_unixtime", (1447430881, "%Y-%m"), "2015-11"),
    ("from_unixtime", (None,), None),
]

FORMATS = [
    ("date_format", ("2009-10-04 22:23:00", "%W %M %Y"), "Sunday October 2009"),
    ("date_format", ("2007-10-04 22:23:00", "%H:%i:%s"), "22:23:00"),
    ("date_format", ("1900-10-04 22:23:00", "%D %y %a %d %m %b %j"), "4th 00 Thu 04 10 Oct 277"),
    ("date_format", ("1997-10-04 22:23:00", "%H %k %I %r %T %S %w"), "22 22 10 10:23:00 PM 22:23:00 00 6"),
    ("date_format", ("1999-01-01", "%X %V"), "1998 52"),
    ("date_format", (Day("2026-01-01"), "%e/%c %l%p %f%%%q%"), "1/1 12AM 000000%q%"),
    ("date_format", ("2026-01-11 00:00:00", "%D %U %u %v %x"), "11th 02 02 02 2026"),
    ("date_format", ("nothing", "%Y"), None),
    ("str_to_date", ("01,5,2013", Unit("%d,%m,%Y")), "2013-05-01"),
    ("str_to_date", ("May 1, 2013", Unit("%M %d,%Y")), "2013-05-01"),
    ("str_to_date", ("2013-05-01 09:30:17", Unit("%Y-%m-%d %T")), "2013-05-01 09:30:17"),
    ("str_to_date", ("2013-05-01 09:30 PM", Unit("%Y-%m-%d %h:%i %p")), "2013-05-01 21:30:00"),
    ("str_to_date", ("2013-02-30", Unit("%Y-%m-%d")), None),
    ("str_to_date", ("abc", Unit("%Y-%m-%d")), None),
    ("str_to_date", ("05-06", Unit("%m-%d")), None),
    ("str_to_date", ("2024-05", Unit("%Y-%d")), None),
    ("str_to_date", ("2024-05-06", Unit("%Y-%m-%d %H:%i")), "2024-05-06 00:00:00"),
    ("str_to_date", ("2024-05-06 13:00 PM", Unit("%Y-%m-%d %h:%i %p")), None),
    ("str_to_date", ("9th FEBRUARY 24", Unit("%D %M %y")), "2024-02-09"),
    ("str_to_date", ("9 feb 24", Unit("%e %M %y")), "2024-02-09"),
    ("str_to_date", ("9 Ju 24", Unit("%e %M %y")), None),
    ("str_to_date", ("2024 060", Unit("%Y %j")), "2024-02-29"),
    ("str_to_date", ("Friday 9.2.2024", Unit("%W %d.%m.%Y")), "2024-02-09"),
]

MOVES = [
    ("date_add", (Day("2018-05-01"), 1, Unit("DAY")), "2018-05-02"),
    ("date_sub", ("2018-05-01", 1, Unit("YEAR")), "2017-05-01"),
    ("date_add", ("2020-12-31 23:59:59", 1, Unit("second")), "2021-01-01 00:00:00"),
    ("date_add", (Moment("2018-12-31 23:59:59"), 1, Unit("DAY")), "2019-01-01 23:59:59"),
    ("date_add", (Day("2023-01-31"), 1, Unit("MONTH")), "2023-02-28"),
    ("date_add", (Day("2024-01-31"), 1, Unit("QUARTER")), "2024-04-30"),
    ("date_add", (Day("2024-02-29"), 1, Unit("YEAR")), "2025-02-28"),
    ("date_add", (Day("2013-01-01"), 1, Unit("HOUR")), "2013-01-01 01:00:00"),
    ("date_add", ("2013-01-01", 1, Unit("HOUR")), "2013-01-01 01:00:00"),
    ("date_add", (Moment("2013-01-01 00:00:00"), dec("1.5"), Unit("SECOND")), "2013-01-01 00:00:01.500000"),
    ("date_add", (Day("2013-01-01"), dec("1.5"), Unit("DAY")), "2013-01-03"),
    ("date_add", (Day("2013-01-01"), "2", Unit("WEEK")), "2013-01-15"),
    ("date_add", (Day("9999-12-31"), 1, Unit("DAY")), None),
    ("date_add", (Day("2013-01-01"), 2**62, Unit("MONTH")), None),
    ("date_add", ("abc", 1, Unit("DAY")), None),
    ("date_add", (Day("2013-01-01"), None, Unit("DAY")), None),
    ("timestampdiff", (Unit("MONTH"), "2003-02-01", "2003-05-01"), 3),
    ("timestampdiff", (Unit("YEAR"), "2002-05-01", "2001-01-01"), -1),
    ("timestampdiff", (Unit("MINUTE"), "2003-02-01", "2003-05-01 12:05:55"), 128885),
    ("timestampdiff", (Unit("DAY"), Moment("2026-01-02 00:00:00"), Moment("2026-01-01 00:00:01")), 0),
    ("timestampdiff", (Unit("MONTH"), "2026-01-31", "2026-02-28"), 0),
    ("timestampdiff", (Unit("DAY"), "x", "2026-02-28"), None),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), PARTS + FORMATS + MOVES)
def test_result(name: str, arguments: tuple[Value, ...], expected: Value) -> None:
    assert evaluate(name, *arguments) == expected


def test_weeks_agree_with_python() -> None:
    """Mode 0 is ``%U``, mode 5 is ``%W`` and mode 3 is the ISO week; the others are defined from them."""
    day = date(1999, 12, 20)
    while day < date(2029, 1, 15):
        assert week(day, 0) == (day.year, int(day.strftime("%U")))
        assert week(day, 5) == (day.year, int(day.strftime("%W")))
        assert week(day, 3) == day.isocalendar()[:2]
        for mode in (2, 6, 7):
            year, number = week(day, mode)
            plain = week(day, mode ^ 2)[1]
            assert plain == number if year == day.year else plain in (0, 52, 53)
        day += timedelta(days=1)


def test_the_type_follows_the_unit() -> None:
    day, amount = Field(0, DATE), Field(1, BIGINT)

    def moved(unit: str) -> object:
        return call("date_add", day, amount, Constant(unit, TEXT)).type

    assert (moved("month"), moved("HOUR")) == (DATE, DATETIME)
    assert (moved("year_month"), moved("DAY_HOUR")) == (DATE, DATETIME)
    with pytest.raises(Unsupported, match='interval unit "hour_day" is not supported'):
        moved("HOUR_DAY")
    with pytest.raises(Unsupported, match="must be a constant"):
        call("date_add", day, amount, Field(2, TEXT))


def test_a_format_that_is_endless_is_null() -> None:
    """68 s of one thread, when each sign of it copied the rest of the text."""
    assert evaluate("str_to_date", "1" * 1_000_000, "%d" * 100_000) is None
    assert evaluate("date_format", "2024-01-02", "%d" * 501) is None
    assert evaluate("date_format", "2024-01-02", "%d" * 500) == "02" * 500
