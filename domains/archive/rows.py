"""The columns of an archive's Parquet files: their names, their types, and how a stored value goes in and comes out.

===========  =======================  =====================================================================
kind         Arrow type               notes
===========  =======================  =====================================================================
INTEGER      int64                    BOOL too, as 0 and 1; BIGINT UNSIGNED is uint64
DOUBLE       double
DECIMAL      decimal128(p, s)         decimal256 above 38 digits, which not every reader has
TEXT, JSON   string
BLOB         binary
DATE         date32
DATETIME     timestamp[us]            without a zone: it is UTC
TIME         int64                    microseconds
===========  =======================  =====================================================================

Before them come ``_seq`` (int64), ``_weight`` (int32) and ``_epoch`` (int64). All *stored* columns are there: one that
was dropped keeps its place as ``_dropped_3``, since the rows of before that are only found with it. What Arrow types
are called stands here as text, so that the engine needs no Arrow.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, TypeVar

from domains.language.durations import micros_of, of_micros
from domains.language.types import Kind, SqlType, TableSchema, Value

# A block is a run of plain values as bytes, for rows between the tasks of a bulk job, for states in files and commands.
#
# ``marshal`` of a list, 0.1 µs a row of three values; format 2, which is pinned and is a function of the content
# alone. It holds None, integers of any size, floats, texts (also half a surrogate pair), bytes, and tuples of them.
# What it cannot hold is a *list*, which nothing else is: of one text for a Decimal, of microseconds for a TIME. A block
# that has one begins with another byte, so that all others are decoded without a look at their values.
#
# A block comes from a process of our own, in a file with a digest or over a connection of our own: like ``marshal``
# itself, it trusts its input, and is no format for strangers.

BLOCK_ITEMS = 1_000
"""Items of a block, at most: a step that loads one takes some milliseconds, so that reads and writes between two of
them do not notice."""
VERSION = 2
PLAIN, WITH_LISTS = b"p", b"d"

Item = TypeVar("Item")


def encode_block(items: Sequence[Any]) -> bytes:
    """The bytes of a list of plain values."""
    try:
        return PLAIN + marshal.dumps(list(items), VERSION)
    except ValueError:
        return WITH_LISTS + marshal.dumps([_marshalled(item) for item in items], VERSION)


def decode_block(data: bytes) -> list[Any]:
    items: list[Any] = marshal.loads(data[1:])
    return items if data[:1] == PLAIN else [_restored(item) for item in items]


def blocks_of(items: Iterable[Item], size: int = BLOCK_ITEMS) -> Iterator[list[Item]]:
    """Items in runs of ``size``, the last one shorter; none where there are no items."""
    rest = iter(items)
    while block := list(islice(rest, size)):
        yield block


def _marshalled(value: Any) -> Any:
    if isinstance(value, Decimal):
        return [str(value)]
    if isinstance(value, timedelta):
        return [micros_of(value)]
    return tuple([_marshalled(each) for each in value]) if type(value) is tuple else value


def _restored(value: Any) -> Any:
    if type(value) is list:
        return Decimal(value[0]) if isinstance(value[0], str) else of_micros(value[0])
    return tuple([_restored(each) for each in value]) if type(value) is tuple else value


SEQUENCE, WEIGHT, EPOCH = "_seq", "_weight", "_epoch"
LEADING: tuple[tuple[str, str], ...] = ((SEQUENCE, "int64"), (WEIGHT, "int32"), (EPOCH, "int64"))
"""Name and Arrow type of what stands before the table's columns."""

WEIGHT_MAX = 2**31 - 1
"""A row that is stored more often than this stands in a snapshot several times."""

DECIMAL_DIGITS = 65
"""The number of digits where the type does not say."""

SPARKS_DIGITS = 38
"""The digits of a DECIMAL that Spark reads. MySQL and Headrace have up to 65: such a column Spark cannot read at
all."""

_Converter = Callable[[Value], object]


def archived_names(schema: TableSchema) -> tuple[str, ...]:
    """The names of the stored columns, in their order; no two are equal, in whatever case.

    A live column has its own name, but for one that would be taken for one of ours: ``_seq`` is ``_column_0``.
    """
    taken = {name for name, _ in LEADING}
    names: list[str] = []
    for position, column in enumerate(schema.columns):
        if column.dropped:
            names.append(f"_dropped_{position}")
        elif column.name.lower() in taken or column.name.lower().startswith(("_dropped_", "_column_")):
            names.append(f"_column_{position}")
        else:
            names.append(column.name)
    return tuple(names)


def arrow_type_of(type: SqlType) -> str:
    """Arrow's name of the type: ``int64``, ``decimal128(10, 2)`` …"""
    match type.kind:
        case Kind.INTEGER:
            return "uint64" if type.high is not None and type.high >= 2**63 else "int64"
        case Kind.DECIMAL:
            digits = digits_of(type)
            return f"decimal{128 if digits <= 38 else 256}({digits}, {type.scale})"
        case Kind.DOUBLE:
            return "double"
        case Kind.TEXT | Kind.JSON:
            return "string"
        case Kind.BLOB:
            return "binary"
        case Kind.DATE:
            return "date32"
        case Kind.DATETIME:
            return "timestamp[us]"
        case Kind.TIME:
            return "int64"
        case Kind.NULL:
            raise AssertionError("no column of a table has the type of a bare NULL")


def digits_of(type: SqlType) -> int:
    """The number of digits of a DECIMAL."""
    return type.length or DECIMAL_DIGITS


def archiver_of(type: SqlType) -> _Converter | None:
    """The function from a stored value, not NULL, to what Arrow takes for the type; None: the value itself."""
    return _TO_ARCHIVE.get(type.kind)


def restorer_of(type: SqlType) -> Callable[[object], Value] | None:
    """The function from what Arrow gives, not NULL, to the stored value; None: the value itself."""
    return _FROM_ARCHIVE.get(type.kind)


def _to_date(value: Value) -> object:
    return date.fromisoformat(str(value))


def _to_moment(value: Value) -> object:
    return datetime.fromisoformat(str(value))


def _to_micros(value: Value) -> object:
    assert isinstance(value, timedelta)
    return micros_of(value)


def _from_micros(value: object) -> Value:
    assert isinstance(value, int)
    return of_micros(value)


_TO_ARCHIVE: dict[Kind, _Converter] = {Kind.DATE: _to_date, Kind.DATETIME: _to_moment, Kind.TIME: _to_micros}
_FROM_ARCHIVE: dict[Kind, Callable[[object], Value]] = {Kind.DATE: str, Kind.DATETIME: str, Kind.TIME: _from_micros}
"""``str`` of a date and a datetime is our canonical text."""
