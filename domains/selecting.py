"""Which stored rows the WHERE of an UPDATE or DELETE means.

Nearly every such statement names a row by its key. Compiling ``id = 7 AND kind = 1`` takes 300 µs and is of no use for
the next one, so conditions that are nothing but ``column = constant`` are compared as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from domains.compile import compile_predicate
from domains.expressions import Call, Constant, Expression, Field
from domains.packets import Delete, Update
from domains.storage import TableStore
from domains.types import Delta, Row, Value


def selected(table: TableStore, operation: Update | Delete) -> list[Delta]:
    """The stored rows that the WHERE is true for, at most ``limit`` of them, by an index where one serves."""
    where = predicate_of(operation.where) if operation.where is not None else None
    left = operation.limit
    found: list[Delta] = []
    for row, weight in _candidates(table, operation):
        if where is not None and not where(row):
            continue
        if left is not None:
            weight = min(weight, left)
            left -= weight
        if weight:
            found.append((row, weight))
    return found


def _candidates(table: TableStore, operation: Update | Delete) -> Iterable[Delta]:
    access = dict(operation.access)
    schema = table.schema
    for columns in (schema.primary_key, *schema.unique, *schema.indexes):
        if columns and all(column in access for column in columns) and table.has_index(columns):
            keys: list[Row] = [()]
            for column in columns:
                keys = [(*key, value) for key in keys for value in dict.fromkeys(access[column])]
            wanted = [key for key in keys if None not in key]
            return [delta for rows in table.find_many(columns, wanted) for delta in rows]
    return table.find((), ())


def predicate_of(where: Expression) -> Callable[[Row], bool]:
    """Whether the condition is true for a row."""
    equalities = _equalities(where)
    if equalities is None:
        return compile_predicate(where)

    def holds(row: Row) -> bool:
        return all(row[position] == value for position, value in equalities)

    return holds


def _equalities(where: Expression) -> list[tuple[int, Value]] | None:
    """(position, value) of each part, where all of them are ``column = constant`` of one kind, which Python compares as
    SQL does; None where any is something else."""
    if not isinstance(where, Call):
        return None
    found: list[tuple[int, Value]] = []
    for part in where.arguments if where.function == "and" else (where,):
        if not isinstance(part, Call) or part.function != "eq":
            return None
        column, constant = part.arguments
        if isinstance(column, Constant):
            column, constant = constant, column
        if not isinstance(column, Field) or not isinstance(constant, Constant):
            return None
        if constant.value is None or constant.type.kind is not column.type.kind:
            return None
        found.append((column.position, constant.value))
    return found
