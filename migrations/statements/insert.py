"""INSERT and REPLACE: VALUES, SET, SELECT, and ON DUPLICATE KEY UPDATE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.errors import ConstraintViolation, SqlError, Unsupported
from domains.language.compile import compile_expression
from domains.language.expressions import Expression, Field
from domains.language.rewriting import fold
from domains.language.types import NULL, Column, Row, TableSchema, Value
from domains.plan.packets import Insert, Operation
from migrations.catalog import Catalog
from migrations.parse.reading import exp
from migrations.query.expressions.literals import literal
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Bound, Scope
from migrations.statements.constants import NO_COLUMNS, coerced, evaluate
from migrations.statements.definitions.columns import implicit_default
from migrations.statements.names import column_position
from migrations.statements.stored import (
    assignments,
    default_of,
    given_generated,
    is_default,
    refuse_generated,
    row_maker,
    stamps,
)

SettingOf = Callable[[Scope], Setting]
"""The setting of the statement's expressions over a scope."""


def insert(
    node: exp.Insert,
    schema: TableSchema,
    setting: SettingOf,
    selected: Sequence[Row] | None,
    columns: Sequence[Column],
    now: str,
) -> Insert:
    """``selected`` are the rows of INSERT … SELECT, and ``columns`` its columns, where these are known.

    :raises ConstraintViolation, TypeViolation: with the row's number (from 1) and the column.
    """
    target, source = node.this, node.args.get("expression")
    replacing = node.args.get("alternative") == "REPLACE"
    positions = _positions(target, schema)
    beside: tuple[Row, ...] = ()
    if isinstance(source, exp.Values):
        tuples = [_cells(item) for item in source.expressions]
        if not any(tuples):
            positions = ()
        given = _values(tuples, positions, schema, setting, now)
    elif selected is not None:
        refuse_generated(schema, positions)
        further, width = len(_columns_beside(node, schema)), len(positions)
        _check_widths(selected, width + further, "the SELECT gives")
        given = [row[:width] for row in selected] if further else list(selected)
        beside = tuple([row[width:] for row in selected]) if further else ()
    else:
        raise SqlError(f"{'REPLACE' if replacing else 'INSERT'} has neither VALUES nor SELECT")
    rows = tuple(row_maker(schema, positions).rows(given, now))
    conflict, returning = node.args.get("conflict"), node.args.get("returning") is not None
    if conflict is None:
        act = "replace" if replacing else "ignore" if node.args.get("ignore") else "error"
        return Insert(schema.name, rows, act, returning=returning)
    if replacing or node.args.get("ignore"):
        raise SqlError("ON DUPLICATE KEY UPDATE does not go with IGNORE or REPLACE")
    updates = _updates(node, conflict, schema, positions, columns, setting, now)
    times = stamps(schema, (position for position, _ in updates), now)
    return Insert(schema.name, rows, "update", updates, beside, returning, times)


def with_columns_beside(node: exp.Insert, schema: TableSchema) -> exp.Insert:
    """INSERT … SELECT whose SELECT also gives what ON DUPLICATE KEY UPDATE names of its tables."""
    beside = _columns_beside(node, schema)
    if not beside:
        return node
    node = node.copy()
    for column in beside:
        node.args["expression"].append("expressions", column.copy())
    return node


def _columns_beside(node: exp.Insert, schema: TableSchema) -> list[exp.Column]:
    """Columns in ON DUPLICATE KEY UPDATE that the written table does not have: they are of the tables of the SELECT,
    as long as its rows are rows of these."""
    conflict, source = node.args.get("conflict"), node.args.get("expression")
    if conflict is None or not isinstance(source, exp.Select) or source.find(exp.AggFunc) is not None:
        return []
    if any(source.args.get(each) for each in ("group", "having", "distinct")):
        return []
    found: dict[exp.Column, None] = {}
    for item in conflict.expressions:
        value = item.args.get("expression") if isinstance(item, exp.EQ) else None
        for column in value.find_all(exp.Column) if value is not None else ():
            own = column.table.lower() == schema.name.lower() if column.table else schema.position(column.name)
            inside = column.find_ancestor(exp.Query, exp.Insert)
            if not is_default(column) and own in (None, False) and inside is conflict.parent:
                found[column] = None
    return list(found)


def _positions(target: exp.Expr, schema: TableSchema) -> tuple[int, ...]:
    """The columns that are given, in order; all of them where no list says which."""
    if not isinstance(target, exp.Schema) or not target.expressions:
        return schema.live()
    positions: list[int] = []
    for item in target.expressions:
        position = column_position(schema, item.name, item)
        if position in positions:
            raise SqlError(f'column "{item.name}" is named twice')
        positions.append(position)
    return tuple(positions)


def _cells(item: exp.Expr) -> Sequence[exp.Expr]:
    """The expressions of one row: ``(1, 2)`` or ``ROW(1, 2)``."""
    cells = item.expressions if isinstance(item, exp.Tuple) else [item]
    if len(cells) == 1 and isinstance(cells[0], exp.Anonymous) and cells[0].name.upper() == "ROW":
        return list(cells[0].expressions)
    return list(cells)


def _values(
    tuples: Sequence[Sequence[exp.Expr]], positions: tuple[int, ...], schema: TableSchema, setting: SettingOf, now: str
) -> list[Row]:
    _check_widths(tuples, len(positions), "there are")
    columns, plain = [schema.columns[at] for at in positions], setting(NO_COLUMNS)
    rows: list[Row] = []
    for number, cells in enumerate(tuples, 1):
        row: list[Value] = []
        for cell, column in zip(cells, columns, strict=True):
            if column.generated is not None and not is_default(cell):
                raise given_generated(column)
            constant = literal(cell)
            if constant is not None:
                row.append(constant.value)
            elif is_default(cell):
                try:
                    row.append(default_of(column, now))
                except ConstraintViolation as error:
                    raise ConstraintViolation(f"row {number}: {error.message}", hint=error.hint) from None
            elif _names_columns(cell):
                row.append(_of_row(cell, _begun(schema, positions, row, now), schema, setting))
            else:
                row.append(evaluate(cell, plain, place="VALUES"))
        rows.append(tuple(row))
    return rows


def _names_columns(cell: exp.Expr) -> bool:
    """Outside of subqueries, which have been answered."""
    return any(column.find_ancestor(exp.Query) is None for column in cell.find_all(exp.Column))


def _begun(schema: TableSchema, positions: tuple[int, ...], given: Sequence[Value], now: str) -> Row:
    """The row as a value that names columns sees it: those given before it have their values, the others the default,
    or what stands for one where there is none (0, or the empty text), as in MySQL."""
    begun: list[Value] = [None] * len(schema.columns)
    for at in schema.live():
        column = schema.columns[at]
        if column.has_default or column.default_now or column.nullable:
            begun[at] = default_of(column, now)
        else:
            begun[at] = implicit_default(column.type)
    for at, value in zip(positions, given, strict=False):
        begun[at] = coerced(value, schema.columns[at])
    return tuple(begun)


def _of_row(cell: exp.Expr, row: Row, schema: TableSchema, setting: SettingOf) -> Value:
    scope = Scope.of_table(schema)
    return compile_expression(fold(scalar(cell, scope, setting(scope))))(row)


def _check_widths(rows: Sequence[Sequence[object]], wanted: int, found: str) -> None:
    for number, row in enumerate(rows, 1):
        if len(row) != wanted:
            raise SqlError(f"row {number}: {found} {len(row)} values for {wanted} columns")


def _updates(
    node: exp.Insert,
    conflict: exp.Expr,
    schema: TableSchema,
    positions: tuple[int, ...],
    columns: Sequence[Column],
    setting: SettingOf,
    now: str,
) -> tuple[tuple[int, Expression], ...]:
    """ON DUPLICATE KEY UPDATE over the stored row, the row that was to be inserted, and what stands beside it."""
    if not conflict.args.get("duplicate"):
        raise Unsupported("ON CONFLICT", hint="ON DUPLICATE KEY UPDATE")
    width = len(schema.columns)
    beside = {column: number for number, column in enumerate(_columns_beside(node, schema))}
    types = [column.type for column in columns[len(positions) :]] or [NULL] * len(beside)
    scope = Scope([*Scope.of_table(schema).bounds, *_new_row(node, schema, positions)])
    plain = setting(scope)

    def new_value(part: exp.Expr) -> Expression | None:
        """``VALUES(column)``, else what a subquery has become."""
        if isinstance(part, exp.Anonymous) and part.name.upper() == "VALUES":
            if len(part.expressions) != 1 or part.expressions[0] is None:
                raise SqlError("VALUES() wants one column")
            position = column_position(schema, part.expressions[0].name, part.expressions[0])
            return Field(width + position, schema.columns[position].type)
        if isinstance(part, exp.Column) and part in beside:
            return Field(2 * width + beside[part], types[beside[part]])
        return plain.replace(part) if plain.replace is not None else None

    return assignments(conflict.expressions, schema, scope, replace(plain, replace=new_value), now)


def _new_row(node: exp.Insert, schema: TableSchema, positions: tuple[int, ...]) -> list[Bound]:
    """The columns of ``VALUES … AS new`` or ``AS new(a, b)``; only the latter are found without their table's name."""
    source = node.args.get("expression")
    alias = source.args.get("alias") if isinstance(source, exp.Values) else None
    if alias is None:
        return []
    width, table = len(schema.columns), alias.name
    if table.lower() == schema.name.lower():
        raise SqlError(f'the alias "{table}" is the name of the table')
    names = [column.name for column in alias.args.get("columns") or ()]
    if not names:
        return [
            Bound(table, schema.columns[at].name, Field(width + at, schema.columns[at].type), merged=True)
            for at in schema.live()
        ]
    if len(names) != len(positions):
        raise SqlError(f"{table} has {len(names)} names for {len(positions)} columns")
    return [
        Bound(table, name, Field(width + at, schema.columns[at].type))
        for name, at in zip(names, positions, strict=True)
    ]


def given_id(operation: Operation, catalog: Catalog) -> int | None:
    """The AUTO_INCREMENT value that the last row of an INSERT comes with."""
    table = catalog.tables.get(operation.table.lower()) if isinstance(operation, Insert) else None
    if not isinstance(operation, Insert) or table is None or not operation.rows:
        return None
    value = next((operation.rows[-1][at] for at, each in enumerate(table.columns) if each.auto_increment), None)
    return value if isinstance(value, int) else None
