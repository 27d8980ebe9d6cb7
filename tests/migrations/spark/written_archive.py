"""An archive that a test writes by hand: segments as deltas, as ``domains/archive/manifest.py`` says that they lie."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from domains.archive.manifest import Segment, ShardManifest, log_file, manifest_file, manifest_to_json, snapshot_file
from domains.archive.rows import EPOCH, LEADING, SEQUENCE, WEIGHT, archived_names, archiver_of, arrow_type_of
from domains.language.types import Row, TableSchema

Entry = tuple[int, Row, int]
"""Sequence, stored row, weight."""


class WrittenShard:
    """One shard of a table, written segment by segment below ``root``."""

    def __init__(self, root: Path, schema: TableSchema, shard: int = 0, shards: int = 1) -> None:
        self.root = root
        self.manifest = ShardManifest(schema.name, shard, shards, "made-by-hand", (schema,))
        self._write_manifest()

    def alter(self, schema: TableSchema) -> None:
        self.manifest = replace(self.manifest, schemas=(*self.manifest.schemas, schema))

    def log(self, first: int, last: int, entries: Iterable[Entry]) -> Segment:
        return self._add("log", first, last, list(entries))

    def snapshot(self, position: int, rows: Iterable[tuple[Row, int]]) -> Segment:
        return self._add("snapshot", 1, position, [(position, row, weight) for row, weight in rows])

    def _add(self, kind: str, first: int, last: int, entries: Sequence[Entry]) -> Segment:
        number = len(self.manifest.schemas) - 1
        schema = self.manifest.schemas[number]
        file = log_file(self.manifest, first, last, 1) if kind == "log" else snapshot_file(self.manifest, last, 1)
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(as_table(schema, entries), path)
        data = path.read_bytes()
        digest = blake2b(data, digest_size=32).hexdigest()
        segment = Segment(
            file,
            kind,
            first,
            last,
            len(entries),
            len(data),
            digest,
            number,
            1,
            "2026-01-31T08:00:00Z",  # type: ignore[arg-type]
        )
        self.manifest = replace(self.manifest, segments=(*self.manifest.segments, segment))
        self._write_manifest()
        return segment

    def _write_manifest(self) -> None:
        path = self.root / manifest_file(self.manifest.table, self.manifest.shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(manifest_to_json(self.manifest)))


def as_table(schema: TableSchema, entries: Sequence[Entry]) -> pa.Table:
    fields = [pa.field(name, arrow_type(type)) for name, type in LEADING]
    columns: list[list[object]] = [[seq for seq, _, _ in entries], [w for _, _, w in entries], [1] * len(entries)]
    assert [field.name for field in fields] == [SEQUENCE, WEIGHT, EPOCH]
    for place, (name, column) in enumerate(zip(archived_names(schema), schema.columns, strict=True)):
        fields.append(pa.field(name, arrow_type(arrow_type_of(column.type))))
        convert = archiver_of(column.type)
        values = [row[place] for _, row, _ in entries]
        columns.append([v if v is None or convert is None else convert(v) for v in values])
    arrays = [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def arrow_type(name: str) -> pa.DataType:
    """``decimal128(10, 2)`` and its like, out of the text that names it."""
    if name.startswith("decimal"):
        word, _, arguments = name.rstrip(")").partition("(")
        digits, scale = (int(each) for each in arguments.split(","))
        return pa.decimal128(digits, scale) if word == "decimal128" else pa.decimal256(digits, scale)
    return (
        pa.timestamp("us")
        if name == "timestamp[us]"
        else pa.date32()
        if name == "date32"
        else getattr(pa, {"double": "float64"}.get(name, name))()
    )
