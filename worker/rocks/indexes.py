"""The ways into one table: its primary key and its secondary indexes, and how a look-up picks one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from domains.language.encoding import Encoder, encode_key, row_encoder
from domains.language.types import SqlType, TableSchema
from domains.plan.graph import Columns
from domains.store.widening import Widening
from worker.rocks.layout import ROWS, index_end, index_prefix, table_end, table_prefix


@dataclass(slots=True)
class SecondaryIndex:
    """One index. Every staged row enters it; look-ups use it once it is ``ready``."""

    number: int
    columns: Columns
    ready: bool
    prefix: bytes
    end: bytes
    encode: Encoder
    """Encodes a stored row's part of the entry's key."""
    types: tuple[SqlType, ...]
    """Of its columns."""
    is_early: bool = False
    """Some columns are not the table's yet: what a row is to have in them is computed of it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "columns": list(self.columns),
            "ready": self.ready,
            **({"early": True} if self.is_early else {}),
        }


@dataclass(slots=True)
class Access:
    """How a look-up by given columns is done: what it finds begins with ``start`` and the encoded key."""

    start: bytes
    end: bytes
    """Above everything that begins with ``start``."""
    encode: Encoder
    """Encodes the look-up's key tuple."""
    rest: int = 0
    """How many further columns of an index stand between the key and the row key."""
    single: bool = False
    """The key is the whole primary key: one row has it, or none."""
    is_early: bool = False
    """By an index that is: no row has the whole key in it yet."""


@dataclass(slots=True)
class TableIndexes:
    """The secondary indexes of one table, by number; numbers are never used again."""

    table: int
    schema: TableSchema
    all: list[SecondaryIndex] = field(default_factory=list)
    next_number: int = 0
    known: dict[Columns, Access | None] = field(default_factory=dict)
    """The accesses that were asked for."""

    def access(self, columns: Columns) -> Access | None:
        """The way in by these columns, in whatever order they come; None: there is none but a scan."""
        if columns not in self.known:
            self.known[columns] = self._choose(columns)
        return self.known[columns]

    def _choose(self, columns: Columns) -> Access | None:
        """The whole primary key, else a whole index, else first columns: of the primary key, whose rows stand side by
        side, or of the index with the fewest others."""
        if not columns:
            return None
        key, ready = self.schema.primary_key, [index for index in self.all if index.ready]
        wanted, count = sorted(columns), len(columns)
        exact = next((index for index in ready if sorted(index.columns) == wanted), None)
        if sorted(key[:count]) == wanted and (exact is None or len(key) == count):
            rows, end = table_prefix(ROWS, self.table), table_end(ROWS, self.table)
            types = [self.schema.columns[at].type for at in key]
            return Access(rows, end, _key_encoder(columns, key, types), single=len(key) == count)
        begin = [index for index in ready if sorted(index.columns[:count]) == wanted]
        index = exact or min(begin, key=lambda index: len(index.columns), default=None)
        if index is None:
            return None
        encode = _key_encoder(columns, index.columns, index.types)
        return Access(
            index.prefix, index.end, encode, rest=len(index.columns) - count, is_early=index.is_early and exact is index
        )

    def usable(self) -> list[SecondaryIndex]:
        """Those that have every row, by columns that it has."""
        return [index for index in self.all if index.ready and not index.is_early]

    def ordered(self, order: Columns) -> Access:
        """The way to rows in one of the table's orders: the primary key's, or an index's and then that."""
        key = self.schema.primary_key
        if order == key:
            return Access(table_prefix(ROWS, self.table), table_end(ROWS, self.table), encode_key)
        index = next(index for index in self.usable() if index.columns + key == order)
        return Access(index.prefix, index.end, index.encode, rest=len(index.columns))

    def of(self, columns: Columns) -> SecondaryIndex | None:
        """The index of these columns, ready or not."""
        wanted = sorted(columns)
        return next((index for index in self.all if sorted(index.columns) == wanted), None)

    def add(
        self, columns: Columns, *, ready: bool, number: int | None = None, widen: Widening | None = None
    ) -> SecondaryIndex:
        """``widen``: to a schema to come, which has the columns."""
        number = self.next_number if number is None else number
        self.next_number = max(self.next_number, number + 1)
        known = self.schema.columns if widen is None else widen.schema.columns
        types = tuple([known[at].type for at in columns])
        encode = row_encoder(columns, types)
        index = SecondaryIndex(
            number,
            columns,
            ready,
            index_prefix(self.table, number),
            index_end(self.table, number),
            encode if widen is None else _of_widened(encode, widen),
            types,
            is_early=widen is not None,
        )
        self.all.append(index)
        self.known.clear()
        return index

    def remove(self, index: SecondaryIndex) -> None:
        self.all.remove(index)
        self.known.clear()

    def finish(self, index: SecondaryIndex) -> None:
        """The index holds every row now."""
        index.ready = True
        self.known.clear()

    def alter(self, schema: TableSchema) -> None:
        self.schema = schema
        self.known.clear()
        for index in self.all:
            if index.is_early and max(index.columns) < len(schema.columns):
                index.is_early, index.encode = False, row_encoder(index.columns, index.types)

    def to_json(self) -> dict[str, Any]:
        return {"next": self.next_number, "all": [index.to_json() for index in self.all]}

    @staticmethod
    def from_json(table: int, schema: TableSchema, document: dict[str, Any]) -> TableIndexes:
        indexes = TableIndexes(table, schema)
        for entry in document["all"]:
            if not entry.get("early"):
                indexes.add(tuple(entry["columns"]), ready=entry["ready"], number=entry["number"])
        indexes.next_number = document["next"]
        return indexes

    @staticmethod
    def given_up(table: int, document: dict[str, Any]) -> list[tuple[bytes, bytes]]:
        """The ranges of early indexes: they are lost with the process, like what was to come of them."""
        numbers = [entry["number"] for entry in document["all"] if entry.get("early")]
        return [(index_prefix(table, number), index_end(table, number)) for number in numbers]

    @staticmethod
    def declared(table: int, schema: TableSchema, columns: Iterable[Columns]) -> TableIndexes:
        """The indexes of a new, empty table."""
        indexes = TableIndexes(table, schema)
        for positions in columns:
            indexes.add(positions, ready=True)
        return indexes


def _key_encoder(given: Columns, stored: Columns, types: Sequence[SqlType]) -> Encoder:
    """The encoder of tuples of the columns ``given``, which come first among those ``stored``, of these types."""
    taken = stored[: len(given)]
    return row_encoder([given.index(at) for at in taken], types[: len(taken)])


def _of_widened(encode: Encoder, widen: Widening) -> Encoder:
    return lambda row: encode(widen(row))
