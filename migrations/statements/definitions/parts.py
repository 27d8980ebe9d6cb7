"""Keys of more than columns: of the beginning of a text, and of expressions. MySQL keeps both as generated columns.

A key's part that is no column is a *hidden* generated column, which the engine computes with every row and which no
statement sees::

    UNIQUE KEY u (a(10), (LOWER(b)))   ──►   unique over (LEFT(a, 10), LOWER(b)), shown as it was written

So what a key says is true of every row, whoever writes it. In a table that is there already, stored rows have in it
what is computed of them (``domains/store/widening.py``). (A KEY on the beginning of a column is one on the whole
column, which finds the same rows.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Field
from domains.language.functions import call
from domains.language.json_rows import stored_expression
from domains.language.types import BIGINT, TEXT, Kind, SqlType, TableColumn, TableSchema
from domains.plan.graph import Columns
from migrations.parse.reading import Parsed, exp, quote, text_of
from migrations.statements.definitions.columns import key_columns
from migrations.statements.definitions.conditions import over_row
from migrations.statements.names import column_position


def with_parts(schema: TableSchema, parts: Sequence[exp.Expr], what: str) -> tuple[TableSchema, Columns]:
    """The schema with a hidden column for each part that is no column, and the key's columns.

    :raises SqlError: a prefix of what is no text, or longer than it; an expression that is a column.
    :raises Unsupported: an expression whose value has no order of its own.
    """
    plain: list[exp.Expr] = []
    hidden: dict[int, TableColumn] = {}
    for place, part in enumerate(parts):
        inner = part.this if isinstance(part, exp.Ordered) else part
        column = _expression(schema, inner, what) if isinstance(inner, exp.Paren) else None
        if column is None and what == "UNIQUE":
            column = _prefix(schema, inner)
        if column is None:
            plain.append(part if what != "UNIQUE" else _column(part))
        else:
            hidden[place] = column
    if not hidden:
        return schema, key_columns(schema, plain, what)
    columns = iter(key_columns(schema, plain, what) if plain else ())
    key: list[int] = []
    for place in range(len(parts)):
        if place in hidden:
            key.append(len(schema.columns))
            schema = replace(schema, columns=(*schema.columns, hidden[place]))
        else:
            key.append(next(columns))
    return schema, tuple(key)


def with_late_parts(schema: TableSchema, parts: Sequence[exp.Expr], what: str) -> tuple[TableSchema, Columns]:
    """:func:`with_parts` of a table that may have rows."""
    wide, key = with_parts(schema, parts, what)
    stored = len(schema.columns)
    hidden = [replace(column, initial_of=column.generated) for column in wide.columns[stored:]]
    return replace(wide, columns=(*schema.columns, *hidden)), key


def _column(part: exp.Expr) -> exp.Expr:
    """Without a prefix, which is all of the column."""
    inner = part.this if isinstance(part, exp.Ordered) else part
    if isinstance(inner, exp.ColumnPrefix):
        named: exp.Expr = inner.this
        return named
    return exp.to_identifier(inner.name) if isinstance(inner, exp.Anonymous) and len(inner.expressions) == 1 else part


def _prefix(schema: TableSchema, part: exp.Expr) -> TableColumn | None:
    """``a(10)`` as LEFT(a, 10); None where that is all of the column, or it is none."""
    if isinstance(part, exp.ColumnPrefix):
        size = part.args["expression"]
    elif isinstance(part, exp.Anonymous) and len(part.expressions) == 1:
        (size,) = part.expressions
    else:
        return None
    at = column_position(schema, part.this.name if isinstance(part, exp.ColumnPrefix) else part.name, part)
    column, length = schema.columns[at], int(size.name) if size.name.isdigit() else 0
    most = column.type.length
    if column.type.kind is not Kind.TEXT or column.type.members or not length or (most is not None and length > most):
        raise SqlError(f'a key on the first {size.name} characters of column "{column.name}", which is {column.type}')
    if length == most:
        return None
    value = call("left", Field(at, column.type), Constant(length, BIGINT))
    encoded = stored_expression("", value).encoded
    return _hidden(f"{quote(column.name)}({length})", f"{column.name}({length})", value.type, encoded)


def _expression(schema: TableSchema, part: exp.Paren, what: str) -> TableColumn:
    if isinstance(part.this, exp.Column):
        raise SqlError(f'{what} on the expression "{text_of(part)}", which is a column', hint="leave the brackets out")
    value = over_row(schema, part.this, f"{what} on an expression")
    if value.type.kind in (Kind.JSON, Kind.NULL):
        raise Unsupported(f'{what} on the expression "{text_of(part)}" of type {value.type}', hint="CAST it")
    text = text_of(part)
    return _hidden(text, text, value.type, stored_expression("", value).encoded)


def _hidden(written: str, name: str, type: SqlType, encoded: str) -> TableColumn:
    made = TEXT if type.kind is Kind.TEXT else type
    generated = replace(stored_expression(written, Constant(None, made)), encoded=encoded)
    return TableColumn(name, replace(made, collation=type.collation), generated=generated, virtual=True, hidden=True)


def as_whole_keys(statement: Parsed) -> Parsed:
    """The statement as earlier versions took it: a key on the beginning of a column is on the whole column."""
    tree = statement.expression.copy()
    for node in list(tree.find_all(exp.ColumnPrefix, exp.Anonymous)):
        if node.find_ancestor(exp.UniqueColumnConstraint, exp.IndexParameters):
            node.replace(node.this if isinstance(node, exp.ColumnPrefix) else exp.to_identifier(node.name))
    return replace(statement, expression=tree)
