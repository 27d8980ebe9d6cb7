"""What is left of a store after a restart, a kill -9, a full disk, a second process or a broken file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from domains.errors import StorageFailure
from domains.language.types import BIGINT, TEXT, TableColumn, TableSchema, decimal_type
from worker.rocks import RocksStore, database
from worker.rocks.database import (
    BLOCK_CACHE_BYTES,
    INTENDED,
    WRITE_BUFFER_BYTES,
    WRITE_BUFFERS,
    Change,
    Database,
)

ROOT = Path(__file__).parents[2]

BAG = TableSchema("bag", (TableColumn("step", BIGINT), TableColumn("text", TEXT)), indexes=((0,),))
KEYED = TableSchema(
    "keyed",
    (
        TableColumn("id", BIGINT, nullable=False, auto_increment=True),
        TableColumn("price", decimal_type(2), default=Decimal("0.10"), has_default=True),
    ),
    primary_key=(0,),
    unique=((1,),),
)

WRITER = """
import sys
sys.path.insert(0, {root!r})
sys.path.insert(0, {here!r})
from test_rocks_durability import write_steps
write_steps({path!r}, {limit!r})
"""


def write_steps(path: str, file_limit: int | None) -> None:
    """In a process of its own: steps of ten rows in two tables; prints a step's number once it is synced."""
    if file_limit is not None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, resource.RLIM_INFINITY))
    store = RocksStore(path)
    for schema in (BAG, KEYED):
        if schema not in store.tables():
            store.create_table(schema)
    bag, keyed = store.table("bag"), store.table("keyed")
    step = store.position("bag")
    while True:
        step += 1
        rows = [((step, f"{step} {i} " + "x" * (200 * (i % 2))), 1) for i in range(10)]
        bag.stage(rows)
        keyed.stage([((keyed.next_auto_increment(1), None), 1)])
        if step > 3:
            bag.stage([((step - 3, text), -1) for (_, text), _ in bag_rows(step - 3)])
        try:
            store.commit([("bag", step, rows), ("keyed", step, [])])
            store.sync()
        except StorageFailure as failure:
            print("failed", failure.message, flush=True)
            after_failure(store, step)
            return
        print(step, flush=True)


def bag_rows(step: int) -> list[tuple[tuple[int, str], int]]:
    return [((step, f"{step} {i} " + "x" * (200 * (i % 2))), 1) for i in range(10)]


def after_failure(store: RocksStore, step: int) -> None:
    """The failed step is rolled back, look-ups go on, writes are refused."""
    assert store.position("bag") == step - 1
    assert len(store.table("bag").find((0,), (step - 1,))) == 10
    assert store.table("bag").find((0,), (step,)) == []
    store.table("bag").stage([((-1, "refused"), 1)])
    with pytest.raises(StorageFailure, match="takes no writes"):
        store.commit([])
    assert store.table("bag").find((0,), (-1,)) == []
    print("refused", flush=True)


def start_writer(path: Path, limit: int | None = None) -> subprocess.Popen[str]:
    code = WRITER.format(root=str(ROOT), here=str(Path(__file__).parent), path=str(path), limit=limit)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def check_whole_steps(store: RocksStore, at_least: int) -> None:
    """Every step up to the position is there as a whole, none beyond it, and what was told is among them."""
    bag, last = store.table("bag"), store.position("bag")
    assert last >= at_least
    live = [row for step in range(max(1, last - 2), last + 1) for row in bag_rows(step)]
    assert sorted(bag.find((), ())) == sorted(live)
    for step in range(max(1, last - 4), last + 2):
        assert sorted(bag.find((0,), (step,))) == [delta for delta in sorted(live) if delta[0][0] == step]
    assert bag.row_count == len(live)
    assert store.position("keyed") == store.table("keyed").row_count == last
    assert [sequence for sequence, _ in store.log("bag", 0, last + 10)] == list(range(1, last + 1))
    assert store.table("keyed").next_auto_increment(1) == last + 1
    store.rollback()


def test_a_long_write_is_whole_or_absent_wherever_it_breaks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "AT_ONCE", 30)
    monkeypatch.setattr(database, "PART", 12)
    store = RocksStore(tmp_path / "store")
    store.create_table(BAG)
    write_long_step(store, 1, {})
    left: list[Path] = []
    write = Database._write

    def broken_off(self: Database, changes: Iterable[Change], *ranges: Sequence[tuple[bytes, bytes]]) -> None:
        write(self, changes, *ranges)
        left.append(Path(shutil.copytree(tmp_path / "store", tmp_path / f"{len(left)}")))

    monkeypatch.setattr(Database, "_write", broken_off)
    write_long_step(store, 2, {1: 10})
    monkeypatch.undo()
    store.close()
    reached = []
    for path in left:
        opened = RocksStore(path)
        reached.append(opened.position("bag"))
        expected = {2: 40, 1: 30} if reached[-1] == 2 else {1: 40}
        assert {step: len(opened.table("bag").find((0,), (step,))) for step in expected} == expected
        assert len(opened.table("bag").find((), ())) == opened.table("bag").row_count == sum(expected.values())
        assert len(opened.log("bag", 0, 10)) == reached[-1]
        opened.close()
        assert not Database(path, create=False, read_only=True).items(INTENDED, INTENDED + b"\xff")
    assert len(reached) > 15
    assert reached == sorted(reached)
    assert set(reached) == {1, 2}


def write_long_step(store: RocksStore, step: int, gone: dict[int, int]) -> None:
    rows = [((step, f"{number}"), 1) for number in range(40)]
    rows += [((old, f"{number}"), -1) for old, count in gone.items() for number in range(count)]
    store.table("bag").stage(rows)
    store.commit([("bag", step, rows)])
    store.sync()


def test_synced_steps_survive_kill_9_as_whole_steps(tmp_path: Path) -> None:
    told = 0
    for round_ in range(4):
        with start_writer(tmp_path) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                told = int(line)
                if told % 37 == 36 - round_:
                    break
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split()
        # A step whose number was printed after the line that was read last is told as well.
        told = max([told, *(int(number) for number in rest if number.isdigit() and int(number) > told)])
        store = RocksStore(tmp_path, create=False)
        check_whole_steps(store, told)
        store.close()


def test_a_full_disk_rolls_the_step_back_and_refuses_writes(tmp_path: Path) -> None:
    # A limit on the size of a file is what a test can have of a full disk: the same write fails.
    with start_writer(tmp_path, limit=1_000_000) as writer:
        assert writer.stdout is not None
        lines = writer.stdout.read().splitlines()
    assert lines[-1] == "refused"
    assert lines[-2].startswith("failed cannot write")
    store = RocksStore(tmp_path, create=False)
    check_whole_steps(store, int(lines[-3]))
    assert store.position("bag") <= int(lines[-3]) + 1
    store.table("bag").stage([((0, "room again"), 1)])
    store.commit([])
    store.close()


def test_a_restart_keeps_schemas_counters_and_half_built_indexes(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.create_table(KEYED)
    store.create_table(BAG)
    wider = TableSchema(
        "bag", (*BAG.columns, TableColumn("more", TEXT, default="m", has_default=True)), (), (), ((0,),)
    )
    store.table("bag").stage(bag_rows(1))
    store.table("keyed").stage([((1, Decimal("2.50")), 1)])
    store.table("keyed").raise_auto_increment(41)
    store.commit([("bag", 7, bag_rows(1))])
    store.alter_table(wider)
    store.table("bag").add_index((1,))
    cursor = store.table("bag").build_index((1,), None, 3)
    assert cursor is not None
    store.table("bag").stage([((9, "never committed", "m"), 1)])
    store.close()

    store = RocksStore(tmp_path, create=False)
    assert store.tables() == [KEYED, wider]
    bag, keyed = store.table("bag"), store.table("keyed")
    assert (store.position("bag"), store.position("keyed")) == (7, 0)
    assert keyed.find((1,), (Decimal("2.50"),)) == [((1, Decimal("2.50")), 1)]
    assert keyed.next_auto_increment(1) == 42
    store.rollback()
    padded = [((*row, "m"), weight) for row, weight in bag_rows(1)]
    assert sorted(bag.find((0,), (1,))) == sorted(padded)
    assert not bag.has_index((1,))
    bag.add_index((1,))
    cursor = bag.build_index((1,), None, 100)
    assert cursor is None
    assert bag.find((1,), (padded[4][0][1],)) == [padded[4]]
    store.close()
    assert RocksStore(tmp_path).table("bag").has_index((1,))


def test_sync_runs_beside_commits(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    bag = store.create_table(BAG)
    stop, synced = threading.Event(), []

    def sync_all_the_time() -> None:
        while not stop.is_set():
            store.sync()
            synced.append(store.position("bag"))

    thread = threading.Thread(target=sync_all_the_time)
    thread.start()
    try:
        for step in range(1, 300):
            bag.stage(bag_rows(step))
            store.commit([("bag", step, bag_rows(step))])
    finally:
        stop.set()
        thread.join()
    assert synced == sorted(synced)
    assert bag.row_count == 2990
    memtables = store._database._db.property_int_value("rocksdb.cur-size-all-mem-tables")
    assert 0 < memtables <= WRITE_BUFFER_BYTES * WRITE_BUFFERS
    assert BLOCK_CACHE_BYTES + WRITE_BUFFER_BYTES * WRITE_BUFFERS <= 64 * 2**20
    store.close()


def test_a_flush_runs_beside_commits_and_a_close_waits_for_it(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    bag = store.create_table(BAG)
    for step in range(1, 200):
        bag.stage(bag_rows(step))
        store.commit([("bag", step, bag_rows(step))])
    flushes = [threading.Thread(target=store.flush) for _ in range(3)]
    for thread in flushes:
        thread.start()
    bag.stage(bag_rows(200))
    store.commit([("bag", 200, bag_rows(200))])
    for thread in flushes[1:]:
        thread.join()
    database = store._database._db
    assert database.property_int_value("rocksdb.num-entries-active-mem-table") <= 2 * len(bag_rows(200)) + 4
    rows = bag.row_count
    store.close()  # One may be under way still.
    flushes[0].join()
    assert RocksStore(tmp_path).table("bag").row_count == rows


def test_a_directory_that_was_there_has_the_cache_and_the_filters_of_a_new_one(tmp_path: Path) -> None:
    for _ in range(2):
        store = RocksStore(tmp_path)
        assert store._database._db.property_int_value("rocksdb.block-cache-capacity") == BLOCK_CACHE_BYTES
        newest = max(tmp_path.glob("OPTIONS-*"))
        assert "filter_policy=bloomfilter" in newest.read_text(), newest
        store.close()


def test_a_directory_has_one_user(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    with pytest.raises(StorageFailure, match="in use by another process"):
        RocksStore(tmp_path)
    code = f"from worker.rocks import RocksStore; RocksStore({str(tmp_path)!r})"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "is in use by another process" in other.stderr
    store.close()
    RocksStore(tmp_path).close()


def test_missing_and_corrupt_databases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="is missing: there were tables in it"):
        RocksStore(tmp_path / "nowhere", create=False)
    RocksStore(tmp_path / "base").close()
    for manifest in (tmp_path / "base").glob("MANIFEST-*"):
        manifest.write_bytes(os.urandom(500))
    with pytest.raises(StorageFailure, match="corrupt"):
        RocksStore(tmp_path / "base")


def test_a_step_that_comes_during_a_sync_has_one_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a sync after which nothing came is none."""
    store, syncs = RocksStore(tmp_path / "store"), 0
    table = store.create_table(BAG)
    sync = Database.sync

    def committing(database: Database) -> None:
        nonlocal syncs
        sync(database)
        syncs += 1
        if syncs == 1:
            step(2)

    def step(number: int) -> None:
        table.stage([((number, "x"), 1)])
        store.commit([("bag", number, [((number, "x"), 1)])])

    step(1)
    monkeypatch.setattr(Database, "sync", committing)
    for wanted in (1, 2, 2):
        store.sync()
        assert syncs == wanted
    monkeypatch.undo()
    store.close()
