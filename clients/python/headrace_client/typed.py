"""Values that JSON has no type for, as Python's: DECIMAL as ``Decimal``, DATE and DATETIME as those of ``datetime``.

In an answer they are strings, and so is a text. The answers of look-ups name their columns in the header
``Headrace-Types``, by place, for each view that was asked for; those of SQL give the type of each column::

    Headrace-Types: 2:DECIMAL 4:DATETIME, -, 0:DATE
                    └ first view ───────┘  │  └ third
                                           └ second: JSON has a type for all of its columns
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

HEADER = "Headrace-Types"

Convert = Callable[[Any], Any]

_BY_KIND: dict[str, Convert] = {
    "DECIMAL": Decimal,
    "DATE": date.fromisoformat,
    "DATETIME": datetime.fromisoformat,
    "BLOB": b64decode,
}
_BY_NAME: dict[str, Convert] = {
    **_BY_KIND,
    "TIMESTAMP": datetime.fromisoformat,
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "MEDIUMBLOB", "LONGBLOB"), b64decode),
}
"""By the name of a column's type, without its sizes."""


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
