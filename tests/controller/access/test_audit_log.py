"""The audit log: whole lines whatever is in them, files by size, and what happens where the disk takes nothing."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from controller.access import audit_log
from controller.access.audit_file import AuditFile
from controller.access.audit_log import AuditEvent, AuditKind, AuditLog
from domains.errors import BadRequest, Unavailable

Open = Callable[..., AuditLog]
NASTY = "DROP\nTABLE\r\x00\x1b[2Jx\u2028\u202e\x7f\x85\ud800 \"quoted\" 'x' é 🌊"


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    logs = []

    def open_log(*, size: int = 1_000_000, files: int = 3, **given: Any) -> AuditLog:
        log = AuditLog(AuditFile(tmp_path / "audit.jsonl", size, files), **given)
        logs.append(log)
        log.begin()
        return log

    yield open_log
    for log in logs:
        if log._thread.is_alive():
            await log.close()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def definition(statement: str, **told: Any) -> AuditEvent:
    return AuditEvent(AuditKind.DEFINITION, "http", "192.0.2.1", "ann", statement=statement, **told)


async def test_a_line_says_who_what_and_what_became_of_it(opened: Open, tmp_path: Path) -> None:
    log = opened()
    log.add(definition("DROP TABLE x", route="POST /v1/sql", code="not_found", ms=1.23456, status=404))
    await log.settled()
    first, second = lines(tmp_path / "audit.jsonl")
    assert (first["kind"], first["code"]) == ("log", "begins")
    assert second.pop("time").endswith("Z")
    assert second == {
        "kind": "definition",
        "door": "http",
        "address": "192.0.2.1",
        "account": "ann",
        "route": "POST /v1/sql",
        "statement": "DROP TABLE x",
        "code": "not_found",
        "status": 404,
        "ms": 1.235,
    }
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600
    await log.close()
    assert lines(tmp_path / "audit.jsonl")[-1]["code"] == "ends"
    assert log.status() == {"written": 3, "waiting": 0, "lost": 0, "failing": 0}


async def test_nothing_in_a_line_ends_it_or_speaks_to_a_terminal(opened: Open, tmp_path: Path) -> None:
    log = opened()
    told = dict.fromkeys(("account", "address", "subject", "tried", "route", "on", "why", "code"), NASTY)
    log.add(AuditEvent(AuditKind.OPERATION, statement=NASTY, **told))
    await log.settled()
    data = (tmp_path / "audit.jsonl").read_bytes()
    assert data.count(b"\n") == 2
    assert all(32 <= byte < 127 or byte == 10 for byte in data)
    assert lines(tmp_path / "audit.jsonl")[1]["statement"] == NASTY


async def test_endless_texts_are_cut(opened: Open, tmp_path: Path) -> None:
    log = opened(statement_size=1_000, data="values")
    for kind in (AuditKind.DEFINITION, AuditKind.DATA, AuditKind.REFUSAL):
        log.add(AuditEvent(kind, statement="SELECT '" + "\n" * 16_000_000, on="x" * 1_000_000))
        assert log.status()["waiting"] <= 4
    await log.settled()
    for line in lines(tmp_path / "audit.jsonl")[1:]:
        assert (len(line["statement"]), line["length"], len(line["on"])) == (1_000, 16_000_008, 500)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("CREATE USER a IDENTIFIED BY 'hunter2'", "CREATE USER a IDENTIFIED BY '…'"),
        ("ALTER USER a IDENTIFIED BY 'hunter2", "ALTER USER a IDENTIFIED BY '…'"),
        ('CREATE USER a IDENTIFIED BY "hunter2\nx"', "CREATE USER a IDENTIFIED BY '…'"),
        ("SELECT 'hrk_hunter2-_x'", "SELECT 'hrk_…'"),
        ("x eyJhunter2.hunter2.hunter2 y", "x eyJh… y"),
    ],
)
async def test_passwords_keys_and_tokens_are_taken_out(opened: Open, tmp_path: Path, text: str, shown: str) -> None:
    log = opened(data="values")
    for kind in (AuditKind.ACCOUNT, AuditKind.DATA):
        log.add(AuditEvent(kind, statement=text, route="GET /hrk_hunter2", why="eyJhunter2.hunter2.x"))
    await log.settled()
    assert "hunter2" not in (tmp_path / "audit.jsonl").read_text()
    assert [line["statement"] for line in lines(tmp_path / "audit.jsonl")[1:]] == [shown, shown]


async def test_data_has_no_values_unless_they_are_asked_for(opened: Open, tmp_path: Path) -> None:
    log = opened(data="statements")
    log.add(AuditEvent(AuditKind.DATA, statement="SELECT a FROM t1 WHERE b = 'secret' AND c > 4711"))
    await log.settled()
    assert lines(tmp_path / "audit.jsonl")[1]["statement"] == "SELECT a FROM t1 WHERE b = ? AND c > ?"


async def test_files_by_size(opened: Open, tmp_path: Path) -> None:
    log = opened(size=2_000, files=3)
    for number in range(60):
        log.add(definition(f"DROP TABLE x{number}"))
    await log.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    for name in names:
        assert (tmp_path / name).stat().st_size <= 2_000
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        assert lines(tmp_path / name)
    kept = [line["statement"] for name in reversed(names) for line in lines(tmp_path / name) if "statement" in line]
    assert kept == [f"DROP TABLE x{number}" for number in range(60 - len(kept), 60)], "in order, without a gap"


async def test_a_line_that_was_left_half_is_ended(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").write_bytes(b'{"kind":"definition"}\n{"kind":"defi')
    (tmp_path / "audit.jsonl").chmod(0o644)
    await opened().close()
    found = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    assert found[1] == b'{"kind":"defi'
    assert [json.loads(line)["code"] for line in found[2:]] == ["begins", "ends"]
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


async def test_a_file_that_is_moved_or_deleted_is_made_anew(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.access.audit_file.LOOK_SECONDS", 0.0)
    log = opened()
    await log.settled()
    (tmp_path / "audit.jsonl").rename(tmp_path / "elsewhere")
    log.add(definition("one"))
    await log.settled()
    (tmp_path / "audit.jsonl").unlink()
    log.add(definition("two"))
    await log.settled()
    assert [line["statement"] for line in lines(tmp_path / "audit.jsonl")] == ["two"]


def refusal(path: Path) -> BadRequest:
    with pytest.raises(BadRequest, match="the audit log") as refused:
        AuditFile(path, 1_000, 3)
    assert refused.value.hint
    return refused.value


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "absent" / "audit.jsonl").message
    assert "directory" in refusal(tmp_path).message
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in refusal(tmp_path / "pipe").message
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert "symbolic link" in refusal(tmp_path / "link").message
    assert not (tmp_path / "target").exists()
    first = AuditFile(tmp_path / "audit.jsonl", 1_000, 3)
    second = refusal(tmp_path / "audit.jsonl")
    assert "another process writes it" in second.message
    assert "--name" in (second.hint or "")
    first.close()
    AuditFile(tmp_path / "audit.jsonl", 1_000, 3).close()


class Disk:
    """What ``os.write`` finds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self._write = os.write
        monkeypatch.setattr("controller.access.audit_file.os.write", self.write)

    def write(self, number: int, data: bytes) -> int:
        if self.room is None:
            return self._write(number, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part, self.room = data[: self.room], 0
        return self._write(number, part)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setattr(audit_log, "AGAIN_SECONDS", 0.02)
    return Disk(monkeypatch)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_full_disk_refuses_changes_and_loses_nothing(
    opened: Open, tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened()
    await log.settled()
    log.check()
    disk.room = 7
    for number in range(20):
        log.add(definition(f"DROP TABLE x{number}"))
    await log.settled()
    with pytest.raises(Unavailable, match="No space left") as refused:
        log.check()
    assert "audit_failure" in (refused.value.hint or "")
    assert log.status()["failing"] == 1
    assert "No space left" in log.status()["alarm"]
    assert (tmp_path / "audit.jsonl").read_bytes().endswith(b"}\n"), "nothing of a line that is not whole"
    disk.room = None
    await until(lambda: log.status()["waiting"] == 0)
    log.check()
    assert "alarm" not in log.status()
    shown = [line.get("statement") for line in lines(tmp_path / "audit.jsonl")[1:]]
    assert shown == [f"DROP TABLE x{number}" for number in range(20)]
    assert caplog.text.count("cannot be written") == 1


async def test_where_it_may_continue_what_does_not_fit_is_lost_and_counted(
    opened: Open, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "QUEUE_EVENTS", 10)
    log = opened(refuses=False)
    await log.settled()
    disk.room = 0
    for number in range(30):
        log.add(definition(f"DROP TABLE x{number}"))
        log.check()
    assert log.status()["lost"] == 20
    disk.room = None
    await until(lambda: log.status()["waiting"] == 0)
    log.add(definition("the last"))
    await log.settled()
    shown = lines(tmp_path / "audit.jsonl")
    assert {"kind": "log", "code": "lost", "times": 20} in [
        {name: value for name, value in line.items() if name != "time"} for line in shown
    ]
    assert [line["statement"] for line in shown if "statement" in line] == [
        *(f"DROP TABLE x{number}" for number in range(10)),
        "the last",
    ]


async def test_large_texts_fill_the_queue_by_their_size(
    opened: Open, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "QUEUE_BYTES", 100_000)
    log = opened(statement_size=50_000)
    await log.settled()
    disk.room = 0
    for _ in range(5):
        log.add(definition("x" * 1_000_000))
    assert (log.status()["waiting"], log.status()["lost"]) == (1, 4)


async def test_who_floods_with_refusals_fills_neither_the_files_nor_the_queue(
    opened: Open, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    log = opened(clock=lambda: now[0])
    for number in range(1_000):
        log.add(AuditEvent(AuditKind.REFUSAL, address="198.51.100.1", status=401))
        log.add(AuditEvent(AuditKind.REFUSAL, address=f"2001:db8::{number}", status=401))
    log.add(definition("DROP TABLE x"))
    now[0] = 61.0
    await until(lambda: log.status()["waiting"] == 0 and log.status()["written"] > 1_060)
    shown = lines(tmp_path / "audit.jsonl")
    own = [line for line in shown if line.get("address") == "198.51.100.1"]
    assert len(own) == audit_log.REFUSALS_MAX + 1
    assert (own[-1]["code"], own[-1]["times"]) == ("more", 940)
    assert "DROP TABLE x" in [line.get("statement") for line in shown]
    monkeypatch.setattr(audit_log, "QUEUE_EVENTS", 20)
    disk.room = 0
    for number in range(100):
        log.add(AuditEvent(AuditKind.REFUSAL, address=f"192.0.2.{number}", status=401))
    assert log.status()["waiting"] <= 11
    log.add(definition("DROP TABLE y"))
    disk.room = None
    await log.close()
    assert "DROP TABLE y" in [line.get("statement") for line in lines(tmp_path / "audit.jsonl")]


async def test_a_disk_that_hangs_holds_an_answer_for_seconds_only(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "SETTLE_SECONDS", 0.05)
    log = opened()
    await log.settled()
    hanging = asyncio.Event()
    loop = asyncio.get_running_loop()

    def write(line: bytes) -> None:
        asyncio.run_coroutine_threadsafe(hanging.wait(), loop).result(10)

    monkeypatch.setattr(log._file, "write", write)
    log.add(definition("DROP TABLE x"))
    async with asyncio.timeout(5):
        await log.settled()
    hanging.set()


async def test_a_close_on_a_full_disk_ends(opened: Open, disk: Disk) -> None:
    log = opened()
    await log.settled()
    disk.room = 0
    log.add(definition("DROP TABLE x"))
    async with asyncio.timeout(5):
        await log.close()
