"""CREATE TABLE … AS SELECT: the table that a SELECT's columns make, with those that the definition has besides.

As in MySQL, columns stand in this order, and a name that both have is one column, of the declared type::

    CREATE TABLE t (x INT DEFAULT 1, b BIGINT, KEY (a)) AS SELECT a, b FROM s       x, a, b

A column of the one table that the SELECT reads is NOT NULL, and has a DEFAULT, where it is and has there (not
AUTO_INCREMENT, nor what generates it, nor keys); what is computed may be NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domains.errors import SqlError, Unsupported
from domains.language.types import Column, Kind, Row, TableColumn, TableSchema, Value
from domains.plan.packets import Insert
from migrations.catalog import Catalog
from migrations.parse.reading import Parsed, exp, parse
from migrations.statements.constants import placeholders
from migrations.statements.definitions.ddl import create_table
from migrations.statements.definitions.written import column_text, table_text
from migrations.statements.statement import SelectStatement
from migrations.statements.stored import refuse_generated, row_maker
from migrations.statements.subqueries import select_of


def asked(parsed: Parsed, catalog: Catalog, params: Sequence[Value], now: str) -> SelectStatement | None:
    """The SELECT; None: IF NOT EXISTS, and it does.

    :raises HeadraceError: what is wrong with the rest, as far as that is known before the SELECT's columns are.
    """
    create = parsed.expression
    plain = _without_select(parsed, [exp.ColumnDef(this=exp.to_identifier("a"), kind=exp.DataType.build("INT"))])
    statement = create_table(replace(plain, sharding=None), catalog)
    if catalog.named(statement.schema.title) is not None:
        return None
    values = dict(zip(map(id, placeholders(create)), params, strict=True))
    return select_of(create.args["expression"], values, now)


def made(
    parsed: Parsed, catalog: Catalog, columns: Sequence[Column], rows: Sequence[Row], now: str
) -> tuple[str, Insert]:
    """The CREATE TABLE of its own, and the rows.

    :raises SqlError: two columns have one name. :raises TypeViolation, ConstraintViolation: with the row's number.
    """
    create = parsed.expression
    items = create.this.expressions if isinstance(create.this, exp.Schema) else []
    declared = {item.name.lower(): item for item in items if isinstance(item, exp.ColumnDef)}
    source = _source(create.args["expression"], catalog)
    selected: dict[str, exp.Expr] = {}
    for column in columns:
        lower = column.name.lower()
        if lower in selected:
            raise SqlError(f'column "{column.name}" is named twice', hint="give one of them another name: … AS name")
        selected[lower] = declared.get(lower) or _definition(_column(column, source))
    own = [item for name, item in declared.items() if name not in selected]
    others = [item for item in items if not isinstance(item, exp.ColumnDef)]
    if any(item.find(exp.ForeignKey, exp.Reference) is not None for item in items):
        raise Unsupported("a foreign key of a table that is made AS SELECT", hint="CREATE TABLE, then INSERT … SELECT")
    schema = create_table(_without_select(parsed, [*own, *selected.values(), *others]), catalog).schema
    positions = tuple(at for name in selected if (at := schema.position(name)) is not None)
    refuse_generated(schema, positions)
    act = {"IGNORE": "ignore", "REPLACE": "replace"}.get(create.args.get("alternative") or "", "error")
    return table_text(schema), Insert(schema.title, tuple(row_maker(schema, positions).rows(rows, now)), act)


def _without_select(parsed: Parsed, items: Sequence[exp.Expr]) -> Parsed:
    """CREATE TABLE with these columns and keys."""
    create = parsed.expression.copy()
    table = create.this.this if isinstance(create.this, exp.Schema) else create.this
    create.set("this", exp.Schema(this=table, expressions=[item.copy() for item in items]))
    create.set("expression", None)
    return replace(parsed, expression=create)


def _source(query: exp.Expr, catalog: Catalog) -> TableSchema | None:
    """The table that the SELECT reads, where it is one alone, and its columns are its own."""
    while isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select) or query.args.get("joins") or query.args.get("with_"):
        return None
    group, clause = query.args.get("group"), query.args.get("from_")
    if clause is None or not isinstance(clause.this, exp.Table) or (group and group.args.get("rollup")):
        return None
    table = catalog.named(clause.this.name)
    named = {each.alias.lower(): each.this for each in query.expressions if isinstance(each, exp.Alias)}
    if table is None or any(not isinstance(each, exp.Column) for each in named.values()):
        own = {name for name, each in named.items() if not isinstance(each, exp.Column)}
        return None if table is None else replace(table, columns=tuple(_hidden(c, own) for c in table.columns))
    return table


def _hidden(column: TableColumn, names: set[str]) -> TableColumn:
    return replace(column, dropped=True) if column.name.lower() in names else column


def _column(column: Column, source: TableSchema | None) -> TableColumn:
    if column.type.kind is Kind.NULL:
        raise Unsupported(f'column "{column.name}", which is NULL and of no type', hint="CAST(NULL AS …) gives it one")
    at = None if source is None else source.position(column.name)
    if source is None or at is None or source.columns[at].type != column.type:
        return TableColumn(column.name, column.type)
    there = source.columns[at]
    if there.auto_increment:
        return TableColumn(column.name, column.type, nullable=False, default=0, has_default=True)
    return replace(there, name=column.name, generated=None, virtual=False, on_update_now=False, dropped=False)


def _definition(column: TableColumn) -> exp.Expr:
    (parsed,) = parse(f"CREATE TABLE t ({column_text(column, None)})")
    found: exp.Expr = parsed.expression.this.expressions[0]
    return found
