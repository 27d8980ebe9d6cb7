"""One segment as a Parquet file: written with its size and digest, and not read before these were compared.

Damage is named for what it is: a file that is not there, one that is shorter than it was, one with other bytes, one
whose columns or rows are not what the manifest says. Nothing of such a file is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from domains.archive import Segment, SegmentCorrupt, SegmentMissing, SegmentTruncated
from domains.archived_rows import SEQUENCE, WEIGHT
from domains.schema_json import schema_to_json
from domains.types import Delta, TableSchema
from worker.archive.columns import ColumnReader, ColumnWriter
from worker.archive.place import Place

GROUP_ROWS = 65_536
"""Rows to a row group: what writer and reader hold at once. Larger ones compress no better, smaller ones cost a reader
of few columns a seek each."""

READ_ROWS = 8_192
"""Rows that are made Python values of at once."""

COMPRESSION = "zstd"
"""A third smaller than Snappy at the speed at which rows come here; every reader of the last years has it."""

Entries = Sequence[tuple[int, Sequence[Delta]]]
"""Log entries (sequence, deltas)."""


@dataclass(frozen=True, slots=True)
class Written:
    rows: int
    bytes: int
    digest: str


def write_segment(place: Place, file: str, schema: TableSchema, epoch: int, entries: Iterable[Entries]) -> Written:
    """Write a file that is whole and on disk when this returns, from entries that come by and by."""
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
        return Written(rows, sink.bytes, sink.digest)


def _write_group(writer: Any, arrow: Any, gathered: list[Any]) -> int:
    group = pa.Table.from_batches(gathered, arrow.remove_metadata()).replace_schema_metadata(arrow.metadata)
    gathered.clear()
    if group.num_rows:
        writer.write_table(group, GROUP_ROWS)
    return int(group.num_rows)


def check_segment(place: Place, segment: Segment) -> None:
    """Compare size and digest with what the manifest says.

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
    """(sequence, row, weight) of all entries above ``after`` and not above ``up_to``, part by part, after a check.

    :raises ArchiveError: as ``check_segment``; SegmentCorrupt also where columns or rows are not what they should be.
    """
    for batch in _batches(place, segment, reader.arrow, READ_ROWS):
        yield reader.entries(batch, after, up_to)


def read_columns(
    place: Place, segment: Segment, arrow: Any, names: Sequence[str], after: int, up_to: int
) -> Iterator[Any]:
    """The same as record batches of the sequence, the weight and these columns; ``arrow`` are all that it has.

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
