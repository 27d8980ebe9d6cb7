"""By which columns the rows of an UPDATE or DELETE can be looked up.

``id = 7 AND kind IN (1, 2) AND name LIKE 'a%'`` demands ``id`` among (7) and ``kind`` among (1, 2). A look-up finds
what equals a key exactly, while ``=`` converts first (``id = '7'`` is true for 7), so a constant counts only where one
value of the column's type at most makes the comparison true (``domains/language/functions/comparands.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions.comparands import comparand, equal_value
from domains.language.types import Kind, Row, SqlType, TableSchema, Value
from domains.plan.graph import Columns
from domains.plan.packets import Access
from domains.store.selecting import keys_of
from migrations.query.expressions.terms import and_parts
from migrations.statements.constants import constant_of

_MOST_KEYS = 100_000
"""That an OR may come to: two lists in one of its branches are as many keys as their product."""


def access(where: Expression | None, schema: TableSchema) -> Access:
    """Which keys of which columns each conjunct of ``where`` demands, in order of the columns."""
    return () if where is None else tuple(sorted(_ties(where, schema).items()))


def _ties(where: Expression, schema: TableSchema) -> dict[Columns, tuple[Row, ...]]:
    found: dict[Columns, tuple[Row, ...]] = {}
    for part in and_parts(where):
        tied = _tied_by_or(part, schema) if isinstance(part, Call) and part.function == "or" else _tied(part, schema)
        if tied is None:
            continue
        columns, keys = tied
        if columns in found:
            both = set(keys)
            keys = tuple([key for key in found[columns] if key in both])
        found[columns] = keys
    return found


def _tied(part: Expression, schema: TableSchema) -> tuple[Columns, tuple[Row, ...]] | None:
    """Of ``column = constant`` or ``column IN (constants)``."""
    if isinstance(part, (Field, Constant)) or part.function not in ("eq", "in"):
        return None
    first, *others = part.arguments
    if part.function == "eq" and isinstance(first, Constant):
        first, others = others[0], [first]
    if not isinstance(first, Field) or not all(isinstance(other, Constant) for other in others):
        return None
    constants = [other for other in others if isinstance(other, Constant)]
    values = _exact_values(constants, schema.columns[first.position].type)
    return None if values is None else ((first.position,), tuple([(value,) for value in values]))


def _tied_by_or(part: Call, schema: TableSchema) -> tuple[Columns, tuple[Row, ...]] | None:
    """Columns that all branches tie, such as ``(o, n)`` in ``(o = 1 AND n = 2) OR (o = 3 AND n = 4)``.

    That is also what ``(o, n) IN ((1, 2), (3, 4))`` has become.
    """
    branches = [_ties(branch, schema) for branch in part.arguments]
    possible = [ties for ties in branches if all(ties.values())]
    if not possible:
        return next(iter(branches[0])), ()
    tied = [{column for columns in ties for column in columns} for ties in possible]
    columns = tuple(sorted(set.intersection(*tied)))
    keys: dict[Row, None] = {}
    for ties in possible:
        more = keys_of(tuple(ties.items()), columns, _MOST_KEYS) if columns else None
        if more is None or len(keys) > _MOST_KEYS:
            return None
        keys.update(dict.fromkeys(more))
    return columns, tuple(keys)


def _exact_values(constants: Sequence[Constant], type: SqlType) -> tuple[Value, ...] | None:
    """The values of ``type`` that equal one of the constants, or None where that is not a matter of look-ups.

    What equals none of them is left out: NULL, and 7.5 among integers.
    """
    values: dict[Value, None] = {}
    for constant in constants:
        made = comparand(constant, type)
        if made is None:
            return None
        if made.exact and made.value is not None:
            values[made.value] = None
    return tuple(values)


def exact_value(value: Value, type: SqlType) -> Value:
    """The one value of ``type`` that ``=`` finds equal to the constant; None where there is none, or more than one.

    Also None for bytes among numbers: those of a literal (``x'41'``) are a number there, those of a parameter a text.
    """
    if isinstance(value, bytes) and type.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE):
        return None
    return equal_value(constant_of(value).type, type, value)
