"""Which stored rows the WHERE of an UPDATE or DELETE means.

Nearly every such statement names a row by its key. Compiling ``id = 7 AND kind = 1`` takes 300 µs and is of no use for
the next one, so conditions that are nothing but ``column = constant`` are compared as they stand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from domains.language.compile import compile_predicate
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import Delta, Row, Value, collations_of
from domains.plan.deltas import key_function
from domains.plan.graph import Columns
from domains.plan.packets import Access, Amend, Delete, Update
from domains.store.storage import TableStore


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
    access = operation.access
    if not all(keys for _, keys in access):
        return ()
    columns = table.best_key({column for tied, _ in access for column in tied})
    while columns:
        keys = keys_of(access, columns, max(table.row_count, 1))
        if keys is not None:
            return [delta for rows in table.find_many(columns, keys) for delta in rows]
        columns = columns[:-1]
    return table.find((), ())


def keys_of(access: Access, columns: Columns, most: int) -> list[Row] | None:
    """The keys of ``columns`` that all parts of ``access`` leave, each once; None where they are more than ``most``.

    Every one of the columns is tied by a part.
    """
    known: Columns = ()
    keys: list[Row] = [()]
    for tied, rows in access:
        shared = tuple([column for column in tied if column in known])
        added = tuple([column for column in tied if column in columns and column not in known])
        place_of = key_function(tuple(map(known.index, shared)))
        places: dict[Row, list[Row]] = {}
        for key in keys:
            places.setdefault(place_of(key), []).append(key)
        parts = dict.fromkeys(map(key_function(tuple(map(tied.index, shared + added))), rows))
        joined = [(places.get(part[: len(shared)], []), part[len(shared) :]) for part in parts]
        if sum([len(some) for some, _ in joined]) > most:
            return None
        keys = [key + new for some, new in joined for key in some]
        known += added
    in_order = key_function(tuple(map(known.index, columns)))
    return [in_order(key) for key in keys]


def predicate_of(where: Expression) -> Callable[[Row], bool]:
    """Whether the condition is true for a row."""
    wanted = _wanted(where)
    if wanted is None:
        return compile_predicate(where)

    def holds(row: Row) -> bool:
        return all(row[position] in values for position, values in wanted)

    return holds


def _wanted(where: Expression) -> list[tuple[int, Collection[Value]]] | None:
    """(position, values) of each part, where all of them are ``column = constant`` or ``column IN (constants)`` of one
    kind, which Python compares as SQL does; None where any is something else."""
    if not isinstance(where, Call):
        return None
    found: list[tuple[int, Collection[Value]]] = []
    for part in where.arguments if where.function == "and" else (where,):
        if not isinstance(part, Call) or part.function not in ("eq", "in"):
            return None
        column, *constants = part.arguments
        if part.function == "eq" and isinstance(column, Constant):
            column, constants = constants[0], [column]
        if not isinstance(column, Field) or column.type.equality is not None:
            return None
        values: list[Value] = []
        for constant in constants:
            if not isinstance(constant, Constant) or constant.type.kind is not column.type.kind:
                return None
            if constant.value is None:
                return None
            values.append(constant.value)
        found.append((column.position, values if len(values) == 1 else set(values)))
    return found


# The rows that a SELECT has chosen, looked up again in the step that writes them.


def as_seen(table: TableStore, operation: Amend) -> list[tuple[Row, int, Row]] | None:
    """(stored row, how many, what stands beside it) of each row of the operation; None where one is not there."""
    schema = table.schema
    seen_by = key_function(schema.live())
    wanted: dict[Row, list[Row]] = {}
    """What stands beside each row, as often as the row was chosen."""
    for number, row in enumerate(operation.rows):
        wanted.setdefault(seen_by(row), []).append(operation.beside[number] if operation.beside else ())
    stored: dict[Row, list[Delta]] = {}
    for delta in _looked_up(table, operation.rows):
        if (seen := seen_by(delta[0])) in wanted:
            stored.setdefault(seen, []).append(delta)
    found: list[tuple[Row, int, Row]] = []
    for seen, beside in wanted.items():
        left = len(beside)
        for row, weight in stored.get(seen, ()):
            taken = min(weight, left) if operation.single else weight
            if operation.single:  # RAND() has given equal rows different values.
                each = Counter(beside[len(beside) - left :][:taken])
                found += [(row, times, extra) for extra, times in each.items()]
            else:
                found.append((row, taken, beside[0]))
            left -= taken
        if left > 0 and (operation.single or seen not in stored):
            return None
    return found


def _looked_up(table: TableStore, rows: Iterable[Row]) -> Iterable[Delta]:
    """The stored rows that equal one of ``rows``, each once, and perhaps others."""
    schema = table.schema
    columns = schema.primary_key or table.best_key(schema.live())
    keys = list(dict.fromkeys(map(key_function(columns, collations_of(schema.columns)), rows)))
    if not columns or any(None in key for key in keys):
        return table.find((), ())
    return [delta for found in table.find_many(columns, keys) for delta in found]
