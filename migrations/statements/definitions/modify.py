"""ALTER TABLE on a column that is there: another name, DEFAULT, or type.

A stored row is never rewritten: its columns keep their places, and rows that are stored, logged and archived are rows
of the new schema too. So what a column's DEFAULT is from now on says nothing of the rows that were stored before the
column came (``TableColumn.initial``). A type that holds all values of the old one, stored as they are, takes its place.

Any other type is a **new column behind all others**, which is shown where the old one was and has its name; the old one
is dropped. What stored rows have in it is computed of the old one (``domains/store/widening.py``)::

    (id, n INT, name)      ── MODIFY n VARCHAR(9) ──►      (id, n INT dropped, name, n VARCHAR(9) = text of the old n)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from domains.errors import AlreadyExists, LimitExceeded, SqlError, Unsupported
from domains.language.collating.collation import BINARY
from domains.language.expressions import Field
from domains.language.json_rows import stored_expression
from domains.language.types import Kind, SqlType, TableColumn, TableSchema
from migrations.parse.reading import exp
from migrations.statements.definitions.columns import ColumnDeclaration, column_declaration, with_default
from migrations.statements.definitions.conditions import refuse_read
from migrations.statements.definitions.ddl import MOST_COLUMNS
from migrations.statements.definitions.sharded import refuse_dropping
from migrations.statements.names import checked, column_position


def renamed(schema: TableSchema, actions: Sequence[exp.RenameColumn]) -> TableSchema:
    """RENAME COLUMN, several at once: a name is that of a column before them, so that two may swap theirs, or else one
    that was given before it.

    :raises StillInUse: a CHECK or a generated column reads it.
    :raises AlreadyExists: there is a column of the new name.
    """
    names: dict[int, str] = {}
    for action in actions:
        old = action.this
        at = schema.position(old.name)
        if at is None or at in names:
            at = column_position(_named(schema, names), old.name, old)
        names[at] = action.args["to"].name
    return _named(schema, names)


def _named(schema: TableSchema, names: Mapping[int, str]) -> TableSchema:
    """The schema with these names for the columns at these positions."""
    columns = list(schema.columns)
    for at, new in names.items():
        if new.lower() != columns[at].name.lower():
            refuse_read(schema, at, "renamed")
        columns[at] = replace(columns[at], name=checked(new, "column"))
    known = [columns[at].name.lower() for at in schema.live()]
    for new in names.values():
        if known.count(new.lower()) > 1:
            raise AlreadyExists(f'column "{schema.title}.{new}" exists')
    return replace(schema, columns=tuple(columns))


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

    :raises Unsupported: no value of the one type is one of the other, or the column's values decide where rows are.
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
    given = declared.column
    is_kept = _holds(given.type, column.type)
    said = replace(
        column,
        type=given.type,
        nullable=given.nullable and at not in schema.shown_key,
        default=given.default,
        has_default=given.has_default,
        default_now=given.default_now,
        on_update_now=given.on_update_now,
        comment=given.comment,
    )
    if not is_kept:
        new = _computed(said, column, at)
    else:  # Where only its comment is another, it is the same column.
        new = said if said == column else replace(said, initial=_settled(column).initial, has_initial=True)
    schema, at = (_with(schema, at, new), at) if is_kept else _moved(schema, at, new)
    return placed(_named(schema, {at: definition.name}), at, definition.args.get("position"))


def _computed(new: TableColumn, column: TableColumn, at: int) -> TableColumn:
    """The column as another one, whose values in stored rows are made of those at position ``at``."""
    read = stored_expression(column.name, Field(at, column.type))
    return replace(new, initial=None, has_initial=False, initial_of=read)


def _moved(schema: TableSchema, at: int, new: TableColumn) -> tuple[TableSchema, int]:
    """The schema with the column behind all others, and shown where it was; and its position.

    :raises Unsupported: rows are stored or spread by it.
    """
    shown = f'column "{schema.title}.{new.name}"'
    refuse_dropping(schema, at)
    if at in schema.primary_key:
        raise Unsupported(
            f"{new.type} for {shown}, which is {schema.columns[at].type} and in the PRIMARY KEY, by which "
            "rows are stored",
            hint="CREATE TABLE … AS SELECT makes a new table with it",
        )
    if len(schema.columns) >= MOST_COLUMNS:
        raise LimitExceeded(f"{shown} would be column {MOST_COLUMNS + 1}", hint="dropped ones count, and changed ones")
    to = len(schema.columns)
    gone = replace(schema.columns[at], dropped=True, auto_increment=False)
    columns = (*schema.columns[:at], gone, *schema.columns[at + 1 :], new)
    order = tuple([to if place == at else place for place in schema.live()])
    unique, indexes = (
        tuple([tuple([to if place == at else place for place in key]) for key in keys])
        for keys in (schema.unique, schema.indexes)
    )
    return replace(schema, columns=columns, order=order, unique=unique, indexes=indexes), to


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
    if not _holds(given.type, column.type) and _family(given.type) not in _CONVERTED[_family(column.type)]:
        raise Unsupported(
            f"{given.type} for {shown}, which is {column.type}",
            hint=f"ADD COLUMN {column.name}_2 {given.type}, UPDATE … SET {column.name}_2 = an expression of "
            f"{column.name}, DROP COLUMN {column.name} and RENAME COLUMN",
        )


def _holds(new: SqlType, old: SqlType) -> bool:
    """Whether each value of the old type is a value of the new one, and is stored and compared as the same."""
    if new == old:
        return True
    own = {type.name.split("(")[0] for type in (new, old)}
    if new.kind is not old.kind or (len(own) > 1 and own & _OF_THEIR_OWN):
        return False
    if (new.collation or BINARY) is not (old.collation or BINARY):
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


def _family(type: SqlType) -> str:
    """The kind of values, where some are taken and shown otherwise than others of their kind."""
    own = type.name.split("(")[0]
    return own if own in _OF_THEIR_OWN else type.kind.name


_NUMBERS = ("INTEGER", "DOUBLE", "DECIMAL")
_CONVERTED: dict[str, frozenset[str]] = {
    **dict.fromkeys(_NUMBERS, frozenset((*_NUMBERS, "TEXT"))),
    "TEXT": frozenset((*_NUMBERS, "TEXT", "BLOB", "DATE", "DATETIME", "TIME", "ENUM", "SET", "JSON")),
    "BLOB": frozenset(("TEXT", "BLOB")),
    "DATE": frozenset(("TEXT", "DATETIME")),
    "DATETIME": frozenset(("TEXT", "DATE")),
    "TIME": frozenset(("TEXT",)),
    "YEAR": frozenset(("TEXT", "INTEGER")),
    "BIT": frozenset(("INTEGER", "BIT")),
    "ENUM": frozenset(("TEXT", "ENUM")),
    "SET": frozenset(("TEXT", "SET")),
    "JSON": frozenset(("TEXT",)),
}
"""Kinds of which a value is made of one of another kind as an UPDATE would make it, and as MySQL's MODIFY does."""


def _settled(column: TableColumn) -> TableColumn:
    """The column with what rows have in it that were stored before it came, whatever its DEFAULT is from now on."""
    return column if column.has_initial else replace(column, initial=column.default, has_initial=True)


def _with(schema: TableSchema, at: int, column: TableColumn) -> TableSchema:
    return replace(schema, columns=(*schema.columns[:at], column, *schema.columns[at + 1 :]))
