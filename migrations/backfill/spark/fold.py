"""A table as of a position: the sum of the archive's weights by row, as a DataFrame.

::

    newest snapshot at or below P ─┐
    log segments up to P ──────────┼─ padded to the last schema ─ where _seq <= P ─► Σ _weight by row ─► > 0: a row
    (each shard has its own P) ────┘                                                                    < 0: damage

Rows are compared by *all* stored columns, dropped ones too: what was written before a column was dropped is retracted
with it. A sum below zero says that a retraction has come without its row, so that something is missing; the job fails
and names the row. A bulk build reads some columns only, and has the sum of the rows that agree in them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from domains.archive.manifest import Segment, SegmentCorrupt, ShardManifest
from domains.archive.rows import SEQUENCE, SPARKS_DIGITS, WEIGHT, archived_names, archiver_of, digits_of, restorer_of
from domains.errors import Unsupported
from domains.language.durations import micros_of
from domains.language.types import Kind, SqlType, TableSchema, Value
from domains.plan.graph import Columns
from domains.plan.sharding import base_shard
from domains.store.widening import Widening, widening
from migrations.backfill.spark.reporting import CLOSING, OPENING
from migrations.backfill.spark.segments import ArchiveFiles, check_all

SHARD = "_shard"


@dataclass(frozen=True, slots=True)
class ShardAt:
    """One shard of a table as of a position."""

    manifest: ShardManifest
    position: int

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.manifest.fold_of(self.position)


def spark_type(type: SqlType, column: str) -> DataType:
    """What Spark reads an archive's column as. Raises Unsupported for a DECIMAL of more than 38 digits."""
    match type.kind:
        case Kind.INTEGER:
            return DecimalType(20, 0) if type.high is not None and type.high >= 2**63 else LongType()
        case Kind.DECIMAL:
            digits = digits_of(type)
            if digits > SPARKS_DIGITS:
                raise Unsupported(
                    f'column "{column}" is {type}: Spark reads DECIMALs of {SPARKS_DIGITS} digits at most',
                    hint="declare fewer digits; restores, rebuilds and large views are made without Spark, too",
                )
            return DecimalType(digits, type.scale)
        case Kind.DOUBLE:
            return DoubleType()
        case Kind.TEXT | Kind.JSON:
            return StringType()
        case Kind.BLOB:
            return BinaryType()
        case Kind.DATE:
            return DateType()
        case Kind.DATETIME:
            return TimestampNTZType()
        case Kind.TIME:
            return LongType()
        case Kind.NULL:
            raise AssertionError("no column of a table has the type of a bare NULL")


def stored_names(columns: Iterable[int]) -> list[str]:
    """How stored columns are called in a fold: ``s0``, ``s1`` …, so that no name clashes with any other."""
    return [f"s{position}" for position in columns]


def fold(
    spark: SparkSession,
    files: ArchiveFiles,
    shards: Sequence[ShardAt],
    schema: TableSchema | None = None,
    *,
    columns: Columns | None = None,
    checked: bool = False,
) -> DataFrame:
    """The rows of a table's shards: ``_shard``, the stored columns, ``_weight`` (1 or more). Equal rows of a bag may
    come one by one: Σ ``_weight`` counts them.

    They have the width of ``schema``, which is the table's now (else the last that is archived): what was archived
    before a column was added has the column's default, as in the table. Only ``columns`` (stored positions) are read
    where they are given: rows that differ in others alone are one, with the sum of their weights. ``checked``: the
    segments were, just now.

    :raises ArchiveError: a segment is missing, cut or corrupt, or the log has a gap; named. What only the sum can
        tell, a weight below zero, fails the job when the rows are asked for.
    """
    if not checked:
        check_all(spark, files, [segment for shard in shards for segment in shard.segments])
    schema = latest_schema(shards) if schema is None else schema
    all_columns = tuple(range(len(schema.columns)))
    columns = all_columns if columns is None else columns
    parts = [part for shard in shards for part in _read(spark, files, shard, schema, columns)]
    names = [SHARD, *stored_names(columns)]
    if not parts:
        return spark.createDataFrame([], _empty_schema(schema, columns))
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionByName(part)
    unique = columns == all_columns or (schema.primary_key and set(schema.primary_key) <= set(columns))
    if unique and all(len(shard.segments) <= 1 and _is_snapshot(shard) for shard in shards):
        return rows  # A snapshot is a fold already.
    summed = rows.groupBy(*names).agg(F.sum(WEIGHT).alias(WEIGHT))
    return summed.where(_is_there(shards, names))


def latest_schema(shards: Sequence[ShardAt]) -> TableSchema:
    """The one with most columns: each adds to the one before."""
    schemas = [shard.manifest.schema_at(shard.position) for shard in shards]
    return max(schemas, key=lambda each: (len(each.columns), sum(column.dropped for column in each.columns)))


def _is_snapshot(shard: ShardAt) -> bool:
    return all(segment.kind == "snapshot" for segment in shard.segments)


def _read(
    spark: SparkSession, files: ArchiveFiles, shard: ShardAt, schema: TableSchema, columns: Columns
) -> list[DataFrame]:
    """The shard's segments: of each schema those that count whole, as one DataFrame, and each that is cut."""
    whole: dict[int, list[Segment]] = {}
    parts: list[DataFrame] = []
    have = 0
    for segment in shard.segments:
        after = 0 if segment.kind == "snapshot" else have
        have = segment.last
        if segment.kind == "snapshot" or (segment.first > after and segment.last <= shard.position):
            whole.setdefault(segment.schema, []).append(segment)
        else:
            # A log segment may begin before the snapshot that stands for its beginning, or go on after the position.
            rows = _rows(spark, files, shard, [segment])
            rows = rows.where((F.col(SEQUENCE) > after) & (F.col(SEQUENCE) <= shard.position))
            parts.append(_padded(rows, shard, segment.schema, schema, columns))
    for number, segments in whole.items():
        parts.append(_padded(_rows(spark, files, shard, segments), shard, number, schema, columns))
    return parts


def _rows(spark: SparkSession, files: ArchiveFiles, shard: ShardAt, segments: Sequence[Segment]) -> DataFrame:
    """The rows as they were archived; of one schema. No column is read that nobody asks for."""
    schema = _file_schema(shard.manifest.schemas[segments[0].schema])
    # Its columns are known: to look for them in the files would be a job of its own.
    reader = spark.read.schema(schema).options(**files.options_for_spark())
    return reader.parquet(*(files.for_spark(segment.file) for segment in segments))


def _padded(rows: DataFrame, shard: ShardAt, number: int, wanted: TableSchema, columns: Columns) -> DataFrame:
    """Rows of the manifest's schema with this number, in the width of the other."""
    own = shard.manifest.schemas[number]
    names, widen = archived_names(own), widening(own, wanted)
    is_computed = not widen.computed.isdisjoint(columns)
    chosen = [F.lit(shard.manifest.shard).alias(SHARD), F.col(WEIGHT).cast("long").alias(WEIGHT)]
    for place in widen.sources(columns) if is_computed else columns:
        column = wanted.columns[place]
        archived = place < len(names)
        value = F.col(f"`{names[place]}`") if archived else _literal(widen.constants[place - len(names)], column.type)
        chosen.append(value.cast(spark_type(column.type, column.name)).alias(f"s{place}"))
    return _computed(rows.select(*chosen), widen, wanted, columns) if is_computed else rows.select(*chosen)


def _computed(rows: DataFrame, widen: Widening, wanted: TableSchema, columns: Columns) -> DataFrame:
    """Narrow rows of the columns that these are computed of, as rows of these. What computes them is the engine's own
    function, in Python: Spark's would be another one."""
    sources, width = widen.sources(columns), widen.width
    restore = [restorer(wanted.columns[at].type) for at in sources]
    given = [StructField(SHARD, IntegerType()), StructField(WEIGHT, LongType())]
    given += [StructField(f"s{at}", spark_type(wanted.columns[at].type, wanted.columns[at].name)) for at in columns]
    made = StructType(given)
    arrow = to_arrow_schema(made)
    archive = [_archiver(wanted.columns[at].type) for at in columns]

    def compute(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            narrow: list[list[Value]] = [[None] * width for _ in range(batch.num_rows)]
            for at, back, column in zip(sources, restore, batch.columns[2:], strict=True):
                for row, value in zip(narrow, column.to_pylist(), strict=True):
                    row[at] = value if value is None or back is None else back(value)
            wide = [widen(tuple(row)) for row in narrow]
            arrays = list(batch.columns[:2])
            for at, out, field in zip(columns, archive, list(arrow)[2:], strict=True):
                values: list[Any] = [row[at] for row in wide]
                if out is not None:
                    values = [None if value is None else out(value) for value in values]
                arrays.append(pa.array(values, field.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=arrow)

    return rows.mapInArrow(compute, made)


def restorer(type: SqlType) -> Callable[[Any], Any] | None:
    """The function from what Spark's Arrow has, not NULL, to the stored value (None: the value itself); an unsigned
    BIGINT is a DECIMAL to Spark."""
    return int if isinstance(spark_type(type, ""), DecimalType) and type.kind is Kind.INTEGER else restorer_of(type)


def _archiver(type: SqlType) -> Callable[[Any], Any] | None:
    is_wide = isinstance(spark_type(type, ""), DecimalType) and type.kind is Kind.INTEGER
    return Decimal if is_wide else archiver_of(type)


def _file_schema(schema: TableSchema) -> StructType:
    """The columns of a segment as Spark reads them, without those that nobody asks for."""
    fields = [StructField(SEQUENCE, LongType()), StructField(WEIGHT, IntegerType())]
    for name, column in zip(archived_names(schema), schema.columns, strict=True):
        fields.append(StructField(name, spark_type(column.type, column.name)))
    return StructType(fields)


def _literal(value: Value, type: SqlType) -> Column:
    if isinstance(value, str) and type.kind is Kind.DATE:
        return F.lit(date.fromisoformat(value))
    if isinstance(value, str) and type.kind is Kind.DATETIME:
        return F.lit(datetime.fromisoformat(value).isoformat(sep=" ")).cast("timestamp_ntz")
    if isinstance(value, timedelta):
        return F.lit(micros_of(value))
    if isinstance(value, Decimal):
        return F.lit(str(value))
    return F.lit(value)


def _is_there(shards: Sequence[ShardAt], names: list[str]) -> Column:
    """Weight > 0; the job fails where it is below zero, and says of which table and row."""
    table = shards[0].manifest.table
    says = SegmentCorrupt(
        f'the archive of table "{table}" retracts a row that it does not have: ⟨row⟩',
        hint="a segment is missing or was changed: headrace archive check",
    )
    text = json.dumps([says.code, says.message, says.hint], ensure_ascii=False)
    before, after = text.split("⟨row⟩")
    row = F.translate(F.to_json(F.struct(*names)), '"\\', "' ")
    wrong = F.raise_error(F.concat(F.lit(OPENING + before), row, F.lit(after + CLOSING)))
    return F.when(F.col(WEIGHT) < 0, wrong.cast("boolean")).otherwise(F.col(WEIGHT) > 0)


def _empty_schema(schema: TableSchema, columns: Columns) -> StructType:
    fields = [StructField(SHARD, IntegerType()), StructField(WEIGHT, LongType())]
    for place in columns:
        column = schema.columns[place]
        fields.append(StructField(f"s{place}", spark_type(column.type, column.name)))
    return StructType(fields)


def as_relation(rows: DataFrame, schema: TableSchema, columns: Columns | None = None) -> DataFrame:
    """A fold as SQL sees the table: its live columns as ``c0``, ``c1`` …, a row that stands n times n times. Of a fold
    with some ``columns`` the others are NULL."""

    def column(position: int) -> Column:
        if columns is None or position in columns:
            return F.col(f"s{position}")
        return F.lit(None).cast(spark_type(schema.columns[position].type, schema.columns[position].name))

    live = [column(position).alias(f"c{place}") for place, position in enumerate(schema.live())]
    if schema.primary_key and (columns is None or set(schema.primary_key) <= set(columns)):
        return rows.select(*live)
    copies = F.explode(F.array_repeat(F.lit(0), F.col(WEIGHT).cast("int")))
    return rows.withColumn("_copy", copies).select(*live)


def shards_at(files: ArchiveFiles, table: str, clock: Mapping[str, int], generation: int = 0) -> list[ShardAt]:
    """The shards of a table that a clock names (``votes``, or ``votes@0``, ``votes@1`` …), each at its position."""
    start = len(base_shard(table, generation, 0, 1)) + 1
    return [
        ShardAt(files.manifest(table, int(base[start:] or 0)), position)
        for base, position in own_clock(table, clock, generation)
    ]


def own_clock(table: str, clock: Mapping[str, int], generation: int = 0) -> list[tuple[str, int]]:
    """The part of a clock that is of the table's own shards; a table's name may have an ``@`` of its own."""
    name = base_shard(table, generation, 0, 1)
    return sorted(
        (base, position)
        for base, position in clock.items()
        if base == name or (base.startswith(f"{name}@") and base[len(name) + 1 :].isdigit())
    )
