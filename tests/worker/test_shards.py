"""Who may open a shard: the later incarnation, after whoever still holds it was killed; nobody else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from domains.archive.manifest import opened, sealed
from domains.errors import StorageFailure
from domains.language.types import BIGINT, TableColumn, TableSchema
from worker.service import shards
from worker.service.shards import Shard, machine, open_shard, read_owner, started_at

ROOT = Path(__file__).parents[2]
TABLE = TableSchema("t", (TableColumn("id", BIGINT, nullable=False),), primary_key=(0,))

HOLDER = """
import sys
sys.path.insert(0, {root!r})
sys.path.insert(0, {here!r})
from test_shards import hold
hold({data!r}, {incarnation!r})
"""


def write(shard: Shard, number: int) -> None:
    table = shard.store.table("t")
    table.stage([((number,), 1)])
    shard.store.commit([("t", shard.store.position("t") + 1, [((number,), 1)])])
    shard.store.sync()


def hold(data: str, incarnation: int) -> None:
    """In a process of its own: writes as fast as it can, and says what was synced."""
    shard = open_shard(Path(data), 3, "holder", incarnation)
    if not shard.store.tables():
        shard.store.create_table(TABLE)
    number = shard.store.position("t")
    while True:
        number += 1
        write(shard, number)
        print(number, flush=True)


@contextmanager
def holder(data: Path, incarnation: int) -> Iterator[subprocess.Popen[str]]:
    """A worker process that has the shard, and has written to it."""
    code = HOLDER.format(root=str(ROOT), here=str(Path(__file__).parent), data=str(data), incarnation=incarnation)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        yield process
    finally:
        process.kill()
        process.wait()


def stop(process: subprocess.Popen[str]) -> int:
    """Stop it as a debugger or a starved machine would; the last number that it said was synced."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    try:
        said = os.read(process.stdout.fileno(), 2**20)
    except BlockingIOError:
        said = b""
    return max((int(line) for line in said.split()), default=1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "OPEN_SECONDS", 0.05)


def test_a_stopped_process_that_holds_the_lock_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    with holder(tmp_path, 5) as process:
        synced = stop(process)
        shard = open_shard(tmp_path, 3, "heir", 6)
        assert process.wait(60) == -signal.SIGKILL
    rows = {row[0] for row, _ in shard.store.table("t").find((), ())}
    assert set(range(1, synced + 1)) <= rows
    assert shard.store.position("t") == len(rows)
    write(shard, len(rows) + 1)
    assert read_owner(shard.directory) == shards.this_process("heir", 6)
    shard.close()


def test_a_process_that_runs_is_killed_too_if_it_is_superseded(tmp_path: Path) -> None:
    with holder(tmp_path, 5) as process:
        shard = open_shard(tmp_path, 3, "heir", 6)
        assert process.wait(60) == -signal.SIGKILL
        shard.close()


@pytest.mark.parametrize("incarnation", [4, 5])
def test_who_is_not_later_kills_nobody(tmp_path: Path, quick: None, incarnation: int) -> None:
    with holder(tmp_path, 5) as process:
        with pytest.raises(StorageFailure, match="went on in incarnation 5" if incarnation < 5 else "in use"):
            open_shard(tmp_path, 3, "late", incarnation)
        assert process.poll() is None


def test_an_earlier_incarnation_does_not_open_it_again(tmp_path: Path) -> None:
    open_shard(tmp_path, 3, "a", 7).close()
    with pytest.raises(StorageFailure, match="went on in incarnation 7"):
        open_shard(tmp_path, 3, "b", 6)
    open_shard(tmp_path, 3, "a", 7).close()
    open_shard(tmp_path, 3, "b", 8).close()


def test_who_has_closed_it_is_never_killed(tmp_path: Path) -> None:
    open_shard(tmp_path, 3, "a", 7).close()
    owner = read_owner(tmp_path / "shards" / "0003")
    assert owner is not None
    assert not owner.is_alive
    assert owner.incarnation == 7


def test_another_machine_is_left_alone(tmp_path: Path, quick: None) -> None:
    with holder(tmp_path, 5) as process:
        path = tmp_path / "shards" / "0003" / "owner.json"
        path.write_text(json.dumps(sealed({**opened(json.loads(path.read_text())), "machine": "far away"})))
        with pytest.raises(StorageFailure, match="another machine") as raised:
            open_shard(tmp_path, 3, "heir", 6)
        assert process.poll() is None
        assert "stop that process" in (raised.value.hint or "")


def test_a_process_number_that_was_used_again_is_another_process(tmp_path: Path, quick: None) -> None:
    """The owner died, its number went to a process that has nothing to do with it, and a third one has the lock."""
    with holder(tmp_path, 5) as process, subprocess.Popen(["sleep", "60"]) as bystander:
        path = tmp_path / "shards" / "0003" / "owner.json"
        path.write_text(json.dumps(sealed({**opened(json.loads(path.read_text())), "pid": bystander.pid})))
        with pytest.raises(StorageFailure, match="in use"):
            open_shard(tmp_path, 3, "heir", 6)
        assert bystander.poll() is None
        assert process.poll() is None
        bystander.kill()


@pytest.mark.parametrize("contents", ["", "{", "[]", '{"pid": 1}', '{"incarnation": 1, "worker": "x"}'])
def test_an_owner_that_cannot_be_read_is_nobody(tmp_path: Path, quick: None, contents: str) -> None:
    with holder(tmp_path, 5) as process:
        path = tmp_path / "shards" / "0003" / "owner.json"
        path.write_text(contents)
        with pytest.raises(StorageFailure, match="in use"):
            open_shard(tmp_path, 3, "heir", 6)
        assert process.poll() is None
    open_shard(tmp_path, 3, "heir", 6).close()


def test_a_shard_that_is_being_closed_is_waited_for(tmp_path: Path) -> None:
    first = open_shard(tmp_path, 3, "a", 5)
    closing = threading.Timer(0.1, first.close)
    closing.start()
    open_shard(tmp_path, 3, "a", 6).close()
    closing.join()


def test_how_long_it_waits_is_limited(tmp_path: Path) -> None:
    first = open_shard(tmp_path, 3, "a", 5)
    passed = [0.0]
    with pytest.raises(StorageFailure, match="in use"):
        open_shard(tmp_path, 3, "a", 6, clock=lambda: passed[0], pause=lambda s: passed.__setitem__(0, passed[0] + s))
    assert shards.OPEN_SECONDS <= passed[0] < shards.OPEN_SECONDS + 1
    first.close()


def test_processes_are_told_apart() -> None:
    assert started_at(os.getpid()) == started_at(os.getpid())
    assert machine() == machine()
    with subprocess.Popen(["sleep", "60"]) as process:
        started = started_at(process.pid)
        assert started is not None
        process.kill()
        deadline = time.monotonic() + 60
        while started_at(process.pid) is not None and time.monotonic() < deadline:
            os.sched_yield()
        assert started_at(process.pid) is None


def test_a_shard_that_was_kept_here_is_not_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match=r"0003.*missing.*tables"):
        open_shard(tmp_path, 3, "a", 6, kept=True)
    assert list(tmp_path.iterdir()) == []
    open_shard(tmp_path, 3, "a", 7).close()
    open_shard(tmp_path, 3, "a", 8, kept=True).close()
    shutil.rmtree(tmp_path / "shards" / "0003" / "base")
    with pytest.raises(StorageFailure, match="is missing"):
        open_shard(tmp_path, 3, "a", 9, kept=True)
