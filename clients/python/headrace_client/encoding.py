"""Python values as the server reads them, in JSON and in query strings."""

from __future__ import annotations

import base64
import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from headrace_client.errors import BadRequest

# Values that JSON has no type for, as Python's: DECIMAL as ``Decimal``; DATE and DATETIME as those of ``datetime``, and
# TIME as its ``timedelta``.
#
# In an answer they are strings, and so is a text. The answers of look-ups name their columns in the header
# ``Headrace-Types``, by place, for each view that was asked for; those of SQL give the type of each column::
#
#     Headrace-Types: 2:DECIMAL 4:DATETIME, -, 0:DATE
#                     └ first view ───────┘  │  └ third
#                                            └ second: JSON has a type for all of its columns

HEADER = "Headrace-Types"

Convert = Callable[[Any], Any]


def _duration(text: str) -> timedelta:
    """The duration of a text such as ``-838:59:59.5``."""
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    micros = int(fraction.ljust(6, "0")) if fraction else 0
    found = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=micros)
    return -found if text.startswith("-") else found


_BY_KIND: dict[str, Convert] = {
    "DECIMAL": Decimal,
    "DATE": date.fromisoformat,
    "DATETIME": datetime.fromisoformat,
    "TIME": _duration,
    "BLOB": b64decode,
}
_BY_NAME: dict[str, Convert] = {
    **_BY_KIND,
    "TIMESTAMP": datetime.fromisoformat,
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB"), b64decode),
}
"""The reader of a value, by the name of its column's type without sizes."""


def pages(views: Sequence[Sequence[Sequence[dict[str, Any]]]], types: str) -> None:
    """Convert the records of each view's pages, in place; ``types`` is the header's value.

    :raises ValueError: they are not what the header says.
    """
    for view, named in zip(views, types.split(","), strict=True):
        found = [each.split(":") for each in named.split() if each != "-"]
        converted = [(int(place), _BY_KIND[kind]) for place, kind in found if kind in _BY_KIND]
        if converted:
            for page in view:
                _convert(page, converted)


def _convert(page: Sequence[dict[str, Any]], converted: Iterable[tuple[int, Convert]]) -> None:
    if not page:
        return
    names = list(page[0])
    for place, convert in converted:
        name = names[place]
        for record in page:
            value = record[name]
            if value is not None:
                record[name] = convert(value)


def rows(types: Sequence[str], given: Iterable[Sequence[Any]]) -> tuple[tuple[Any, ...], ...]:
    """The rows of SQL, whose columns are of these types."""
    converted = [_BY_NAME.get(name.partition("(")[0]) for name in types]
    if not any(converted):
        return tuple(map(tuple, given))
    return tuple(
        tuple(
            value if value is None or convert is None else convert(value)
            for value, convert in zip(row, converted, strict=True)
        )
        for row in given
    )


# Values in a key of ``lookups`` that come from the answer of a look-up before it, in the same request.
#
# ::
#
#     db.lookups([("StoryByName", [["abc"]]), ("VotesOn", [[first(0, "id")]])])
#
# The first argument is the place of that look-up, from 0 on, the second a column of its view.


class Reference(dict[str, tuple[int, str]]):
    """A reference in the form that the server takes; a type of its own, so that a key by name is not taken for one."""


def first(place: int, column: str) -> Reference:
    """The value in the first row; NULL where there is none."""
    return Reference(first=(place, column))


def all_of(place: int, column: str) -> Reference:
    """The values in all rows, each once, as the list of an IN parameter."""
    return Reference(all=(place, column))


def each(place: int, column: str) -> Reference:
    """Makes a key for each row; several in one key are of the same row."""
    return Reference(each=(place, column))


NOT_FINITE = "a value cannot be sent: NaN and infinities are no SQL values"


def to_json(value: Any) -> bytes:
    """Bytes are named as such: base64 alone would be a text to a column of texts, and be stored or compared as that.

    :raises BadRequest: a value that JSON or SQL has not.
    """
    try:
        return _dumps(value).encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"a value cannot be sent: {error}", hint="a text has half of a surrogate pair") from error
    except ValueError as error:
        raise BadRequest(NOT_FINITE if "float" in str(error) else f"a value cannot be sent: {error}") from error
    except (TypeError, RecursionError) as error:
        raise BadRequest(f"a value cannot be sent: {error}") from error


def sql_value(value: Any) -> Any:
    """A value for a ``?`` in SQL, where no column says the type: a decimal is named, too."""
    if isinstance(value, list | tuple):
        return [sql_value(each) for each in value]
    return {"DECIMAL": _plain(value)} if isinstance(value, Decimal) else value


def to_text(value: Any) -> str:
    """A value in a query string."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    return str(_plain(value))


def _named(value: Any) -> Any:
    return {"BLOB": _plain(value)} if isinstance(value, bytes) else _plain(value)


_dumps = json.JSONEncoder(default=_named, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
"""JSON without spaces: the server knows a look-up that was answered before by its text."""


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise BadRequest(NOT_FINITE)
        return format(value, "f")
    if isinstance(value, datetime):
        return _in_utc(value).isoformat(" ")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
        sign = "-" if value < timedelta() else ""
        fraction = f".{micros:06d}" if micros else ""
        return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, UUID):
        return str(value)
    raise BadRequest(f"a {type(value).__name__} is not an SQL value")


def _in_utc(value: datetime) -> datetime:
    """DATETIME has no zone: a value that has one is taken to UTC, one without is sent as it is."""
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise BadRequest(f"{value!r} is outside of the years 1 to 9999 in UTC") from error
