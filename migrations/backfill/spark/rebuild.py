"""A job that folds base shards into *runs*: one snapshot each, sorted by primary key, to be loaded in one stream.

::

    archive ─ fold at P ─► by shard ─ sorted by key, on disk where it is much ─► OUT/table=…/shard=…/snapshot-P.parquet
                                                                                 OUT/table=…/shard=…/manifest.json

What comes out is an archive again, with nothing in it but a snapshot of each shard; so whoever loads it checks it as
any other, and a run that is cut or changed is named. Rows that come in the order of their keys are appended to
RocksDB's files instead of being merged into them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from domains.archive.manifest import Segment, ShardManifest, manifest_file, manifest_to_json, snapshot_file
from domains.archive.rows import LEADING, WEIGHT, archived_names, arrow_type_of
from domains.errors import HeadraceError
from domains.language.types import TableSchema
from migrations.backfill.spark.fold import ShardAt, fold, stored_names
from migrations.backfill.spark.reporting import (
    ReportAddress,
    Reporter,
    StageWatch,
    Tally,
    TaskReporter,
    error_of,
    tally_of,
)
from migrations.backfill.spark.segments import CHUNK, ArchiveFiles

DIGEST_BYTES = 16
"""The bytes of a digest, as in all of the archive: enough against accidents, which is what it is for."""

_ANSWER = "file string, rows long, bytes long, digest string"


def run(spark: SparkSession, what: dict[str, Any], reporter: Reporter) -> list[dict[str, Any]]:
    """``{"archive": URL, "out": URL, "shards": [[table, shard, position], …]}`` → what was written of each."""
    files, out = ArchiveFiles(what["archive"]), ArchiveFiles(what["out"])
    shards = [ShardAt(files.manifest(table, shard), position) for table, shard, position in what["shards"]]
    written = []
    tally = tally_of(spark)
    counts = _Counts(tally, sum(segment.rows for at in shards for segment in at.segments))
    try:
        with StageWatch(spark, reporter, counts.told):
            for number, at in enumerate(shards):
                named = f"{at.manifest.table}@{at.manifest.shard}"
                reporter.progress(shard=named, stages_done=number, stages=len(shards))
                try:
                    written.append(_written(spark, files, out, at, tally.address, number))
                except HeadraceError:
                    raise
                except Exception as error:
                    raise error_of(error) from error
                counts.done(written[-1]["rows"], sum(segment.rows for segment in at.segments))
    finally:
        tally.close()
    return written


class _Counts:
    """How many rows are written, of about how many. A row that was retracted is read, and not written: so the total is
    too great before, and right once all is done."""

    def __init__(self, tally: Tally, total: int) -> None:
        self._tally, self._total = tally, total
        self._done = 0
        self._writing: float | None = None

    def done(self, rows: int, read: int) -> None:
        """A shard's."""
        self._done += rows
        self._total -= read - rows

    def told(self) -> dict[str, Any]:
        now = time.monotonic()
        rows = max(self._done, self._tally.rows())
        total = max(self._total, rows)
        if rows:
            self._writing = self._writing or now
        left = None if self._writing is None else round((now - self._writing) * (total - rows) / rows, 1)
        return {"rows": rows, "total": total, "seconds_left": left or None}


def _written(
    spark: SparkSession, files: ArchiveFiles, out: ArchiveFiles, at: ShardAt, address: ReportAddress, number: int
) -> dict[str, Any]:
    manifest, schema = at.manifest, at.manifest.schema_at(at.position)
    alone = replace(manifest, schemas=(schema,), segments=())
    file = snapshot_file(alone, at.position, manifest.epoch)
    rows = _in_order(fold(spark, files, [at], schema), schema)
    writer = _Writer(out, file, schema, at.position, manifest.epoch, address, number)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from writer.write(batches)

    (answer,) = rows.mapInArrow(write, _ANSWER).collect()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    segment = Segment(
        file, "snapshot", 1, at.position, answer["rows"], answer["bytes"], answer["digest"], 0, manifest.epoch, now
    )
    _write_manifest(out, replace(alone, segments=(segment,) if at.position else ()))
    return {"base": manifest.base, "position": at.position, **asdict(segment)}


def _in_order(rows: DataFrame, schema: TableSchema) -> DataFrame:
    """All rows in one partition, by their key; Spark sorts on disk what does not fit."""
    names = stored_names(range(len(schema.columns)))
    by = [names[place] for place in schema.primary_key] or names
    return rows.select(WEIGHT, *names).coalesce(1).sortWithinPartitions(*(F.col(name) for name in by))


def _write_manifest(out: ArchiveFiles, manifest: ShardManifest) -> None:
    filesystem, root = out.open()
    path = f"{root}/{manifest_file(manifest.table, manifest.shard)}"
    filesystem.create_dir(path.rpartition("/")[0], recursive=True)
    with filesystem.open_output_stream(path) as stream:
        stream.write(json.dumps(manifest_to_json(manifest)).encode())


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the rows of its one partition into a file, and answers what it is."""

    out: ArchiveFiles
    file: str
    schema: TableSchema
    position: int
    epoch: int
    address: ReportAddress
    number: int
    """Which of the job's shards it is, for the tally."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filesystem, root = self.out.open()
        path, rows = f"{root}/{self.file}", 0
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        wanted, teller = self._columns(), TaskReporter(self.address, 0, self.number)
        with filesystem.open_output_stream(path) as sink, pq.ParquetWriter(sink, wanted) as writer:
            for batch in batches:
                rows += batch.num_rows
                teller.fed(batch.num_rows)
                writer.write_batch(self._batch(batch, wanted))
        teller.close()
        digest, size = blake2b(digest_size=DIGEST_BYTES), 0
        with filesystem.open_input_stream(path) as stream:
            while data := stream.read(CHUNK):
                digest.update(data)
                size += len(data)
        yield pa.RecordBatch.from_pydict(
            {"file": [self.file], "rows": [rows], "bytes": [size], "digest": [digest.hexdigest()]}
        )

    def _columns(self) -> pa.Schema:
        leading = [pa.field(name, arrow_type(text), nullable=False) for name, text in LEADING]
        types = [arrow_type(arrow_type_of(column.type)) for column in self.schema.columns]
        return pa.schema(leading + [pa.field(n, t) for n, t in zip(archived_names(self.schema), types, strict=True)])

    def _batch(self, batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
        count = batch.num_rows
        leading = [[self.position] * count, batch.column(0), [self.epoch] * count]
        arrays = [*leading, *batch.columns[1:]]
        made = [
            each.cast(field.type) if isinstance(each, pa.Array) else pa.array(each, field.type)
            for each, field in zip(arrays, wanted, strict=True)
        ]
        return pa.RecordBatch.from_arrays(made, schema=wanted)


def arrow_type(name: str) -> pa.DataType:
    """The type that Arrow calls so: ``int64``, ``timestamp[us]``, ``decimal128(10, 2)``."""
    if not name.startswith("decimal"):
        return pa.type_for_alias(name)
    word, _, arguments = name.rstrip(")").partition("(")
    digits, scale = (int(each) for each in arguments.split(","))
    return pa.decimal128(digits, scale) if word == "decimal128" else pa.decimal256(digits, scale)
