"""The cache of base look-ups never says anything but what RocksDB would."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from domains.language.types import BIGINT, TEXT, Delta, Row, TableColumn, TableSchema
from worker.rocks import row_cache
from worker.rocks.row_cache import CacheRoom, RowCache
from worker.rocks.store import RocksStore

COLUMNS = (TableColumn("id", BIGINT), TableColumn("owner", BIGINT), TableColumn("name", TEXT))


@pytest.mark.parametrize("primary_key", [(), (0,)])
def test_look_ups_follow_writes(tmp_path: Path, primary_key: tuple[int, ...]) -> None:
    random = Random(7)
    store = RocksStore(tmp_path / "base")
    table = store.create_table(TableSchema("things", COLUMNS, primary_key, indexes=((1,),)))
    rows: dict[int, Row] = {}
    for sequence in range(1, 300):
        id = random.randrange(20)
        old = rows.pop(id, None)
        deltas = [] if old is None else [(old, -1)]
        if random.random() < 0.7:
            rows[id] = (id, random.randrange(4), "x" * random.choice([1, 100]))
            deltas.append((rows[id], 1))
        if deltas:
            table.stage(deltas)
            if random.random() < 0.1:
                store.rollback()
                rows.pop(id, None)
                if old is not None:
                    rows[id] = old
            else:
                store.commit([("things", sequence, deltas)])
        asked = [(owner,) for owner in random.choices(range(5), k=3)]
        for (owner,), found in zip(asked, table.find_many((1,), asked), strict=True):
            assert sorted(found) == sorted((row, 1) for row in rows.values() if row[1] == owner), f"step {sequence}"
    store.close()


def test_that_there_are_no_rows_is_kept_but_of_unique_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RocksStore(tmp_path / "base")
    table = store.create_table(TableSchema("things", COLUMNS, (0,), indexes=((1,),)))
    asked: list[Row] = []
    monkeypatch.setattr(table, "find_stored", lambda access, keys: asked.extend(keys) or [[] for _ in keys])
    for _ in range(2):
        assert table.find_many((1,), [(7,)]) == [[]]
        assert table.find_many((0,), [(5,)]) == [[]]
    assert asked == [(7,), (5,), (5,)]
    monkeypatch.undo()
    row: Row = (5, 7, "x")
    table.stage([(row, 1)])
    store.commit([("things", 1, [(row, 1)])])
    assert table.find_many((1,), [(7,)]) == [[(row, 1)]]
    store.close()


def remember(cache: RowCache, key: int, rows: list[Delta]) -> None:
    cache.remember(cache.way((0,)), [(key,)], [rows], keep_empty=True)


def test_all_tables_together_stay_within_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_cache, "CACHE_BYTES", 5_000)
    room = CacheRoom()
    caches = [room.new_cache() for _ in range(3)]
    for number in range(100):
        remember(caches[number % 3], number, [((number, "x" * 100), 1)])
        assert room.held <= 5_000
    assert 0 < sum(len(cache.way((0,)).answers) for cache in caches) < 20
    remember(caches[0], 1000, [((1000, "x" * 10_000), 1)])
    assert (1000,) not in caches[0].way((0,)).answers
    for cache in caches:
        room.give_up(cache)
    assert room.held == 0


def test_what_is_forgotten_is_no_longer_counted() -> None:
    room = CacheRoom()
    cache = room.new_cache()
    rows = [((1, "a"), 1), ((1, "b"), 1)]
    remember(cache, 1, rows)
    remember(cache, 1, rows)
    cache.forget([((1, "c"), 1)])
    assert room.held == 0
    assert not cache.way((0,)).answers
