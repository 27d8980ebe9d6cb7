"""Columns and values in MySQL's two forms: text, for COM_QUERY, and binary, for prepared statements.

Rows come as the deployment answers them (numbers, texts, base64 for bytes: :class:`StatementResult`), with the SQL type
of each column. The type decides what MySQL calls it: ``DECIMAL(10,2)`` is NEWDECIMAL, of length 12 and 2 decimals. A
function for each column is made once a result, since it runs once a value.
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

from api.mysql.packets import NULL, PayloadReader, framed, length_of, malformed, text_of
from domains.errors import BadRequest, TypeViolation
from domains.language.json_rows import page_reader
from domains.language.types import Column, Kind, Origin, SqlType
from migrations.information.visible import key_mark, keys_of

BINARY = 63
"""The collation of what is no text."""

_NOT_NULL, _BLOB, _UNSIGNED, _BINARY, _ENUM, _SET = 1, 16, 32, 128, 256, 2048
_DECIMAL, _TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _NULL, _TIMESTAMP, _LONGLONG, _INT24 = range(10)
_DATE, _TIME, _DATETIME, _YEAR = 10, 11, 12, 13
_VARCHAR, _BIT, _JSON, _NEWDECIMAL, _TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB = 15, 16, 245, 246, 249, 250, 251
_BLOB_TYPE, _VAR_STRING, _STRING = 252, 253, 254

_INTEGERS: dict[str, tuple[int, int, int]] = {
    "TINYINT": (_TINY, 4, 3),
    "BOOL": (_TINY, 1, 1),
    "BOOLEAN": (_TINY, 1, 1),
    "SMALLINT": (_SHORT, 6, 5),
    "MEDIUMINT": (_INT24, 9, 8),
    "INT": (_LONG, 11, 10),
    "INTEGER": (_LONG, 11, 10),
    "BIGINT": (_LONGLONG, 20, 20),
    "YEAR": (_YEAR, 4, 4),
}
"""By the first word of the type: MySQL's type, and its length as signed and unsigned."""
_WORD = re.compile(r"[A-Z]+")
_DIGITS = re.compile(r"\((\d+)\)")
_TEXTS = {"TINYTEXT": 255, "TEXT": 65_535, "MEDIUMTEXT": 16_777_215, "LONGTEXT": 4_294_967_295}
_BLOBS = {"TINYBLOB": 255, "BLOB": 65_535, "MEDIUMBLOB": 16_777_215, "LONGBLOB": 4_294_967_295}


@dataclass(frozen=True, slots=True)
class Charset:
    """How a connection's texts are written: Python's codec, and the collation that columns are said to have."""

    name: str
    codec: str
    collation: int
    width: int

    def bytes_of(self, text: str) -> bytes:
        """As MySQL does, with ? for what the charset has not."""
        return text.encode(self.codec, "replace")

    def text_of(self, data: bytes) -> str:
        """:raises BadRequest: it is no text of this charset."""
        try:
            return data.decode(self.codec)
        except UnicodeDecodeError:
            data = _LITERAL.sub(_as_hex, data)
        try:
            return data.decode(self.codec)
        except UnicodeDecodeError as error:
            raise BadRequest(f"the text is not {self.name}: {error.reason} at byte {error.start}") from None


_LITERAL = re.compile(rb"'(?:[^'\\]|\\.|'')*+'", re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)|''", re.DOTALL)
_ESCAPES = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"Z": b"\x1a"}


def _as_hex(found: re.Match[bytes]) -> bytes:
    """A literal whose bytes are no text, as dumps have them of binary columns: ``x'00ff'``."""
    try:
        found[0].decode()
    except UnicodeDecodeError:
        plain = _ESCAPED.sub(lambda each: b"'" if each[1] is None else _ESCAPES.get(each[1], each[1]), found[0][1:-1])
        return b"x'" + plain.hex().encode() + b"'"
    return found[0]


UTF8 = Charset("utf8mb4", "utf-8", 255, 4)
CHARSETS = {
    each.name: each
    for each in (
        UTF8,
        Charset("utf8mb3", "utf-8", 33, 3),
        Charset("latin1", "cp1252", 8, 1),
        Charset("ascii", "ascii", 11, 1),
        Charset("binary", "utf-8", BINARY, 1),
    )
}
CHARSETS["utf8"] = CHARSETS["utf8mb3"]
_LATIN1, _ASCII = frozenset((5, 8, 15, 31, 47, 48, 49, 94)), frozenset((11, 65))
_UTF8MB3 = frozenset((33, 76, 83, *range(192, 216), 223))
_UTF8MB4 = frozenset((45, 46, *range(224, 248), *range(255, 324)))


def charset_of(collation: int) -> Charset | None:
    """The charset of a collation's number in a handshake; None where it is none of ours. 0 leaves it to the server."""
    if collation == 0:
        return UTF8
    for known, name in ((_UTF8MB4, "utf8mb4"), (_UTF8MB3, "utf8mb3"), (_LATIN1, "latin1"), (_ASCII, "ascii")):
        if collation in known:
            found = CHARSETS[name]
            return Charset(found.name, found.codec, collation, found.width)
    return CHARSETS["binary"] if collation == BINARY else None


# --- columns ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """What MySQL calls a column's type."""

    type: int
    length: int
    flags: int = 0
    decimals: int = 0
    is_text: bool = False
    """Written in the connection's charset."""


PARAMETER = Column("?", SqlType(Kind.TEXT, "VARCHAR", length=0))
"""A ? of a prepared statement, whose type is not known."""


def shape_of(type: SqlType) -> ColumnShape:
    found = _WORD.match(type.name)
    word = found[0] if found is not None else ""
    match type.kind:
        case Kind.INTEGER:
            return _integer(type, word)
        case Kind.DOUBLE:
            unsigned = 0 if type.low is None else _UNSIGNED
            return ColumnShape(*((_FLOAT, 12) if word == "FLOAT" else (_DOUBLE, 22)), unsigned, 31)
        case Kind.DECIMAL:
            unsigned = 0 if type.low is None else _UNSIGNED
            digits = type.length or 65
            return ColumnShape(_NEWDECIMAL, digits + (type.scale > 0) + (not unsigned), unsigned, type.scale)
        case Kind.DATE:
            return ColumnShape(_DATE, 10, _BINARY)
        case Kind.DATETIME:
            fraction = _fraction(type)
            code = _TIMESTAMP if word == "TIMESTAMP" else _DATETIME
            return ColumnShape(code, 19 + (fraction and fraction + 1), _BINARY, fraction)
        case Kind.TIME:
            fraction = _fraction(type)
            return ColumnShape(_TIME, 10 + (fraction and fraction + 1), _BINARY, fraction)
        case Kind.JSON:
            return ColumnShape(_JSON, 4_294_967_295, _BLOB | _BINARY)
        case Kind.NULL:
            return ColumnShape(_NULL, 0, _BINARY)
        case Kind.BLOB:
            if word in ("BINARY", "VARBINARY"):
                return ColumnShape(_STRING if word == "BINARY" else _VAR_STRING, type.length or 1, _BINARY)
            return ColumnShape(_BLOB_TYPE, _BLOBS.get(word, 65_535), _BLOB | _BINARY)
    if type.members:
        longest = max(map(len, type.members)) if not type.is_set else len(",".join(type.members))
        return ColumnShape(_STRING, longest, _SET if type.is_set else _ENUM, is_text=True)
    if word == "CHAR":
        return ColumnShape(_STRING, type.length or 1, is_text=True)
    if word == "VARCHAR":
        return ColumnShape(_VAR_STRING, type.length or 0, is_text=True)
    return ColumnShape(_BLOB_TYPE, _TEXTS.get(word, 65_535), _BLOB, is_text=True)


def _integer(type: SqlType, word: str) -> ColumnShape:
    unsigned = type.low == 0 and "UNSIGNED" in type.name.upper()
    if word == "BIT":
        digits = _DIGITS.search(type.name)
        return ColumnShape(_BIT, int(digits[1]) if digits else 1, _UNSIGNED)
    code, signed_length, unsigned_length = _INTEGERS.get(word, (_LONGLONG, 20, 20))
    if code == _TINY and "(1)" in type.name:
        signed_length = 1
    flags = _UNSIGNED if unsigned or code == _YEAR or (type.high or 0) >= 1 << 63 else 0
    return ColumnShape(code, unsigned_length if unsigned else signed_length, flags)


def _fraction(type: SqlType) -> int:
    digits = _DIGITS.search(type.name)
    return int(digits[1]) if digits else 0


def column_definition(column: Column, charset: Charset) -> bytes:
    shape, said = shape_of(column.type), column.origin or Origin(column.name)
    collation = charset.collation if shape.is_text else BINARY
    length = min(shape.length * (charset.width if shape.is_text else 1), 0xFFFFFFFF)
    database = "" if said.copied else said.schema
    names = ("def", database, said.source, said.named, said.title, said.column)
    flags = shape.flags | _flags_of(said, shape.type)
    return b"".join(
        (
            *(text_of(charset.bytes_of(name)) for name in names),
            b"\x0c",
            struct.pack("<HIBHBH", collation, length, shape.type, flags, shape.decimals, 0),
        )
    )


_KEYS = {"PRI": 2, "UNI": 4, "MUL": 8}
_ZEROFILL, _AUTO_INCREMENT, _OF_NOW, _NO_DEFAULT, _ON_UPDATE_NOW, _PART_OF_KEY = 64, 512, 1024, 4096, 8192, 16384
_NUMBERS = frozenset((_TINY, _SHORT, _INT24, _LONG, _LONGLONG, _FLOAT, _DOUBLE, _NEWDECIMAL))


def _flags_of(said: Origin, type: int) -> int:
    """Those that come of a column's table; a number that was computed is BINARY."""
    table = said.table
    if table is None:
        return _BINARY if type in _NUMBERS and not said.copied else 0
    column, flags = table.columns[said.at], 0 if said.nullable else _NOT_NULL
    filled = column.has_default or column.default_now or column.auto_increment or column.generated is not None
    if not column.nullable and not filled:
        flags |= _NO_DEFAULT
    if type in (_TIMESTAMP, _YEAR):
        flags |= _UNSIGNED if type == _TIMESTAMP else _ZEROFILL
    if said.copied:
        return flags
    if any(said.at in key.places for key in keys_of(table)):
        flags |= _PART_OF_KEY | _KEYS.get(key_mark(table, said.at), 0)
    if type == _TIMESTAMP and (column.default_now or column.on_update_now):
        flags |= _OF_NOW
    if column.on_update_now:
        flags |= _ON_UPDATE_NOW
    return flags | (_AUTO_INCREMENT if column.auto_increment else 0)


# --- rows ---------------------------------------------------------------------------------------------------------

ROWS_AT_A_TIME = 500
"""Rows that are written between two looks at whether the client reads, and at what else waits."""

Encoded = Callable[[Any], bytes]


def number_text(value: float) -> str:
    """A DOUBLE as MySQL writes it: 1, 0.1, 1e20."""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return re.sub(r"e([+-])0*", lambda sign: "e-" if sign[1] == "-" else "e", repr(value))


def _text(column: Column, shape: ColumnShape, charset: Charset) -> Encoded:
    """The text form of a value that is not NULL, without its length."""
    match column.type.kind:
        case Kind.INTEGER if shape.type == _BIT:
            size = (shape.length + 7) // 8
            return lambda value: int(value).to_bytes(size, "big")
        case Kind.DOUBLE:
            return lambda value: number_text(value).encode() if isinstance(value, float) else str(value).encode()
        case Kind.BLOB:
            return b64decode
        case Kind.DATETIME | Kind.TIME if shape.decimals:
            digits = shape.decimals
            return lambda value: _with_fraction(str(value), digits).encode()
        case Kind.JSON:
            return lambda value: str(value).encode()
    codec = charset.codec
    return lambda value: (value if type(value) is str else _plain(value)).encode(codec, "replace")


def _plain(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else str(value)


def _with_fraction(text: str, digits: int) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<{digits}.{digits}}"


class RowWriter:
    """Writes rows of these columns, in the text or in the binary form."""

    def __init__(
        self, columns: Sequence[Column], charset: Charset, *, binary: bool, between: bytes, last: bytes
    ) -> None:
        """``between``: the payload before the rows of an answer that is sent in one piece, if there is one; ``last``:
        the one behind them."""
        self.columns, self.charset, self._last = columns, charset, last
        shapes = [shape_of(column.type) for column in columns]
        self._texts = [_text(column, shape, charset) for column, shape in zip(columns, shapes, strict=True)]
        self._binary = [_binary(shape, text) for shape, text in zip(shapes, self._texts, strict=True)]
        self.rows: Callable[[Sequence[Sequence[Any]]], Iterator[bytes]]
        self.rows = self._binary_rows if binary else self._text_rows
        definitions = [column_definition(column, charset) for column in columns]
        self.head = (length_of(len(definitions)), *definitions)
        """The payloads before the rows: how many columns there are, and the definition of each."""
        self._begun, self._behind = framed((*self.head, between) if between else self.head, 1)
        self._values_of = page_reader(columns)

    def answer(self, page: bytes) -> tuple[bytes, int] | None:
        """An answer whose rows are a view's page, as packets, and how many they are; None where they are too many to be
        written while others wait."""
        rows = self._values_of(page)
        if len(rows) > ROWS_AT_A_TIME:
            return None
        data, _ = framed((*self.rows(rows), self._last), self._behind)
        return self._begun + data, len(rows)

    def _text_rows(self, rows: Sequence[Sequence[Any]]) -> Iterator[bytes]:
        for row in rows:
            yield b"".join(
                [
                    NULL if value is None else text_of(written(value))
                    for value, written in zip(row, self._texts, strict=True)
                ]
            )

    def _binary_rows(self, rows: Sequence[Sequence[Any]]) -> Iterator[bytes]:
        width = (len(self._binary) + 9) // 8
        no_nulls = bytes(1 + width)
        for row in rows:
            if None not in row:
                yield no_nulls + b"".join([written(value) for value, written in zip(row, self._binary, strict=True)])
                continue
            nulls, pieces = bytearray(width), [b"\0", b""]
            for place, (value, written) in enumerate(zip(row, self._binary, strict=True), 2):
                if value is None:
                    nulls[place >> 3] |= 1 << (place & 7)
                else:
                    pieces.append(written(value))
            pieces[1] = bytes(nulls)
            yield b"".join(pieces)


_FORMATS = {
    (_TINY, False): "<b",
    (_TINY, True): "<B",
    (_SHORT, False): "<h",
    (_SHORT, True): "<H",
    (_YEAR, True): "<H",
    (_INT24, False): "<i",
    (_INT24, True): "<I",
    (_LONG, False): "<i",
    (_LONG, True): "<I",
    (_LONGLONG, False): "<q",
    (_LONGLONG, True): "<Q",
    (_FLOAT, False): "<f",
    (_DOUBLE, False): "<d",
    (_FLOAT, True): "<f",
    (_DOUBLE, True): "<d",
}


def _binary(shape: ColumnShape, text: Encoded) -> Encoded:
    """The binary form of a value that is not NULL."""
    form = _FORMATS.get((shape.type, bool(shape.flags & _UNSIGNED)))
    if form is not None:
        packed = struct.Struct(form).pack

        def number(value: Any) -> bytes:
            try:
                return packed(value)
            except struct.error:
                raise TypeViolation(
                    f"{value} does not fit MySQL's type of its column", hint="CAST(… AS CHAR)"
                ) from None

        return number
    if shape.type in (_DATE, _DATETIME, _TIMESTAMP):
        return lambda value: _binary_datetime(str(value))
    if shape.type == _TIME:
        return lambda value: _binary_time(str(value))
    return lambda value: text_of(text(value))


_DATETIME_TEXT = re.compile(r"(\d{1,4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")
_TIME_TEXT = re.compile(r"(-)?(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


def _binary_datetime(text: str) -> bytes:
    found = _DATETIME_TEXT.fullmatch(text)
    assert found is not None, f"{text} is no date"
    year, month, day, hour, minute, second = (int(each or 0) for each in found.groups()[:6])
    micros = int((found[7] or "").ljust(6, "0"))
    whole = struct.pack("<HBBBBBI", year, month, day, hour, minute, second, micros)
    size = 11 if micros else 7 if hour or minute or second else 4
    return bytes((size,)) + whole[:size]


def _binary_time(text: str) -> bytes:
    found = _TIME_TEXT.fullmatch(text)
    assert found is not None, f"{text} is no time"
    hours, minutes, seconds = (int(each) for each in found.groups()[1:4])
    micros = int((found[5] or "").ljust(6, "0"))
    if not (hours or minutes or seconds or micros):
        return b"\0"
    whole = struct.pack("<BIBBBI", found[1] is not None, hours // 24, hours % 24, minutes, seconds, micros)
    size = 12 if micros else 8
    return bytes((size,)) + whole[:size]


# --- parameters ---------------------------------------------------------------------------------------------------

ParameterTypes = tuple[tuple[int, bool], ...]
"""MySQL's type of each, and whether it is unsigned."""
_BYTES = frozenset((_TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB, _BLOB_TYPE, _BIT))
_WHOLE = 1 << 53
"""Up to here each whole number is a DOUBLE."""


def read_parameters(
    reader: PayloadReader, count: int, known: ParameterTypes, long: dict[int, bytes], charset: Charset
) -> tuple[list[Any], ParameterTypes]:
    """The parameters of COM_STMT_EXECUTE, and their types, which a client sends once.

    :raises BadRequest: the packet is malformed."""
    nulls = reader.take((count + 7) // 8)
    if reader.number(1):
        known = _types_of(reader.take(2 * count))
    if len(known) != count:
        raise BadRequest("the parameters have no types", hint="send them with the first COM_STMT_EXECUTE")
    if not long and not any(nulls):
        return [_parameter(reader, kind, charset, unsigned=unsigned) for kind, unsigned in known], known
    found: list[Any] = []
    for place, (kind, unsigned) in enumerate(known):
        if place in long:
            found.append(_string(long[place], kind, charset))
        elif nulls[place >> 3] & (1 << (place & 7)):
            found.append(None)
        else:
            found.append(_parameter(reader, kind, charset, unsigned=unsigned))
    return found, known


@lru_cache(1_000)
def _types_of(said: bytes) -> ParameterTypes:
    """A client says them with each execution, and mostly the same."""
    return tuple(zip(said[::2], [bool(each & 0x80) for each in said[1::2]], strict=True))


_SIZES = {_TINY: 1, _SHORT: 2, _YEAR: 2, _INT24: 4, _LONG: 4, _LONGLONG: 8}


def _parameter(reader: PayloadReader, kind: int, charset: Charset, *, unsigned: bool) -> Any:
    size = _SIZES.get(kind)
    if size is not None:
        return int.from_bytes(reader.take(size), "little", signed=not unsigned)
    if kind in (_FLOAT, _DOUBLE):
        form = "<f" if kind == _FLOAT else "<d"
        (number,) = struct.unpack(form, reader.take(struct.calcsize(form)))
        # Clients without integers (Node's) send each number as a DOUBLE.
        return int(number) if number == number and abs(number) < _WHOLE and number == int(number) else number
    if kind == _NULL:
        return None
    if kind in (_DATE, _DATETIME, _TIMESTAMP):
        return _datetime_of(reader.take(reader.number(1)), kind)
    if kind == _TIME:
        return _time_of(reader.take(reader.number(1)))
    return _string(reader.text(), kind, charset)


def _string(data: bytes, kind: int, charset: Charset) -> Any:
    if kind in _BYTES:
        return data
    if kind in (_DECIMAL, _NEWDECIMAL):
        try:
            return Decimal(data.decode("ascii", "replace"))
        except InvalidOperation:
            raise malformed() from None
    try:
        return data.decode(charset.codec)
    except UnicodeDecodeError:  # Of clients that send bytes as a text: the type says nothing else.
        return data


def _datetime_of(data: bytes, kind: int) -> str:
    if len(data) not in (0, 4, 7, 11):
        raise malformed()
    year, month, day, hour, minute, second, micros = struct.unpack("<HBBBBBI", data.ljust(11, b"\0"))
    if kind == _DATE:
        return f"{year:04}-{month:02}-{day:02}"
    fraction = f".{micros:06}" if micros else ""
    return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}"


def _time_of(data: bytes) -> timedelta:
    if len(data) not in (0, 8, 12):
        raise malformed()
    negative, days, hours, minutes, seconds, micros = struct.unpack("<BIBBBI", data.ljust(12, b"\0"))
    if days > 35:  # A TIME has at most 838 hours.
        raise malformed()
    found = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, microseconds=micros)
    return -found if negative else found
