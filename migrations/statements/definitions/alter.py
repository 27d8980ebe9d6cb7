"""ALTER TABLE, CREATE INDEX and DROP INDEX: from one schema of a table to its next.

Columns are append-only. A dropped one stays as a tombstone, so rows that are stored and views that run keep their
positions, and a new column always comes last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from domains.errors import AlreadyExists, LimitExceeded, SqlError, StillInUse, Unsupported
from domains.language.types import TableColumn, TableSchema
from migrations.catalog import Catalog
from migrations.parse.grammar import words
from migrations.parse.reading import Parsed, exp
from migrations.query.expressions.literals import collation_named
from migrations.statements.constants import coerced
from migrations.statements.definitions.columns import (
    TABLE_COMMENT_LENGTH,
    check_character_set,
    column_declaration,
    comment_of,
    implicit_default,
)
from migrations.statements.definitions.conditions import refuse_read, with_check, with_generated
from migrations.statements.definitions.ddl import (
    MOST_COLUMNS,
    limited,
    refuse_older,
    with_foreign_keys,
    with_index,
)
from migrations.statements.definitions.keys import (
    PRIMARY,
    dropped_name,
    key_names,
    known_index,
    renamed_key,
    with_key,
    with_primary_key,
    with_unique_key,
    without_constraint,
    without_key,
    without_primary_key,
)
from migrations.statements.definitions.modify import default_changed, modified, placed, renamed
from migrations.statements.definitions.parts import with_late_parts
from migrations.statements.definitions.sharded import refuse_dropping
from migrations.statements.names import column_position, known_table, new_relation_name, refuse_existing
from migrations.statements.statement import AlterTableStatement, CreateIndex, DropIndex


def alter_table(parsed: Parsed, catalog: Catalog, now: str = "") -> AlterTableStatement:
    """``now``: the time that rows get which are stored already, as the recipe's entry has it; "" in one of before.

    :raises Unsupported: an action other than ADD/DROP COLUMN and ADD/DROP INDEX; named.
    """
    alter = parsed.expression
    if alter.args.get("kind") == "VIEW":
        raise Unsupported("ALTER VIEW", hint="CREATE OR REPLACE VIEW")
    schema = known_table(catalog, alter.this)
    refuse_older(alter, catalog)
    for option in alter.args.get("options") or ():
        schema = _with_option(schema, option)
    actions = alter.args.get("actions") or []
    for is_renaming, some in groupby(actions, lambda action: isinstance(action, exp.RenameColumn)):
        together = list(some)
        schema = renamed(schema, together) if is_renaming else _acted(schema, together, catalog, now)
    return AlterTableStatement(schema.name, schema, any(action.args.get("cascade") for action in actions))


def _acted(schema: TableSchema, actions: Iterable[exp.Expr], catalog: Catalog, now: str) -> TableSchema:
    """The schema after these actions, one after the other."""
    for action in actions:
        if isinstance(action, exp.AlterRename):
            schema = _renamed_table(schema, new_relation_name(action.this, "table", catalog), catalog)
            continue
        schema = _act(schema, action, catalog.shards, now)
        if isinstance(action, exp.AddConstraint | exp.ColumnDef):
            items = action.expressions if isinstance(action, exp.AddConstraint) else [action]
            schema = with_foreign_keys(schema, items, catalog)
    return schema


def _with_option(schema: TableSchema, option: exp.Expr) -> TableSchema:
    """COLLATE is of the columns that come: those that are there keep theirs, as in MySQL. ENGINE, ALGORITHM, LOCK and
    the like say nothing here, as in CREATE TABLE."""
    if isinstance(option, exp.CharacterSetProperty):
        check_character_set(option.this.name)
    elif isinstance(option, exp.CollateProperty):
        return replace(schema, collation=collation_named(option.this.name))
    elif isinstance(option, exp.SchemaCommentProperty):
        return replace(schema, comment=comment_of(option, TABLE_COMMENT_LENGTH, f'table "{schema.title}"'))
    elif not isinstance(option, _IDLE_OPTIONS):
        raise Unsupported(f"ALTER TABLE with {words(option)}", hint="leave it out")
    return schema


_IDLE_OPTIONS = (
    exp.AlgorithmProperty,
    exp.AutoIncrementProperty,
    exp.EngineProperty,
    exp.LockProperty,
)


def create_index(parsed: Parsed, catalog: Catalog) -> CreateIndex | AlterTableStatement:
    """The change that CREATE INDEX asks for. With IF NOT EXISTS, where the index exists, it alters nothing."""
    create = parsed.expression
    index = create.this
    schema = known_table(catalog, index.args["table"])
    name, parts = index.name, index.args["params"].args.get("columns") or []
    if create.args.get("exists") and name.lower() in key_names(schema):
        return AlterTableStatement(schema.name, schema)
    if create.args.get("unique"):
        return AlterTableStatement(schema.name, with_unique_key(schema, parts, name, catalog.shards))
    schema, columns = with_late_parts(schema, parts, "index")
    return CreateIndex(schema.name, columns, limited(with_index(schema, columns, name)))


def drop_index(parsed: Parsed, catalog: Catalog) -> DropIndex | AlterTableStatement:
    """The change that DROP INDEX asks for. With IF EXISTS, where there is no such index, it alters nothing."""
    drop = parsed.expression
    on = drop.args.get("cluster")
    if on is None:
        raise SqlError("DROP INDEX needs a table", hint="DROP INDEX name ON table")
    schema = known_table(catalog, on.this)
    named = dropped_name(drop)
    if drop.args.get("exists") and named.name.lower() not in key_names(schema):
        return AlterTableStatement(schema.name, schema)
    if named.name.lower() in (PRIMARY, *map(str.lower, schema.unique_names)):
        return AlterTableStatement(schema.name, without_key(schema, named))
    columns = schema.indexes[known_index(schema, named)]
    return DropIndex(schema.name, columns, without_key(schema, named))


def _act(schema: TableSchema, action: exp.Expr, shards: int, now: str) -> TableSchema:
    if isinstance(action, exp.ColumnDef):
        return _add_column(schema, action, shards, now)
    if isinstance(action, exp.Drop) and action.args.get("kind") == "COLUMN":
        return _drop_column(schema, action)
    if isinstance(action, exp.Drop) and action.args.get("kind") in ("CHECK", "CONSTRAINT", "FOREIGN KEY"):
        return without_constraint(schema, dropped_name(action), action.args["kind"], bool(action.args.get("exists")))
    if isinstance(action, exp.RenameIndex):
        return renamed_key(schema, action)
    if isinstance(action, exp.ModifyColumn):
        return modified(schema, action)
    if isinstance(action, exp.AlterColumn):
        return default_changed(schema, action)
    if isinstance(action, exp.Drop) and action.args.get("kind") == "INDEX":
        return without_key(schema, dropped_name(action))
    if isinstance(action, exp.DropPrimaryKey):
        return without_primary_key(schema)
    if isinstance(action, exp.AddConstraint):
        for part in action.expressions:
            schema = with_key(schema, part, shards)
        return schema
    raise Unsupported(
        f"ALTER TABLE … {words(action)}",
        hint="columns and indexes can be added, changed and dropped",
    )


def _renamed_table(schema: TableSchema, name: str, catalog: Catalog) -> TableSchema:
    """The schema with another name in SQL. The table stays stored by the one that it has (``Catalog``).

    :raises AlreadyExists: a table or view has the new name.
    """
    if name.lower() != schema.title.lower():
        refuse_existing(catalog, name)
    return replace(schema, shown="" if name == schema.name else name)


def _add_column(schema: TableSchema, definition: exp.ColumnDef, shards: int, now: str) -> TableSchema:
    """The column, and then its keys and checks, as ADD UNIQUE, ADD PRIMARY KEY and ADD CHECK would add them."""
    declared = column_declaration(definition, schema.collation)
    column = declared.column
    if column.auto_increment:
        raise Unsupported(
            f'ADD COLUMN "{column.name}" with AUTO_INCREMENT: no stored row says its number',
            hint="make a new table with it: CREATE TABLE … AS SELECT",
        )
    if schema.position(column.name) is not None:
        if definition.args.get("exists"):
            return schema
        raise AlreadyExists(f'column "{schema.title}.{column.name}" exists')
    if len(schema.columns) >= MOST_COLUMNS:
        raise LimitExceeded(
            f'table "{schema.title}" has {MOST_COLUMNS} columns', hint="dropped ones count: rows keep their places"
        )
    at = len(schema.columns)
    if declared.generated is not None:
        added = replace(schema, columns=(*schema.columns, column))
        added = with_generated(added, [*[None] * at, declared.generated])
        column = added.columns[at]  # Rows that are stored have the value that they would be written with.
        added = replace(added, columns=(*schema.columns, replace(column, initial_of=column.generated)))
    else:
        added = replace(schema, columns=(*schema.columns, _padded(column, now)))
    added = placed(added, at, definition.args.get("position"))
    for name, condition in declared.checks:
        added = with_check(added, condition, name)
    parts = [exp.to_identifier(column.name)]
    if declared.primary:
        added = with_primary_key(added, parts, shards)
    return with_unique_key(added, parts, "", shards) if declared.unique else added


def _padded(column: TableColumn, now: str) -> TableColumn:
    """The column with the value that the rows get which are stored already: of the time the moment that the recipe has
    for it, since a recipe that is played again must give the same schema."""
    if column.default_now and now:
        return replace(column, initial=coerced(now, column), has_initial=True)
    if column.nullable or column.has_default:
        return column
    value = None if column.default_now else implicit_default(column.type)
    if value is None:
        raise Unsupported(
            f'ADD COLUMN "{column.name}" {column.type} NOT NULL without a DEFAULT',
            hint="give it one, or allow NULL and UPDATE the stored rows",
        )
    return replace(column, default=value)


def _drop_column(schema: TableSchema, drop: exp.Drop) -> TableSchema:
    named = dropped_name(drop)
    if drop.args.get("exists") and schema.position(named.name) is None:
        return schema
    at = column_position(schema, named.name, named)
    shown = f'column "{schema.title}.{schema.columns[at].name}"'
    refuse_dropping(schema, at)
    refuse_read(schema, at, "dropped")
    if at in schema.primary_key:
        raise Unsupported(f"dropping {shown} of the PRIMARY KEY", hint="make a new table and copy: INSERT … SELECT")
    for columns, key in zip(schema.unique, schema.unique_names, strict=True):
        if at in columns:
            raise StillInUse(f'{shown} is in key "{key}"', hint=f"DROP INDEX `{key}` ON {schema.title} first")
    for columns, index in zip(schema.indexes, schema.index_names, strict=True):
        if at in columns:
            raise StillInUse(f'{shown} is in index "{index}"', hint=f"DROP INDEX {index} ON {schema.title} first")
    if len(schema.live()) == 1:
        raise SqlError(f'{shown} is the last column of "{schema.title}"', hint=f"DROP TABLE {schema.title}")
    dropped = replace(schema.columns[at], dropped=True)
    return replace(schema, columns=(*schema.columns[:at], dropped, *schema.columns[at + 1 :]))
