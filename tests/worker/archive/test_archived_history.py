"""Property: whatever happens to a table and to its archive, the fold at a position is the table at that position."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from archived_tables import ADDED, BAG, KEYED, ArchivedTable, time_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from domains.language.types import Delta, Kind, Row, TableColumn, TableSchema, Value
from worker.archive import segments
from worker.archive import shard as shard_module
from worker.archive.compacting import compact
from worker.archive.manifests import load_manifest
from worker.archive.shard import ShardArchive


class Crash(Exception):
    """The process is gone."""


@contextmanager
def crash_before_the_manifest() -> Iterator[None]:
    """The file is there, and the process ends before the manifest names it."""

    def crash(*_: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shard_module, "change_manifest", crash)
        yield


VALUES: dict[Kind, st.SearchStrategy[Value]] = {
    Kind.INTEGER: st.integers(0, 3) | st.just(2**63 - 1),
    Kind.TEXT: st.sampled_from(["", "a", "ÿ€🙂", "a'b"]),
    Kind.DECIMAL: st.sampled_from([Decimal("0.00"), Decimal("-1.50"), Decimal("99999999.99")]),
    Kind.DATE: st.sampled_from(["0001-01-01", "2026-01-31"]),
    Kind.DATETIME: st.sampled_from(["2026-01-31 08:00:00", "9999-12-31 23:59:59.999999"]),
    Kind.DOUBLE: st.sampled_from([0.0, -1.25, 1e300]),
    Kind.BLOB: st.sampled_from([b"", b"\x00\xff"]),
}


def value_of(column: TableColumn) -> st.SearchStrategy[Value]:
    if column.type.name == "DECIMAL(65,30)":
        return st.sampled_from([None, Decimal("0." + "7" * 30)])
    one = VALUES[column.type.kind]
    return one | st.none() if column.nullable else one


def rows_of(schema: TableSchema) -> st.SearchStrategy[Row]:
    return st.tuples(*[value_of(column) for column in schema.columns])


@st.composite
def deltas_of(draw: st.DrawFn, table: ArchivedTable) -> list[Delta]:
    """A step: some of the rows go, some come; a key that is there goes with its row."""
    gone = draw(st.lists(st.sampled_from(sorted(table.rows, key=repr)), max_size=3, unique=True)) if table.rows else []
    come = draw(st.lists(rows_of(table.schema), min_size=0 if gone else 1, max_size=4))
    if table.schema.primary_key:
        come = list({row[0]: row for row in come}.values())
        keys = {row[0] for row in come}
        gone += [row for row in table.rows if row[0] in keys and row not in gone]
    return [(row, -1) for row in gone] + [(row, 1) for row in come]


class Story:
    """What happens, drawn by Hypothesis, and what is known of it."""

    def __init__(self, data: st.DataObject, directory: Path, keyed: bool) -> None:
        self.data = data
        self.table = ArchivedTable(directory, KEYED if keyed else BAG)
        self.epoch = 1

    def tell(self) -> ShardArchive:
        acts = [self.write, self.write, self.write, self.archive, self.archive, self.alter, self.crash, self.compact]
        acts += [self.expire, self.trim, self.recreate]
        for _ in range(self.data.draw(st.integers(3, 14), label="acts")):
            self.data.draw(st.sampled_from(acts), label="act")()
        return self.table.archive(self.epoch)

    def write(self) -> None:
        self.table.write(self.data.draw(deltas_of(self.table), label="deltas"))

    def archive(self) -> None:
        self.table.archive(self.epoch, segment_rows=self.data.draw(st.sampled_from([1, 3, 1000]), label="segment rows"))

    def alter(self) -> None:
        width = len(self.table.schema.columns)
        if width - len(BAG.columns) < len(ADDED):
            self.table.add_column(ADDED[width - len(BAG.columns)])
        elif not self.table.schema.columns[-1].dropped:
            self.table.drop_column(width - 1)

    def crash(self) -> None:
        self.epoch += self.data.draw(st.integers(0, 1), label="later epoch")
        self.write()
        with crash_before_the_manifest(), pytest.raises(Crash):
            self.table.archive(self.epoch)

    def compact(self) -> None:
        archive = self.table.open(self.epoch)
        closed = [each.last for each in archive.manifest.segments]
        if closed:
            snapshot = compact(self.table.place, archive.manifest, self.data.draw(st.sampled_from(closed), label="at"))
            if self.data.draw(st.booleans(), label="named"):
                archive.replace_by(snapshot)

    def expire(self) -> None:
        archive = self.table.open(self.epoch)
        before = time_of(self.data.draw(st.integers(0, self.table.passes), label="expired before"))
        for file in archive.expire(before):
            self.table.place.delete(file)

    def trim(self) -> None:
        """Mostly of what is archived; else the archive has to go on with a snapshot."""
        if self.table.rows:
            self.table.archive(self.epoch)
        self.table.store.trim_log("t", len(self.table.history) - 1)

    def recreate(self) -> None:
        if self.data.draw(st.integers(0, 3), label="recreate") == 0:
            schema = self.table.schema
            self.table.store.drop_table("t")
            self.table.create(KEYED if schema.primary_key else BAG)


EXAMPLES = 40
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Not made smaller: each try opens a RocksDB and syncs files. A story that fails is printed, and short anyway."""


@pytest.mark.parametrize("keyed", [False, True], ids=["bag", "keyed"])
@settings(
    max_examples=EXAMPLES,
    phases=PHASES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_the_fold_at_a_position_is_the_table_at_that_position(data: st.DataObject, keyed: bool) -> None:
    with TemporaryDirectory() as directory:
        story = Story(data, Path(directory), keyed)
        try:
            archive = story.tell()
            assert archive.manifest.position == len(story.table.history) - 1
            story.table.check(archive)
            story.table.check(archive, held_rows=2)
            named = {segment.file.rpartition("/")[2] for segment in archive.manifest.segments}
            there = set(story.table.place.files("table=t/shard=0"))
            assert named <= there
            assert load_manifest(story.table.place, "t", 0) == archive.manifest
        finally:
            story.table.store.close()


def test_equal_rows_of_a_snapshot_are_folded_into_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot has a bag's equal rows one by one, side by side; here they also go on behind a part's end."""
    monkeypatch.setattr(segments, "READ_ROWS", 2)
    table = ArchivedTable(tmp_path, BAG)
    twin, other = (1, "a", None, None), (2, "b", None, None)
    table.write([(twin, 1), (other, 1), (twin, 1)])
    table.write([(twin, 3)])
    table.store.trim_log("t", 1)
    archive = table.archive()
    assert [(each.kind, each.rows) for each in archive.manifest.segments] == [("snapshot", 6)]
    table.check(archive)
    table.check(archive, held_rows=2)
    table.store.close()


def test_a_weight_that_a_snapshot_splits_is_folded_into_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "WEIGHT_MAX", 2)
    monkeypatch.setattr(segments, "READ_ROWS", 2)
    table = ArchivedTable(tmp_path, BAG)
    table.write([((1, "a", None, None), 7), ((2, "b", None, None), 1)])
    archive = table.archive()
    archive.replace_by(compact(table.place, archive.manifest, 1))
    assert [(each.kind, each.rows) for each in archive.manifest.segments] == [("log", 5), ("snapshot", 5)]
    table.check(archive)
    table.store.close()
