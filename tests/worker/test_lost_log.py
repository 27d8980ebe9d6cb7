"""What was acknowledged is there after a restart, or is named as gone before any file is changed."""

from __future__ import annotations

import hashlib
import marshal
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from domains.errors import StorageFailure
from domains.language.types import BIGINT, TableColumn, TableSchema
from worker.rocks import RocksStore, layout
from worker.rocks.acknowledged import FILE, SLOT, SLOTS, TABLES, Acknowledged, AcknowledgedRecord
from worker.rocks.opening import acknowledge_losses, losses

VOTES = TableSchema("votes", (TableColumn("id", BIGINT, nullable=False),), primary_key=(0,))
STEPS = 40


def write(store: RocksStore, step: int) -> None:
    rows = [((step,), 1)]
    store.table("votes").stage(rows)
    store.commit([("votes", step, rows)])


def crashed(tmp_path: Path, *, unsynced: int = 0) -> tuple[Path, int]:
    """A copy of a store that is open, as kill -9 leaves it, and how much of its log was synced."""
    store = RocksStore(tmp_path / "live" / "base")
    store.create_table(VOTES)
    for step in range(1, STEPS + 1):
        write(store, step)
        store.sync()
    (log,) = (tmp_path / "live" / "base").glob("*.log")
    synced = log.stat().st_size
    for step in range(STEPS + 1, STEPS + 1 + unsynced):
        write(store, step)
    shutil.copytree(tmp_path / "live", tmp_path / "data")
    store.close()
    return tmp_path / "data" / "base", synced


def the_log(base: Path) -> Path:
    (log,) = base.glob("*.log")
    return log


def contents(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}


def invert(path: Path, at: int, count: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + count] = bytes(each ^ 0xFF for each in data[at : at + count])
    path.write_bytes(data)


def refused(base: Path, message: str) -> None:
    before = contents(base)
    with pytest.raises(StorageFailure, match=message):
        RocksStore(base)
    assert contents(base) == before


DAMAGES: list[Callable[[Path], None]] = [
    lambda base: invert(the_log(base), the_log(base).stat().st_size * 3 // 10, 4),
    lambda base: the_log(base).write_bytes(the_log(base).read_bytes()[: the_log(base).stat().st_size // 2]),
    lambda base: invert(the_log(base), the_log(base).stat().st_size - 1),
    lambda base: the_log(base).unlink(),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=["inverted", "cut", "last byte", "deleted"])
def test_a_damaged_log_is_refused_by_name_and_nothing_is_changed(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    base, _ = crashed(tmp_path)
    damage(base)
    refused(base, r'missing are [0-9]+ of table "votes" \(positions [0-9]+ to 40\)')


def test_inverted_bytes_of_what_was_synced_are_refused(tmp_path: Path) -> None:
    base, synced = crashed(tmp_path, unsynced=1)
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    for at in random.Random(seed).sample(range(synced), 60):
        invert(the_log(base), at)
        refused(base, "votes|cannot be reached|damaged or missing")
        invert(the_log(base), at)
    store = RocksStore(base)
    assert store.position("votes") == STEPS + 1
    store.close()


TAILS: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda _: b"",
    "garbled": lambda tail: bytes(each ^ 0x5A for each in tail),
    "zeros": lambda tail: bytes(len(tail)),
    "made larger": lambda _: bytes(2**17),
    "later blocks came first": lambda _: bytes(2**15) + b"later" * 2**13,
}
"""What a crash leaves of what was not synced, from some byte on."""


@pytest.mark.parametrize("how", TAILS)
def test_a_tail_that_was_not_synced_may_be_torn_at_every_byte(tmp_path: Path, how: str) -> None:
    base, synced = crashed(tmp_path, unsynced=1)
    whole = the_log(base).read_bytes()
    assert len(whole) > synced + 50
    for at in range(synced, len(whole), 1 if how in ("cut", "garbled") else 5):
        copy = tmp_path / f"at {at}" / "base"
        shutil.copytree(base, copy)
        left = whole[:at] + TAILS[how](whole[at:])
        the_log(copy).write_bytes(left)
        steps = STEPS + left.startswith(whole)  # Its last bytes may be zeros.
        store = RocksStore(copy)
        assert store.position("votes") == steps
        assert len(store.table("votes").find((), ())) == steps
        store.close()
        shutil.rmtree(copy.parent)


def test_who_accepts_a_loss_has_an_alarm_and_the_damaged_log(tmp_path: Path) -> None:
    base, _ = crashed(tmp_path)
    log = the_log(base)
    invert(log, log.stat().st_size * 3 // 10, 4)
    damaged = log.read_bytes()
    store = RocksStore(base, accept_loss=True)
    assert store.loss is not None
    first, last = store.loss.positions["votes"]
    assert last == STEPS
    assert sorted(store.table("votes").find((), ())) == [((step,), 1) for step in range(1, first)]
    # No position is given twice, and the log does not go on from an archive that has what is lost.
    assert store.position("votes") == STEPS + 2
    assert [sequence for sequence, _ in store.log("votes", 0, 100)] == [STEPS + 2]
    store.close()
    (aside,) = base.parent.glob("base.damaged-*")
    assert (aside / log.name).read_bytes() == damaged
    RocksStore(base).close()
    assert [str(aside) in each and '"votes"' in each for each in losses(base)] == [True]
    assert len(acknowledge_losses(base)) == 1
    assert losses(base) == []


def test_a_directory_of_before_the_record_opens_and_gets_one(tmp_path: Path) -> None:
    base, _ = crashed(tmp_path)
    store = RocksStore(base)
    store._database.write({layout.STORE_KEY: marshal.dumps((1, 2), 2)})
    store.close()
    (base / FILE).unlink()
    store = RocksStore(base)
    assert store.position("votes") == STEPS
    store.close()
    assert (base / FILE).exists()
    (base / FILE).unlink()
    refused(base, "the record of what was acknowledged.*is missing")


def test_any_slot_of_the_record_may_be_torn_and_not_all(tmp_path: Path) -> None:
    base, _ = crashed(tmp_path)
    whole = (base / FILE).read_bytes()
    for slot in range(SLOTS):
        invert(base / FILE, slot * SLOT + 40)
        store = RocksStore(base)
        assert store.position("votes") == STEPS
        store.close()
        (base / FILE).write_bytes(whole)
    for slot in range(SLOTS):
        invert(base / FILE, slot * SLOT + 40)
    refused(base, "is damaged")


def test_a_database_without_current_is_not_begun_anew(tmp_path: Path) -> None:
    base, _ = crashed(tmp_path)
    (base / "CURRENT").unlink()
    refused(base, 'has lost its file "CURRENT"')


def test_a_store_that_is_in_use_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "base")
    store.create_table(VOTES)
    with pytest.raises(StorageFailure, match="in use by another process"):
        RocksStore(tmp_path / "base")
    write(store, 1)
    store.sync()
    store.close()
    for number in range(2, 6):  # The record is as far as the files after each way of ending.
        store = RocksStore(tmp_path / "base")
        write(store, number)
        if number % 2:
            store.flush()
        store.close()
    again = RocksStore(tmp_path / "base")
    assert again.position("votes") == 5
    again.close()


@pytest.mark.parametrize("tables", ["kept", "deleted"])
def test_a_loss_is_named_by_table_however_many_there_are(tmp_path: Path, tables: str) -> None:
    """A slot has room for some 600 such names: what is behind them was noticed and named by no table."""
    names = [f"{number:03}_{'x' * 120}" for number in range(700)]
    store = RocksStore(tmp_path / "live" / "base")
    for name in names:
        store.create_table(replace(VOTES, name=name))
        store.commit([(name, 1, [])])
    store.sync()
    store.flush()
    written = [store._record._number]
    for step, name in enumerate((*names[:3], names[-1], names[1]), 2):
        store.commit([(name, step, [])])
        store.drop_table(names[5]) if step == 3 else None
        store.sync()
    assert store._record._number == written[0] + 5
    assert len(store._record._changes(store._record.last)) < 2000, "what a sync writes does not grow with the tables"
    shutil.copytree(tmp_path / "live", tmp_path / "data")
    store.close()
    base = tmp_path / "data" / "base"
    the_log(base).unlink()
    if tables == "deleted":
        (base / TABLES).unlink()
    refused(base, "missing are")
    store = RocksStore(base, accept_loss=True)
    assert store.loss is not None
    assert store.loss.positions == {names[0]: (2, 2), names[1]: (2, 6), names[2]: (2, 4), names[-1]: (2, 5)}
    store.close()
    RocksStore(base).close()


def test_tables_that_a_slot_has_no_room_for_are_known_after_each_crash(tmp_path: Path) -> None:
    """Between the file of tables and the slot, and after so many changes that the file is written anew."""
    (tmp_path / "record").mkdir()
    record = AcknowledgedRecord.make(tmp_path / "record")
    names = [f"{number:03}_{'x' * 120}" for number in range(1_500)]
    positions = dict.fromkeys(names[:3], 1)
    for sequence in range(1, 8):
        positions = {**positions, **dict.fromkeys(names[(sequence - 1) * 200 : sequence * 200], sequence)}
        positions.pop(names[sequence])
        before = [path.read_bytes() for path in (record.path, record.path.with_name(TABLES)) if path.exists()]
        record.write(record.prepare(lambda: sequence, positions))  # noqa: B023
        record.close()
        record = AcknowledgedRecord(tmp_path / "record")
        assert record.last == Acknowledged(sequence, positions)
        if len(before) == 2 and record.path.with_name(TABLES).read_bytes() != before[1]:
            record.path.write_bytes(before[0])  # The slot was not written any more.
            record.close()
            record = AcknowledgedRecord(tmp_path / "record")
            assert record.last == Acknowledged(sequence, positions)
    record.close()
