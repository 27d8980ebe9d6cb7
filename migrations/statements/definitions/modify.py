"""ALTER TABLE on a column that stays where it is: another name, DEFAULT, or a type that holds all of its values.

A stored row is never rewritten: its columns keep their places, and rows that are stored, logged and archived are rows
of the new schema too. So a type only ever widens, and what a column's DEFAULT is from now on says nothing of the rows
that were stored before the column came (``TableColumn.initial``).
"""

from __future__ import annotations

from dataclasses import replace

from domains.errors import AlreadyExists, SqlError, Unsupported
from domains.language.collating.collation import BINARY
from domains.language.types import Kind, SqlType, TableColumn, TableSchema
from migrations.parse.reading import exp
from migrations.statements.definitions.columns import ColumnDeclaration, column_declaration, with_default
from migrations.statements.definitions.conditions import refuse_read
from migrations.statements.names import checked, column_position


def renamed(schema: TableSchema, old: exp.Expr, new: str) -> TableSchema:
    """RENAME COLUMN.

    :raises StillInUse: a CHECK or a generated column reads it.
    :raises AlreadyExists: there is a column of the new name.
    """
    return _named(schema, column_position(schema, old.name, old), new)


def _named(schema: TableSchema, at: int, new: str) -> TableSchema:
    taken = schema.position(new)
    if taken is not None and taken != at:
        raise AlreadyExists(f'column "{schema.title}.{new}" exists')
    if new.lower() != schema.columns[at].name.lower():
        refuse_read(schema, at, "renamed")
    return _with(schema, at, replace(schema.columns[at], name=checked(new, "column")))


def default_changed(schema: TableSchema, action: exp.AlterColumn) -> TableSchema:
    """ALTER COLUMN … SET DEFAULT and DROP DEFAULT, for rows that come.

    :raises Unsupported: another change.
    """
    at = column_position(schema, action.this.name, action.this)
    column = schema.columns[at]
    default = action.args.get("default")
    if default is None and not action.args.get("drop"):
        raise Unsupported("ALTER TABLE … ALTER COLUMN", hint="SET DEFAULT and DROP DEFAULT are there, and MODIFY")
    if column.auto_increment or column.generated is not None:
        raise SqlError(f'column "{column.name}" cannot have a DEFAULT')
    plain = replace(_settled(column), default=None, has_default=False, default_now=False)
    return _with(schema, at, plain if default is None else with_default(plain, default))


def modified(schema: TableSchema, action: exp.ModifyColumn) -> TableSchema:
    """MODIFY, and CHANGE with another name: the column is what the definition says, with its place.

    :raises Unsupported: stored values might not fit, or would have to be computed anew.
    """
    definition = action.this
    declared = column_declaration(definition, schema.collation)
    old_name = action.args.get("rename_from")
    named = old_name if old_name is not None else definition.this
    at = column_position(schema, named.name, named)
    _refuse_other_kinds(schema, at, declared)
    column = schema.columns[at]
    if declared.column.type != column.type:
        refuse_read(schema, at, "changed")
    new = replace(_settled(column), name=column.name, type=declared.column.type)
    given = declared.column
    new = replace(
        new,
        nullable=given.nullable and at not in schema.shown_key,
        default=given.default,
        has_default=given.has_default,
        default_now=given.default_now,
        on_update_now=given.on_update_now,
    )
    return placed(_named(_with(schema, at, new), at, definition.name), at, definition.args.get("position"))


def placed(schema: TableSchema, at: int, place: exp.Expr | None) -> TableSchema:
    """The schema with the column shown FIRST, or AFTER another. Where it is stored does not change.

    :raises UnknownName: there is no other column of that name.
    """
    if place is None:
        return schema
    others = [other for other in schema.live() if other != at]
    if str(place.args["position"]).upper() == "FIRST":
        before = 0
    else:
        after = column_position(schema, place.this.name, place.this)
        if after == at:
            raise SqlError(f'column "{place.this.name}" cannot come after itself')
        before = others.index(after) + 1
    order = (*others[:before], at, *others[before:])
    return replace(schema, order=() if list(order) == sorted(order) else order)


def _refuse_other_kinds(schema: TableSchema, at: int, declared: ColumnDeclaration) -> None:
    column, given = schema.columns[at], declared.column
    shown = f'column "{schema.title}.{column.name}"'
    if declared.primary or declared.unique or declared.checks:
        raise Unsupported(f"MODIFY of {shown} with a key or a CHECK", hint="leave it out: keys and checks stay")
    if declared.generated is not None or column.generated is not None:
        raise Unsupported(
            f"MODIFY of {shown}, which is or would be generated", hint="DROP COLUMN, and make a new table"
        )
    if given.auto_increment != column.auto_increment:
        raise Unsupported(f"MODIFY of {shown} that gives or takes AUTO_INCREMENT", hint="make a new table and copy")
    if given.on_update_now and schema.shard_by == at:
        raise Unsupported(f"ON UPDATE CURRENT_TIMESTAMP for {shown}, by which the table is sharded")
    if given.type.collation is not column.type.collation:
        raise Unsupported(
            f"collation {given.type.collation or BINARY} for {shown}, which has {column.type.collation or BINARY}",
            hint=f"name the one that it has: … COLLATE {column.type.collation or BINARY}",
        )
    if not _holds(given.type, column.type):
        raise Unsupported(
            f"{given.type} for {shown}, which is {column.type}",
            hint=f"a type that holds all its values, or ADD COLUMN {column.name}_2 {given.type}, UPDATE … SET "
            f"{column.name}_2 = {column.name}, DROP COLUMN {column.name} and RENAME COLUMN",
        )


def _holds(new: SqlType, old: SqlType) -> bool:
    """Whether each value of the old type is a value of the new one, and is stored and compared as the same."""
    if new == old:
        return True
    own = {type.name.split("(")[0] for type in (new, old)}
    if new.kind is not old.kind or (len(own) > 1 and own & _OF_THEIR_OWN):
        return False
    if new.low is not None and (old.low is None or old.low < new.low):
        return False
    if new.members or old.members:
        return new.members[: len(old.members)] == old.members
    match new.kind:
        case Kind.INTEGER:
            return new.high is None or (old.high is not None and old.high <= new.high)
        case Kind.TEXT | Kind.BLOB:
            return new.length is None or (old.length is not None and new.length >= old.length)
        case Kind.DECIMAL:
            return new.scale == old.scale and (new.length or 0) >= (old.length or 0)
        case Kind.DOUBLE | Kind.DATETIME | Kind.DATE | Kind.TIME:
            return True
    return False


_OF_THEIR_OWN = frozenset(("YEAR", "BIT", "ENUM", "SET", "JSON"))
"""Types whose values are shown, taken or ordered as those of no other of their kind."""


def _settled(column: TableColumn) -> TableColumn:
    """The column with what rows have in it that were stored before it came, whatever its DEFAULT is from now on."""
    return column if column.has_initial else replace(column, initial=column.default, has_initial=True)


def _with(schema: TableSchema, at: int, column: TableColumn) -> TableSchema:
    return replace(schema, columns=(*schema.columns[:at], column, *schema.columns[at + 1 :]))
