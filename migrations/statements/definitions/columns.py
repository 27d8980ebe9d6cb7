"""Column definitions and key lists, as CREATE TABLE and ALTER TABLE write them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domains.errors import LimitExceeded, SqlError, TypeViolation, Unsupported
from domains.language.collating.collation import Collation
from domains.language.types import (
    Kind,
    SqlType,
    TableColumn,
    TableSchema,
    Value,
)
from migrations.parse.grammar import words
from migrations.parse.reading import exp
from migrations.parse.types import sql_type
from migrations.query.expressions.literals import collation_named
from migrations.statements.constants import coerced, evaluate
from migrations.statements.definitions.conditions import Generated, is_clock, updated_with_time
from migrations.statements.names import checked, column_position

COMMENT_LENGTH, TABLE_COMMENT_LENGTH = 1024, 2048
"""The most characters in a comment of a column, and of a table, as in MySQL."""

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
    if isinstance(kind, exp.Reference):  # ``foreign_keys.py`` looks after it.
        return declared
    if isinstance(kind, exp.CommentColumnConstraint):
        comment = comment_of(kind, COMMENT_LENGTH, f'column "{column.name}"')
        return replace(declared, column=replace(column, comment=comment))
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


def comment_of(node: exp.Expr, most: int, whose: str) -> str:
    """:raises LimitExceeded: it is longer than MySQL has it."""
    comment: str = node.this.name
    if len(comment) > most:
        raise LimitExceeded(f"the comment of {whose} has {len(comment):,} characters", hint=f"at most {most:,}")
    return comment


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
                f"{what} on an expression", hint="UNIQUE and KEY take expressions; a PRIMARY KEY takes columns"
            )
        if what != "index" and _has_prefix(part):
            raise Unsupported(
                f'{what} on the beginning of column "{name}"',
                hint="a UNIQUE key on it, or a generated column that holds it",
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
