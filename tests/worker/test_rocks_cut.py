"""A cut shows its table as it was between two steps, whatever is written, dropped or flushed while it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from rocksdict import Options, Rdict, ReadOptions

from domains.errors import StorageFailure
from domains.language.types import BIGINT, TEXT, Delta, TableColumn, TableSchema
from worker.rocks import RocksStore
from worker.rocks.cut import TableCut

KEYED = TableSchema("keyed", (TableColumn("id", BIGINT, nullable=False), TableColumn("text", TEXT)), primary_key=(0,))
BAG = TableSchema("bag", (TableColumn("n", BIGINT), TableColumn("text", TEXT)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    opened = RocksStore(tmp_path / "base")
    for schema in (KEYED, BAG):
        opened.create_table(schema)
    add(opened, 0, 100)
    yield opened
    opened.close()


def add(store: RocksStore, first: int, count: int) -> None:
    """One step that writes so many rows to both tables; of the bag's every other is long."""
    rows: list[Delta] = [((n, f"{n} " + "x" * (200 * (n % 2))), 1) for n in range(first, first + count)]
    for name in ("keyed", "bag"):
        store.table(name).stage(rows)
    store.commit([(name, store.position(name) + 1, rows) for name in ("keyed", "bag")])


def cuts(store: RocksStore) -> list[TableCut]:
    return [store.cut(name, rows=True) for name in ("keyed", "bag")]


def numbers(cut: TableCut, limit: int = 7) -> list[int]:
    return sorted(int(str(row[0])) for part in cut.rows(limit) for row, _ in part)


def test_the_bindings_snapshot_is_none_for_who_iterates(tmp_path: Path) -> None:
    # Where this fails after an upgrade, a view may be a snapshot. Until then it is an iterator.
    database = Rdict(str(tmp_path), Options(raw_mode=True))
    database[b"a"] = b"old"
    snapshot = database.snapshot()
    iterator = database.iter(ReadOptions())
    database[b"a"] = b"new"
    database[b"b"] = b"new"
    assert snapshot[b"a"] == b"old"
    assert list(snapshot.items()) == [(b"a", b"new"), (b"b", b"new")]
    iterator.seek(b"a")
    assert (iterator.key(), iterator.value()) == (b"a", b"old")
    iterator.next()
    assert not iterator.valid()


@pytest.mark.parametrize("name", ["keyed", "bag"])
@pytest.mark.parametrize("begun", [False, True], ids=["before it is read", "while it is read"])
@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "in files"])
def test_a_cut_does_not_see_what_is_written_after_it(store: RocksStore, name: str, begun: bool, flushed: bool) -> None:
    table = store.table(name)
    before = table.find((), ())
    parts = store.cut(name, rows=True).rows(7)
    read = next(parts) if begun else []
    add(store, 1_000, 50)
    table.stage([(before[60][0], -1)])
    store.commit([(name, store.position(name) + 1, [(before[60][0], -1)])])
    store.trim_log(name, store.position(name))
    if flushed:
        store.flush()
    assert sorted([*read, *(delta for part in parts for delta in part)]) == sorted(before)


@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "in files"])
def test_a_cut_keeps_the_rows_of_a_table_that_is_dropped(store: RocksStore, flushed: bool) -> None:
    keyed, bag = cuts(store)
    parts = keyed.rows(7)
    read = next(parts)
    store.drop_table("keyed")
    store.drop_table("bag")
    if flushed:
        store.flush()
        store._database._db.compact_range(None, None)
    assert len([*read, *(delta for part in parts for delta in part)]) == 100
    assert numbers(bag) == list(range(100))


def test_cuts_between_the_same_two_steps_are_read_in_another_thread_while_it_is_written(store: RocksStore) -> None:
    both = cuts(store)
    found: list[list[int]] = []
    reading = Thread(target=lambda: found.extend(numbers(cut, 1) for cut in both))
    reading.start()
    for step in range(1, 100):
        add(store, step * 1_000, 3)
        if step % 30 == 0:
            store.flush()
    reading.join()
    assert found == [list(range(100))] * 2


def test_a_closed_store_ends_its_cuts_and_gives_the_directory_up(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.create_table(KEYED)
    store.create_table(BAG)
    add(store, 0, 100)
    keyed, bag = cuts(store)
    parts = keyed.rows(7)
    next(parts)
    store.close()
    for rest in (parts, bag.rows(7)):
        with pytest.raises(StorageFailure, match="closed meanwhile"):
            next(rest)
    again = RocksStore(tmp_path, create=False)
    assert numbers(again.cut("bag", rows=True)) == list(range(100))
    again.close()
