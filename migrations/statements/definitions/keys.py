"""Keys and constraints of a table that is there: UNIQUE, PRIMARY KEY, CHECK and indexes come and go by ALTER TABLE.

What rows are to fulfil is only said here, by the next schema; that they do is checked before it is decided
(``domains/engine/lifecycle/expected.py``). A PRIMARY KEY that comes later is a unique key of columns that are NOT NULL,
and is shown as what it is: rows stay stored as those of a bag, since stored rows keep their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

from domains.errors import AlreadyExists, SqlError, StillInUse, Unsupported
from domains.language.types import TableSchema
from migrations.catalog import unknown
from migrations.parse.grammar import words
from migrations.parse.reading import exp
from migrations.statements.definitions.columns import key_columns
from migrations.statements.definitions.conditions import with_check, without_check
from migrations.statements.definitions.ddl import (
    limited,
    refuse_other_index,
    unique_name,
    with_index,
    with_names,
    with_unique,
)
from migrations.statements.definitions.foreign_keys import without_foreign_key
from migrations.statements.definitions.parts import with_late_parts
from migrations.statements.definitions.sharded import check_keys
from migrations.statements.names import checked, located

PRIMARY = "primary"
"""The name of a PRIMARY KEY where indexes are named, in lower case."""


def with_key(schema: TableSchema, item: exp.Expr, shards: int) -> TableSchema:
    """ADD INDEX, UNIQUE, PRIMARY KEY and CHECK; ``shards`` is the deployment's factor.

    :raises SqlError, Unsupported, AlreadyExists: what is wrong with it by itself.
    """
    for part in item.expressions if isinstance(item, exp.Constraint) else [item]:
        named = item.name if isinstance(item, exp.Constraint) else ""
        if isinstance(part, exp.IndexColumnConstraint):
            refuse_other_index(part)
            schema, columns = with_late_parts(schema, part.expressions, "index")
            schema = limited(with_index(schema, columns, part.name or named))
        elif isinstance(part, exp.UniqueColumnConstraint):
            parts = part.this.expressions if part.this is not None else []
            schema = with_unique_key(schema, parts, unique_name(part) or named, shards)
        elif isinstance(part, exp.PrimaryKey):
            schema = with_primary_key(schema, part.expressions, shards)
        elif isinstance(part, exp.CheckColumnConstraint):
            schema = with_check(schema, part.this, named)
        elif not isinstance(part, exp.ForeignKey):
            raise Unsupported(f"ALTER TABLE … ADD {words(part)}", hint="declare it in CREATE TABLE")
    return schema


def with_unique_key(schema: TableSchema, parts: Sequence[exp.Expr], name: str, shards: int) -> TableSchema:
    """ADD UNIQUE.

    :raises SqlError: the table has several shards, and the key does not contain the column that decides them.
    """
    schema, columns = with_late_parts(schema, parts, "UNIQUE")
    if columns in (schema.primary_key, *schema.unique):
        return schema
    return limited(check_keys(with_names(with_unique(schema, columns, name)), shards))


def with_primary_key(schema: TableSchema, parts: Sequence[exp.Expr], shards: int) -> TableSchema:
    """ADD PRIMARY KEY. :raises AlreadyExists: there is one. :raises SqlError: as :func:`with_unique_key`."""
    if schema.shown_key:
        raise AlreadyExists(f'table "{schema.title}" has a PRIMARY KEY')
    key = key_columns(schema, list(parts), "PRIMARY KEY")
    columns = list(schema.columns)
    for at in key:
        column = columns[at]
        if column.has_default and column.default is None:
            raise SqlError(f'primary key column "{column.name}" cannot have DEFAULT NULL')
        columns[at] = replace(column, nullable=False)
    first = replace(
        schema,
        columns=tuple(columns),
        unique=(key, *schema.unique),
        unique_names=("PRIMARY", *schema.unique_names),
        late_primary=True,
    )
    return limited(check_keys(first, shards))


def without_primary_key(schema: TableSchema) -> TableSchema:
    """DROP PRIMARY KEY. Its columns stay NOT NULL, as in MySQL.

    :raises Unsupported: rows are stored by it.
    """
    if schema.primary_key:
        raise Unsupported(
            f'DROP PRIMARY KEY of "{schema.title}", by which its rows are stored',
            hint="make a new table and copy: INSERT … SELECT; a PRIMARY KEY that ALTER TABLE has added can be dropped",
        )
    if not schema.late_primary:
        raise SqlError(f'table "{schema.title}" has no PRIMARY KEY')
    return _still_numbered(
        schema,
        replace(schema, unique=schema.unique[1:], unique_names=schema.unique_names[1:], late_primary=False),
        "PRIMARY",
    )


def without_constraint(schema: TableSchema, named: exp.Expr, kind: str, if_exists: bool = False) -> TableSchema:
    """DROP CHECK, DROP FOREIGN KEY and DROP CONSTRAINT.

    :raises UnknownName: there is none of this name.
    """
    if kind != "CHECK" and (left := without_foreign_key(schema, named.name)) is not None:
        return left
    if kind != "FOREIGN KEY" and (left := without_check(schema, named.name)) is not None:
        return left
    if kind == "CONSTRAINT" and named.name.lower() in (PRIMARY, *map(str.lower, schema.unique_names)):
        return without_key(schema, named)
    if if_exists:
        return schema
    checks = [each.name for each in schema.checks] if kind != "FOREIGN KEY" else []
    keys = [each.name for each in schema.foreign_keys] if kind != "CHECK" else []
    raise located(unknown(kind.lower(), f"{schema.title}.{named.name}", [*checks, *keys], like=named.name), named)


def renamed_key(schema: TableSchema, action: exp.Expr) -> TableSchema:
    """RENAME INDEX, also of a UNIQUE key.

    :raises UnknownName, AlreadyExists: there is no such key, or another of the new name.
    """
    old, new = action.this.name.lower(), checked(action.args["to"].name, "index")
    if old != new.lower() and new.lower() in key_names(schema):
        raise AlreadyExists(f'index "{new}" of table "{schema.title}" exists')
    unique = tuple(new if name.lower() == old else name for name in schema.unique_names)
    if unique != schema.unique_names and old != PRIMARY:
        return replace(schema, unique_names=unique)
    at = known_index(schema, action.this)
    return replace(schema, index_names=(*schema.index_names[:at], new, *schema.index_names[at + 1 :]))


def key_names(schema: TableSchema) -> set[str]:
    """The names of its indexes and UNIQUE keys, in lower case."""
    return {name.lower() for name in (*schema.index_names, *schema.unique_names)}


def known_index(schema: TableSchema, named: exp.Expr) -> int:
    """Which of its indexes is called so. :raises UnknownName: none."""
    for at, name in enumerate(schema.index_names):
        if name.lower() == named.name.lower():
            return at
    names = (*schema.index_names, *schema.unique_names)
    raise located(unknown("index", f"{schema.title}.{named.name}", names, like=named.name), named)


def without_key(schema: TableSchema, named: exp.Expr) -> TableSchema:
    """DROP INDEX, also of a UNIQUE key or the PRIMARY KEY.

    :raises UnknownName: there is none of this name. :raises StillInUse: AUTO_INCREMENT needs it.
    """
    name = named.name.lower()
    if name == PRIMARY:
        return without_primary_key(schema)
    keep = [each.lower() != name for each in schema.unique_names]
    if not all(keep):
        unique, names = tuple(compress(schema.unique, keep)), tuple(compress(schema.unique_names, keep))
        return _still_numbered(schema, replace(schema, unique=unique, unique_names=names), named.name)
    at = known_index(schema, named)
    keep = [other != at for other in range(len(schema.indexes))]
    indexes, names = tuple(compress(schema.indexes, keep)), tuple(compress(schema.index_names, keep))
    return _still_numbered(schema, replace(schema, indexes=indexes, index_names=names), schema.index_names[at])


def _without_parts(schema: TableSchema) -> TableSchema:
    """Hidden columns that are in no key any more go."""
    used = {at for key in (*schema.unique, *schema.indexes) for at in key}
    gone = {at for at, column in enumerate(schema.columns) if column.hidden and not column.dropped} - used
    columns = tuple(replace(c, dropped=True) if at in gone else c for at, c in enumerate(schema.columns))
    return replace(schema, columns=columns) if gone else schema


def _still_numbered(before: TableSchema, after: TableSchema, name: str) -> TableSchema:
    after = _without_parts(after)
    column = next((column for column in before.columns if column.auto_increment), None)
    if column is not None:
        first = before.columns.index(column)
        if not any(key and key[0] == first for key in (after.primary_key, *after.unique, *after.indexes)):
            raise StillInUse(f'index "{name}" serves AUTO_INCREMENT column "{column.name}"')
    return after


def dropped_name(drop: exp.Expr) -> exp.Expr:
    """What DROP names. :raises SqlError: it names several, or nothing."""
    tables: list[exp.Expr] = drop.args.get("tables") or []
    if len(tables) != 1:
        raise SqlError("DROP wants one name")
    return tables[0]
