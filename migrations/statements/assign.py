"""SET clauses: ``column = expression``, of UPDATE and of ON DUPLICATE KEY UPDATE.

The engine performs them from left to right, as MySQL does, and coerces each value to its column there; a constant is
coerced here already, so that what cannot fit is refused before anything is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from domains.errors import ConstraintViolation, SqlError
from domains.expressions import Constant, Expression
from domains.types import TableColumn, TableSchema, Value
from migrations.parse import exp, text_of
from migrations.query.precision import precise
from migrations.query.scalar import Setting, scalar
from migrations.query.scope import Scope
from migrations.statements.constants import coerced
from migrations.statements.names import column_position


def assignments(
    items: Sequence[exp.Expr], schema: TableSchema, scope: Scope, setting: Setting, now: str
) -> tuple[tuple[int, Expression], ...]:
    """(position, expression over ``scope``'s row) for each item, in order."""
    return tuple(_assignment(item, schema, scope, setting, now) for item in items)


def _assignment(
    item: exp.Expr, schema: TableSchema, scope: Scope, setting: Setting, now: str
) -> tuple[int, Expression]:
    if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Column):
        raise SqlError(f'"{text_of(item)[:60]}" is no assignment', hint="write column = expression")
    if item.this.table:
        scope.resolve(item.this)
    position = column_position(schema, item.this.name, item.this)
    column = schema.columns[position]
    node = item.args["expression"]
    if is_default(node):
        return position, Constant(default_of(column, now), column.type)
    expression = precise(scalar(node, scope, setting))
    if isinstance(expression, Constant):
        return position, Constant(coerced(expression.value, column), column.type)
    return position, expression


def is_default(node: exp.Expr) -> bool:
    """Whether a value is the keyword DEFAULT."""
    if isinstance(node, exp.Column):
        return not node.table and isinstance(node.this, exp.Identifier) and _is_keyword(node.this)
    return isinstance(node, exp.Var) and node.name.upper() == "DEFAULT"


def _is_keyword(name: exp.Identifier) -> bool:
    return not name.args.get("quoted") and name.name.upper() == "DEFAULT"


def default_of(column: TableColumn, now: str) -> Value:
    """The value of a column that is given none; None also where AUTO_INCREMENT gives it.

    :raises ConstraintViolation: there is none.
    """
    if column.default_now:
        return coerced(now, column)
    if column.has_default:
        return column.default
    if column.nullable or column.auto_increment:
        return None
    raise ConstraintViolation(
        f'column "{column.name}" has no value', hint="it is NOT NULL and has no DEFAULT: give it a value"
    )
