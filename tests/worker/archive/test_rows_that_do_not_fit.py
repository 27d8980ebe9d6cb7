"""A row in an archive that does not fit its table is refused by whoever would store it or build on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from archived_tables import ArchivedTable

from domains.archive.manifest import SegmentCorrupt
from domains.language.types import BIGINT, Column, Kind, SqlType, TableColumn, TableSchema
from domains.plan.graph import Base, DomainIndex, Node, NodeIndex
from migrations.backfill.job import Task, TaskTable
from migrations.backfill.task import run_task
from worker.archive.checking import check_archive
from worker.archive.folding import fold
from worker.archive.lost_shard import rebuild_table
from worker.archive.shard import ShardArchive
from worker.rocks.store import RocksStore

TINYINT = SqlType(Kind.INTEGER, "TINYINT", low=-128, high=127)
SCHEMA = TableSchema(
    "t",
    (TableColumn("id", BIGINT, nullable=False), TableColumn("n", TINYINT), TableColumn("m", BIGINT, nullable=False)),
    primary_key=(0,),
)
CASES = [((7, 300, 1), '300 in column "n" of type TINYINT'), ((7, 3, None), 'NULL in column "m", which is NOT NULL')]


@pytest.fixture(params=CASES, ids=["range", "null"])
def archived(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A row that no door of ours lets in, and what is said of it."""
    table = ArchivedTable(tmp_path, SCHEMA)
    row, why = request.param
    table.write([((1, 1, 1), 1)])
    table.write([(row, 1)])
    yield table, table.archive(), f'table "t", shard 0, key (7,): {why}'
    table.store.close()


def test_it_is_not_restored(archived: tuple[ArchivedTable, ShardArchive, str], tmp_path: Path) -> None:
    table, archive, said = archived
    store = RocksStore(tmp_path / "again", keep_log=False)
    with pytest.raises(SegmentCorrupt) as caught:
        rebuild_table(store, table.place, archive.manifest, 2)
    assert said in str(caught.value)
    store.close()
    store = RocksStore(tmp_path / "before", keep_log=False)
    assert rebuild_table(store, table.place, archive.manifest, 1) == 1
    store.close()


def test_no_view_is_built_on_it(archived: tuple[ArchivedTable, ShardArchive, str]) -> None:
    table, archive, said = archived
    columns = tuple(Column(column.name, column.type) for column in SCHEMA.columns)
    base = Node(NodeIndex(0), Base("t", SCHEMA.live(), SCHEMA.primary_key), (), columns)
    read = TaskTable("t", SCHEMA, kept=False, columns=SCHEMA.live())
    task = Task(0, DomainIndex(0), 0, 1, (base,), (), (read,), (), (), (), ())
    rows = [delta for part in fold(table.place, archive.manifest, 2) for delta in part]
    with pytest.raises(SegmentCorrupt) as caught:
        list(run_task(task, {"t": rows}, {}))
    assert said in str(caught.value)


def test_the_check_names_it(archived: tuple[ArchivedTable, ShardArchive, str]) -> None:
    table, _, said = archived
    (checked,) = check_archive(table.place)
    (problem,) = checked.problems
    assert said in str(problem)
