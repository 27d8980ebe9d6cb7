"""Our types in MySQL's words, and what ``information_schema.COLUMNS`` says of one."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from domains.language.collating.collation import BINARY
from domains.language.types import Kind, SqlType

FRACTION_DIGITS = 6
"""Digits of a second that every DATETIME, TIMESTAMP and TIME keeps, whatever was declared."""
_LONGEST = {"TINY": 2**8 - 1, "MEDIUM": 2**24 - 1, "LONG": 2**32 - 1, "": 2**16 - 1}
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "MEDIUMINT": 7, "INT": 10, "BIGINT": 19}


class TypeWords(NamedTuple):
    """The columns of COLUMNS from DATA_TYPE to COLUMN_TYPE, in their order."""

    data_type: str
    characters: int | None
    octets: int | None
    precision: int | None
    scale: int | None
    fraction: int | None
    charset: str | None
    collation: str | None
    column_type: str


def type_words(type: SqlType) -> TypeWords:
    name = type.name.upper()
    word, text = name.split("(")[0].split(" ")[0], type.name.lower()
    if type.members:
        return _of_text(type, word.lower(), word.lower() + type.name[len(word) :])
    if name == "BOOL":
        word, text = "TINYINT", "tinyint(1)"
    match type.kind:
        case Kind.TEXT:
            return _of_text(type, word.lower(), _sized(type, word))
        case Kind.BLOB:
            return _plain(word.lower(), _sized(type, word), octets=_octets(type, word))
        case Kind.INTEGER if word == "YEAR":
            return _plain("year", "year")
        case Kind.INTEGER if word == "BIT":
            return _plain("bit", text, precision=(type.high or 1).bit_length())
        case Kind.INTEGER:
            more = 1 if word == "BIGINT" and type.low == 0 else 0
            return _plain(word.lower(), text, precision=_DIGITS[word] + more, scale=0)
        case Kind.DECIMAL:
            return _plain("decimal", text, precision=type.length or 65, scale=type.scale)
        case Kind.DOUBLE:
            return _plain(word.lower(), text, precision=12 if word == "FLOAT" else 22)
        case Kind.DATETIME | Kind.TIME:
            return _plain(word.lower(), f"{word.lower()}({FRACTION_DIGITS})", fraction=FRACTION_DIGITS)
        case Kind.NULL:
            return _plain("binary", "binary(0)", octets=0)
        case Kind.DATE | Kind.JSON:
            return _plain(word.lower(), text)
        case _:
            assert_never(type.kind)


def _plain(
    data_type: str,
    column_type: str,
    octets: int | None = None,
    precision: int | None = None,
    scale: int | None = None,
    fraction: int | None = None,
) -> TypeWords:
    return TypeWords(data_type, octets, octets, precision, scale, fraction, None, None, column_type)


def _of_text(type: SqlType, data_type: str, column_type: str) -> TypeWords:
    if type.members:
        lengths = list(map(len, type.members))
        length = sum(lengths) + len(lengths) - 1 if type.is_set else max(lengths)
        octets = 4 * length
    else:
        word = type.name.upper().split("(")[0]
        is_long = word.endswith("TEXT")
        length = _octets(type, word) if is_long else type.length or 0
        octets = length if is_long else 4 * length
    collation = str(type.collation or BINARY)
    return TypeWords(data_type, length, octets, None, None, None, "utf8mb4", collation, column_type)


def _octets(type: SqlType, word: str) -> int:
    """The bytes that MySQL says such a column can have."""
    if word.endswith(("TEXT", "BLOB")):
        return _LONGEST[word.removesuffix("TEXT").removesuffix("BLOB")]
    return type.length or 0


def _sized(type: SqlType, word: str) -> str:
    """``varchar(40)``; MySQL has no length behind ``text``."""
    return word.lower() if word.endswith(("TEXT", "BLOB")) else f"{word.lower()}({type.length or 0})"
