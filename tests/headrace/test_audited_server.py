"""A server with an audit log: over real sockets, killed, started twice, and with a file that cannot be."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving_process import Launch

from controller.access.accounts import administrator
from controller.access.keeper import Keeper
from controller.access.passwords import new_id
from headrace.serving.access import begin_audit
from headrace.settings import load
from zookeeper.accounts import FileAccounts

ANN = ("ann", "a long one")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def make() -> None:
        keeper = Keeper(FileAccounts(tmp_path / "data"))
        await keeper.start()
        ann = administrator("ann", new_id(), await keeper.passwords.made("a long one"), None)
        await keeper.change("ann", lambda before: ann)
        await keeper.close()

    (tmp_path / "data").mkdir()
    asyncio.run(make())
    return tmp_path / "data"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_what_is_answered_is_recorded_and_survives_a_kill(launch_local: Launch, tmp_path: Path, data: Path) -> None:
    path = tmp_path / "audit.jsonl"
    process = launch_local("--audit-log", str(path), "--max-connections-per-address", "5")
    with httpx.Client(base_url=process.url, timeout=60) as http:
        http.get("/v1/status", auth=ANN)
        for sql in ("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE ROLE r", "DROP TABLE nothing", "SELECT 1"):
            http.post("/v1/sql", json={"sql": sql}, auth=ANN)
        shown = lines(path)[1:]
        assert [(each["kind"], each["statement"], each["code"]) for each in shown] == [
            ("definition", "CREATE TABLE a (id INT PRIMARY KEY)", "ok"),
            ("account", "CREATE ROLE r", "ok"),
            ("definition", "DROP TABLE nothing", "unknown_name"),
        ]
        assert {(each["door"], each["address"], each["account"]) for each in shown} == {("http", "127.0.0.1", "ann")}
        host, port = process.url.removeprefix("http://").split(":")
        taken = [socket.create_connection((host, int(port))) for _ in range(6)]
        assert b"429" in taken[-1].recv(1000)
        for each in taken:
            each.close()
    deadline = time.monotonic() + 10
    while (last := lines(path)[-1])["kind"] != "refusal" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (last["status"], last["code"], last["address"]) == (429, "too_many_requests", "127.0.0.1")
    second = launch_local("--audit-log", str(path), "--data", str(tmp_path / "other"), wait=False)
    code, _, err = second.finish()
    assert code != 0
    assert "another process writes it" in err
    assert "Traceback" not in err
    process.popen.send_signal(signal.SIGKILL)
    process.popen.wait()
    with path.open("ab") as file:
        file.write(b'{"kind":"defin')
    launch_local("--audit-log", str(path))
    found = path.read_bytes().splitlines()
    assert found[-2] == b'{"kind":"defin'
    assert json.loads(found[-1])["code"] == "begins"


def test_a_server_does_not_start_without_the_log_that_it_is_to_write(launch_local: Launch, tmp_path: Path) -> None:
    process = launch_local("--audit-log", str(tmp_path / "absent" / "audit.jsonl"), wait=False)
    code, _, err = process.finish()
    assert code != 0
    assert "cannot be opened: No such file or directory" in err
    assert "a directory that is there" in err
    assert "Traceback" not in err


async def test_each_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    settings = load(None, audit_log=tmp_path / "audit.jsonl")
    for name, file in ((None, "audit.jsonl"), ("api-1", "audit-api-1.jsonl"), ("api-2", "audit-api-2.jsonl")):
        log = begin_audit(settings, name)
        assert log is not None
        await log.close()
        assert (tmp_path / file).is_file()
    assert begin_audit(load(None)) is None
