"""INSERT and REPLACE: VALUES, SET, SELECT, and ON DUPLICATE KEY UPDATE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.errors import ConstraintViolation, SqlError, Unsupported
from domains.language.expressions import Expression, Field
from domains.language.types import Row, TableSchema, Value
from domains.plan.packets import Insert
from migrations.parse.reading import exp
from migrations.query.expressions.literals import literal
from migrations.query.expressions.scalar import Setting
from migrations.query.expressions.scope import Bound, Scope
from migrations.statements.constants import NO_COLUMNS, evaluate
from migrations.statements.names import column_position
from migrations.statements.stored import assignments, default_of, is_default, row_maker

SettingOf = Callable[[Scope], Setting]
"""The setting of the statement's expressions over a scope."""


def insert(
    node: exp.Insert, schema: TableSchema, setting: SettingOf, selected: Sequence[Row] | None, now: str
) -> Insert:
    """``selected`` are the rows of INSERT … SELECT.

    :raises ConstraintViolation, TypeViolation: with the row's number (from 1) and the column.
    """
    target, source = node.this, node.args.get("expression")
    replacing = node.args.get("alternative") == "REPLACE"
    positions = _positions(target, schema)
    if isinstance(source, exp.Values):
        tuples = [_cells(item) for item in source.expressions]
        if not any(tuples):
            positions = ()
        given = _values(tuples, positions, schema, setting(NO_COLUMNS), now)
    elif selected is not None:
        given = list(selected)
        _check_widths(given, len(positions), "the SELECT gives")
    else:
        raise SqlError(f"{'REPLACE' if replacing else 'INSERT'} has neither VALUES nor SELECT")
    rows = tuple(row_maker(schema, positions).rows(given, now))
    conflict = node.args.get("conflict")
    if conflict is None:
        return Insert(schema.name, rows, "replace" if replacing else "ignore" if node.args.get("ignore") else "error")
    if replacing or node.args.get("ignore"):
        raise SqlError("ON DUPLICATE KEY UPDATE does not go with IGNORE or REPLACE")
    return Insert(schema.name, rows, "update", _updates(node, conflict, schema, positions, setting, now))


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
    tuples: Sequence[Sequence[exp.Expr]], positions: tuple[int, ...], schema: TableSchema, setting: Setting, now: str
) -> list[Row]:
    _check_widths(tuples, len(positions), "there are")
    columns = [schema.columns[at] for at in positions]
    rows: list[Row] = []
    for number, cells in enumerate(tuples, 1):
        row: list[Value] = []
        for cell, column in zip(cells, columns, strict=True):
            constant = literal(cell)
            if constant is not None:
                row.append(constant.value)
            elif is_default(cell):
                try:
                    row.append(default_of(column, now))
                except ConstraintViolation as error:
                    raise ConstraintViolation(f"row {number}: {error.message}", hint=error.hint) from None
            else:
                row.append(evaluate(cell, setting, place="VALUES"))
        rows.append(tuple(row))
    return rows


def _check_widths(rows: Sequence[Sequence[object]], wanted: int, found: str) -> None:
    for number, row in enumerate(rows, 1):
        if len(row) != wanted:
            raise SqlError(f"row {number}: {found} {len(row)} values for {wanted} columns")


def _updates(
    node: exp.Insert,
    conflict: exp.Expr,
    schema: TableSchema,
    positions: tuple[int, ...],
    setting: SettingOf,
    now: str,
) -> tuple[tuple[int, Expression], ...]:
    """ON DUPLICATE KEY UPDATE over the stored row followed by the row that was to be inserted."""
    if not conflict.args.get("duplicate"):
        raise Unsupported("ON CONFLICT", hint="ON DUPLICATE KEY UPDATE")
    width = len(schema.columns)
    scope = Scope([*Scope.of_table(schema).bounds, *_new_row(node, schema, positions)])
    plain = setting(scope)

    def new_value(part: exp.Expr) -> Expression | None:
        """``VALUES(column)``, else what a subquery has become."""
        if isinstance(part, exp.Anonymous) and part.name.upper() == "VALUES":
            if len(part.expressions) != 1 or part.expressions[0] is None:
                raise SqlError("VALUES() wants one column")
            position = column_position(schema, part.expressions[0].name, part.expressions[0])
            return Field(width + position, schema.columns[position].type)
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
