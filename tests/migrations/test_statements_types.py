"""Column types: names, bounds, and what is refused with which words."""

from __future__ import annotations

import pytest

from domains.errors import HeadraceError, SqlError, Unsupported
from domains.language.types import BLOB, BOOL, DATE, DATETIME, DOUBLE, JSON, TEXT, TIME, YEAR, Kind, SqlType
from tests.migrations.statement_catalog import schema_of


def integer(name: str, low: int, high: int) -> SqlType:
    return SqlType(Kind.INTEGER, name, low=low, high=high)


TYPES: list[tuple[str, SqlType]] = [
    ("TINYINT", integer("TINYINT", -128, 127)),
    ("tinyint(1)", BOOL),
    ("tinyint(2)", integer("TINYINT", -128, 127)),
    ("TINYINT UNSIGNED", integer("TINYINT UNSIGNED", 0, 255)),
    ("SMALLINT", integer("SMALLINT", -32768, 32767)),
    ("MEDIUMINT UNSIGNED", integer("MEDIUMINT UNSIGNED", 0, 2**24 - 1)),
    ("INT", integer("INT", -(2**31), 2**31 - 1)),
    ("INTEGER", integer("INT", -(2**31), 2**31 - 1)),
    ("INT(11) UNSIGNED", integer("INT UNSIGNED", 0, 2**32 - 1)),
    ("BIGINT", integer("BIGINT", -(2**63), 2**63 - 1)),
    ("BIGINT UNSIGNED", integer("BIGINT UNSIGNED", 0, 2**64 - 1)),
    ("BOOL", BOOL),
    ("BOOLEAN", BOOL),
    ("FLOAT", SqlType(Kind.DOUBLE, "FLOAT")),
    ("FLOAT(24)", SqlType(Kind.DOUBLE, "FLOAT")),
    ("DOUBLE", DOUBLE),
    ("DOUBLE PRECISION", DOUBLE),
    ("DECIMAL", SqlType(Kind.DECIMAL, "DECIMAL(10,0)", length=10)),
    ("NUMERIC(5)", SqlType(Kind.DECIMAL, "DECIMAL(5,0)", length=5)),
    ("DECIMAL(8, 3)", SqlType(Kind.DECIMAL, "DECIMAL(8,3)", length=8, scale=3)),
    ("CHAR", SqlType(Kind.TEXT, "CHAR(1)", length=1)),
    ("CHAR(3)", SqlType(Kind.TEXT, "CHAR(3)", length=3)),
    ("VARCHAR(40)", SqlType(Kind.TEXT, "VARCHAR(40)", length=40)),
    ("VARCHAR", SqlType(Kind.TEXT, "VARCHAR", length=65535)),
    ("YEAR(4)", YEAR),
    ("BIT", integer("BIT(1)", 0, 1)),
    ("BIT(64)", integer("BIT(64)", 0, 2**64 - 1)),
    ("ENUM('a','b''c')", SqlType(Kind.TEXT, "ENUM('a','b''c')", members=("a", "b'c"))),
    ("SET('a')", SqlType(Kind.TEXT, "SET('a')", members=("a",))),
    ("DECIMAL(5,2) UNSIGNED", SqlType(Kind.DECIMAL, "DECIMAL(5,2) UNSIGNED", length=5, scale=2, low=0)),
    ("DOUBLE UNSIGNED", SqlType(Kind.DOUBLE, "DOUBLE UNSIGNED", low=0)),
    ("FLOAT UNSIGNED", SqlType(Kind.DOUBLE, "DOUBLE UNSIGNED", low=0)),
    ("JSON", JSON),
    ("TEXT", TEXT),
    ("TEXT(100)", SqlType(Kind.TEXT, "TEXT(100)", length=100)),
    ("TINYTEXT", SqlType(Kind.TEXT, "TINYTEXT", length=255)),
    ("MEDIUMTEXT", SqlType(Kind.TEXT, "MEDIUMTEXT")),
    ("LONGTEXT", SqlType(Kind.TEXT, "LONGTEXT")),
    ("BLOB", BLOB),
    ("LONGBLOB", SqlType(Kind.BLOB, "LONGBLOB")),
    ("BINARY(4)", SqlType(Kind.BLOB, "BINARY(4)", length=4)),
    ("VARBINARY(10)", SqlType(Kind.BLOB, "VARBINARY(10)", length=10)),
    ("DATE", DATE),
    ("DATETIME", DATETIME),
    ("DATETIME(6)", DATETIME),
    ("TIME(3)", TIME),
    ("TIMESTAMP", SqlType(Kind.DATETIME, "TIMESTAMP")),
    ("TIMESTAMP(3)", SqlType(Kind.DATETIME, "TIMESTAMP")),
]


@pytest.mark.parametrize(("declared", "expected"), TYPES, ids=[declared for declared, _ in TYPES])
def test_a_declared_type_becomes(declared: str, expected: SqlType) -> None:
    assert schema_of(f"CREATE TABLE t (a {declared})").columns[0].type == expected


REFUSED: list[tuple[str, type[HeadraceError], str]] = [
    ("BIT(65)", SqlError, "BIT(65) is not possible (1 to 64 bits)"),
    ("ENUM()", SqlError, "ENUM wants 1 to 65535 members, each once"),
    ("GEOMETRY", Unsupported, "the type GEOMETRY"),
    ("DECIMAL(66)", SqlError, "DECIMAL(66,0) is not possible (at most 65 digits, at most 30 of them after the point)"),
    ("DECIMAL(3,4)", SqlError, "DECIMAL(3,4) is not possible (at most 65 digits, at most 30 of them after the point)"),
    ("CHAR(256)", SqlError, "CHAR(256) is not possible (the length is at most 255)"),
    ("VARCHAR(70000)", SqlError, "VARCHAR(70000) is not possible (the length is at most 65535)"),
]


@pytest.mark.parametrize(("declared", "kind", "message"), REFUSED, ids=[declared for declared, _, _ in REFUSED])
def test_a_type_is_refused_by_name(declared: str, kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(kind) as caught:
        schema_of(f"CREATE TABLE t (a {declared})")
    assert type(caught.value) is kind
    assert str(caught.value) == message
