"""The fold of an archive: the rows of a shard as of a position, with their weights, in bounded memory.

If there are more archived rows than may be held at once, they are first spread over files in a scratch directory, equal
rows to the same file, and each file is folded by itself::

    snapshot, log ──► rows by hash ──► file 0 ──► Σ weight by row ──► rows
                                   └─► file 1 ──► …
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pyarrow as pa

from domains.archive.manifest import Segment, SegmentCorrupt, ShardManifest
from domains.archive.rows import WEIGHT
from domains.language.types import Delta, Row, TableSchema
from domains.plan.graph import Columns
from domains.store.widening import widening
from worker.archive.place import Place
from worker.archive.segments import ColumnReader, read_columns, read_segment

COMBINED_BYTES = 128 * 2**20
"""Bytes of columns that are summed at once; about as much again is needed meanwhile. Sums of more than half of it are
handed on: equal rows may come twice then."""


def combined(batches: Iterable[Any], names: Sequence[str], limit: int = COMBINED_BYTES) -> Iterator[Any]:
    """Some columns of an archived table, with equal rows summed by Arrow before they become Python values: tables of
    the columns ``names`` and Σ ``_weight`` (int64), which may be zero.

    A bulk build reads the columns that it depends on (``migrations/backfill/stages.py``), in which many rows of a large
    table agree: 47 million votes name 2.5 million stories. Arrow takes 0.3 µs a row, Python 2.5.
    """
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]).select([*names, WEIGHT]).cast(_schema(batch, names)))
        size += waiting[-1].nbytes
        if size > limit:
            waiting = [_summed(waiting, names)]
            size = waiting[0].nbytes
            if 2 * size > limit:
                yield waiting.pop()
                size = 0
    if waiting:
        yield _summed(waiting, names)


def _schema(batch: Any, names: Sequence[str]) -> Any:
    """The schema with weights wide enough for any sum."""
    return pa.schema([*(pa.field(name, batch.schema.field(name).type) for name in names), (WEIGHT, pa.int64())])


def _summed(tables: list[Any], names: Sequence[str]) -> Any:
    found = pa.concat_tables(tables).group_by(list(names), use_threads=False).aggregate([(WEIGHT, "sum")])
    return found.select([*names, f"{WEIGHT}_sum"]).rename_columns([*names, WEIGHT])


HELD_ROWS = 500_000
"""Archived rows that are folded at once: some 200 MB of short rows."""

FILES_MAX = 200
"""Files of one fold, since open files are limited. Above HELD_ROWS × FILES_MAX rows the files grow instead."""

PART_ROWS = 4_096
"""Rows of one part."""


def log_of(
    place: Place, manifest: ShardManifest, position: int, after: int = 0, schema: TableSchema | None = None
) -> Iterator[list[tuple[int, Row, int]]]:
    """(sequence, row, weight) of the rows that the fold at a position sums up, in order, in the schema at the position
    or in a later one.

    Rows of a snapshot have its position as their sequence. Only sequences above ``after`` are given.

    :raises ArchiveError: something is missing or damaged; nothing is skipped.
    """
    schema = schema or manifest.schema_at(position)
    have = 0
    for segment in manifest.fold_of(position):
        if segment.last > after:
            reader = reader_of(manifest.schemas[segment.schema], schema)
            snapshot = segment.kind == "snapshot"
            yield from read_segment(place, segment, reader, max(after, 0 if snapshot else have), position)
        have = segment.last


def reader_of(archived: TableSchema, wanted: TableSchema) -> ColumnReader:
    return ColumnReader(archived, widening(archived, wanted))


def fold(
    place: Place,
    manifest: ShardManifest,
    position: int,
    *,
    schema: TableSchema | None = None,
    columns: Columns | None = None,
    held_rows: int = HELD_ROWS,
    scratch: Path | None = None,
    read: Callable[[int], None] = lambda rows: None,
) -> Iterator[list[Delta]]:
    """The rows of the shard at a position, each once with its weight, part by part, in no particular order (a
    snapshot's alone in its order).

    They have the width of ``schema``, the table's present one (default: ``manifest.schema_at(position)``). With
    ``columns`` (stored positions) only these are read: the others are None, and rows that differ only in those are one.
    ``scratch`` is a directory for files; ``read`` is told of archived rows as they are read, mostly before the first
    part comes.

    :raises ArchiveError: as ``log_of``; SegmentCorrupt where a row has a negative weight.
    """
    segments, schema = manifest.fold_of(position), schema or manifest.schema_at(position)
    if columns is not None and len(columns) < len(schema.columns):
        deltas = _pruned(place, manifest, position, schema, columns, read)
    else:
        deltas = _weights(log_of(place, manifest, position, schema=schema), read)
        if len(segments) == 1 and segments[0].kind == "snapshot":
            # A snapshot is a fold already, but that it holds equal rows of a bag one by one.
            yield from deltas if schema.primary_key else _side_by_side(deltas)
            return
    rows = sum(segment.rows for segment in segments)
    if rows <= held_rows:
        yield from _parts(_folded(deltas, manifest, position))
        return
    files = min(FILES_MAX, rows // held_rows + 1)
    with TemporaryDirectory(prefix="fold-", dir=scratch) as directory:
        paths = [Path(directory) / str(number) for number in range(files)]
        _deal_out(deltas, paths)
        for path in paths:
            with path.open("rb") as file:
                yield from _parts(_folded(_loaded(file), manifest, position))
            path.unlink()


def _pruned(
    place: Place,
    manifest: ShardManifest,
    position: int,
    schema: TableSchema,
    columns: Columns,
    read: Callable[[int], None],
) -> Iterator[list[Delta]]:
    """The rows to fold, with these columns only; most rows that agree in them are summed up."""
    have = 0
    for number, group in groupby(manifest.fold_of(position), lambda segment: segment.schema):
        segments = list(group)
        reader = reader_of(manifest.schemas[number], schema)
        names, deltas_of = reader.pruned(columns)
        batches = _batches(place, segments, reader.arrow, names, have, position)
        for table in combined(_told(batches, read), names):
            for at in range(0, table.num_rows, PART_ROWS):
                yield deltas_of(table.slice(at, PART_ROWS))
        have = segments[-1].last


def _batches(
    place: Place, segments: Iterable[Segment], arrow: Any, names: Sequence[str], have: int, position: int
) -> Iterator[Any]:
    for segment in segments:
        after = 0 if segment.kind == "snapshot" else have
        yield from read_columns(place, segment, arrow, names, after, position)
        have = segment.last


def _told(batches: Iterable[Any], read: Callable[[int], None]) -> Iterator[Any]:
    for batch in batches:
        read(batch.num_rows)
        yield batch


def _weights(entries: Iterable[list[tuple[int, Row, int]]], read: Callable[[int], None]) -> Iterator[list[Delta]]:
    for part in entries:
        read(len(part))
        yield [(row, weight) for _, row, weight in part]


def _side_by_side(parts: Iterable[list[Delta]]) -> Iterator[list[Delta]]:
    """Σ weight by row, where equal rows follow one another, as in a snapshot of a bag: it comes in the order of the
    table's storage, where they stand side by side, or out of a fold, whose weights are split where they are too large
    for the column. So the last row of a part waits for the next one."""
    waiting: dict[Row, int] = {}
    for part in parts:
        for row, weight in part:
            waiting[row] = waiting.get(row, 0) + weight
        if len(waiting) > 1:
            last = waiting.popitem()
            yield list(waiting.items())
            waiting = dict([last])
    if waiting:
        yield list(waiting.items())


def _folded(parts: Iterable[list[Delta]], manifest: ShardManifest, position: int) -> dict[Row, int]:
    """Σ weight by row."""
    totals: dict[Row, int] = {}
    known = totals.get
    for part in parts:
        for row, weight in part:
            total = known(row, 0) + weight
            if total:
                totals[row] = total
            else:
                totals.pop(row, None)
    for row, total in totals.items():
        if total < 0:
            raise SegmentCorrupt(
                f'the archive of "{manifest.base}" retracts a row more often than it holds it, at {position}: {row!r}'
            )
    return totals


def _deal_out(parts: Iterable[list[Delta]], paths: list[Path]) -> None:
    with ExitStack() as opened:
        files = [opened.enter_context(path.open("wb")) for path in paths]
        count = len(files)
        for part in parts:
            dealt: dict[int, list[Delta]] = {}
            for delta in part:
                dealt.setdefault(hash(delta[0]) % count, []).append(delta)
            for number, deltas in dealt.items():
                pickle.dump(deltas, files[number], pickle.HIGHEST_PROTOCOL)


def _loaded(file: IO[bytes]) -> Iterator[list[Delta]]:
    """The parts of a file that this process has just written."""
    while True:
        try:
            part: Any = pickle.load(file)
        except EOFError:
            return
        yield part


def _parts(totals: dict[Row, int]) -> Iterator[list[Delta]]:
    rest = iter(totals.items())
    while part := list(islice(rest, PART_ROWS)):
        yield part
