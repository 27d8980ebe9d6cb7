"""By which columns the rows of an UPDATE or DELETE can be looked up.

``id = 7 AND kind IN (1, 2) AND name LIKE 'a%'`` demands ``id`` among (7) and ``kind`` among (1, 2). A look-up finds
what equals a key exactly, while ``=`` converts first (``id = '7'`` is true for 7), so a constant counts only where one
value of the column's type, and no other, makes the comparison true.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from domains.expressions import Constant, Expression, Field
from domains.functions.conversion import blob_of_text, double_of_number, double_of_text
from domains.functions.exact import rounded
from domains.temporal import canonical_datetime
from domains.types import Kind, SqlType, TableSchema, Value
from migrations.query.terms import and_parts

Access = tuple[tuple[int, tuple[Value, ...]], ...]

_EXACT_DOUBLE = 2**53
"""Beyond it several integers are one DOUBLE."""
_MOST_DIGITS = 100
"""No DECIMAL column holds as many, and rounding them all would take long."""


def access(where: Expression | None, schema: TableSchema) -> Access:
    """(position, values) for each column that a conjunct of ``where`` ties to constants, in order of position."""
    if where is None:
        return ()
    found: dict[int, tuple[Value, ...]] = {}
    for part in and_parts(where):
        tied = _tied(part)
        if tied is None:
            continue
        position, constants = tied
        values = exact_values(constants, schema.columns[position].type)
        if values is not None:
            before = found.get(position)
            found[position] = values if before is None else tuple(value for value in before if value in values)
    return tuple(sorted(found.items()))


def _tied(part: Expression) -> tuple[int, Sequence[Constant]] | None:
    """The column and the constants of ``column = constant`` or ``column IN (constants)``."""
    if isinstance(part, (Field, Constant)) or part.function not in ("eq", "in"):
        return None
    first, *others = part.arguments
    if part.function == "eq" and isinstance(first, Constant):
        first, others = others[0], [first]
    if not isinstance(first, Field) or not all(isinstance(other, Constant) for other in others):
        return None
    return first.position, [other for other in others if isinstance(other, Constant)]


def exact_values(constants: Sequence[Constant], type: SqlType) -> tuple[Value, ...] | None:
    """The values of ``type`` that equal one of the constants, or None where that is not a matter of look-ups.

    NULL equals nothing and is left out.
    """
    values: list[Value] = []
    for constant in constants:
        if constant.value is None:
            continue
        value = exact_value(constant.value, type)
        if value is None:
            return None
        if value not in values:
            values.append(value)
    return tuple(values)


def exact_value(value: Value, type: SqlType) -> Value:
    """The one value of ``type`` that ``=`` finds equal to ``value``; None where there is none, or more than one."""
    kind = type.kind
    if kind is Kind.INTEGER:
        return _integer(value)
    if kind is Kind.DECIMAL:
        return _decimal(value, type.scale)
    if kind is Kind.DOUBLE:
        return _double(value)
    if kind is Kind.TEXT:
        return value if isinstance(value, str) else None
    if kind is Kind.BLOB:
        return value if isinstance(value, bytes) else blob_of_text(value) if isinstance(value, str) else None
    if kind in (Kind.DATE, Kind.DATETIME) and isinstance(value, str):
        moment = canonical_datetime(value)
        if moment is None or kind is Kind.DATETIME:
            return moment
        return moment[:10] if moment[10:] == " 00:00:00" else None
    return None


def _integer(value: Value) -> int | None:
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        value = double_of_text(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else None
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_DOUBLE:
        return int(value)
    return None


def _decimal(value: Value, scale: int) -> Decimal | None:
    if isinstance(value, int):
        value = Decimal(value)
    if not isinstance(value, Decimal) or value.adjusted() > _MOST_DIGITS:
        return None
    nearest = rounded(value, scale)
    return nearest if nearest == value else None


def _double(value: Value) -> float | None:
    if isinstance(value, str):
        return double_of_text(value)
    if isinstance(value, float):
        return value + 0.0
    return double_of_number(value) if isinstance(value, (int, Decimal)) else None
