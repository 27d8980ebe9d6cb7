"""The ways into one table: its primary key and its secondary indexes, and how a look-up picks one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from domains.encoding import Encoder, row_encoder
from domains.graph import Columns
from domains.types import TableSchema
from worker.rocks.layout import index_end, index_prefix


@dataclass(slots=True)
class SecondaryIndex:
    """One index. Every staged row enters it; look-ups use it once it is ``ready``."""

    number: int
    columns: Columns
    ready: bool
    prefix: bytes
    end: bytes
    encode: Encoder
    """Of a stored row: its part of the entry's key."""

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, "columns": list(self.columns), "ready": self.ready}


@dataclass(slots=True)
class Access:
    """How a look-up by given columns is done: ``encode`` takes its key tuple. No index: by primary key."""

    index: SecondaryIndex | None
    encode: Encoder


@dataclass(slots=True)
class TableIndexes:
    """The secondary indexes of one table, by number; numbers are never used again."""

    table: int
    schema: TableSchema
    all: list[SecondaryIndex] = field(default_factory=list)
    next_number: int = 0
    _accesses: dict[Columns, Access | None] = field(default_factory=dict)

    def access(self, columns: Columns) -> Access | None:
        """The way in by these columns, in whatever order they come; None: there is none but a scan."""
        if columns not in self._accesses:
            self._accesses[columns] = self._choose(columns)
        return self._accesses[columns]

    def _choose(self, columns: Columns) -> Access | None:
        wanted = sorted(columns)
        if self.schema.primary_key and sorted(self.schema.primary_key) == wanted:
            return Access(None, self._key_encoder(columns, self.schema.primary_key))
        for index in self.all:
            if index.ready and sorted(index.columns) == wanted:
                return Access(index, self._key_encoder(columns, index.columns))
        return None

    def _key_encoder(self, given: Columns, stored: Columns) -> Encoder:
        return row_encoder([given.index(at) for at in stored], [self.schema.columns[at].type for at in stored])

    def of(self, columns: Columns) -> SecondaryIndex | None:
        """The index of these columns, ready or not."""
        wanted = sorted(columns)
        return next((index for index in self.all if sorted(index.columns) == wanted), None)

    def add(self, columns: Columns, *, ready: bool, number: int | None = None) -> SecondaryIndex:
        number = self.next_number if number is None else number
        self.next_number = max(self.next_number, number + 1)
        index = SecondaryIndex(
            number,
            columns,
            ready,
            index_prefix(self.table, number),
            index_end(self.table, number),
            row_encoder(columns, [self.schema.columns[at].type for at in columns]),
        )
        self.all.append(index)
        self._accesses.clear()
        return index

    def remove(self, index: SecondaryIndex) -> None:
        self.all.remove(index)
        self._accesses.clear()

    def finish(self, index: SecondaryIndex) -> None:
        """The index holds every row now."""
        index.ready = True
        self._accesses.clear()

    def alter(self, schema: TableSchema) -> None:
        self.schema = schema
        self._accesses.clear()

    def to_json(self) -> dict[str, Any]:
        return {"next": self.next_number, "all": [index.to_json() for index in self.all]}

    @staticmethod
    def from_json(table: int, schema: TableSchema, document: dict[str, Any]) -> TableIndexes:
        indexes = TableIndexes(table, schema)
        for entry in document["all"]:
            indexes.add(tuple(entry["columns"]), ready=entry["ready"], number=entry["number"])
        indexes.next_number = document["next"]
        return indexes

    @staticmethod
    def declared(table: int, schema: TableSchema, columns: Iterable[Columns]) -> TableIndexes:
        """The indexes of a new, empty table."""
        indexes = TableIndexes(table, schema)
        for positions in columns:
            indexes.add(positions, ready=True)
        return indexes
