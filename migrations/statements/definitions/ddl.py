"""CREATE and DROP of tables and views."""

from __future__ import annotations

from dataclasses import replace

from domains.errors import AlreadyExists, LimitExceeded, SqlError, Unsupported
from domains.language.collating.collation import BINARY, Collation
from domains.language.types import TableSchema
from migrations.catalog import Catalog, Namespace, ViewDefinition, names_read, unknown
from migrations.parse.grammar import SCHEMA, VIRTUAL_SCHEMAS, words
from migrations.parse.reading import Parsed, exp, parse
from migrations.parse.temporary import is_hidden, plain_name
from migrations.query.expressions.literals import collation_named
from migrations.query.view import frozen
from migrations.statements.definitions.columns import (
    TABLE_COMMENT_LENGTH,
    ColumnDeclaration,
    check_character_set,
    column_declaration,
    comment_of,
    key_columns,
    refuse_json_key,
)
from migrations.statements.definitions.conditions import with_check, with_generated
from migrations.statements.definitions.foreign_keys import declared_keys, has_index_for, with_foreign_key
from migrations.statements.definitions.parts import with_parts
from migrations.statements.definitions.sharded import sharded
from migrations.statements.definitions.written import table_text
from migrations.statements.names import (
    checked,
    known_table,
    located,
    new_relation_name,
    refuse_existing,
    relation_name,
)
from migrations.statements.statement import (
    CreateSchema,
    CreateTableStatement,
    CreateView,
    DropSchema,
    DropTableStatement,
    DropView,
)

MOST_COLUMNS = 1_017
"""Columns of a table, as in MySQL's InnoDB; dropped ones count, because rows keep their places."""
MOST_INDEXES = 64
"""Secondary indexes of a table, as in InnoDB: each one is written with every row."""


def create_schema(parsed: Parsed, catalog: Catalog) -> CreateSchema:
    """The statement that makes a database."""
    create = parsed.expression
    name = checked(create.this.name or create.this.text("db"), "database")
    if any(character in name for character in "./*\\"):
        raise SqlError(f'"{name}" is not a name for a database', hint="letters, digits and _")
    collation, if_not_exists = "", bool(create.args.get("exists"))
    properties = create.args.get("properties")
    for each in properties.expressions if properties is not None else ():
        if isinstance(each, exp.CharacterSetProperty):
            check_character_set(each.this.name)
        elif isinstance(each, exp.CollateProperty):
            collation = str(collation_named(each.this.name) or BINARY)
        else:
            raise Unsupported(f"{words(each)} of CREATE DATABASE", hint="CHARACTER SET and COLLATE are there")
    lower = name.lower()
    if lower in (SCHEMA, *VIRTUAL_SCHEMAS) or lower in catalog.namespaces:
        if not if_not_exists:
            raise AlreadyExists(f'database "{name}" exists')
    elif catalog.within(lower):
        raise SqlError(f'there is a table or view whose name begins with "{name}."', hint="rename it first")
    return CreateSchema(Namespace(name, collation), if_not_exists)


def drop_schema(parsed: Parsed, catalog: Catalog) -> DropSchema:
    (node,) = parsed.expression.args["tables"]
    name = node.name or node.text("db")
    if name.lower() in (SCHEMA, *VIRTUAL_SCHEMAS):
        raise Unsupported(f"DROP DATABASE {name}", hint="it is there from the beginning; DROP TABLE what is in it")
    if_exists = bool(parsed.expression.args.get("exists"))
    if not if_exists:
        catalog.known_schema(name)
    return DropSchema(name.lower(), if_exists)


def create_table(parsed: Parsed, catalog: Catalog) -> CreateTableStatement:
    """The statement that makes a table. With IF NOT EXISTS it is also made where the table exists, and then does
    nothing."""
    create = parsed.expression
    _refuse_properties(create, "TABLE")
    name = new_relation_name(create.this, "table", catalog)
    if create.args.get("replace"):
        raise Unsupported("CREATE OR REPLACE TABLE", hint=f'DROP TABLE IF EXISTS "{name}" first')
    if create.args.get("expression") is not None:
        raise Unsupported("CREATE TABLE … AS SELECT as a migration", hint="send it as a statement: POST /v1/sql")
    if_not_exists = bool(create.args.get("exists"))
    if not if_not_exists or catalog.named(name) is None:
        refuse_existing(catalog, name)
    if is_hidden(name) and any(create.find_all(exp.Reference)):
        raise Unsupported("a foreign key of a temporary table", hint="leave it out")
    own = catalog.namespaces.get(plain_name(name).rpartition(".")[0].lower())
    if own is not None and own.collation and catalog.collation:
        catalog = replace(catalog, collation=own.collation)
    collation = _table_collation(create, catalog)
    like = _like(create)
    if like is not None:
        text = table_text(replace(known_table(catalog, like), name=name, shown="", foreign_keys=()))
        (parsed,) = parse(text)
        create = parsed.expression
        collation = _table_collation(create, replace(catalog, collation=BINARY))
    else:
        refuse_older(create, catalog)
    if not isinstance(create.this, exp.Schema) or not create.this.expressions:
        raise SqlError(f'table "{name}" has no columns')
    schema = sharded(_schema(name, create.this.expressions, collation), parsed.sharding, catalog.shards)
    if (told := _property(create, exp.SchemaCommentProperty)) is not None:
        schema = replace(schema, comment=comment_of(told, TABLE_COMMENT_LENGTH, f'table "{name}"'))
    if (stored := catalog.storage_name(name)) != name and catalog.named(name) is None:
        schema = replace(schema, name=stored, shown=name)
    return CreateTableStatement(with_foreign_keys(schema, create.this.expressions, catalog), if_not_exists)


def with_foreign_keys(schema: TableSchema, items: list[exp.Expr], catalog: Catalog) -> TableSchema:
    """The schema with the foreign keys among these items, and an index for each that needs one, as in InnoDB."""
    for declared in declared_keys(items):
        schema = with_foreign_key(schema, declared, catalog)
        key = schema.foreign_keys[-1]
        if key.enforced and not has_index_for(schema, key.columns):
            taken = {name.lower() for name in schema.index_names}
            schema = with_index(schema, key.columns, "" if declared.index.lower() in taken else declared.index)
    return limited(schema)


def _like(create: exp.Expr) -> exp.Expr | None:
    """The table whose definition CREATE TABLE … LIKE takes over, as SHOW CREATE TABLE has it."""
    properties = create.args.get("properties")
    given = [*(properties.expressions if properties is not None else ())]
    given += create.this.expressions if isinstance(create.this, exp.Schema) else []
    table: exp.Expr | None = next((each.this for each in given if isinstance(each, exp.LikeProperty)), None)
    return table


def drop_table(parsed: Parsed, catalog: Catalog) -> DropTableStatement:
    name, if_exists = _dropped(parsed)
    if (table := catalog.named(name)) is not None:
        return DropTableStatement(table.title, if_exists, _cascades(parsed))
    if if_exists:
        return DropTableStatement(name, if_exists)
    if name.lower() in catalog.views:
        raise SqlError(f'"{name}" is a view', hint=f"DROP VIEW {name}")
    known = (each.title for each in catalog.tables.values())
    raise located(unknown("table to drop", name, known), parsed.expression.args["tables"][0])


def create_view(parsed: Parsed, catalog: Catalog) -> CreateView:
    """The statement that makes a view. With IF NOT EXISTS it is also made where the view exists, and then does
    nothing."""
    create = parsed.expression
    _refuse_properties(create, "VIEW")
    name = new_relation_name(create.this, "view", catalog)
    query = create.args.get("expression")
    if not isinstance(query, exp.Query):
        raise SqlError(f'view "{name}" has no SELECT')
    columns: tuple[str, ...] = ()
    if isinstance(create.this, exp.Schema):
        columns = tuple(checked(column.name, "column") for column in create.this.expressions)
        _refuse_duplicates(columns)
    or_replace, if_not_exists = bool(create.args.get("replace")), bool(create.args.get("exists"))
    if catalog.named(name) is not None or not (or_replace or if_not_exists):
        refuse_existing(catalog, name)
    if any(map(is_hidden, names_read(query))):
        raise Unsupported("a view of a temporary table", hint="it would be there longer than its table")
    # Played again, the text meets the catalog of that moment, and is the same query again.
    kept, meaning = frozen(catalog, query)
    definition = ViewDefinition(name, parsed.query, parsed.external, ad_hoc=False, relation=kept, columns=columns)
    return CreateView(definition, or_replace, if_not_exists, meaning)


def drop_view(parsed: Parsed, catalog: Catalog) -> DropView:
    name, if_exists = _dropped(parsed)
    if name.lower() in catalog.views:
        return DropView(catalog.views[name.lower()].name, if_exists, _cascades(parsed))
    if if_exists:
        return DropView(name, if_exists)
    if catalog.named(name) is not None:
        raise SqlError(f'"{name}" is a table', hint=f"DROP TABLE {name}")
    known = (view.name for view in catalog.views.values() if not view.ad_hoc)
    raise located(unknown("view to drop", name, known), parsed.expression.args["tables"][0])


def _cascades(parsed: Parsed) -> bool:
    return bool(parsed.expression.args.get("cascade"))


def _dropped(parsed: Parsed) -> tuple[str, bool]:
    drop = parsed.expression
    if len(drop.args.get("tables") or ()) != 1:
        raise SqlError("DROP wants one name")
    name = relation_name(drop.args["tables"][0])
    if drop.args.get("temporary") and not is_hidden(name):
        raise Unsupported("DROP TEMPORARY TABLE", hint="there is no session that has one: leave TEMPORARY out")
    return name, bool(drop.args.get("exists"))


def _named(node: exp.Expr) -> str:
    return str((node.this if isinstance(node, exp.Schema) else node).name)


def _refuse_properties(create: exp.Expr, what: str) -> None:
    """ENGINE, CHARSET, ALGORITHM, DEFINER and their like say nothing here; a few change the meaning."""
    properties = create.args.get("properties")
    for found in properties.expressions if properties is not None else ():
        if isinstance(found, exp.TemporaryProperty) and not (what == "TABLE" and is_hidden(_named(create.this))):
            raise Unsupported(
                f"CREATE TEMPORARY {what}",
                hint="there is no session that it could end with: leave TEMPORARY out, and drop it yourself",
            )
        if isinstance(found, exp.MaterializedProperty):
            raise Unsupported("CREATE MATERIALIZED VIEW", hint="every view is kept up to date: CREATE EXT VIEW")
        if isinstance(found, exp.CharacterSetProperty):
            check_character_set(found.this.name)
        if type(found) is exp.Property and found.name.upper() not in _STORAGE_OPTIONS.split():
            raise Unsupported(f"the option {found.name} of CREATE {what}", hint="leave it out")


_STORAGE_OPTIONS = (
    "AVG_ROW_LENGTH CHECKSUM COMPRESSION DELAY_KEY_WRITE INSERT_METHOD KEY_BLOCK_SIZE MAX_ROWS MIN_ROWS PACK_KEYS "
    "PAGE_CHECKSUM ROW_FORMAT STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES"
)
"""MySQL's options of how a table is stored, which no answer depends on, that the parser has no class of its own for."""


# --- the schema of a table ----------------------------------------------------------------------------------------


def _table_collation(create: exp.Expr, catalog: Catalog) -> Collation | None:
    """The collation of a new table's texts that name none."""
    found = _property(create, exp.CollateProperty)
    return collation_named(catalog.collation or BINARY) if found is None else collation_named(found.this.name)


def _property(create: exp.Expr, kind: type[exp.Expr]) -> exp.Expr | None:
    properties = create.args.get("properties")
    named = properties.expressions if properties is not None else []
    return next((each for each in named if isinstance(each, kind)), None)


def refuse_older(definition: exp.Expr, catalog: Catalog) -> None:
    """An entry of before there were collations: they are left out where it is played again (``replaying.py``).

    :raises Unsupported: there is one.
    """
    if catalog.collation:
        return
    for each in definition.find_all(exp.CollateProperty, exp.CollateColumnConstraint):
        if collation_named(each.this.name) is not None:
            raise Unsupported(f'collation "{each.this.name}" in an entry of a recipe that is older than collations')


def _schema(name: str, items: list[exp.Expr], collation: Collation | None) -> TableSchema:
    declared = [column_declaration(item, collation) for item in items if isinstance(item, exp.ColumnDef)]
    if not declared:
        raise SqlError(f'table "{name}" has no columns')
    columns = tuple(declaration.column for declaration in declared)
    _refuse_duplicates([column.name for column in columns])
    if len(columns) > MOST_COLUMNS:
        raise LimitExceeded(f'table "{name}" has {len(columns)} columns', hint=f"at most {MOST_COLUMNS}")
    schema = _with_column_keys(TableSchema(name, columns, collation=collation), declared)
    schema = with_generated(schema, [declaration.generated for declaration in declared])
    for named, condition in [check for declaration in declared for check in declaration.checks]:
        schema = with_check(schema, condition, named)
    for item in items:
        if not isinstance(item, exp.ColumnDef):
            for part in item.expressions if isinstance(item, exp.Constraint) else [item]:
                schema = _with_key(schema, part, item.name if isinstance(item, exp.Constraint) else "")
    schema = with_names(_with_not_null_key(schema))
    _check_auto_increment(schema)
    return schema


def limited(schema: TableSchema) -> TableSchema:
    """:raises LimitExceeded: it has too many indexes."""
    if len(schema.unique) + len(schema.indexes) > MOST_INDEXES:
        raise LimitExceeded(f'table "{schema.title}" has too many indexes', hint=f"at most {MOST_INDEXES}")
    return schema


def _with_column_keys(schema: TableSchema, declared: list[ColumnDeclaration]) -> TableSchema:
    primary = tuple(at for at, declaration in enumerate(declared) if declaration.primary)
    if len(primary) > 1:
        raise SqlError(
            f'table "{schema.title}" has two primary keys', hint="write PRIMARY KEY (a, b) after the columns"
        )
    unique = tuple((at,) for at, declaration in enumerate(declared) if declaration.unique)
    for at in (*primary, *(at for (at,) in unique)):
        refuse_json_key(schema.columns[at], "PRIMARY KEY" if at in primary else "UNIQUE")
    schema = replace(schema, primary_key=primary)
    for key in unique:
        schema = with_unique(schema, key, "")
    return schema


def _with_key(schema: TableSchema, item: exp.Expr, name: str) -> TableSchema:
    """The schema with one PRIMARY KEY, UNIQUE or KEY clause of CREATE TABLE."""
    if isinstance(item, exp.PrimaryKey):
        if schema.primary_key:
            raise SqlError(f'table "{schema.title}" has two primary keys')
        return replace(schema, primary_key=key_columns(schema, item.expressions, "PRIMARY KEY"))
    if isinstance(item, exp.UniqueColumnConstraint):
        schema, columns = with_parts(schema, item.this.expressions if item.this is not None else [], "UNIQUE")
        return schema if columns in schema.unique else with_unique(schema, columns, unique_name(item) or name)
    if isinstance(item, exp.IndexColumnConstraint):
        refuse_other_index(item)
        schema, columns = with_parts(schema, item.expressions, "index")
        return with_index(schema, columns, name or item.name)
    if isinstance(item, exp.ForeignKey):
        return schema
    if isinstance(item, exp.CheckColumnConstraint):
        return with_check(schema, item.this, name)
    if isinstance(item, exp.Identifier):
        raise SqlError(f'column "{item.name}" has no type')
    raise Unsupported(f"{words(item)} in CREATE TABLE")


def unique_name(item: exp.UniqueColumnConstraint) -> str:
    """The name that the clause gives, if any."""
    return "" if item.this is None or item.this.this is None else str(item.this.this.name)


def refuse_other_index(item: exp.IndexColumnConstraint) -> None:
    """:raises Unsupported: it is FULLTEXT or SPATIAL."""
    kind = item.args.get("kind")
    if kind:
        raise Unsupported(f"{str(kind).upper()} index", hint="use KEY; LIKE scans")


def with_index(schema: TableSchema, columns: tuple[int, ...], name: str) -> TableSchema:
    """The schema with one more index; one without a name is called after its first column, as in MySQL.

    A UNIQUE key that was never given a name gives it up: recipes of before such keys had names use it for indexes.

    :raises AlreadyExists: an index or key has this name.
    """
    unnamed = {key: _is_given(schema, at) for at, key in enumerate(map(str.lower, schema.unique_names))}
    if name and unnamed.get(name.lower()):
        names = ["" if each.lower() == name.lower() else each for each in schema.unique_names]
        return with_names(with_index(replace(schema, unique_names=tuple(names)), columns, name))
    name = _key_name(schema, columns, name)
    return replace(schema, indexes=(*schema.indexes, columns), index_names=(*schema.index_names, name))


def _is_given(schema: TableSchema, at: int) -> bool:
    """Whether a UNIQUE key is called as it would be without a name."""
    name, base = schema.unique_names[at].lower(), schema.columns[schema.unique[at][0]].name.lower()
    return name == base or (name.startswith(f"{base}_") and name[len(base) + 1 :].isdigit())


def with_unique(schema: TableSchema, columns: tuple[int, ...], name: str) -> TableSchema:
    """The schema with one more UNIQUE key; one without a name is given one by :func:`with_names`.

    :raises AlreadyExists: an index or key has this name.
    """
    name = _key_name(schema, columns, name) if name else ""
    return replace(schema, unique=(*schema.unique, columns), unique_names=(*schema.unique_names, name))


def with_names(schema: TableSchema) -> TableSchema:
    """The schema whose UNIQUE keys all have names."""
    for at, name in enumerate(schema.unique_names):
        if not name:
            names = list(schema.unique_names)
            names[at] = _key_name(schema, schema.unique[at], "")
            schema = replace(schema, unique_names=tuple(names))
    return schema


def _key_name(schema: TableSchema, columns: tuple[int, ...], name: str) -> str:
    taken = {known.lower() for known in (*schema.index_names, *schema.unique_names, "PRIMARY")}
    if name and name.lower() in taken:
        raise AlreadyExists(f'index "{name}" of table "{schema.title}" exists')
    first, number = schema.columns[columns[0]], 2
    base = first.name if not first.hidden else "functional_index" if first.name[0] == "(" else first.name.split("(")[0]
    name = checked(name, "index") if name else base
    while name.lower() in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def _with_not_null_key(schema: TableSchema) -> TableSchema:
    columns = list(schema.columns)
    for at in schema.primary_key:
        column = columns[at]
        if column.has_default and column.default is None:
            raise SqlError(f'primary key column "{column.name}" cannot have DEFAULT NULL')
        columns[at] = replace(column, nullable=False)
    return replace(schema, columns=tuple(columns))


def _check_auto_increment(schema: TableSchema) -> None:
    found = [at for at, column in enumerate(schema.columns) if column.auto_increment]
    if len(found) > 1:
        raise SqlError(f'table "{schema.title}" has two AUTO_INCREMENT columns')
    keys = (schema.primary_key, *schema.unique, *schema.indexes)
    if found and not any(key and key[0] == found[0] for key in keys):
        raise SqlError(
            f'AUTO_INCREMENT column "{schema.columns[found[0]].name}" is not the first column of a key',
            hint="make it the PRIMARY KEY",
        )


def _refuse_duplicates(names: list[str] | tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise SqlError(f'column "{name}" is named twice')
        seen.add(name.lower())
