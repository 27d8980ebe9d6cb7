"""Names that DDL gives and statements use, checked once."""

from __future__ import annotations

from domains.errors import AlreadyExists, LimitExceeded, SqlError, Unsupported
from domains.types import TableSchema
from migrations.catalog import Catalog, unknown
from migrations.parse import exp

LONGEST_NAME = 64
"""Characters, as in MySQL: names are file, key and metric names elsewhere."""
AD_HOC_PREFIX = "adhoc_"
"""Names of the views that ad-hoc SELECTs become; nobody else may use it."""


def checked(name: str, what: str) -> str:
    """A name that may be given to something new.

    :raises LimitExceeded: it is too long.
    :raises SqlError: it is empty or ends in a space.
    """
    if len(name) > LONGEST_NAME:
        raise LimitExceeded(
            f'{what} name "{name[:LONGEST_NAME]}…" has {len(name)} characters', hint=f"at most {LONGEST_NAME}"
        )
    if not name or name != name.strip():
        raise SqlError(f'"{name}" is no name for a {what}', hint="a name is not empty and has no spaces at its ends")
    return name


def relation_name(node: exp.Expr) -> str:
    """The name of a table or view in a statement.

    :raises Unsupported: it is qualified with a database.
    """
    while isinstance(node, exp.Schema):
        node = node.this
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise SqlError("expected the name of a table or view")
    if node.args.get("db") is not None:
        raise Unsupported(f'the name "{node.db}.{node.name}"', hint=f'there is one database: write "{node.name}"')
    return node.name


def new_relation_name(node: exp.Expr, what: str) -> str:
    name = checked(relation_name(node), what)
    if name.lower().startswith(AD_HOC_PREFIX):
        raise SqlError(f'the name "{name}" is reserved', hint=f'views of ad-hoc SELECTs start with "{AD_HOC_PREFIX}"')
    return name


def existing(catalog: Catalog, name: str) -> str | None:
    """``table "t"`` or ``view "v"``, whichever has this name."""
    lower = name.lower()
    if lower in catalog.tables:
        return f'table "{catalog.tables[lower].name}"'
    if lower in catalog.views:
        return f'view "{catalog.views[lower].name}"'
    return None


def refuse_existing(catalog: Catalog, name: str) -> None:
    """:raises AlreadyExists: a table or view has this name."""
    found = existing(catalog, name)
    if found is not None:
        raise AlreadyExists(f"{found} exists")


def column_position(schema: TableSchema, name: str) -> int:
    """Where a live column stands in the stored row.

    :raises UnknownName: with the nearest column.
    """
    position = schema.position(name)
    if position is None:
        raise unknown_column(schema, name)
    return position


def unknown_column(schema: TableSchema, name: str) -> SqlError:
    names = (schema.columns[at].name for at in schema.live())
    error = unknown("column", f"{schema.name}.{name}", names, like=name)
    return type(error)(error.message, hint=error.hint)


def written_table(catalog: Catalog, node: exp.Expr) -> TableSchema:
    """The base table that a statement writes to.

    :raises Unsupported: it is a view.
    :raises UnknownName: with the nearest table.
    """
    name = relation_name(node)
    if name.lower() in catalog.views and name.lower() not in catalog.tables:
        raise Unsupported(f'writing to view "{name}"', hint="write to the tables that it reads")
    return catalog.table(name)
