"""A damaged file is an error of whoever reads it, and never the end of a table."""

from __future__ import annotations

import marshal
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from domains.errors import StorageFailure
from domains.language.types import BIGINT, TEXT, Delta, TableColumn, TableSchema
from worker.rocks import RocksStore, database

KEYED = TableSchema(
    "keyed", (TableColumn("id", BIGINT, nullable=False), TableColumn("text", TEXT)), primary_key=(0,), indexes=((1,),)
)
BAG = TableSchema("bag", (TableColumn("n", BIGINT), TableColumn("text", TEXT)), indexes=((0,),))
ROWS = 3_000
PLACES = 16


def text(number: int) -> str:
    return f"{number} " + str(hash((number, "t")) ** 4) * (1 + 3 * (number % 2))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "base"
    store = RocksStore(path)
    for schema in (KEYED, BAG):
        store.create_table(schema)
    for first in range(0, ROWS, 500):
        rows: list[Delta] = [((n, text(n)), 1) for n in range(first, first + 500)]
        for name in ("keyed", "bag"):
            store.table(name).stage(rows)
        store.commit([(name, first // 500 + 1, rows) for name in ("keyed", "bag")])
    store.flush()
    store.close()
    return path


def slices(store: RocksStore, name: str) -> Iterator[int]:
    cursor: bytes | None = None
    while True:
        rows, cursor = store.table(name).scan(cursor, 100)
        yield from (int(str(row[0])) for row, _ in rows)
        if cursor is None:
            return


def by_key(store: RocksStore, name: str) -> Iterator[int]:
    for first in range(0, ROWS, 100):
        for rows in store.table(name).find_many((0,), [(n,) for n in range(first, first + 100)]):
            yield from (int(str(row[0])) for row, _ in rows)


READINGS: dict[str, Callable[[RocksStore, str], Iterator[int]]] = {
    "all": lambda store, name: (int(str(row[0])) for row, _ in store.table(name).find((), ())),
    "one by one": lambda store, name: (
        int(str(row[0])) for n in range(ROWS) for row, _ in store.table(name).find((0,), (n,))
    ),
    "many keys": by_key,
    "counted": lambda store, name: (
        n for n in range(ROWS) for _ in range(store.table(name).count_many((0,), [(n,)], 9)[0])
    ),
    "in slices": slices,
    "cut": lambda store, name: (
        int(str(row[0])) for part in store.cut(name, rows=True).rows(100) for row, _ in part
    ),
    "log": lambda store, name: (
        int(str(row[0])) for _, deltas in store.log(name, 0, 1_000) for row, _ in deltas
    ),
}  # fmt: skip


def test_whatever_reads_a_damaged_file_says_so(whole: Path, tmp_path: Path) -> None:
    found = [place for place in range(PLACES) if is_told(whole, tmp_path / str(place), place)]
    assert len(found) >= PLACES // 2, "most of the file is rows, log, and index entries that are read here"


def is_told(whole: Path, path: Path, place: int) -> bool:
    """Whether a byte that is inverted at this place is noticed by any reading; all others are right."""
    shutil.copytree(whole, path)
    file = max(path.glob("*.sst"), key=lambda each: each.stat().st_size)
    content = bytearray(file.read_bytes())
    content[(2 * place + 1) * len(content) // (2 * PLACES)] ^= 0xFF
    file.write_bytes(content)
    try:
        store = RocksStore(path, create=False)
    except StorageFailure as error:
        return file.name in error.message
    errors = []
    for how, read in READINGS.items():
        for name in ("keyed", "bag"):
            try:
                assert sorted(read(store, name)) == list(range(ROWS)), (place, how, name)
            except StorageFailure as error:
                errors.append(error)
    assert all(file.name in error.message and error.hint for error in errors)
    assert bool(errors) == (store.failure is not None) == bool(store.alarms())
    assert all(alarm["since"] and file.name in alarm["error"] for alarm in store.alarms())
    del errors
    store.close()
    RocksStore(path, create=False).close()  # No iterator of a failure keeps the directory.
    return store.failure is not None


def test_bytes_that_are_no_row_are_named_with_their_table_and_key(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    table = store.create_table(KEYED)
    table.stage([((1, "a"), 1), ((2, "b"), 1)])
    store.commit([("keyed", 1, [])])
    (entry, _) = store._database.items(table._rows, table._rows_end)
    store._database.write({entry[0]: b"\x00no row"})
    for read in (
        lambda: table.find((), ()),
        lambda: table.find((0,), (1,)),
        lambda: table.find_many((0,), [(1,), (2,)]),
    ):
        with pytest.raises(StorageFailure, match=f'table "keyed", key {entry[0].hex()}'):
            read()
    assert table.find((0,), (2,)) == [((2, "b"), 1)]
    store.close()


@pytest.mark.parametrize("bad", [("1", "a"), (1, 2), (1,), (1, b"a")])
def test_a_stored_row_of_other_types_is_named_by_whoever_reads_it(tmp_path: Path, bad: tuple[Any, ...]) -> None:
    store = RocksStore(tmp_path)
    table = store.create_table(KEYED)
    table.stage([((1, "a"), 1), ((2, "b"), 1)])
    store.commit([("keyed", 1, [])])
    key, _ = store._database.items(table._rows, table._rows_end)[0]
    store._database.write({key: marshal.dumps(bad, 2)})
    for read in (lambda: table.find((), ()), lambda: table.find((0,), (1,)), lambda: table.scan(None, 10)):
        with pytest.raises(StorageFailure, match=f'table "keyed", key {key.hex()}'):
            read()
    assert table.find((0,), (2,)) == [((2, "b"), 1)]
    assert key.hex() in store.alarms()[0]["error"]
    store.close()


def test_writes_are_refused_below_the_reserve_and_taken_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 10_000
    monkeypatch.setattr(database, "statvfs", lambda path: SimpleNamespace(f_bavail=free, f_frsize=1))
    monkeypatch.setattr(database, "ROOM_SECONDS", 0.0)
    store = RocksStore(tmp_path, reserve=5_000)
    table = store.create_table(KEYED)
    store.create_table(BAG)
    table.stage([((1, "a"), 1)])
    store.commit([("keyed", 1, [])])
    free = 4_999
    table.stage([((2, "b"), 1)])
    with pytest.raises(StorageFailure, match="4,999 bytes left") as refused:
        store.commit([("keyed", 2, [])])
    assert "make room" in str(refused.value)
    assert store.position("keyed") == 1
    assert table.find((), ()) == [((1, "a"), 1)]
    store.drop_table("bag")
    store.trim_log("keyed", 1)
    store.sync()
    assert store.failure is None
    assert "bytes left" in store.alarms()[0]["error"]
    free = 5_000
    table.stage([((2, "b"), 1)])
    store.commit([("keyed", 2, [])])
    assert sorted(table.find((), ())) == [((1, "a"), 1), ((2, "b"), 1)]
    assert store.alarms() == []
    store.close()
