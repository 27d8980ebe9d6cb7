"""Writes that come as dicts and not as SQL: the table calls of the HTTP interface.

Values are those of JSON (a BLOB is base64, or an object that says so). Names are found in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Literal

from domains.errors import BadRequest, TypeViolation
from domains.language.coercion import coercer, named_value
from domains.language.collating.collation import key_of
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import call
from domains.language.temporal import canonical_datetime
from domains.language.types import BOOL, Kind, Row, SqlType, TableSchema, Value
from domains.plan.graph import Columns
from domains.plan.packets import Access, Delete, Insert, Update
from migrations.statements.definitions.sharded import refuse_moving
from migrations.statements.names import column_position
from migrations.statements.stored import RowMaker, Shapes, refuse_generated, row_maker, stamps

# What an insert of rows does where a PRIMARY KEY or UNIQUE is taken already: the table calls' form of what SQL has.
#
# ============ ===================================================================================== ``error`` INSERT:
# nothing is done ``ignore`` INSERT IGNORE: such a row is left out ``replace`` REPLACE: the rows that stand in the way
# go ``update`` ON DUPLICATE KEY UPDATE c = VALUES(c), for some columns ``c`` of the row that is there ============
# =====================================================================================

Act = Literal["error", "ignore", "replace", "update"]


@dataclass(frozen=True, slots=True)
class OnDuplicate:
    act: Act = "error"
    columns: tuple[str, ...] | None = None
    """The columns that ``update`` sets to the values of the row that was to be inserted. None: whatever the rows give
    that stands in no PRIMARY KEY or UNIQUE."""

    def __post_init__(self) -> None:
        """:raises BadRequest: columns are named that nothing is done with."""
        if self.columns is not None and self.act != "update":
            raise BadRequest(
                f'"update" names columns, and "on_duplicate" is "{self.act}"', hint='"on_duplicate": "update"'
            )


REFUSED = OnDuplicate()


def updated_columns(schema: TableSchema, duplicate: OnDuplicate, given: Sequence[int], shards: int) -> tuple[int, ...]:
    """The positions that ``update`` sets; ``given`` are those that the first row gives.

    :raises UnknownName: no such column; with the nearest.
    :raises BadRequest: a column is named twice.
    :raises Unsupported: it is the column that decides the shard.
    """
    if duplicate.columns is None:
        keys = {at for key in (schema.primary_key, *schema.unique) for at in key}
        return tuple(at for at in given if at not in keys)
    positions = tuple(column_position(schema, name) for name in duplicate.columns)
    if len(set(positions)) < len(positions):
        raise BadRequest('"update" names a column twice')
    refuse_moving(schema, positions, shards)
    return positions


def assigned(schema: TableSchema, positions: Sequence[int]) -> tuple[tuple[int, Expression], ...]:
    """``c = VALUES(c)`` for each, over the stored row followed by the row that was to be inserted."""
    width = len(schema.columns)
    return tuple((at, Field(width + at, schema.columns[at].type)) for at in positions)


_Shape = tuple[RowMaker, Callable[[Mapping[str, Any]], Sequence[Any]]]


def insert_operation(
    schema: TableSchema,
    rows: Sequence[Mapping[str, Any]],
    now: str,
    duplicate: OnDuplicate = REFUSED,
    shards: int = 1,
) -> Insert:
    """The insert of rows given by column name; what a row leaves out takes its default. ``shards`` has the deployment.

    :raises UnknownName: no such column; with the nearest.
    :raises TypeViolation: a value does not fit (row, column).
    :raises ConstraintViolation: a NOT NULL column without default is left out (row, column).
    :raises BadRequest: a row is no object, or does not give what is to be updated from it.
    """
    making = inserting(schema, rows, now, duplicate, shards)
    while True:
        try:
            next(making)
        except StopIteration as made:
            operation: Insert = made.value
            return operation


SLICE_ROWS = 200
"""Rows that are coerced before somebody else may have the event loop: a millisecond."""


def inserting(
    schema: TableSchema,
    rows: Sequence[Mapping[str, Any]],
    now: str,
    duplicate: OnDuplicate = REFUSED,
    shards: int = 1,
) -> Generator[None, None, Insert]:
    """The same in slices, between which it yields."""
    stored: list[Row] = []
    updated: tuple[int, ...] | None = None
    for keys, run in groupby(rows, _names):
        maker, pick = _shape(schema, keys)
        if duplicate.act == "update":
            if updated is None:
                updated = updated_columns(schema, duplicate, maker.given, shards)
            _check_gives(maker, updated, len(stored) + 1)
        while made := maker.rows(map(pick, islice(run, SLICE_ROWS)), now, len(stored) + 1):
            stored += made
            yield
    if not updated:
        return Insert(schema.name, tuple(stored), duplicate.act)
    times = stamps(schema, updated, now)
    return Insert(schema.name, tuple(stored), duplicate.act, assigned(schema, updated), stamps=times)


def _check_gives(maker: RowMaker, updated: Sequence[int], number: int) -> None:
    """A row that leaves a column out would set it to its default where one is there: nobody means that."""
    for at in updated:
        if at not in maker.given:
            name = maker.schema.columns[at].name
            raise BadRequest(
                f'row {number} has no "{name}", which is updated where the row is there',
                hint='give it in every row, or name in "update" what all of them give',
            )


def update_operation(schema: TableSchema, key: Mapping[str, Any], changes: Mapping[str, Any], now: str) -> Update:
    """The update of the rows that have ``key`` (any columns; None in it is NULL).

    :raises BadRequest: one of the two is empty, or no object.
    """
    where, found = _where(schema, key)
    columns = _columns(schema, _given(changes, "set"))
    assignments = tuple(
        [(column.position, Constant(column.coerce(changes[name]), column.type)) for name, column in columns]
    )
    positions = [position for position, _ in assignments]
    refuse_generated(schema, positions)
    return Update(schema.name, where, assignments, found, stamps=stamps(schema, positions, now))


def delete_operation(schema: TableSchema, key: Mapping[str, Any]) -> Delete:
    """The deletion of the rows that have ``key`` (any columns; None in it is NULL).

    :raises BadRequest: the key is empty, or no object.
    """
    where, found = _where(schema, key)
    return Delete(schema.name, where, found)


def _names(row: Mapping[str, Any]) -> tuple[str, ...]:
    if type(row) is not dict and not isinstance(row, Mapping):
        raise BadRequest(f"a row is a {type(row).__name__} and not an object", hint='{"column": value, …}')
    return tuple(row)


def _shape_of(schema: TableSchema, names: tuple[str, ...]) -> _Shape:
    """How rows with these keys, in this order, become stored rows."""
    positions = _positions(schema, names)
    refuse_generated(schema, positions)
    pick: Callable[[Mapping[str, Any]], Sequence[Any]]
    if len(names) > 1:
        pick = itemgetter(*names)
    else:
        pick = lambda row: tuple(row[name] for name in names)
    return row_maker(schema, positions, from_json=True), pick


_shape = Shapes(_shape_of)


def _positions(schema: TableSchema, names: Iterable[str]) -> tuple[int, ...]:
    positions: list[int] = []
    for name in names:
        if not isinstance(name, str):
            raise BadRequest(f"the column name {name!r} is not a string")
        position = column_position(schema, name)
        if position in positions:
            raise BadRequest(f'column "{schema.columns[position].name}" is given twice')
        positions.append(position)
    return tuple(positions)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column as a write by key names it."""

    position: int
    field: Field
    type: SqlType
    coerce: Callable[[object], Value]


def _columns_of(schema: TableSchema, names: tuple[str, ...]) -> list[tuple[str, _Column]]:
    found: list[tuple[str, _Column]] = []
    for name, at in zip(names, _positions(schema, names), strict=True):
        column = schema.columns[at]
        coerced = coercer(column.type, column=column.name, from_json=True)
        found.append((name, _Column(at, Field(at, column.type), column.type, coerced)))
    return found


_columns = Shapes(_columns_of)
"""The columns by their names in their order: 4 µs for a key of two columns, of which nothing is looked up or
compiled."""


def _given(values: Mapping[str, Any], what: str) -> tuple[str, ...]:
    if not isinstance(values, Mapping):
        raise BadRequest(f'"{what}" is not an object', hint='{"column": value, …}')
    if not values:
        raise BadRequest(f'"{what}" is empty', hint="name a column and its value")
    return tuple(values)


def _where(schema: TableSchema, key: Mapping[str, Any]) -> tuple[Expression, Access]:
    conditions: list[Expression] = []
    found: list[tuple[Columns, tuple[Row, ...]]] = []
    for name, column in _columns(schema, _given(key, "key")):
        given = key[name]
        if given is None:
            conditions.append(call("is_null", column.field))
            continue
        value = column.coerce(given)
        if value is not given:
            _check_exact(named_value(given) if isinstance(given, dict) else given, value, schema, column.position)
        conditions.append(Call("eq", (column.field, Constant(value, column.type)), BOOL))
        collation = column.type.collation
        found.append(((column.position,), ((value if collation is None else key_of(value, collation),),)))
    where = conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), BOOL)
    return where, tuple(sorted(found, key=itemgetter(0)))


def _check_exact(given: Any, value: Value, schema: TableSchema, position: int) -> None:
    """A key that would be rounded to its column is refused, as it would hit another row."""
    column = schema.columns[position]
    if isinstance(value, (int, Decimal)):
        kept = Decimal(str(given).strip() if isinstance(given, (str, float)) else given) == value
    elif column.type.kind is Kind.DATE and isinstance(given, str):
        kept = canonical_datetime(given) == f"{value!s} 00:00:00"
    else:
        kept = True
    if not kept:
        raise TypeViolation(f'{given!r} is not a value of column "{column.name}" ({column.type}): it would be rounded')
