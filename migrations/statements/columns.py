"""Column definitions and key lists, as CREATE TABLE and ALTER TABLE write them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domains.errors import SqlError, TypeViolation, Unsupported
from domains.types import Kind, SqlType, TableColumn, TableSchema, Value
from migrations.grammar import words
from migrations.parse import exp
from migrations.query import calls
from migrations.statements.constants import coerced, evaluate
from migrations.statements.names import checked, column_position
from migrations.statements.types import sql_type

_IGNORED = (
    exp.CommentColumnConstraint,
    exp.CharacterSetColumnConstraint,
    exp.CollateColumnConstraint,
    exp.Reference,
)
"""They change nothing here: text has binary collation, and foreign keys are not enforced."""

_REFUSED: dict[type[exp.Expr], tuple[str, str | None]] = {
    exp.CheckColumnConstraint: ("CHECK", "check the value before it is written"),
    exp.ComputedColumnConstraint: ("generated columns", "compute the value in a view"),
    exp.OnUpdateColumnConstraint: ("ON UPDATE CURRENT_TIMESTAMP", "set the column in each UPDATE: column = NOW()"),
    exp.InvisibleColumnConstraint: ("INVISIBLE columns", None),
}


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """One column definition: the column, and the keys that stand in it."""

    column: TableColumn
    primary: bool = False
    unique: bool = False


def column_declaration(definition: exp.ColumnDef) -> ColumnDeclaration:
    """:raises Unsupported: a type or constraint that is not there.
    :raises SqlError: a default that does not fit, NOT NULL with DEFAULT NULL, and the like.
    """
    name = checked(definition.name, "column")
    if definition.args.get("kind") is None:
        raise SqlError(f'column "{name}" has no type')
    declared = ColumnDeclaration(TableColumn(name, sql_type(definition.args["kind"])))
    default: exp.Expr | None = None
    for constraint in definition.args.get("constraints") or ():
        kind = constraint.args.get("kind") or constraint
        if isinstance(kind, exp.DefaultColumnConstraint):
            default = kind.this
        else:
            declared = _with(declared, kind)
    column = declared.column
    if declared.primary:
        column = replace(column, nullable=False)
    if default is not None:
        if column.auto_increment:
            raise SqlError(f'AUTO_INCREMENT column "{name}" cannot have a DEFAULT')
        column = _with_default(column, default)
    return replace(declared, column=column)


def _with(declared: ColumnDeclaration, kind: exp.Expr) -> ColumnDeclaration:
    column = declared.column
    if isinstance(kind, exp.CollateColumnConstraint):
        check_collation(kind.this.name)
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
    construct, hint = _REFUSED.get(type(kind), (words(kind), None))
    raise Unsupported(f'{construct} (column "{column.name}")', hint=hint)


def check_collation(name: str) -> None:
    """:raises Unsupported: texts that differ in case would be equal."""
    if name.lower().endswith("_ci"):
        raise Unsupported(
            f'collation "{name}"', hint="text is compared by code point: leave it out, or keep LOWER(…) in the column"
        )


def _with_default(column: TableColumn, default: exp.Expr) -> TableColumn:
    while isinstance(default, exp.Paren):
        default = default.this
    if _is_clock(default):
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


def _is_clock(node: exp.Expr) -> bool:
    if not isinstance(node, calls.NODES):
        return False
    return calls.CLOCK.get(calls.spelled(node)[0]) in ("datetime", "date")


_ZEROS: dict[Kind, Value] = {Kind.INTEGER: 0, Kind.DOUBLE: 0.0, Kind.TEXT: "", Kind.BLOB: b""}


def implicit_default(type: SqlType) -> Value:
    """What MySQL gives the stored rows for a new NOT NULL column without DEFAULT; None where it has no such value."""
    if type.kind is Kind.DECIMAL:
        return coerced(0, TableColumn("", type))
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
            raise Unsupported(f"{what} on an expression", hint="add a column that holds it")
        if what != "index" and _has_prefix(part):
            raise Unsupported(
                f'{what} on the beginning of column "{name}"',
                hint="add a column that holds it: a key is on whole columns",
            )
        position = column_position(schema, name, part)
        if position in positions:
            raise SqlError(f'{what} names column "{name}" twice')
        positions.append(position)
    return tuple(positions)


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
