"""The rows that JSON_TABLE makes of a document.

A :class:`JsonLevel` is a path and the columns of each value that it names; NESTED PATH is a level in a level::

    '$[*]' COLUMNS (n FOR ORDINALITY, id INT PATH '$.id', NESTED PATH '$.tags[*]' COLUMNS (tag TEXT PATH '$'))

    [{"id": 7, "tags": ["a", "b"]}, {"id": "x"}]   ──►   (1, 7, 'a')  (1, 7, 'b')  (2, NULL, NULL)

Levels beside each other have rows of their own, in which the others' columns are NULL. A value that does not fit its
column's type, as MySQL's strict mode has it, is an error, and what an error is (``on_error``) its column says: NULL, or
another value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

from domains.errors import TypeViolation
from domains.language.coercion import coerce
from domains.language.documents import NotJson, text_of_value, value_of
from domains.language.functions.json.paths import Path, found
from domains.language.types import BIGINT, Kind, Row, SqlType, Value


@dataclass(frozen=True, slots=True)
class OrdinalColumn:
    """FOR ORDINALITY: the number of the row in its level, from 1."""

    @property
    def types(self) -> tuple[SqlType, ...]:
        return (BIGINT,)


@dataclass(frozen=True, slots=True)
class PathColumn:
    path: Path
    """It names one value at most."""
    type: SqlType
    on_empty: Value = None
    """What it is where the path names nothing."""
    on_error: Value = None

    @property
    def types(self) -> tuple[SqlType, ...]:
        return (self.type,)


@dataclass(frozen=True, slots=True)
class ExistsColumn:
    """EXISTS PATH: whether the path names something."""

    path: Path
    type: SqlType
    present: Value
    absent: Value

    @property
    def types(self) -> tuple[SqlType, ...]:
        return (self.type,)


@dataclass(frozen=True, slots=True)
class JsonLevel:
    path: Path
    columns: tuple[JsonColumn, ...]

    @property
    def types(self) -> tuple[SqlType, ...]:
        return tuple(type for column in self.columns for type in column.types)

    @property
    def width(self) -> int:
        return len(self.types)


JsonColumn = OrdinalColumn | PathColumn | ExistsColumn | JsonLevel


def fitting(value: Any, type: SqlType) -> Value:
    """A document's value in a column of the type; JSON's null is NULL, but in a column of JSON.

    :raises TypeViolation: it does not fit, or is an array or object and the type is not JSON.
    """
    if type.kind is Kind.JSON:
        return text_of_value(value)
    if value is None:
        return None
    if isinstance(value, (list, dict)):
        raise TypeViolation("an array or object does not fit a column that is not JSON")
    is_spelt = type.kind in (Kind.TEXT, Kind.BLOB) and isinstance(value, (bool, float, Decimal))
    return coerce(text_of_value(value) if is_spelt else value, type)


def rows_maker(level: JsonLevel) -> Callable[[str], list[Row]]:
    """A function from a document to its rows, in the document's order."""

    def made(document: str) -> list[Row]:
        return _rows(level, value_of(document))

    return made


def _rows(level: JsonLevel, value: Any) -> list[Row]:
    result: list[Row] = []
    for number, each in enumerate(found(value, level.path), 1):
        parts: list[Row] = []
        nested: list[tuple[int, list[Row]]] = []
        for at, column in enumerate(level.columns):
            match column:
                case PathColumn():
                    parts.append((_at(column, each),))
                case OrdinalColumn():
                    parts.append((number,))
                case ExistsColumn(path, _, present, absent):
                    parts.append((present if found(each, path) else absent,))
                case JsonLevel():
                    parts.append((None,) * column.width)
                    nested += [(at, rows)] if (rows := _rows(column, each)) else []
        if not nested:
            result.append(tuple(chain.from_iterable(parts)))
        for at, rows in nested:
            before, behind = tuple(chain.from_iterable(parts[:at])), tuple(chain.from_iterable(parts[at + 1 :]))
            result += [before + row + behind for row in rows]
    return result


def _at(column: PathColumn, value: Any) -> Value:
    values = found(value, column.path)
    if not values:
        return column.on_empty
    try:
        return fitting(values[0], column.type)
    except (TypeViolation, NotJson):
        return column.on_error
