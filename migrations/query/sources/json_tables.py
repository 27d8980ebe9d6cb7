"""JSON_TABLE's columns: from its tree to :class:`JsonLevel`."""

from __future__ import annotations

from collections.abc import Iterator

from domains.errors import SqlError, Unsupported
from domains.language.functions.json.paths import Everything, Path, is_single, path_of
from domains.language.functions.json.table import (
    ExistsColumn,
    JsonColumn,
    JsonLevel,
    OrdinalColumn,
    PathColumn,
)
from migrations.parse.reading import exp
from migrations.parse.types import sql_type
from migrations.query.expressions.documents import conditions, fitted
from migrations.query.expressions.scalar import scalar
from migrations.query.expressions.scope import Scope


def level_of(table: exp.JSONTable) -> JsonLevel:
    """:raises SqlError: what is wrong with a path, a type or a default.
    :raises Unsupported: a column asks for what is not there.
    """
    return JsonLevel(_path(table), tuple(map(_column, table.args["schema"].expressions)))


def titles_of(table: exp.JSONTable) -> tuple[str, ...]:
    """The names of all columns, in the order of the text.

    :raises SqlError: a name stands twice.
    """
    titles = tuple(_titles(table.args["schema"]))
    taken: set[str] = set()
    for title in titles:
        if title.lower() in taken:
            raise SqlError(f'JSON_TABLE has two columns "{title}"')
        taken.add(title.lower())
    return titles


def _titles(schema: exp.Expr) -> Iterator[str]:
    for column in schema.expressions:
        nested = column.args.get("nested_schema")
        if nested is None:
            yield column.name
        else:
            yield from _titles(nested)


def _column(column: exp.Expr) -> JsonColumn:
    arguments = column.args
    if arguments.get("ordinality"):
        return OrdinalColumn()
    path, nested = _path(column), arguments.get("nested_schema")
    if nested is not None:
        if Everything() in path:
            raise Unsupported("** in a NESTED PATH", hint="** may stand in JSON_TABLE's own path")
        return JsonLevel(path, tuple(map(_column, nested.expressions)))
    type = sql_type(arguments["kind"])
    if arguments.get("exists"):
        return ExistsColumn(path, type, *(fitted(value, type, _place(column)) for value in (1, 0)))
    if not is_single(path):
        raise Unsupported("a column of JSON_TABLE whose path may name several values", hint="NESTED PATH … COLUMNS (…)")
    return PathColumn(path, type, *conditions(column, type, _place(column), lambda node: scalar(node, Scope(()))))


def _place(column: exp.Expr) -> str:
    return f'column "{column.name}" of JSON_TABLE'


def _path(node: exp.Expr) -> Path:
    text = node.args["path"].name
    path = path_of(text)
    if path is None:
        raise SqlError(f"{text[:40]!r} is no JSON path", hint="""like '$[*]', '$.key', '$."a key"[0]', '$[last]'""")
    return path
