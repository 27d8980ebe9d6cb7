"""ALTER TABLE, CREATE INDEX and DROP INDEX: from one schema of a table to its next.

Columns are append-only. A dropped one stays as a tombstone, so rows that are stored and views that run keep their
positions, and a new column always comes last.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import compress

from domains.errors import AlreadyExists, LimitExceeded, SqlError, StillInUse, Unsupported
from domains.language.types import TableColumn, TableSchema
from migrations.catalog import Catalog, unknown
from migrations.parse.grammar import words
from migrations.parse.reading import Parsed, exp
from migrations.statements.definitions.columns import (
    check_collation,
    column_declaration,
    implicit_default,
    key_columns,
)
from migrations.statements.definitions.conditions import refuse_read, without_check
from migrations.statements.definitions.ddl import MOST_COLUMNS, MOST_INDEXES, index_clause, with_index
from migrations.statements.definitions.modify import default_changed, modified, placed, renamed
from migrations.statements.definitions.sharded import refuse_dropping
from migrations.statements.names import checked, column_position, known_table, located
from migrations.statements.statement import AlterTableStatement, CreateIndex, DropIndex


def alter_table(parsed: Parsed, catalog: Catalog) -> AlterTableStatement:
    """:raises Unsupported: an action other than ADD/DROP COLUMN and ADD/DROP INDEX; named."""
    alter = parsed.expression
    if alter.args.get("kind") == "VIEW":
        raise Unsupported("ALTER VIEW", hint="CREATE OR REPLACE VIEW")
    schema = known_table(catalog, alter.this)
    for option in alter.args.get("options") or ():
        _refuse_option(option)
    actions = alter.args.get("actions") or []
    for action in actions:
        schema = _act(schema, action)
    return AlterTableStatement(schema.name, schema, any(action.args.get("cascade") for action in actions))


def _refuse_option(option: exp.Expr) -> None:
    """ENGINE, COMMENT, ALGORITHM, LOCK and the like say nothing here, as in CREATE TABLE."""
    if isinstance(option, (exp.CollateProperty, exp.CharacterSetProperty)):
        check_collation(option.this.name)
    elif not isinstance(option, _IDLE_OPTIONS):
        raise Unsupported(f"ALTER TABLE with {words(option)}", hint="leave it out")


_IDLE_OPTIONS = (
    exp.AlgorithmProperty,
    exp.AutoIncrementProperty,
    exp.EngineProperty,
    exp.LockProperty,
    exp.SchemaCommentProperty,
)


def create_index(parsed: Parsed, catalog: Catalog) -> CreateIndex | AlterTableStatement:
    """With IF NOT EXISTS, and an index of that name there, the table is altered to what it is."""
    create = parsed.expression
    index = create.this
    schema = known_table(catalog, index.args["table"])
    if create.args.get("unique"):
        raise _unique_later(schema)
    name = index.name
    if create.args.get("exists") and _index_at(schema, name) is not None:
        return AlterTableStatement(schema.name, schema)
    columns = key_columns(schema, index.args["params"].args.get("columns") or [], "index")
    return CreateIndex(schema.name, columns, _limited(with_index(schema, columns, name)))


def drop_index(parsed: Parsed, catalog: Catalog) -> DropIndex | AlterTableStatement:
    """With IF EXISTS, and no such index, the table is altered to what it is."""
    drop = parsed.expression
    on = drop.args.get("cluster")
    if on is None:
        raise SqlError("DROP INDEX needs a table", hint="DROP INDEX name ON table")
    schema = known_table(catalog, on.this)
    named = _dropped(drop)
    if drop.args.get("exists") and _index_at(schema, named.name) is None:
        return AlterTableStatement(schema.name, schema)
    at = _known_index(schema, named)
    return DropIndex(schema.name, schema.indexes[at], _without_index(schema, at))


def _act(schema: TableSchema, action: exp.Expr) -> TableSchema:
    if isinstance(action, exp.ColumnDef):
        return _add_column(schema, action)
    if isinstance(action, exp.Drop) and action.args.get("kind") == "COLUMN":
        return _drop_column(schema, action)
    if isinstance(action, exp.Drop) and action.args.get("kind") in ("CHECK", "CONSTRAINT"):
        return _without_constraint(schema, _dropped(action), action.args["kind"])
    if isinstance(action, exp.Drop) and action.args.get("kind") == "FOREIGN KEY":
        return schema  # None is kept.
    if isinstance(action, exp.RenameColumn):
        return renamed(schema, action.this, action.args["to"].name)
    if isinstance(action, exp.RenameIndex):
        return _renamed_index(schema, action)
    if isinstance(action, exp.ModifyColumn):
        return modified(schema, action)
    if isinstance(action, exp.AlterColumn):
        return default_changed(schema, action)
    if isinstance(action, exp.Drop) and action.args.get("kind") == "INDEX":
        return _without_index(schema, _known_index(schema, _dropped(action)))
    if isinstance(action, exp.AddConstraint):
        for part in action.expressions:
            schema = _add_key(schema, part)
        return schema
    names: dict[type[exp.Expr], str] = {
        exp.AlterRename: "RENAME TO",
        exp.DropPrimaryKey: "DROP PRIMARY KEY",
    }
    raise Unsupported(
        f"ALTER TABLE … {names.get(type(action)) or words(action)}",
        hint="columns and indexes can be added, changed and dropped",
    )


def _without_constraint(schema: TableSchema, named: exp.Expr, kind: str) -> TableSchema:
    """:raises UnknownName: no CHECK is called so. Foreign keys have no names here: any other one may be one's."""
    left = without_check(schema, named.name)
    if left is None and kind == "CHECK":
        error = unknown("check", f"{schema.name}.{named.name}", [each.name for each in schema.checks], like=named.name)
        raise located(error, named)
    return schema if left is None else left


def _renamed_index(schema: TableSchema, action: exp.Expr) -> TableSchema:
    at = _known_index(schema, action.this)
    new = checked(action.args["to"].name, "index")
    known = _index_at(schema, new)
    if known is not None and known != at:
        raise AlreadyExists(f'index "{new}" of table "{schema.name}" exists')
    return replace(schema, index_names=(*schema.index_names[:at], new, *schema.index_names[at + 1 :]))


def _add_key(schema: TableSchema, item: exp.Expr) -> TableSchema:
    for part in item.expressions if isinstance(item, exp.Constraint) else [item]:
        if isinstance(part, exp.IndexColumnConstraint):
            schema = _limited(with_index(schema, index_clause(schema, part), part.name or item.name))
        elif isinstance(part, exp.UniqueColumnConstraint):
            raise _unique_later(schema)
        elif not isinstance(part, exp.ForeignKey):
            what = "PRIMARY KEY" if isinstance(part, exp.PrimaryKey) else words(part)
            raise Unsupported(f"ALTER TABLE … ADD {what}", hint="declare it in CREATE TABLE")
    return schema


def _add_column(schema: TableSchema, definition: exp.ColumnDef) -> TableSchema:
    declared = column_declaration(definition)
    column = declared.column
    if declared.generated is not None or declared.checks:
        raise Unsupported(
            f'ADD COLUMN "{column.name}" {"that is generated" if declared.generated is not None else "with a CHECK"}',
            hint="declare it in CREATE TABLE",
        )
    if declared.primary or declared.unique or column.auto_increment:
        raise Unsupported(
            f'ADD COLUMN "{column.name}" with a PRIMARY KEY, UNIQUE or AUTO_INCREMENT',
            hint="declare it in CREATE TABLE",
        )
    if schema.position(column.name) is not None:
        if definition.args.get("exists"):
            return schema
        raise AlreadyExists(f'column "{schema.name}.{column.name}" exists')
    if len(schema.columns) >= MOST_COLUMNS:
        raise LimitExceeded(
            f'table "{schema.name}" has {MOST_COLUMNS} columns', hint="dropped ones count: rows keep their places"
        )
    added = replace(schema, columns=(*schema.columns, _padded(column)))
    return placed(added, len(schema.columns), definition.args.get("position"))


def _padded(column: TableColumn) -> TableColumn:
    """The column with the value that the rows get which are stored already.

    That is not the time, whatever the default: a recipe that is played again must give the same schema.
    """
    if column.nullable or column.has_default:
        return column
    value = None if column.default_now else implicit_default(column.type)
    if value is None:
        raise Unsupported(
            f'ADD COLUMN "{column.name}" {column.type} NOT NULL without a constant DEFAULT',
            hint="give it one, or allow NULL and UPDATE the stored rows",
        )
    return replace(column, default=value)


def _drop_column(schema: TableSchema, drop: exp.Drop) -> TableSchema:
    named = _dropped(drop)
    if drop.args.get("exists") and schema.position(named.name) is None:
        return schema
    at = column_position(schema, named.name, named)
    shown = f'column "{schema.name}.{schema.columns[at].name}"'
    refuse_dropping(schema, at)
    refuse_read(schema, at, "dropped")
    if at in schema.primary_key:
        raise Unsupported(f"dropping {shown} of the PRIMARY KEY", hint="make a new table and copy: INSERT … SELECT")
    if any(at in columns for columns in schema.unique):
        raise Unsupported(f"dropping {shown} of a UNIQUE key", hint="make a new table and copy: INSERT … SELECT")
    for columns, index in zip(schema.indexes, schema.index_names, strict=True):
        if at in columns:
            raise StillInUse(f'{shown} is in index "{index}"', hint=f"DROP INDEX {index} ON {schema.name} first")
    if len(schema.live()) == 1:
        raise SqlError(f'{shown} is the last column of "{schema.name}"', hint=f"DROP TABLE {schema.name}")
    dropped = replace(schema.columns[at], dropped=True)
    return replace(schema, columns=(*schema.columns[:at], dropped, *schema.columns[at + 1 :]))


def _dropped(drop: exp.Expr) -> exp.Expr:
    tables: list[exp.Expr] = drop.args.get("tables") or []
    if len(tables) != 1:
        raise SqlError("DROP wants one name")
    return tables[0]


def _index_at(schema: TableSchema, name: str) -> int | None:
    return next((at for at, known in enumerate(schema.index_names) if known.lower() == name.lower()), None)


def _known_index(schema: TableSchema, named: exp.Expr) -> int:
    at = _index_at(schema, named.name)
    if at is None:
        error = unknown("index", f"{schema.name}.{named.name}", schema.index_names, like=named.name)
        raise located(error, named)
    return at


def _without_index(schema: TableSchema, at: int) -> TableSchema:
    keep = [other != at for other in range(len(schema.indexes))]
    after = replace(
        schema, indexes=tuple(compress(schema.indexes, keep)), index_names=tuple(compress(schema.index_names, keep))
    )
    column = next((column for column in schema.columns if column.auto_increment), None)
    if column is not None:
        first = schema.columns.index(column)
        if not any(key and key[0] == first for key in (after.primary_key, *after.unique, *after.indexes)):
            raise StillInUse(f'index "{schema.index_names[at]}" serves AUTO_INCREMENT column "{column.name}"')
    return after


def _limited(schema: TableSchema) -> TableSchema:
    if len(schema.unique) + len(schema.indexes) > MOST_INDEXES:
        raise LimitExceeded(f'table "{schema.name}" has too many indexes', hint=f"at most {MOST_INDEXES}")
    return schema


def _unique_later(schema: TableSchema) -> Unsupported:
    return Unsupported(
        f'a UNIQUE key for table "{schema.name}", which exists',
        hint="declare UNIQUE in CREATE TABLE; INDEX can be added",
    )
