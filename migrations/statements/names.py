"""Names that DDL gives and statements use, checked once."""

from __future__ import annotations

from domains.errors import AlreadyExists, LimitExceeded, SqlError, UnknownName, Unsupported
from domains.language.types import TableSchema
from migrations.catalog import Catalog, ViewDefinition, unknown
from migrations.parse.grammar import SCHEMA
from migrations.parse.namespaces import WRITTEN
from migrations.parse.reading import exp, place

LONGEST_NAME = 64
"""Characters, as in MySQL: names are file, key and metric names elsewhere."""
AD_HOC_PREFIX = "adhoc_"
"""Names of the views that ad-hoc SELECTs become; nobody else may use it."""


def checked(name: str, what: str) -> str:
    """A name that may be given to something new.

    :raises LimitExceeded: it is too long.
    :raises SqlError: it is empty, or begins or ends in a space and may not.
    """
    if len(name) > LONGEST_NAME:
        raise LimitExceeded(
            f'{what} name "{name[:LONGEST_NAME]}…" has {len(name)} characters', hint=f"at most {LONGEST_NAME}"
        )
    if not name or (name != name.strip() and what in _TRIMMED):
        raise SqlError(f'"{name}" is not a name for a {what}', hint="a name is not empty and has no spaces at its ends")
    return name


_TRIMMED = ("table", "view", "column", "database")
"""Names of these have no spaces at their ends; those of keys and conditions may, as in MySQL."""


def without_schema(title: str) -> str:
    """``orders`` of ``shop.orders``: what names are made of that are a table's own."""
    return title.rpartition(".")[2]


def relation_name(node: exp.Expr) -> str:
    """The name of a table or view in a statement.

    :raises Unsupported: it is one of those that say what there is.
    """
    while isinstance(node, exp.Schema):
        node = node.this
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise SqlError("expected the name of a table or view")
    if node.args.get("db") is not None:
        raise Unsupported(f'the name "{node.db}.{node.name}"', hint="what it says is only read")
    return node.name


def new_relation_name(node: exp.Expr, what: str, catalog: Catalog) -> str:
    """The name of a table or view to come, which is a part of paths over HTTP.

    :raises UnknownName: its database is not there.
    :raises SqlError: it is reserved, or no path could name it: servers decode %2F before they split a path.
    """
    name = whole = relation_name(node)
    if "." in whole:
        found = node.this if isinstance(node, exp.Schema) else node
        if WRITTEN in found.meta and found.meta[WRITTEN] != SCHEMA:
            catalog.known_schema(whole.partition(".")[0])
        name = catalog.placed(whole)[1]
    checked(name, what)
    if "/" in name or name in (".", ".."):
        raise SqlError(f'"{name}" is not a name for a {what}', hint="a path over HTTP could not name it")
    if name.lower().startswith(AD_HOC_PREFIX):
        raise SqlError(f'the name "{name}" is reserved', hint=f'views of ad-hoc SELECTs start with "{AD_HOC_PREFIX}"')
    return whole


def existing(catalog: Catalog, name: str) -> str | None:
    """``table "t"`` or ``view "v"``, whichever has this name."""
    if (table := catalog.named(name)) is not None:
        return f'table "{table.title}"'
    if name.lower() in catalog.views:
        return f'view "{catalog.views[name.lower()].name}"'
    return None


def refuse_existing(catalog: Catalog, name: str) -> None:
    """:raises AlreadyExists: a table or view has this name."""
    found = existing(catalog, name)
    if found is not None:
        raise AlreadyExists(f"{found} exists")


def column_position(schema: TableSchema, name: str, node: exp.Expr | None = None) -> int:
    """The place of a live column in the stored row. ``node`` is where the text names it.

    :raises UnknownName: with the nearest column, and the place.
    """
    position = schema.position(name)
    if position is None:
        names = (schema.columns[at].name for at in schema.live())
        raise located(unknown("column", f"{schema.title}.{name}", names, like=name), node)
    return position


def located(error: UnknownName, node: exp.Expr | None) -> UnknownName:
    """The error with the line and column of the name."""
    line, column = place(node) if node is not None else (None, None)
    found = UnknownName(error.message, hint=error.hint, line=line, column=column)
    found.what = error.what
    return found


def known_table(catalog: Catalog, node: exp.Expr) -> TableSchema:
    """The base table that a statement names.

    :raises UnknownName: with the nearest table, and the place.
    """
    name = relation_name(node)
    try:
        return catalog.table(name)
    except UnknownName as error:
        raise located(error, node) from None


def known_relation(catalog: Catalog, node: exp.Expr) -> TableSchema | ViewDefinition:
    """The table or view that a statement names.

    :raises UnknownName: with the nearest name, and the place.
    """
    name = node.name if isinstance(node, exp.Identifier) else relation_name(node)
    try:
        return catalog.relation(name)
    except UnknownName as error:
        raise located(error, node) from None


def written_table(catalog: Catalog, node: exp.Expr) -> TableSchema:
    """The base table that a statement writes to.

    :raises Unsupported: it is a view.
    :raises UnknownName: with the nearest table.
    """
    name = relation_name(node)
    if name.lower() in catalog.views and catalog.named(name) is None:
        raise Unsupported(f'writing to view "{name}"', hint="write to the tables that it reads")
    return known_table(catalog, node)
