"""By which columns the rows of an UPDATE or DELETE can be looked up.

``id = 7 AND kind IN (1, 2) AND name LIKE 'a%'`` demands ``id`` among (7) and ``kind`` among (1, 2). A look-up finds
what equals a key exactly, while ``=`` converts first (``id = '7'`` is true for 7), so a constant counts only where one
value of the column's type at most makes the comparison true (``domains/functions/comparands.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from domains.expressions import Constant, Expression, Field
from domains.functions.comparands import comparand, equal_value
from domains.types import SqlType, TableSchema, Value
from migrations.query.terms import and_parts

Access = tuple[tuple[int, tuple[Value, ...]], ...]


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
        values = _exact_values(constants, schema.columns[position].type)
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


def _exact_values(constants: Sequence[Constant], type: SqlType) -> tuple[Value, ...] | None:
    """The values of ``type`` that equal one of the constants, or None where that is not a matter of look-ups.

    What equals none of them is left out: NULL, and 7.5 among integers.
    """
    values: list[Value] = []
    for constant in constants:
        made = comparand(constant, type)
        if made is None:
            return None
        if made.exact and made.value is not None and made.value not in values:
            values.append(made.value)
    return tuple(values)


def exact_value(constant: Constant, type: SqlType) -> Value:
    """The one value of ``type`` that ``=`` finds equal to the constant; None where there is none, or more than one."""
    return equal_value(constant.type, type, constant.value)
