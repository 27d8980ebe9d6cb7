"""Snapshots that are held are on disk: there after a restart, as they were, or named as damaged."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from domains.errors import SnapshotGone, StorageFailure
from domains.language.types import BIGINT, TEXT, Row, TableColumn, TableSchema
from domains.store.storage import SnapshotRecord
from worker.rocks import RocksStore

T = TableSchema("t", (TableColumn("id", BIGINT, nullable=False), TableColumn("name", TEXT)), primary_key=(0,))
HELD = SnapshotRecord("month-end", 1.5, held=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "base"


@pytest.fixture
def store(path: Path) -> Iterator[RocksStore]:
    opened = RocksStore(path)
    opened.create_table(T)
    put(opened, (1, "a"), (2, "b"))
    yield opened
    opened.close()


def put(store: RocksStore, *rows: Row) -> None:
    deltas = [(row, 1) for row in rows]
    store.table("t").stage(deltas)
    store.commit([("t", store.position("t") + 1, deltas)])


def keep(store: RocksStore, record: SnapshotRecord = HELD) -> None:
    store.keep_snapshot(record)
    store.tell_of_snapshot(record.name)


def rows_of(store: RocksStore, name: str = HELD.name) -> list[Row]:
    return sorted(row for row, _ in store.snapshot(name).table("t").find((), ()))


def as_a_kill_leaves_it(path: Path) -> Path:
    """A copy of the directory while it is open, which nobody closes."""
    return Path(shutil.copytree(path, path.with_name("killed"), ignore=shutil.ignore_patterns("LOCK")))


def directories(path: Path) -> list[Path]:
    return sorted((path / "held").iterdir())


def test_it_is_there_after_a_kill_as_it_was(store: RocksStore, path: Path) -> None:
    keep(store)
    keep(store, SnapshotRecord("not held", 2.0, held=False))
    put(store, (3, "c"))
    assert rows_of(store) == [(1, "a"), (2, "b")]
    store.table("t").add_index((1,))
    again = RocksStore(as_a_kill_leaves_it(path))
    try:
        assert again.snapshots() == {HELD.name: HELD}
        put(again, (4, "d"))
        assert rows_of(again) == [(1, "a"), (2, "b")]
        kept = again.snapshot(HELD.name)
        assert kept.position("t") == 1
        assert kept.table("t").find((1,), ("b",)) == [((2, "b"), 1)], "an index that came later is not asked for"
        assert kept.table("t").row_count == 2
        again.drop_snapshot(HELD.name)
        assert not directories(again._database.path)
        with pytest.raises(SnapshotGone):
            again.snapshot(HELD.name)
    finally:
        again.close()


def test_what_nobody_was_told_of_is_not(store: RocksStore, path: Path) -> None:
    store.keep_snapshot(HELD)
    assert not store.snapshots()
    with pytest.raises(SnapshotGone):
        store.snapshot(HELD.name)
    again = RocksStore(as_a_kill_leaves_it(path))
    try:
        assert not again.snapshots()
        assert not directories(again._database.path), "what is left of it takes no room"
        keep(again)
        assert rows_of(again) == [(1, "a"), (2, "b")]
    finally:
        again.close()


def test_steps_that_it_shows_are_not_lost_with_the_log(store: RocksStore, path: Path) -> None:
    """Nobody has synced the log: a machine that loses it has them in the files that both have."""
    keep(store)
    copy = as_a_kill_leaves_it(path)
    for log in copy.glob("*.log"):
        log.write_bytes(b"")
    again = RocksStore(copy)
    try:
        assert [row for row, _ in again.table("t").find((), ())] == rows_of(again)
    finally:
        again.close()


def test_it_can_be_taken_anew_under_its_name_once_it_is_dropped(store: RocksStore) -> None:
    keep(store)
    assert rows_of(store) == [(1, "a"), (2, "b")]
    store.drop_snapshot(HELD.name)
    put(store, (3, "c"))
    keep(store)
    assert rows_of(store) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("what", ["record", "CURRENT", "file"])
def test_damage_is_named(store: RocksStore, path: Path, what: str) -> None:
    keep(store)
    copy = as_a_kill_leaves_it(path)
    (kept,) = directories(copy)
    damaged = {"record": kept / "held", "CURRENT": kept / "CURRENT", "file": next(kept.glob("*.sst"))}[what]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 1
    damaged.unlink()  # It is a link: the copy's own file is not to be damaged.
    damaged.write_bytes(content)
    again = RocksStore(copy)
    try:
        if what == "record":
            assert not again.snapshots()
            assert any(str(kept) in alarm["error"] for alarm in again.alarms())
        else:
            with pytest.raises(StorageFailure, match=str(kept)):
                rows_of(again)
            again.drop_snapshot(HELD.name)
        assert len(again.table("t").find((), ())) == 2
    finally:
        again.close()


def test_a_disk_without_room_keeps_nothing_and_goes_on(store: RocksStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store._database, "reserve", 2**62)
    monkeypatch.setattr("worker.rocks.database.ROOM_SECONDS", 0.0)
    with pytest.raises(StorageFailure, match="free"):
        store.keep_snapshot(HELD)
    monkeypatch.setattr(store._database, "reserve", 0)
    put(store, (3, "c"))
    keep(store)
    assert len(rows_of(store)) == 3
