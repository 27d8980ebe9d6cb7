"""Writes of the common forms, with their tree left behind: what is bound is values, not nodes.

::

    INSERT INTO t (a, b) VALUES (?, ?), … [ON DUPLICATE KEY UPDATE b = VALUES(b)]     → InsertTemplate
    UPDATE t SET b = ? WHERE a = ? AND c = ?,  DELETE FROM t WHERE a = ?              → KeyedTemplate

A template is made of a tree that was interpreted for the same schema before, so that all that can be wrong with the
text has been found out. It does with values what ``dml.py`` does, with the same errors, at a hundredth of the time:
for an INSERT of 100 rows 0.2 ms, where its tree takes 12 and its text 25.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from domains.expressions import Call, Constant, Expression, Field
from domains.packets import Delete, Insert, Operation, Update
from domains.types import BOOL, TableSchema, Value
from migrations.parse import exp
from migrations.query.scalar import conjuncts
from migrations.query.scope import Scope
from migrations.statements.access import access
from migrations.statements.constants import coerced, constant_of, placeholders
from migrations.statements.names import column_position
from migrations.statements.stored import RowMaker, row_maker


@dataclass(frozen=True, slots=True)
class InsertTemplate:
    """INSERT of rows that are all parameters."""

    schema: TableSchema
    maker: RowMaker
    width: int
    on_conflict: str
    assignments: tuple[tuple[int, Expression], ...]

    def bind(self, values: Sequence[Value], now: str) -> Operation:
        """:raises TypeViolation, ConstraintViolation: with row and column."""
        given = [_stated(value) for value in values]
        width = self.width
        rows = [given[at : at + width] for at in range(0, len(given), width)]
        return Insert(self.schema.name, tuple(self.maker.rows(rows, now)), self.on_conflict, self.assignments)


@dataclass(frozen=True, slots=True)
class KeyedTemplate:
    """UPDATE or DELETE of the rows whose columns equal parameters; all that is set is parameters, too."""

    schema: TableSchema
    conditions: tuple[tuple[Field, int, bool], ...]
    """Column, the number of its parameter (from 0), and whether the parameter stands to the left of the ``=``."""
    changes: tuple[tuple[int, int], ...] | None
    """Position and parameter of each assignment; None: it is a DELETE."""

    def bind(self, values: Sequence[Value], now: str) -> Operation:
        """:raises TypeViolation: a value does not fit its column."""
        parts: list[Expression] = []
        for field, number, left in self.conditions:
            constant = constant_of(values[number])
            parts.append(Call("eq", (constant, field) if left else (field, constant), BOOL))
        where = parts[0] if len(parts) == 1 else Call("and", tuple(parts), BOOL)
        found, schema = access(where, self.schema), self.schema
        if self.changes is None:
            return Delete(schema.name, where, found)
        changes = []
        for position, number in self.changes:
            column = schema.columns[position]
            changes.append((position, Constant(coerced(_stated(values[number]), column), column.type)))
        return Update(schema.name, where, tuple(changes), found)


Template = InsertTemplate | KeyedTemplate


def _stated(value: Value) -> Value:
    """What a parameter's value is as a constant of SQL."""
    return constant_of(value).value if isinstance(value, (int, Decimal)) else value


def template_of(node: exp.Expr, schema: TableSchema, operation: Operation) -> Template | None:
    """The template of a tree that was interpreted as ``operation``; None where it has another form than these."""
    numbers = {id(mark): number for number, mark in enumerate(placeholders(node))}
    if isinstance(operation, Insert):
        return _of_insert(node, schema, operation, len(numbers))
    if operation.limit is not None or operation.where is None:
        return None
    conditions = _conditions(node, schema, numbers)
    changes = _changes(node, schema, numbers) if isinstance(operation, Update) else None
    if conditions is None or (changes is None and isinstance(operation, Update)):
        return None
    used = len(conditions) + len(changes or ())
    return KeyedTemplate(schema, conditions, changes) if used == len(numbers) else None


def _of_insert(node: exp.Expr, schema: TableSchema, operation: Insert, count: int) -> InsertTemplate | None:
    source, target = node.args.get("expression"), node.this
    if not isinstance(source, exp.Values) or not count:
        return None
    rows = [item.expressions if isinstance(item, exp.Tuple) else [item] for item in source.expressions]
    if not all(isinstance(cell, exp.Placeholder) for cells in rows for cell in cells):
        return None
    # What is set depends on the new row alone, and neither on a parameter nor on the time.
    width = len(schema.columns)
    if any(not isinstance(e, Field) or e.position < width for _, e in operation.assignments):
        return None
    named = target.expressions if isinstance(target, exp.Schema) else ()
    positions = tuple(column_position(schema, item.name, item) for item in named) or schema.live()
    if count != len(rows) * len(positions):
        return None
    maker = row_maker(schema, positions)
    return InsertTemplate(schema, maker, len(positions), operation.on_conflict, operation.assignments)


def _conditions(
    node: exp.Expr, schema: TableSchema, numbers: dict[int, int]
) -> tuple[tuple[Field, int, bool], ...] | None:
    target = node.this
    scope = Scope.of_table(schema, target.alias or None)
    found: list[tuple[Field, int, bool]] = []
    for part in conjuncts(node.args["where"].this):
        if not isinstance(part, exp.EQ):
            return None
        sides = part.this, part.args["expression"]
        for left, (mark, column) in enumerate((sides[::-1], sides)):
            if id(mark) in numbers and isinstance(column, exp.Column):
                found.append((scope.resolve(column), numbers[id(mark)], bool(left)))
                break
        else:
            return None
    return tuple(found)


def _changes(node: exp.Expr, schema: TableSchema, numbers: dict[int, int]) -> tuple[tuple[int, int], ...] | None:
    found: list[tuple[int, int]] = []
    for item in node.expressions:
        number = numbers.get(id(item.args["expression"]))
        if number is None:
            return None
        found.append((column_position(schema, item.this.name, item.this), number))
    return tuple(found)
