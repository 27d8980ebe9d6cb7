"""Deltas as Arrow columns and back; see ``domains/archived_rows.py`` for the names and types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa

from domains.archived_rows import (
    LEADING,
    SEQUENCE,
    WEIGHT,
    WEIGHT_MAX,
    archived_names,
    archiver_of,
    arrow_type_of,
    restorer_of,
)
from domains.graph import Columns
from domains.types import Delta, Row, TableSchema


def arrow_type(text: str) -> Any:
    """The type that Arrow prints as ``text``."""
    name, _, arguments = text.partition("(")
    if name in ("decimal128", "decimal256"):
        precision, scale = arguments.rstrip(")").split(",")
        return getattr(pa, name)(int(precision), int(scale))
    if name == "timestamp[us]":
        return pa.timestamp("us")
    return getattr(pa, {"double": "float64"}.get(name, name))()


def arrow_schema(schema: TableSchema) -> Any:
    """The columns of a segment."""
    fields = [pa.field(name, arrow_type(text), nullable=False) for name, text in LEADING]
    for name, column in zip(archived_names(schema), schema.columns, strict=True):
        fields.append(pa.field(name, arrow_type(arrow_type_of(column.type))))
    return pa.schema(fields)


class ColumnWriter:
    """Makes record batches of the deltas of one table."""

    def __init__(self, schema: TableSchema, epoch: int) -> None:
        self.arrow = arrow_schema(schema)
        self._epoch = epoch
        self._converters = [archiver_of(column.type) for column in schema.columns]

    def batch(self, entries: Sequence[tuple[int, Sequence[Delta]]]) -> Any:
        """A record batch of log entries (sequence, deltas); of a snapshot, the sequence is its position."""
        flat = [(sequence, row, weight) for sequence, deltas in entries for row, weight in _limited(deltas)]
        arrays = [
            pa.array([sequence for sequence, _, _ in flat], pa.int64()),
            pa.array([weight for _, _, weight in flat], pa.int32()),
            pa.array([self._epoch] * len(flat), pa.int64()),
        ]
        columns: list[Any] = list(zip(*[row for _, row, _ in flat], strict=True)) or [()] * len(self._converters)
        for values, convert, field in zip(columns, self._converters, list(self.arrow)[len(LEADING) :], strict=True):
            if convert is not None:
                values = [None if value is None else convert(value) for value in values]
            arrays.append(pa.array(values, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def _limited(deltas: Sequence[Delta]) -> Sequence[Delta]:
    """With no weight above what the column holds."""
    if all(-WEIGHT_MAX <= weight <= WEIGHT_MAX for _, weight in deltas):
        return deltas
    pieces: list[Delta] = []
    for row, weight in deltas:
        while abs(weight) > WEIGHT_MAX:
            piece = WEIGHT_MAX if weight > 0 else -WEIGHT_MAX
            pieces.append((row, piece))
            weight -= piece
        pieces.append((row, weight))
    return pieces


class ColumnReader:
    """Reads record batches of a segment whose table had one schema then as rows of a later one."""

    def __init__(self, schema: TableSchema, padding: Row) -> None:
        self.arrow = arrow_schema(schema)
        self._restorers = [restorer_of(column.type) for column in schema.columns]
        self._padding = padding

    def pruned(self, columns: Columns) -> tuple[list[str], Callable[[Any], list[Delta]]]:
        """The names of those of ``columns`` (stored positions) that the segment has; and from a table of them and the
        weight to rows, in which all other columns are None and the weights are not zero."""
        own = [place for place in columns if place < len(self._restorers)]
        names = [self.arrow.names[len(LEADING) + place] for place in own]
        width = len(self._restorers) + len(self._padding)

        def deltas(table: Any) -> list[Delta]:
            rows: list[Iterable[Any]] = [repeat(None, table.num_rows) for _ in range(width)]
            for place, name in zip(own, names, strict=True):
                rows[place] = self._restored(place, table.column(name))
            for place in columns[len(own) :]:
                rows[place] = repeat(self._padding[place - len(self._restorers)], table.num_rows)
            weights = table.column(WEIGHT).to_pylist()
            return [(row, weight) for row, weight in zip(zip(*rows, strict=True), weights, strict=True) if weight]

        return names, deltas

    def _restored(self, place: int, column: Any) -> list[Any]:
        values, restore = column.to_pylist(), self._restorers[place]
        return values if restore is None else [None if value is None else restore(value) for value in values]

    def entries(self, batch: Any, after: int, up_to: int) -> list[tuple[int, Row, int]]:
        """(sequence, row, weight) of the entries with a sequence above ``after`` and not above ``up_to``."""
        sequences = batch.column(SEQUENCE).to_pylist()
        weights = batch.column(WEIGHT).to_pylist()
        columns = [self._restored(at, batch.column(at + len(LEADING))) for at in range(len(self._restorers))]
        rows: Any = zip(*columns, strict=True)
        if self._padding:
            rows = (row + self._padding for row in rows)
        return [
            (sequence, row, weight)
            for sequence, row, weight in zip(sequences, rows, weights, strict=True)
            if after < sequence <= up_to
        ]
