"""One segment as a Parquet file: written with its size and digest, which are compared before it is read.

An error names the damage: the file is missing, is shorter, has other bytes, or has other columns or rows than the
manifest says. Nothing of such a file is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from domains.archive.manifest import Segment, SegmentCorrupt, SegmentMissing, SegmentTruncated
from domains.archive.rows import (
    LEADING,
    SEQUENCE,
    WEIGHT,
    WEIGHT_MAX,
    archived_names,
    archiver_of,
    arrow_type_of,
    restorer_of,
)
from domains.language.json_rows import schema_to_json
from domains.language.types import Delta, Row, TableSchema
from domains.plan.graph import Columns
from domains.store.widening import Widening
from worker.archive.place import Place


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
    """Makes record batches of the deltas of one table; ``domains/archive/rows.py`` has the names and types."""

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
    """The deltas, with weights that are too large for the column split up."""
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
    """Reads record batches of a segment as rows of the same or a later schema of its table."""

    def __init__(self, schema: TableSchema, widen: Widening) -> None:
        self.arrow = arrow_schema(schema)
        self._restorers = [restorer_of(column.type) for column in schema.columns]
        self._widen = widen

    def pruned(self, columns: Columns) -> tuple[list[str], Callable[[Any], list[Delta]]]:
        """The names of those of ``columns`` (stored positions) that the segment has; and a function that makes rows of
        a table of them and the weight: other columns are None, and rows of weight zero are left out. Read is also
        what later columns are computed of."""
        widen, stored = self._widen, len(self._restorers)
        computed = [place for place in columns if place in widen.computed]
        own = widen.sources(columns)
        names = [self.arrow.names[len(LEADING) + place] for place in own]
        width = stored + len(widen.constants)
        blank = [place for place in range(width) if place not in columns] if computed else []

        def deltas(table: Any) -> list[Delta]:
            rows: list[Iterable[Any]] = [repeat(None, table.num_rows) for _ in range(width)]
            for place, name in zip(own, names, strict=True):
                rows[place] = self._restored(place, table.column(name))
            for place in columns:
                if place >= stored:
                    rows[place] = repeat(widen.constants[place - stored], table.num_rows)
            weights = table.column(WEIGHT).to_pylist()
            if computed:
                cut: list[list[Any]] = [list(widen(row[:stored])) for row in zip(*rows, strict=True)]
                for values in cut:
                    for place in blank:
                        values[place] = None
                rows = list(zip(*cut, strict=True)) or rows
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
        if self._widen.constants:
            rows = map(self._widen, rows)
        return [
            (sequence, row, weight)
            for sequence, row, weight in zip(sequences, rows, weights, strict=True)
            if after < sequence <= up_to
        ]


GROUP_ROWS = 65_536
"""Rows of a row group, which writer and reader hold at once. Larger ones compress no better; smaller ones cost a reader
of few columns a seek each."""

READ_ROWS = 8_192
"""Rows that become Python values at once."""

COMPRESSION = "zstd"
"""A third smaller than Snappy, at a speed that suffices here; every recent reader supports it."""

Entries = Sequence[tuple[int, Sequence[Delta]]]
"""Log entries (sequence, deltas)."""


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    rows: int
    bytes: int
    digest: str


def write_segment(
    place: Place, file: str, schema: TableSchema, epoch: int, entries: Iterable[Entries]
) -> WrittenSegment:
    """Write a file from an iterator of entries; it is whole and on disk when this returns."""
    columns = ColumnWriter(schema, epoch)
    described = json.dumps(schema_to_json(schema), separators=(",", ":"))
    arrow = columns.arrow.with_metadata({"headrace.table": described})
    rows = 0
    with place.sink(file) as sink:
        with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), arrow, compression=COMPRESSION) as writer:
            gathered: list[Any] = []
            for part in entries:
                gathered.append(columns.batch(part))
                if sum(batch.num_rows for batch in gathered) >= GROUP_ROWS:
                    rows += _write_group(writer, arrow, gathered)
            rows += _write_group(writer, arrow, gathered)
        return WrittenSegment(rows, sink.bytes, sink.digest)


def _write_group(writer: Any, arrow: Any, gathered: list[Any]) -> int:
    group = pa.Table.from_batches(gathered, arrow.remove_metadata()).replace_schema_metadata(arrow.metadata)
    gathered.clear()
    if group.num_rows:
        writer.write_table(group, GROUP_ROWS)
    return int(group.num_rows)


def copy_up_to(
    source: Place, segment: Segment, schema: TableSchema, up_to: int, target: Place, file: str
) -> WrittenSegment:
    """Write what a segment of the log has up to a position as one of its own.

    :raises ArchiveError: as ``read_segment``."""
    described = json.dumps(schema_to_json(schema), separators=(",", ":"))
    arrow = arrow_schema(schema).with_metadata({"headrace.table": described})
    rows = 0
    with target.sink(file) as sink:
        with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), arrow, compression=COMPRESSION) as writer:
            for batch in _batches(source, segment, arrow, GROUP_ROWS):
                kept = batch.filter(pc.less_equal(batch.column(SEQUENCE), up_to))
                rows += _write_group(writer, arrow, [kept])
        return WrittenSegment(rows, sink.bytes, sink.digest)


def check_segment(place: Place, segment: Segment) -> None:
    """Compare size and digest with the manifest's.

    :raises SegmentMissing, SegmentTruncated, SegmentCorrupt: with the file's name.
    """
    shown = place.shown(segment.file)
    size = place.size(segment.file)
    if size is None:
        raise SegmentMissing(f'segment "{shown}" is missing', hint="bring it back from a back-up")
    if size < segment.bytes:
        raise SegmentTruncated(
            f'segment "{shown}" is truncated: {size} of {segment.bytes} bytes', hint="bring it back from a back-up"
        )
    if size > segment.bytes or place.digest(segment.file) != segment.digest:
        raise SegmentCorrupt(
            f'segment "{shown}" is corrupt: its digest is another', hint="bring it back from a back-up"
        )


def read_segment(
    place: Place, segment: Segment, reader: ColumnReader, after: int, up_to: int
) -> Iterator[list[tuple[int, Any, int]]]:
    """(sequence, row, weight) of all entries above ``after`` and up to ``up_to``, part by part, after a check.

    :raises ArchiveError: as ``check_segment``; SegmentCorrupt also if columns or rows are not the manifest's.
    """
    for batch in _batches(place, segment, reader.arrow, READ_ROWS):
        yield reader.entries(batch, after, up_to)


def read_columns(
    place: Place, segment: Segment, arrow: Any, names: Sequence[str], after: int, up_to: int
) -> Iterator[Any]:
    """The same as record batches of the sequence, the weight and these columns; ``arrow`` is the whole schema.

    :raises ArchiveError: as ``read_segment``.
    """
    for batch in _batches(place, segment, arrow, GROUP_ROWS, [SEQUENCE, WEIGHT, *names]):
        sequences = batch.column(SEQUENCE)
        yield batch.filter(pc.and_(pc.greater(sequences, after), pc.less_equal(sequences, up_to)))


def _batches(place: Place, segment: Segment, arrow: Any, size: int, names: list[str] | None = None) -> Iterator[Any]:
    check_segment(place, segment)
    rows = 0
    with place.source(segment.file) as source, _reading(place, segment):
        file = pq.ParquetFile(source)
        if not file.schema_arrow.equals(arrow, check_metadata=False):
            raise SegmentCorrupt(f'segment "{place.shown(segment.file)}" has other columns than its manifest says')
        for batch in file.iter_batches(size, columns=names):
            rows += batch.num_rows
            yield batch
    if rows != segment.rows:
        raise SegmentCorrupt(f'segment "{place.shown(segment.file)}" has {rows} rows, its manifest says {segment.rows}')


@contextmanager
def _reading(place: Place, segment: Segment) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise SegmentCorrupt(f'segment "{place.shown(segment.file)}" cannot be read: {error}') from error
