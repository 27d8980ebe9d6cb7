"""The types of generated columns and expressions, and the small domains that their values are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from random import Random

Value = None | int | float | str | Decimal | timedelta


class Kind(StrEnum):
    INT = "int"
    DEC = "dec"
    DBL = "dbl"
    TXT = "txt"
    DATE = "date"
    TIME = "time"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Type:
    kind: Kind
    scale: int = 0
    members: tuple[str, ...] = ()
    """Of a column that is an ENUM or a SET, which is text: compared by its name, sorted and numbered by its place."""
    is_set: bool = False

    @property
    def plain(self) -> Type:
        """What is made of a value of this type, and is no column."""
        return replace(self, members=(), is_set=False) if self.members else self

    @property
    def numeric(self) -> bool:
        return self.kind in (Kind.INT, Kind.DEC, Kind.DBL)


INT = Type(Kind.INT)
DBL = Type(Kind.DBL)
TXT = Type(Kind.TXT)
DATE = Type(Kind.DATE)
TIME = Type(Kind.TIME)
JSON = Type(Kind.JSON)


def dec(scale: int) -> Type:
    return Type(Kind.DEC, scale)


# Small, so that joins hit, groups collide and keys are hit again. The doubles are sums of powers of two: their sums
# are exact in any order, so that no difference can be a rounding. No text ends with a space (collations differ there).
INTEGERS = (0, 1, 1, 2, 2, 3, 3, 4, 5, -1, 10)
DECIMALS = ("0.00", "0.50", "1.25", "1.25", "2.00", "3.75", "-1.50", "10.10")
DOUBLES = (0.0, 0.5, 1.5, 1.5, -2.25, 4.0)
TEXTS = ("a", "a", "b", "b", "c", "d", "e", "", "B", "ab", "a_c", "1", "01", "2x", "été")
DATES = ("2024-01-31", "2024-02-29", "2024-02-29", "2024-03-01", "2023-12-31", "2024-07-04")

DOCUMENTS = ("1", "2", "2", "10", '"a"', '"b"', "true", "false", '{"k": 1}', '{"k": 1}', '{"k": "a"}')
DOCUMENTS += ('{"k": 2, "l": "a"}', '{"k": [2]}', "{}", "[]", "[1]", "[1, 2]", '["a", null]')
"""As MySQL prints them, so that equal documents are equal texts."""

NOW = "2026-01-31 08:00:00"
"""The time of all statements and look-ups."""

TIMES = ("00:00:00", "10:11:12", "10:11:12", "-01:00:00", "-00:00:01", "100:00:00", "99:59:59", "838:59:59")


def draw(random: Random, type: Type) -> Value:
    """A value that is not NULL."""
    match type.kind:
        case Kind.INT:
            return random.choice(INTEGERS)
        case Kind.DEC:
            return Decimal(random.choice(DECIMALS))
        case Kind.DBL:
            return random.choice(DOUBLES)
        case Kind.JSON:
            return random.choice(DOCUMENTS)
        case Kind.TXT if type.is_set:
            chosen = random.sample(type.members, random.randint(0, len(type.members)))
            return ",".join(member for member in type.members if member in chosen)
        case Kind.TXT if type.members:
            return random.choice(type.members)
        case Kind.TXT:
            return random.choice(TEXTS)
        case Kind.DATE:
            return random.choice(DATES)
        case Kind.TIME:
            return duration(random.choice(TIMES))


def absent(type: Type) -> Value:
    """A value that no column holds."""
    values: dict[Kind, Value] = {
        Kind.INT: 77,
        Kind.DEC: Decimal("77.00"),
        Kind.DBL: 77.5,
        Kind.TXT: "absent",
        Kind.DATE: "2031-01-01",
        Kind.TIME: timedelta(hours=7),
        Kind.JSON: "77",
    }
    return values[type.kind]


SECOND = timedelta(seconds=1)


def duration(text: str) -> timedelta:
    hours, minutes, seconds = (int(part) for part in text.lstrip("-").split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=seconds) * (-1 if text.startswith("-") else 1)


def time_text(seconds: int) -> str:
    """As MySQL shows a TIME of whole seconds."""
    hours, rest = divmod(abs(seconds), 3600)
    return f"{'-' if seconds < 0 else ''}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def literal(value: Value) -> str:
    """The value as SQL, the same in MySQL and SQLite."""
    if value is None:
        return "NULL"
    if isinstance(value, timedelta):
        return f"'{time_text(value // SECOND)}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        return f"{value!r}e0"
    return str(value)
