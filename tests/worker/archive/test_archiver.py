"""The archiver beside a dataflow that serves: what it archives, what it trims, what it says when it cannot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archived_tables import BAG

from domains.archive.manifest import ArchiveError, ShardManifest
from domains.engine.domain import Domain
from domains.errors import StorageFailure
from domains.language.types import Row
from domains.plan.commands import CreateTable, DropTable
from domains.plan.graph import DomainIndex
from domains.plan.packets import Insert
from worker.archive import archiver as archiver_module
from worker.archive import compacting
from worker.archive.archiver import Archiver
from worker.archive.folding import fold
from worker.archive.manifests import load_manifest
from worker.archive.options import ArchiveOptions
from worker.archive.place import Place
from worker.archive.shard import ShardArchive
from worker.dataflow.thread import DataflowThread
from worker.embedded import open_embedded
from worker.rocks.cut import TableCut
from worker.rocks.store import RocksStore
from worker.service.archiving import start_archiver

BASE = DomainIndex(0)
WAIT = 30.0


class Running:
    """A dataflow with table "t", and its archiver."""

    def __init__(self, path: Path, url: str, **options: Any) -> None:
        self.options = ArchiveOptions(url, **{"interval": 3600.0, **options})
        self.dataflow = open_embedded(path, groups=1, memory_limit=2**30)
        self.dataflow.start()
        self.now = 1_000_000.0
        self.archiver = Archiver(self.dataflow, self.options, clock=lambda: self.now)
        self.place = Place(url)

    @property
    def store(self) -> RocksStore:
        store = self.dataflow.stores[BASE]
        assert isinstance(store, RocksStore)
        return store

    def create(self) -> None:
        self.dataflow.command(BASE, CreateTable(BAG)).result(WAIT)

    def write(self, *numbers: int) -> None:
        written = [self.dataflow.write(BASE, Insert("t", (row(number),))) for number in numbers]
        for future in written:
            future.result(WAIT)

    def log(self) -> list[int]:
        log: list[int] = self.dataflow.call(lambda: [at for at, _ in self.store.log("t", 0, 10_000)]).result(WAIT)
        return log

    def manifest(self) -> ShardManifest:
        found = load_manifest(self.place, "t", 0)
        assert found is not None
        return found

    def archived(self) -> dict[Row, int]:
        manifest = self.manifest()
        return {row: weight for part in fold(self.place, manifest, manifest.position) for row, weight in part}

    def archive(self, **asked: Any) -> dict[str, int]:
        return self.archiver.archive_now(**asked).result(WAIT).positions

    def close(self) -> None:
        self.archiver.close()
        self.dataflow.close()


def row(number: int) -> Row:
    return (number, "a", None, None)


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(archiver_module, "LOG_TAIL", 2)
    made = Running(tmp_path / "data", str(tmp_path / "archive"))
    made.create()
    made.archiver.start()
    yield made
    made.close()


def test_what_was_written_is_archived_and_then_trimmed_but_for_a_tail(running: Running) -> None:
    running.write(*range(10))
    assert running.archive() == {"t": 10}
    assert running.archived() == {row(number): 1 for number in range(10)}
    assert running.log() == [9, 10]
    running.write(10)
    assert running.archive() == {"t": 11}
    assert running.log() == [10, 11]
    status = running.archiver.status()
    assert status["alarms"] == []
    assert status["shards"]["t"]["position"] == 11
    assert status["shards"]["t"]["rows"] == 11


def test_it_archives_by_itself_at_every_interval(tmp_path: Path) -> None:
    running = Running(tmp_path / "data", str(tmp_path / "archive"), interval=0.05)
    running.create()
    running.archiver.start()
    for number in range(3):
        running.write(number)
        wanted = number + 1
        eventually(lambda wanted=wanted: running.place.size("table=t/shard=0/manifest.json") is not None)
        eventually(lambda wanted=wanted: running.manifest().position == wanted)
    running.close()


def test_writes_go_on_while_it_archives(running: Running) -> None:
    stop = threading.Event()
    written = [0]

    def load() -> None:
        while not stop.is_set():
            running.write(written[0])
            written[0] += 1

    loading = threading.Thread(target=load)
    loading.start()
    positions = [running.archive()["t"] for _ in range(5)]
    stop.set()
    loading.join(WAIT)
    assert positions == sorted(positions)
    assert running.archive() == {"t": written[0]}
    assert running.archived() == {row(number): 1 for number in range(written[0])}


def test_a_hold_keeps_the_log_after_its_positions(running: Running) -> None:
    running.write(*range(5))
    assert running.archive(hold="bulk") == {"t": 5}
    running.write(*range(5, 12))
    running.archive()
    assert running.log() == list(range(6, 13)), "of what is before, nothing is kept"
    running.archiver.release("bulk")
    running.archive()
    assert running.log() == [11, 12]


def test_a_hold_ends_with_the_leader_for_whom_it_was(running: Running) -> None:
    running.dataflow.hosted.epoch = 3
    running.write(*range(5))
    running.archive(hold="bulk", epoch=3)
    running.write(*range(5, 12))
    running.dataflow.hosted.epoch = 4
    running.archive()
    assert running.log() == [11, 12]


def test_a_log_that_a_replay_needs_is_not_trimmed_though_nothing_holds_it(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed: list[int | None] = [3]
    monkeypatch.setattr(Domain, "log_needed", lambda self, table: needed[0])
    running.write(*range(10))
    running.archive()
    assert running.log() == list(range(4, 11))
    needed[0] = None
    running.archive()
    assert running.log()[0] > 4


def test_what_cannot_be_archived_is_an_alarm_and_loses_nothing(tmp_path: Path, running: Running) -> None:
    shard = tmp_path / "archive" / "table=t" / "shard=0"
    running.write(*range(5))
    running.archive()
    saved = (shard / "manifest.json").read_bytes()
    (shard / "manifest.json").write_text("damaged")
    running.write(*range(5, 10))
    running.archiver.archives.clear()
    for times in (1, 2):
        with pytest.raises(ArchiveError, match=r"manifest\.json"):
            running.archive(hold="bulk")
        (alarm,) = running.archiver.status()["alarms"]
        assert (alarm["of"], alarm["times"]) == ("t", times)
        assert "manifest.json" in alarm["error"]
    assert running.archiver.status()["holds"] == {}, "who was told of a failure holds nothing"
    assert running.log() == list(range(4, 11)), "nothing that is not archived is trimmed"
    running.write(10)
    (shard / "manifest.json").write_bytes(saved)
    assert running.archive() == {"t": 11}
    assert running.archiver.status()["alarms"] == []
    assert running.archived() == {row(number): 1 for number in range(11)}


def test_a_place_that_cannot_be_used_is_tried_again_by_itself(tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("a file, and no directory")
    running = Running(tmp_path / "data", str(tmp_path / "archive"), interval=0.05)
    running.create()
    running.archiver.start()
    running.write(1)
    eventually(lambda: len(running.archiver.status()["alarms"]) > 0)
    running.write(2)
    assert running.log() == [1, 2]
    (tmp_path / "archive").unlink()
    eventually(lambda: running.archiver.status()["alarms"] == [])
    eventually(lambda: running.manifest().position == 2)
    running.close()


def test_a_row_that_no_segment_can_hold_is_an_alarm_of_its_table_and_keeps_no_other(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.dataflow.command(BASE, CreateTable(replace(BAG, name="u"))).result(WAIT)
    running.write(1)
    running.dataflow.write(BASE, Insert("u", (row(1),))).result(WAIT)
    append = ShardArchive.append

    def failing(self: ShardArchive, cut: TableCut, *rest: Any, **more: Any) -> None:
        if cut.schema.name == "t":
            raise OverflowError("value too large")
        append(self, cut, *rest, **more)

    monkeypatch.setattr(ShardArchive, "append", failing)
    with pytest.raises(StorageFailure, match="OverflowError: value too large"):
        running.archive()
    (alarm,) = running.archiver.status()["alarms"]
    assert alarm["of"] == "t"
    found = load_manifest(running.place, "u", 0)
    assert found is not None
    assert found.position == 1
    monkeypatch.undo()
    assert running.archive() == {"t": 1, "u": 1}
    assert running.archiver.status()["alarms"] == []


def test_a_pass_that_breaks_in_an_unforeseen_way_is_an_alarm(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(Archiver, "_forget_others", broken)
    with pytest.raises(StorageFailure, match="ZeroDivisionError"):
        running.archive(hold="bulk")
    (alarm,) = running.archiver.status()["alarms"]
    assert alarm["of"] == "archive"
    assert running.archiver.status()["holds"] == {}
    monkeypatch.undo()
    running.archive()
    assert running.archiver.status()["alarms"] == []


def test_a_damaged_table_does_not_keep_others_from_being_archived(tmp_path: Path, running: Running) -> None:

    running.dataflow.command(BASE, CreateTable(replace(BAG, name="u"))).result(WAIT)
    running.write(1)
    running.dataflow.write(BASE, Insert("u", (row(1),))).result(WAIT)
    damaged = tmp_path / "archive" / "table=t" / "shard=0" / "manifest.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("damaged")
    with pytest.raises(ArchiveError):
        running.archive()
    found = load_manifest(running.place, "u", 0)
    assert found is not None
    assert found.position == 1
    running.dataflow.command(BASE, DropTable("t")).result(WAIT)
    assert running.archive() == {"u": 1}
    assert running.archiver.status()["alarms"] == [], "a table that is gone is nobody's trouble"


def test_old_segments_are_folded_by_a_process_beside_it(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "COMPACT_SEGMENTS", 3)
    for number in range(5):
        running.write(number)
        running.archive()
        running.now += 60
    assert [each.kind for each in running.manifest().segments] == ["log"] * 5
    running.now += running.options.retention - 120.5
    running.archive()
    assert running.archiver.status()["compacting"] == "t"

    def folded() -> bool:
        running.archive()
        return running.archiver.status()["compacting"] is None

    eventually(folded)
    kinds = [(each.kind, each.last) for each in running.manifest().segments]
    assert kinds == [("log", 4), ("log", 5), ("snapshot", 3)], "what is old enough is folded, and let go"
    assert running.archived() == {row(number): 1 for number in range(5)}
    files = len(running.place.files("table=t/shard=0"))
    running.now += 601
    running.archive()
    assert len(running.place.files("table=t/shard=0")) == files - 3, "the files go some time later"
    assert running.archived() == {row(number): 1 for number in range(5)}


def test_a_compaction_that_fails_is_an_alarm(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "COMPACT_SEGMENTS", 1)
    running.write(1)
    running.archive()
    Path(running.place.at(running.manifest().segments[0].file)).unlink()
    running.now += 2 * running.options.retention

    def failed() -> bool:
        running.archive()
        return any(alarm["of"] == "compaction" for alarm in running.archiver.status()["alarms"])

    eventually(failed)
    assert "is missing" in running.archiver.status()["alarms"][0]["error"]


def test_closing_breaks_off_what_is_under_way(tmp_path: Path) -> None:
    running = Running(tmp_path / "data", str(tmp_path / "archive"))
    running.create()
    for first in range(0, 3000, 100):
        running.write(*range(first, first + 100))
    answer: Future[Any] = running.archiver.archive_now()
    running.archiver.start()
    running.archiver.close()
    try:
        assert answer.result(WAIT).positions == {"t": 3000}
    except StorageFailure:
        assert running.log()[-1] == 3000
    with pytest.raises(StorageFailure, match="stopping"):
        running.archiver.archive_now()
    running.close()
    again = Running(tmp_path / "data", str(tmp_path / "archive"))
    again.archiver.start()
    assert again.archive() == {"t": 3000}
    assert len(again.archived()) == 3000
    again.close()


def test_without_a_url_there_is_no_archiver(tmp_path: Path) -> None:
    dataflow = DataflowThread(tmp_path / "readers", memory_limit=2**30)
    assert start_archiver(dataflow, None) is None
    dataflow.close()
