"""Column definitions and key lists, as CREATE TABLE and ALTER TABLE write them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domains.errors import SqlError, TypeViolation, Unsupported
from domains.language.collating.collation import Collation
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
    TableColumn,
    TableSchema,
    Value,
)
from migrations.parse.grammar import words
from migrations.parse.reading import exp
from migrations.parse.writing import quoted_text
from migrations.query.expressions.literals import collation_named
from migrations.statements.constants import coerced, evaluate
from migrations.statements.definitions.conditions import Generated, is_clock, updated_with_time
from migrations.statements.names import checked, column_position

# SQL type names to :class:`SqlType`: what a column may be declared as.
#
# Display widths (``INT(11)``) and fraction digits (``DATETIME(6)``) say nothing about what is stored and are ignored.
# The length of TEXT and BLOB types is kept where a program declares it; TEXT, MEDIUMTEXT and LONGTEXT have no bound
# of their own here.

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


_IGNORED = (
    exp.CommentColumnConstraint,
    exp.Reference,
)
"""They change nothing of the column: ``foreign_keys.py`` looks after REFERENCES."""

_REFUSED: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.InvisibleColumnConstraint: ("INVISIBLE columns", None),
}


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """One column definition: the column, and the keys that stand in it."""

    column: TableColumn
    primary: bool = False
    unique: bool = False
    generated: Generated | None = None
    checks: tuple[tuple[str, exp.Expr], ...] = ()
    """Name and condition of each."""


def column_declaration(definition: exp.ColumnDef, collation: Collation | None) -> ColumnDeclaration:
    """``collation``: of a text that names none.

    :raises Unsupported: a type or constraint that is not there.
    :raises SqlError: a default that does not fit, NOT NULL with DEFAULT NULL, and the like.
    """
    name = checked(definition.name, "column")
    if definition.args.get("kind") is None:
        raise SqlError(f'column "{name}" has no type')
    given = definition.args.get("constraints") or ()
    type = with_collation(sql_type(definition.args["kind"]), collation)
    declared = ColumnDeclaration(TableColumn(name, type))
    default: exp.Expr | None = None
    for constraint in given:
        kind = constraint.args.get("kind") or constraint
        if isinstance(kind, exp.DefaultColumnConstraint):
            default = kind.this
        elif isinstance(kind, exp.CheckColumnConstraint):
            named = constraint.this.name if isinstance(constraint.this, exp.Identifier) else ""
            declared = replace(declared, checks=(*declared.checks, (named, kind.this)))
        else:
            declared = _with(declared, kind)
    column = declared.column
    if declared.primary:
        column = replace(column, nullable=False)
    if default is not None:
        if column.auto_increment:
            raise SqlError(f'AUTO_INCREMENT column "{name}" cannot have a DEFAULT')
        column = with_default(column, default)
    return replace(declared, column=column)


def _with(declared: ColumnDeclaration, kind: exp.Expr) -> ColumnDeclaration:
    column = declared.column
    if isinstance(kind, exp.CharacterSetColumnConstraint):
        check_character_set(kind.this.name)
        return declared
    if isinstance(kind, exp.CollateColumnConstraint):
        named = with_collation(column.type, collation_named(kind.this.name))
        return replace(declared, column=replace(column, type=named))
    if isinstance(kind, _IGNORED):
        return declared
    if isinstance(kind, exp.NotNullColumnConstraint):
        return replace(declared, column=replace(column, nullable=bool(kind.args.get("allow_null"))))
    if isinstance(kind, exp.AutoIncrementColumnConstraint):
        if column.type.kind is not Kind.INTEGER:
            raise SqlError(f'AUTO_INCREMENT column "{column.name}" is {column.type}', hint="it must be of an INT type")
        return replace(declared, column=replace(column, auto_increment=True, nullable=False))
    if isinstance(kind, exp.PrimaryKeyColumnConstraint):
        return replace(declared, primary=True)
    if isinstance(kind, exp.UniqueColumnConstraint):
        return replace(declared, unique=True)
    if isinstance(kind, exp.OnUpdateColumnConstraint):
        return replace(declared, column=updated_with_time(column, kind.this))
    if isinstance(kind, exp.ComputedColumnConstraint):
        return replace(declared, generated=Generated(kind.this, not kind.args.get("persisted")))
    construct, hint = _REFUSED.get(type(kind), (words(kind), None))
    raise Unsupported(f'{construct} (column "{column.name}")', hint=hint)


def check_character_set(name: str) -> None:
    """:raises Unsupported: text would be bytes."""
    if name.lower() == "binary":
        raise Unsupported("text in the character set binary", hint="declare the column as BINARY, VARBINARY or BLOB")


def with_collation(type: SqlType, collation: Collation | None) -> SqlType:
    return replace(type, collation=collation) if type.kind is Kind.TEXT and type.collation is not collation else type


def with_default(column: TableColumn, default: exp.Expr) -> TableColumn:
    """:raises SqlError: the value does not fit, or is NULL where the column is NOT NULL."""
    while isinstance(default, exp.Paren):
        default = default.this
    if is_clock(default):
        if column.type.kind not in (Kind.DATETIME, Kind.DATE):
            raise SqlError(f'column "{column.name}" is {column.type} and cannot default to the time')
        return replace(column, default_now=True)
    value = evaluate(default, place="DEFAULT")
    if value is None and not column.nullable:
        raise SqlError(f'NOT NULL column "{column.name}" cannot have DEFAULT NULL')
    try:
        return replace(column, default=coerced(value, column), has_default=True)
    except TypeViolation as error:
        raise SqlError(f'the default of column "{column.name}" does not fit: {error.message}') from None


_ZEROS: dict[Kind, Value] = {Kind.INTEGER: 0, Kind.DOUBLE: 0.0, Kind.TEXT: "", Kind.BLOB: b""}


def implicit_default(type: SqlType) -> Value:
    """MySQL's value in stored rows for a new NOT NULL column without DEFAULT; None where it has no such value."""
    if type.kind is Kind.DECIMAL:
        return coerced(0, TableColumn("", type))
    if type.members and not type.is_set:
        return type.members[0]
    return _ZEROS.get(type.kind)


def key_columns(schema: TableSchema, parts: list[exp.Expr], what: str) -> tuple[int, ...]:
    """The positions of a key's columns. Directions are ignored, and an index's prefix lengths: it is on whole columns.

    :raises UnknownName: a column is not there.
    :raises Unsupported: a part is an expression.
    """
    if not parts:
        raise SqlError(f"{what} has no columns")
    positions: list[int] = []
    for part in parts:
        name = _key_part(part)
        if name is None:
            raise Unsupported(
                f"{what} on an expression, of a table that exists", hint="declare it in CREATE TABLE (… AS SELECT)"
            )
        if what != "index" and _has_prefix(part):
            raise Unsupported(
                f'{what} on the beginning of column "{name}"',
                hint="add a column that holds it, or declare a UNIQUE key in CREATE TABLE (… AS SELECT)",
            )
        position = column_position(schema, name, part)
        if position in positions:
            raise SqlError(f'{what} names column "{name}" twice')
        refuse_json_key(schema.columns[position], what)
        positions.append(position)
    return tuple(positions)


def refuse_json_key(column: TableColumn, what: str) -> None:
    """:raises Unsupported: as in MySQL, where one document has many spellings to look it up by."""
    if column.type.kind is Kind.JSON:
        raise Unsupported(
            f'{what} on the JSON column "{column.name}"', hint="add a column for the value that is looked up"
        )


def _has_prefix(part: exp.Expr) -> bool:
    part = part.this if isinstance(part, exp.Ordered) else part
    return isinstance(part, (exp.ColumnPrefix, exp.Anonymous))


def _key_part(part: exp.Expr) -> str | None:
    if isinstance(part, (exp.Ordered, exp.ColumnPrefix)):
        return _key_part(part.this)
    if isinstance(part, (exp.Identifier, exp.Column)):
        return part.name
    if isinstance(part, exp.Anonymous) and len(part.expressions) == 1 and isinstance(part.expressions[0], exp.Literal):
        return part.name
    return None
