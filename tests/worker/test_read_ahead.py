"""What a scan reads ahead: less often from RocksDB, and never what has been written over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from domains.language.types import BIGINT, Row, TableColumn, TableSchema
from worker.rocks import RocksStore
from worker.rocks.row_cache import AHEAD_MIN
from worker.rocks.table import RocksTable

COLUMNS = (TableColumn("id", BIGINT), TableColumn("n", BIGINT))
KEYED = TableSchema("t", COLUMNS, primary_key=(0,))
BAG = TableSchema("t", COLUMNS)
ROWS = 1_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    opened = RocksStore(tmp_path)
    yield opened
    opened.close()


def written(store: RocksStore, schema: TableSchema) -> RocksTable:
    store.create_table(schema)
    write(store, [((number, number % 7), 1) for number in range(ROWS)])
    return store.table("t")


def write(store: RocksStore, deltas: list[tuple[Row, int]]) -> None:
    store.table("t").stage(deltas)
    store.commit([("t", store.position("t") + 1, deltas)])


@pytest.mark.parametrize("schema", [KEYED, BAG], ids=["keyed", "bag"])
def test_small_slices_share_an_iterator(
    store: RocksStore, schema: TableSchema, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, asked = written(store, schema), []
    items = store._database.items
    monkeypatch.setattr(store._database, "items", lambda *given: asked.append(given) or items(*given))
    seen, cursor = table.scan(None, 2)
    while cursor is not None:
        rows, cursor = table.scan(cursor, 2)
        seen += rows
    assert sorted(seen) == [((number, number % 7), 1) for number in range(ROWS)]
    assert len(asked) <= 2.5 * ROWS / AHEAD_MIN


@pytest.mark.parametrize("schema", [KEYED, BAG], ids=["keyed", "bag"])
def test_a_slice_has_what_is_stored_when_it_is_asked_for(store: RocksStore, schema: TableSchema) -> None:
    """Slices of random lengths with random writes between."""
    random = Random(5)
    table = written(store, schema)
    there: set[Row] = {(number, number % 7) for number in range(ROWS)}
    cursor, slices = None, 0
    while cursor is not None or not slices:
        before = cursor
        rows, cursor = table.scan(before, random.randint(1, 30))
        slices += 1
        beyond = {row for row in there if before is None or not table.before(row, before)}
        assert sorted(row for row, _ in rows) == sorted(
            row for row in beyond if cursor is None or table.before(row, cursor)
        )
        if random.random() < 0.5:
            gone = random.choice(sorted(there))
            come = (random.randrange(10**6), 0)
            if come not in there:
                write(store, [(gone, -1), (come, 1)])
                there = there - {gone} | {come}
    assert slices > 20
