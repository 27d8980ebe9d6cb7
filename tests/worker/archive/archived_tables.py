"""A base table in RocksDB whose every state is remembered, so that an archive of it can be judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import pytest

from domains.archive.manifest import ArchiveGap, ShardManifest
from domains.language.types import (
    BIGINT,
    BLOB,
    DATE,
    DATETIME,
    DOUBLE,
    TEXT,
    Delta,
    Kind,
    Row,
    SqlType,
    TableColumn,
    TableSchema,
)
from worker.archive import folding
from worker.archive.folding import combined, fold
from worker.archive.place import Place
from worker.archive.shard import ShardArchive
from worker.rocks.store import RocksStore

UNSIGNED = SqlType(Kind.INTEGER, "BIGINT UNSIGNED", low=0, high=2**64 - 1)
PRICE = SqlType(Kind.DECIMAL, "DECIMAL(10,2)", 10, 2)
LONG = SqlType(Kind.DECIMAL, "DECIMAL(65,30)", scale=30)

COLUMNS = (
    TableColumn("id", BIGINT, nullable=False),
    TableColumn("Name", TEXT),
    TableColumn("price", PRICE),
    TableColumn("_seq", UNSIGNED),
)
ADDED = (
    TableColumn("day", DATE, default="2026-01-31", has_default=True),
    TableColumn("at", DATETIME),
    TableColumn("long", LONG, default=Decimal("0." + "1" * 30), has_default=True),
    TableColumn("share", DOUBLE, default=0.5, has_default=True),
    TableColumn("icon", BLOB, default=b"\x00\xff", has_default=True),
)
BAG = TableSchema("t", COLUMNS)
KEYED = TableSchema("t", COLUMNS, primary_key=(0,))

Weights = dict[Row, int]


def time_of(number: int) -> str:
    """The time of the pass with this number, a minute each."""
    return f"2026-01-01T{number // 60:02}:{number % 60:02}:00.000Z"


class ArchivedTable:
    """One shard of table "t" in a store, its archive, and what it held at every position."""

    def __init__(self, directory: Path, schema: TableSchema = BAG, *, place: Place | None = None) -> None:
        self.store = RocksStore(directory / "base")
        self.place = place or Place(str(directory / "archive"))
        self.create(schema)
        self.passes = 0

    def create(self, schema: TableSchema) -> None:
        self.store.create_table(schema)
        self.history: list[Weights] = [{}]

    @property
    def schema(self) -> TableSchema:
        return self.store.table("t").schema

    @property
    def rows(self) -> Weights:
        return self.history[-1]

    def schema_defaults(self) -> Row:
        """Of all columns but the first."""
        return tuple(column.default for column in self.schema.columns[1:])

    def write(self, deltas: Sequence[Delta]) -> None:
        self.store.table("t").stage(deltas)
        self.store.commit([("t", len(self.history), list(deltas))])
        after = dict(self.rows)
        for row, weight in deltas:
            after[row] = after.get(row, 0) + weight
        self.history.append({row: weight for row, weight in after.items() if weight})

    def alter(self, schema: TableSchema) -> None:
        """Rows of all positions are remembered in the present width."""
        added = tuple(column.default for column in schema.columns[len(self.schema.columns) :])
        self.store.alter_table(schema)
        self.history = [{row + added: weight for row, weight in rows.items()} for rows in self.history]

    def add_column(self, column: TableColumn) -> None:
        self.alter(replace(self.schema, columns=(*self.schema.columns, column)))

    def drop_column(self, at: int) -> None:
        columns = list(self.schema.columns)
        columns[at] = replace(columns[at], dropped=True)
        self.alter(replace(self.schema, columns=tuple(columns)))

    # --- the archive --------------------------------------------------------------------------------------------

    def open(self, epoch: int = 1) -> ShardArchive:
        return ShardArchive.open(self.place, self.store.cut("t"), 0, 1, epoch)

    def archive(self, epoch: int = 1, *, segment_rows: int = 1_000_000) -> ShardArchive:
        """One pass."""
        self.passes += 1
        archive = self.open(epoch)
        cut = self.store.cut("t")
        if archive.lacks_log(cut):
            archive.begin(self.store.cut("t", rows=True), time_of(self.passes))
        else:
            archive.append(cut, time_of(self.passes), segment_rows=segment_rows)
        return archive

    def check(self, archive: ShardArchive, *, held_rows: int = 1_000_000) -> int:
        """Every position that the archive can be folded at gives what the table held; answers how many there are.

        Where the log was trimmed before it was archived, that is said.
        """
        manifest = archive.manifest
        lacking = {at for first, last in manifest.gaps() for at in range(first, last + 1)} - self._snapshots(archive)
        for position in range(manifest.begin, manifest.position + 1):
            if position in lacking:
                with pytest.raises(ArchiveGap, match='"t" lacks the log'):
                    manifest.fold_of(position)
                continue
            width = len(manifest.schema_at(position).columns)
            wanted = {row[:width]: weight for row, weight in self.history[position].items()}
            found: Weights = {}
            for part in fold(self.place, manifest, position, held_rows=held_rows):
                for row, weight in part:
                    assert row not in found, "a row that is folded twice"
                    found[row] = weight
            assert found == wanted, position
            assert all(
                list(map(type, row)) == list(map(type, found_row)) for row, found_row in zip_equal(wanted, found)
            )
            self._check_pruned(manifest, position, wanted, held_rows)
        return manifest.position - manifest.begin + 1 - len(lacking)

    def _check_pruned(self, manifest: ShardManifest, position: int, rows: Weights, held_rows: int) -> None:
        """Some of the columns, each position others of them; Arrow sums all of them at once, or a few rows."""
        width = len(manifest.schema_at(position).columns)
        columns = tuple(place for place in range(width) if position * 37 >> place & 1)
        wanted: Weights = {}
        for row, weight in rows.items():
            part = tuple(value if place in columns else None for place, value in enumerate(row))
            wanted[part] = wanted.get(part, 0) + weight
        found: Weights = {}
        with pytest.MonkeyPatch.context() as patched:
            if position % 2:
                patched.setattr(folding, "combined", partial(combined, limit=100))
            for part in fold(self.place, manifest, position, columns=columns, held_rows=held_rows):
                for row, weight in part:
                    assert row not in found, "a row that is folded twice"
                    found[row] = weight
        assert found == wanted, (position, columns)
        assert all(list(map(type, row)) == list(map(type, other)) for row, other in zip_equal(wanted, found))

    def _snapshots(self, archive: ShardArchive) -> set[int]:
        return {segment.last for segment in archive.manifest.segments if segment.kind == "snapshot"}


def zip_equal(one: Weights, other: Weights) -> list[tuple[Row, Row]]:
    """The rows of both that are equal: 1 and True are, and must not be mistaken."""
    same = {row: row for row in other}
    return [(row, same[row]) for row in one]
