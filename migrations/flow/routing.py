"""Which shards a write goes to: what the outside of the domains must know.

It follows from the schema alone, so every process that knows the recipe finds the same shards.

A write that goes to several shards is several writes: each is applied whole or not at all, but one may be refused (a
UNIQUE key) where another was done. An INSERT of one row, and an UPDATE or DELETE whose WHERE names the value of the
SHARD BY column, go to one shard.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from domains.errors import Unsupported
from domains.language.types import Row, TableSchema
from domains.plan.packets import Amend, Delete, Insert, Operation, Update
from domains.plan.sharding import shard_of


@dataclass(frozen=True, slots=True)
class Split:
    """A write as one operation a shard, in the order of the shards' numbers; there is one at least."""

    parts: tuple[tuple[int, Operation], ...]
    """(shard, operation)."""
    limit: int | None = None
    """None: the parts may be done at once. Else one after the other, each by :meth:`limited`, until nothing is left of
    so many rows."""

    def __iter__(self) -> Iterator[tuple[int, Operation]]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def limited(self, number: int, affected: int) -> tuple[int, Operation] | None:
        """The ``number``-th part, once the parts before it have affected so many rows; None when that is enough."""
        assert self.limit is not None, "the parts do not wait for one another"
        shard, operation = self.parts[number]
        assert not isinstance(operation, (Insert, Amend))
        left = self.limit - affected
        return (shard, replace(operation, limit=left)) if left > 0 or number == 0 else None


def split(operation: Operation, schema: TableSchema, shards: int, turn: int = 0) -> Split:
    """What each shard of the table is to do.

    ``shards`` is the deployment's factor. ``turn`` counts the caller's INSERTs: those that ask for AUTO_INCREMENT
    values of the SHARD BY column may go to any shard, and go to one after the other.
    """
    factor = schema.shards or shards
    if factor == 1:
        return Split(((0, operation),))
    if isinstance(operation, Insert):
        return _split_rows(operation, schema, factor, turn)
    if isinstance(operation, Amend):
        return _split_chosen(operation, schema, factor)
    numbers = _shards_of(operation, schema, factor)
    limit = operation.limit if len(numbers) > 1 else None
    return Split(tuple((number, operation) for number in numbers), limit)


def _split_rows(operation: Insert, schema: TableSchema, factor: int, turn: int) -> Split:
    """Rows to their shards. Those that ask for numbers go to one together, so that the numbers follow one another."""
    column = schema.shard_column
    numbered, collation = schema.columns[column].auto_increment, schema.columns[column].type.collation
    rows: dict[int, list[Row]] = {}
    beside: dict[int, list[Row]] = {}
    for place, row in enumerate(operation.rows):
        value = row[column]
        number = turn % factor if numbered and value is None else shard_of(value, factor, collation)
        rows.setdefault(number, []).append(row)
        if operation.beside:
            beside.setdefault(number, []).append(operation.beside[place])
    if len(rows) <= 1:
        return Split(((next(iter(rows), 0), operation),))
    return Split(
        tuple(
            (number, replace(operation, rows=tuple(rows[number]), beside=tuple(beside.get(number, ()))))
            for number in sorted(rows)
        )
    )


def _split_chosen(operation: Amend, schema: TableSchema, factor: int) -> Split:
    """Each row to where it is stored, with what stands beside it."""
    assert not operation.also, "several tables are written to in one shard only"
    places: dict[int, list[int]] = {}
    column = schema.shard_column
    collation = schema.columns[column].type.collation
    for place, row in enumerate(operation.rows):
        places.setdefault(shard_of(row[column], factor, collation), []).append(place)
    if not places:
        return Split(((0, operation),))

    def part(own: list[int]) -> Amend:
        beside = tuple([operation.beside[place] for place in own]) if operation.beside else ()
        return replace(operation, rows=tuple([operation.rows[place] for place in own]), beside=beside)

    return Split(tuple((number, part(places[number])) for number in sorted(places)))


@dataclass(frozen=True, slots=True)
class NumberedPart:
    """One shard's part of a numbered insert."""

    shard: int
    operation: Insert
    numbers: tuple[int, ...]
    """Which of the whole insert's rows it has, from 1."""


def split_numbered(operation: Insert, schema: TableSchema, shards: int, number: int) -> tuple[NumberedPart, ...]:
    """What each shard of the table is to do of a numbered insert: every shard takes every number, also without rows.

    The parts are a function of the rows and the number alone, so that they are the same when it is sent again.

    :raises Unsupported: the time decides where a row goes, and is another when it is sent again.
    """
    factor = schema.shards or shards
    column = schema.columns[schema.shard_column]
    if factor > 1 and column.default_now:
        raise Unsupported(
            f'numbered writes to table "{schema.name}", whose rows are spread by "{column.name}", the time by default',
            hint="SHARD BY another column",
        )
    found: list[list[int]] = [[] for _ in range(factor)]
    for place, row in enumerate(operation.rows, 1):
        value = row[schema.shard_column]
        asks = column.auto_increment and value is None
        found[number % factor if asks else shard_of(value, factor, column.type.collation)].append(place)
    return tuple(
        NumberedPart(
            shard,
            replace(operation, rows=tuple([operation.rows[place - 1] for place in places]), on_conflict="list"),
            tuple(places),
        )
        for shard, places in enumerate(found)
    )


def _shards_of(operation: Update | Delete, schema: TableSchema, factor: int) -> list[int]:
    """The shards whose rows the WHERE may be true for; the first where it is true for none."""
    for columns, keys in operation.access:
        if schema.shard_column in columns:
            place = columns.index(schema.shard_column)
            return sorted({shard_of(key[place], factor) for key in keys}) or [0]
    return list(range(factor))
