"""The record of what was acknowledged is synced behind the answer, and a power cut leaves one that is whole."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

from domains.errors import StorageFailure
from domains.language.types import BIGINT, TableColumn, TableSchema
from worker.rocks import RocksStore, acknowledged
from worker.rocks.acknowledged import FILE, AcknowledgedRecord

SECTOR = 512


class Disk:
    """What a power cut leaves of the file: all that a sync has covered, and of later writes any of their sectors."""

    def __init__(self, path: Path, choice: random.Random) -> None:
        self.durable = bytearray(path.read_bytes())
        self.written: list[tuple[int, bytes]] = []
        self._choice = choice
        self._pwrite = os.pwrite

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        self.written.append((offset, data))
        return self._pwrite(descriptor, data, offset)

    def sync(self, meanwhile: Callable[[], None]) -> None:
        covered = len(self.written)
        meanwhile()
        for offset, data in self.written[:covered]:
            self.durable[offset : offset + len(data)] = data
        del self.written[:covered]

    def after_a_power_cut(self) -> bytes:
        left = bytearray(self.durable)
        for offset, data in self.written:
            for at in range(0, len(data), SECTOR):
                if self._choice.random() < 0.5:
                    sector = data[at : at + SECTOR]
                    left[offset + at : offset + at + len(sector)] = sector
        return bytes(left)


def test_a_power_cut_leaves_a_record_that_was_synced_or_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    choice = random.Random(seed)
    monkeypatch.setattr(acknowledged, "SYNC_SECONDS", 3600.0)
    for name in ("live", "cut"):
        (tmp_path / name).mkdir()
    record = AcknowledgedRecord.make(tmp_path / "live")
    disk = Disk(tmp_path / "live" / FILE, choice)
    monkeypatch.setattr("worker.rocks.acknowledged.os.pwrite", disk.pwrite)
    written = synced = 0

    def write() -> None:
        nonlocal written
        written += 1
        # Of several sectors, so that it can be torn.
        positions = {f"table {number}": written for number in range(choice.randrange(90))}
        record.write(record.prepare(lambda: written, positions))

    def cut() -> None:
        (tmp_path / "cut" / FILE).write_bytes(disk.after_a_power_cut())
        left = AcknowledgedRecord(tmp_path / "cut")
        assert synced <= left.last.sequence <= written
        left.close()

    def meanwhile() -> None:
        for _ in range(choice.randrange(5)):
            write()
            cut()

    def sync(descriptor: int) -> None:
        if descriptor == record._descriptor:  # And not of one that is opened after a cut.
            disk.sync(meanwhile)

    monkeypatch.setattr(acknowledged, "_sync", sync)
    for _ in range(60):
        for _ in range(choice.randrange(5)):
            write()
        cut()
        before = written
        record.sync()
        synced = before
        cut()
    record.close()


VOTES = TableSchema("votes", (TableColumn("id", BIGINT, nullable=False),), primary_key=(0,))


def write(store: RocksStore, step: int) -> None:
    rows = [((step,), 1)]
    store.table("votes").stage(rows)
    store.commit([("votes", step, rows)])


def test_no_sync_of_the_record_is_waited_for_and_one_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs: list[int] = []
    monkeypatch.setattr(acknowledged, "_sync", syncs.append)
    monkeypatch.setattr(acknowledged, "SYNC_SECONDS", 0.05)
    store = RocksStore(tmp_path / "base")
    store.create_table(VOTES)
    opened = len(syncs)
    for step in range(1, 21):
        write(store, step)
        store.sync()
    until = time.monotonic() + 10
    while len(syncs) == opened:
        assert time.monotonic() < until, "the record was never synced"
        time.sleep(0.01)
    assert len(syncs) - opened < 20
    store.close()
    assert AcknowledgedRecord(tmp_path / "base").last.positions == {"votes": 20}


def test_a_record_that_cannot_be_synced_ends_the_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = RocksStore(tmp_path / "base")
    store.create_table(VOTES)

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(acknowledged, "_sync", fails)
    monkeypatch.setattr(acknowledged, "SYNC_SECONDS", 0.0)
    until = time.monotonic() + 10
    for step in count(1):
        assert time.monotonic() < until, "nobody has heard of it"
        try:
            write(store, step)
            store.sync()
        except StorageFailure:
            break
    assert store.failure is not None
    store.close()


def test_a_store_that_is_closed_again_closes_nothing_of_others(tmp_path: Path) -> None:
    """The number of its descriptor may be that of a connection by then."""
    store = RocksStore(tmp_path / "base")
    store.close()
    others = [os.open(tmp_path / f"other{number}", os.O_CREAT | os.O_RDWR) for number in range(50)]
    try:
        store.close()
        for each in others:
            assert os.write(each, b"mine") == 4
            assert os.fstat(each).st_size == 4
    finally:
        for each in others:
            os.close(each)


def test_closing_while_the_thread_is_about_to_sync_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had waited long enough when closing was asked for, and its sync took back what was to wake it again."""
    record = AcknowledgedRecord.make(tmp_path)
    waits, goes = Event(), Event()

    class Late(Event):
        def wait(self, timeout: float | None = None) -> bool:
            if waits.is_set():
                return super().wait(timeout)
            waits.set()
            goes.wait(60)
            return False

    monkeypatch.setattr(record, "_closing", Late())
    record.write(record.prepare(lambda: 1, {"t": 1}))
    assert waits.wait(60)
    closing = Thread(target=record.close, daemon=True)
    closing.start()
    while not record._closing.is_set() or not record._unsynced.is_set():
        time.sleep(0.001)
    goes.set()
    closing.join(60)
    assert not closing.is_alive()
