"""SQL type names to :class:`SqlType`: what a column may be declared as, in a table and in JSON_TABLE.

Display widths (``INT(11)``, but for ``TINYINT(1)``) and fraction digits (``DATETIME(6)``) say nothing about what is
stored and are ignored. The length of TEXT and BLOB types is kept where a program declares it; TEXT, MEDIUMTEXT and
LONGTEXT have no bound of their own here.
"""

from __future__ import annotations

from dataclasses import replace

from domains.errors import SqlError, Unsupported
from domains.language.types import (
    BLOB,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    JSON,
    TEXT,
    TIME,
    YEAR,
    Kind,
    SqlType,
)
from migrations.parse.syntax import exp
from migrations.parse.writing import quoted_text

LARGEST_PRECISION = 65
"""Digits of a DECIMAL, as in MySQL."""
LARGEST_SCALE = 30
"""Digits of a DECIMAL after the point, as in MySQL."""
LONGEST_CHAR = 255
"""Characters of a CHAR and bytes of a BINARY, as in MySQL."""
LONGEST_VARCHAR = 65_535
"""Characters of a VARCHAR and bytes of a VARBINARY, as in MySQL (whose own bound is in bytes of the whole row)."""

_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}

_PLAIN: dict[str, SqlType] = {
    "BOOLEAN": BOOL,
    "DOUBLE": DOUBLE,
    "FLOAT": SqlType(Kind.DOUBLE, "FLOAT"),
    "DATE": DATE,
    "TIME": TIME,
    "DATETIME": DATETIME,
    "UDOUBLE": SqlType(Kind.DOUBLE, "DOUBLE UNSIGNED", low=0),
    "JSON": JSON,
    "YEAR": YEAR,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"), SqlType(Kind.DATETIME, "TIMESTAMP")),
    "TINYTEXT": SqlType(Kind.TEXT, "TINYTEXT", length=255),
    "MEDIUMTEXT": SqlType(Kind.TEXT, "MEDIUMTEXT"),
    "LONGTEXT": SqlType(Kind.TEXT, "LONGTEXT"),
    "TINYBLOB": SqlType(Kind.BLOB, "TINYBLOB", length=255),
    "MEDIUMBLOB": SqlType(Kind.BLOB, "MEDIUMBLOB"),
    "LONGBLOB": SqlType(Kind.BLOB, "LONGBLOB"),
}

_SIZED: dict[str, tuple[Kind, str, int]] = {
    "CHAR": (Kind.TEXT, "CHAR", LONGEST_CHAR),
    "NCHAR": (Kind.TEXT, "CHAR", LONGEST_CHAR),
    "VARCHAR": (Kind.TEXT, "VARCHAR", LONGEST_VARCHAR),
    "NVARCHAR": (Kind.TEXT, "VARCHAR", LONGEST_VARCHAR),
    "TEXT": (Kind.TEXT, "TEXT", 2**32 - 1),
    "BINARY": (Kind.BLOB, "BINARY", LONGEST_CHAR),
    "VARBINARY": (Kind.BLOB, "VARBINARY", LONGEST_VARCHAR),
    "BLOB": (Kind.BLOB, "BLOB", 2**32 - 1),
}
_UNSIZED = {"TEXT": TEXT, "BLOB": BLOB}

_INSTEAD = {
    "SERIAL": "write BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY",
    "UUID": "use CHAR(36)",
}


def sql_type(declared: exp.DataType) -> SqlType:
    """The type that a column declaration names.

    :raises Unsupported: a type that is not there; named, with what to use instead.
    :raises SqlError: sizes that the type does not take.
    """
    name = declared.this.name if isinstance(declared.this, exp.DType) else str(declared.this)
    plain = _PLAIN.get(name)
    if plain is not None:
        if plain.kind is Kind.DOUBLE and len(sizes := _sizes(declared)) > 1:
            digits = ",".join(map(str, sizes))
            raise Unsupported(f"the type {name}({digits}), which rounds", hint=f"use {name}, or DECIMAL({digits})")
        return plain
    signed = name.removeprefix("U")
    if name == "TINYINT" and _sizes(declared) == [1]:
        return BOOL  # As MySQL 8 does, which shows this width alone.
    if signed in _BITS and name != "BIT":
        return integer_type(signed, unsigned=signed != name)
    if name in MOST_MEMBERS:
        return enumerated_type(name, [each.name for each in declared.expressions])
    sizes = [] if name in _INSTEAD else _sizes(declared)
    if name == "DECIMAL":
        return decimal_type(*sizes)
    if name == "UDECIMAL":
        type = decimal_type(*sizes)
        return replace(type, name=f"{type.name} UNSIGNED", low=0)
    if name == "BIT":
        return bit_type(*sizes)
    if name in _SIZED:
        return _sized(name, sizes)
    raise Unsupported(f"the type {name}", hint=_INSTEAD.get(name))


def integer_type(name: str, *, unsigned: bool) -> SqlType:
    """TINYINT to BIGINT with its bounds."""
    bits = _BITS[name]
    if unsigned:
        return SqlType(Kind.INTEGER, f"{name} UNSIGNED", low=0, high=2**bits - 1)
    return SqlType(Kind.INTEGER, name, low=-(2 ** (bits - 1)), high=2 ** (bits - 1) - 1)


MOST_MEMBERS = {"ENUM": 65_535, "SET": 64}
"""The most members, as in MySQL."""


def enumerated_type(name: str, members: list[str]) -> SqlType:
    """ENUM or SET of these members.

    :raises SqlError: as in MySQL, where they are none or too many, one stands twice, or has a comma in a SET.
    """
    if not members or len(members) > MOST_MEMBERS[name] or len(set(members)) < len(members):
        raise SqlError(f"{name} wants 1 to {MOST_MEMBERS[name]} members, each once")
    if name == "SET" and any("," in member for member in members):
        raise SqlError("a member of a SET has no comma in it")
    return SqlType(Kind.TEXT, f"{name}({','.join(map(quoted_text, members))})", members=tuple(members))


def bit_type(size: int = 1, *more: int) -> SqlType:
    """BIT(size), a number without a sign.

    :raises SqlError: it has no bits, or more than 64.
    """
    if more or not 1 <= size <= 64:
        raise SqlError(f"BIT({size}) is not possible", hint="1 to 64 bits")
    return SqlType(Kind.INTEGER, f"BIT({size})", low=0, high=2**size - 1)


def decimal_type(precision: int = 10, scale: int = 0, *more: int) -> SqlType:
    """DECIMAL(precision, scale), (10, 0) by default; ``length`` is the precision.

    :raises SqlError: as in MySQL, where one of them is too large.
    """
    if more or precision > LARGEST_PRECISION or scale > LARGEST_SCALE or scale > precision or precision < 1:
        sizes = ",".join(str(size) for size in (precision, scale, *more))
        raise SqlError(
            f"DECIMAL({sizes}) is not possible",
            hint=f"at most {LARGEST_PRECISION} digits, at most {LARGEST_SCALE} of them after the point",
        )
    return SqlType(Kind.DECIMAL, f"DECIMAL({precision},{scale})", length=precision, scale=scale)


def _sized(name: str, sizes: list[int]) -> SqlType:
    kind, shown, longest = _SIZED[name]
    if not sizes and shown in _UNSIZED:
        return _UNSIZED[shown]
    length = sizes[0] if sizes else (1 if longest == LONGEST_CHAR else longest)
    if len(sizes) > 1 or length > longest:
        raise SqlError(f"{shown}({','.join(map(str, sizes))}) is not possible", hint=f"the length is at most {longest}")
    return SqlType(kind, f"{shown}({length})" if sizes or shown not in ("VARCHAR", "VARBINARY") else shown, length)


def _sizes(declared: exp.DataType) -> list[int]:
    sizes: list[int] = []
    for part in declared.expressions:
        text = part.name
        if not text.isdigit() or len(text) > 10:
            raise SqlError(f'"{text[:20]}" is not a size of a type')
        sizes.append(int(text))
    return sizes
