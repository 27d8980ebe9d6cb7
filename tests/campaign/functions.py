"""MySQL 8's scalar functions and aggregates for the judge's SQLite, written from the manual and not from our engine.

A DECIMAL is a float here, rounded to its scale after every operation: with the campaign's small numbers the nearest
double of a decimal is canonical, so equality, grouping and DISTINCT hold.
"""

from __future__ import annotations

import calendar
import json
import re
import sqlite3
from datetime import date, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

from tests.campaign.kinds import time_text

Number = int | float


def exact(x: Number) -> Decimal:
    return Decimal(repr(x))


def rounded(x: Decimal, scale: int) -> float:
    result = float(x.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP))
    return result if result else 0.0


def my_dec(x: Number, scale: int) -> float:
    return rounded(exact(x), scale)


def my_quot(a: Number, b: Number, scale: int) -> float | None:
    return None if b == 0 else rounded(exact(a) / exact(b), scale)


def my_multiple(a: Number, b: Number, factor: int, digits: int, scale: int) -> float | None:
    """The quotient is cut after its digits, and only the product is rounded."""
    if b == 0:
        return None
    quotient = (exact(a) / exact(b)).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN)
    return rounded(quotient * factor, scale)


def my_fdiv(a: Number, b: Number) -> float | None:
    return None if b == 0 else a / b


def my_div(a: Number, b: Number) -> int | None:
    return None if b == 0 else int(exact(a) / exact(b))


def my_mod(a: Number, b: Number, scale: int) -> Number | None:
    if b == 0:
        return None
    result = exact(a) % exact(b)
    return rounded(result, scale) if scale else int(result)


def my_floor(x: Number) -> int:
    return int(exact(x).to_integral_value("ROUND_FLOOR"))


def my_ceil(x: Number) -> int:
    return int(exact(x).to_integral_value("ROUND_CEILING"))


def my_round(x: Number, scale: int) -> Number:
    result = rounded(exact(x), scale)
    return int(result) if isinstance(x, int) else result


def my_int(x: Number) -> int:
    return int(rounded(exact(x), 0))


def my_sign(x: Number) -> int:
    return (x > 0) - (x < 0)


def my_num(x: str) -> float:
    found = re.match(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", x)
    return float(found.group()) if found else 0.0


def my_text_int(x: str) -> int:
    found = re.match(r"\s*[+-]?\d+", x)
    return int(found.group()) if found else 0


def my_text(x: Number | str, scale: int) -> str:
    if isinstance(x, str):
        return x
    if isinstance(x, int):
        return str(x) if not scale else f"{x:.{scale}f}"
    return f"{x:.{scale}f}" if scale else f"{x:g}"


def my_like(x: str, pattern: str) -> int:
    parts = {"%": ".*", "_": "."}
    regex = "".join(parts.get(character) or re.escape(character) for character in pattern)
    return int(re.fullmatch(regex, x, re.DOTALL) is not None)


def my_substring(x: str, start: int, length: int) -> str:
    if start == 0 or length <= 0:
        return ""
    if start < 0:
        start += len(x) + 1
        if start <= 0:
            return ""
    return x[start - 1 : start - 1 + length]


def my_left(x: str, length: int) -> str:
    return x[: max(length, 0)]


def my_right(x: str, length: int) -> str:
    return x[-length:] if length > 0 else ""


def my_lpad(x: str, length: int, pad: str) -> str | None:
    if length < 0:
        return None
    if length <= len(x):
        return x[:length]
    return (pad * length)[: length - len(x)] + x


def my_locate(part: str, x: str) -> int:
    return x.find(part) + 1


def my_replace(x: str, old: str, new: str) -> str:
    return x.replace(old, new) if old else x


def my_regexp_instr(x: str, pattern: str) -> int:
    found = re.search(pattern, x)
    return found.start() + 1 if found else 0


def my_regexp_replace(x: str, pattern: str, by: str) -> str:
    return re.sub(pattern, by.replace("$", "\\"), x)


def my_date_add(x: str, count: int, unit: str) -> str:
    day = date.fromisoformat(x)
    if unit == "DAY":
        return (day + timedelta(days=count)).isoformat()
    months = day.year * 12 + day.month - 1 + count * (12 if unit == "YEAR" else 1)
    year, month = divmod(months, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1])).isoformat()


def my_datediff(a: str, b: str) -> int:
    return (date.fromisoformat(a) - date.fromisoformat(b)).days


def my_time_text(seconds: int) -> str:
    return time_text(seconds)


def my_clipped(seconds: int) -> int:
    """MySQL's TIME ends at 838:59:59."""
    return max(-3_020_399, min(seconds, 3_020_399))


def my_date_part(x: str, part: str) -> int:
    day = date.fromisoformat(x)
    return {
        "YEAR": day.year,
        "MONTH": day.month,
        "DAYOFMONTH": day.day,
        "DAYOFWEEK": day.isoweekday() % 7 + 1,
        "DAYOFYEAR": day.timetuple().tm_yday,
        "QUARTER": (day.month + 2) // 3,
        "WEEKDAY": day.weekday(),
    }[part]


def my_date_format(x: str, form: str) -> str:
    return date.fromisoformat(x).strftime(form)


def my_last_day(x: str) -> str:
    day = date.fromisoformat(x)
    return day.replace(day=calendar.monthrange(day.year, day.month)[1]).isoformat()


# --- ENUM, SET, JSON ------------------------------------------------------------------------------------------------


def my_place(x: str, members: str) -> int:
    return members.split(",").index(x) + 1


def my_bits(x: str, members: str) -> int:
    return sum(1 << place for place, member in enumerate(members.split(",")) if member in x.split(","))


def my_found(member: str, x: str, members: str) -> int:
    """FIND_IN_SET of a SET: the place of the member in the type, where the value has it."""
    return members.split(",").index(member) + 1 if member in x.split(",") else 0


def json_text(value: Any) -> str:
    """As MySQL prints it: keys by their lengths, then by their bytes."""
    if isinstance(value, list):
        return f"[{', '.join(map(json_text, value))}]"
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return "{" + ", ".join(f"{json_text(key)}: {json_text(value[key])}" for key in keys) + "}"
    return json.dumps(value, ensure_ascii=False)


def my_json_key(x: str) -> str:
    """A text that is sorted as MySQL sorts documents; the document itself is the end of it."""
    return f"{_json_key(json.loads(x))}\x02{x}"


def _json_key(value: Any) -> str:
    match value:
        case None:
            return "a"
        case bool():
            return f"f{int(value)}"
        case int() | float():
            return f"b{value + 1_000_000:020.6f}"
        case str():
            return f"c{value}\x01"
        case dict():
            keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
            return f"d{len(value):03}" + "".join(f"{key}\x01{_json_key(value[key])}" for key in keys)
        case list():
            return "e" + "".join(map(_json_key, value)) + "\x01"
    raise AssertionError(f"{value!r} in JSON")


def my_json_of_key(key: str) -> str:
    return key.rpartition("\x02")[2]


def my_json_extract(x: str, path: str) -> str | None:
    """``$.key`` or ``$[n]``; what is no array is an array of itself."""
    value = json.loads(x)
    if path.startswith("$."):
        found = isinstance(value, dict) and path[2:] in value
        return json_text(value[path[2:]]) if found else None
    place, value = int(path[2:-1]), value if isinstance(value, list) else [value]
    return json_text(value[place]) if place < len(value) else None


def my_json_unquote(x: str) -> str:
    value = json.loads(x)
    return value if isinstance(value, str) else x


def my_json_length(x: str) -> int:
    value = json.loads(x)
    return len(value) if isinstance(value, list | dict) else 1


def my_json_type(x: str) -> str:
    names = {bool: "BOOLEAN", int: "INTEGER", str: "STRING", dict: "OBJECT", list: "ARRAY", float: "DOUBLE"}
    value = json.loads(x)
    return "NULL" if value is None else names[type(value)]


def my_json_holds(x: str, y: str) -> int:
    """Whether a document contains a scalar, as JSON_CONTAINS has it: an array one of its elements, nothing else."""
    value, wanted = json.loads(x), json.loads(y)
    values = value if isinstance(value, list) else [value]
    return int(any(type(each) is type(wanted) and each == wanted for each in values))


def my_json_object(key: str, value: Any) -> str:
    return json_text({key: value})


def my_json_array(one: Any, two: Any) -> str:
    return json_text([one, two])


def my_json_set(x: str, key: str, value: Any) -> str:
    document = json.loads(x)
    return json_text({**document, key: value}) if isinstance(document, dict) else x


class Average:
    """AVG of exact numbers, rounded half up to the scale that is its second argument."""

    def __init__(self) -> None:
        self.total, self.count, self.scale = Decimal(0), 0, 0

    def step(self, x: Number | None, scale: int) -> None:
        if x is not None:
            self.total, self.count, self.scale = self.total + exact(x), self.count + 1, scale

    def finalize(self) -> float | None:
        return rounded(self.total / self.count, self.scale) if self.count else None


class DistinctAverage(Average):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Number] = set()

    def step(self, x: Number | None, scale: int) -> None:
        if x is not None and x not in self.seen:
            self.seen.add(x)
            super().step(x, scale)


class Variance:
    """VARIANCE and STDDEV, from the distances to the mean."""

    name = "my_var_pop"
    less, power = 0, 1.0

    def __init__(self) -> None:
        self.values: list[Fraction] = []

    def step(self, x: Number | None) -> None:
        if x is not None:
            self.values.append(Fraction(exact(x)))

    def finalize(self) -> float | None:
        count = len(self.values)
        if count <= self.less:
            return None
        mean = sum(self.values) / count
        return float(sum((x - mean) ** 2 for x in self.values) / (count - self.less)) ** self.power


class VarianceOfSample(Variance):
    name = "my_var_samp"
    less = 1


class Deviation(Variance):
    name = "my_stddev_pop"
    power = 0.5


class DeviationOfSample(VarianceOfSample):
    name = "my_stddev_samp"
    power = 0.5


class BitAnd:
    """The lower 16 bits of BIT_AND, and of its like below."""

    name = "my_bit_and"
    bits = 0xFFFF

    def combined(self, one: int, other: int) -> int:
        return one & other

    def step(self, x: int | None) -> None:
        if x is not None:
            self.bits = self.combined(self.bits, x) & 0xFFFF

    def finalize(self) -> int:
        return self.bits


class BitOr(BitAnd):
    name = "my_bit_or"
    bits = 0

    def combined(self, one: int, other: int) -> int:
        return one | other


class BitXor(BitOr):
    name = "my_bit_xor"

    def combined(self, one: int, other: int) -> int:
        return one ^ other


class Concatenation:
    """GROUP_CONCAT(x ORDER BY y, x): values as text, sorted by (y, x)."""

    distinct = False

    def __init__(self) -> None:
        self.items: list[tuple[Any, Any]] = []
        self.separator, self.descending = ",", 0

    def step(self, x: Any, order: Any, separator: str, descending: int) -> None:
        self.separator, self.descending = separator, descending
        if x is not None:
            self.items.append((order, x))

    def finalize(self) -> str | None:
        if not self.items:
            return None
        items = list(set(self.items)) if self.distinct else self.items
        items.sort(key=lambda item: item[1])
        items.sort(
            key=lambda item: (item[0] is not None, item[0] if item[0] is not None else 0), reverse=bool(self.descending)
        )
        return self.separator.join(str(x) for _, x in items)


class DistinctConcatenation(Concatenation):
    distinct = True


class Array:
    """JSON_ARRAYAGG(x ORDER BY y, x): values as JSON, sorted by (y, x), NULLs first."""

    def __init__(self) -> None:
        self.items: list[tuple[Any, Any]] = []
        self.descending = 0

    def step(self, x: Any, order: Any, descending: int) -> None:
        self.descending = descending
        self.items.append((order, x))

    def finalize(self) -> str | None:
        self.items.sort(key=lambda item: (item[1] is not None, item[1] if item[1] is not None else 0))
        self.items.sort(
            key=lambda item: (item[0] is not None, item[0] if item[0] is not None else 0), reverse=bool(self.descending)
        )
        return f"[{','.join(json.dumps(x, ensure_ascii=False) for _, x in self.items)}]" if self.items else None


_ANY_NULL = (
    my_multiple, my_dec, my_quot, my_fdiv, my_div, my_mod, my_floor, my_ceil, my_round, my_int, my_sign, my_num,
    my_text_int, my_text, my_like, my_substring, my_left, my_right, my_lpad, my_locate, my_replace, my_date_add,
    my_regexp_instr, my_regexp_replace,
    my_time_text, my_clipped, my_datediff, my_date_part, my_date_format, my_last_day, my_place, my_bits, my_found,
    my_json_key, my_json_of_key, my_json_extract, my_json_unquote, my_json_length, my_json_type, my_json_holds,
)  # fmt: skip


def install(connection: sqlite3.Connection) -> None:
    """Register everything; a NULL argument makes all of these NULL."""
    for function in _ANY_NULL:

        def strict(*arguments: Any, function: Any = function) -> Any:
            return None if None in arguments else function(*arguments)

        connection.create_function(function.__name__, -1, strict, deterministic=True)
    for maker in (my_json_object, my_json_array):
        connection.create_function(maker.__name__, 2, maker, deterministic=True)
    connection.create_function("my_json_set", 3, lambda x, *rest: None if x is None else my_json_set(x, *rest))
    connection.create_aggregate("my_avg", 2, Average)  # type: ignore[arg-type]
    connection.create_aggregate("my_avg_distinct", 2, DistinctAverage)  # type: ignore[arg-type]
    for spread in (Variance, VarianceOfSample, Deviation, DeviationOfSample):
        connection.create_aggregate(spread.name, 1, spread)  # type: ignore[arg-type]
    for bits in (BitAnd, BitOr, BitXor):
        connection.create_aggregate(bits.name, 1, bits)  # type: ignore[arg-type]
    connection.create_aggregate("my_array", 3, Array)  # type: ignore[arg-type]
    connection.create_aggregate("my_concat", 4, Concatenation)  # type: ignore[arg-type]
    connection.create_aggregate("my_concat_distinct", 4, DistinctConcatenation)  # type: ignore[arg-type]
