"""The start of a real server process: it answers from the first moment on, says how far it is, and can be stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from serving_process import Launch

from headrace import embedded

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("START_SEED", "1"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def until(found: Callable[[], Any], seconds: float = 30.0) -> Any:
    """What it finds, as soon as that is something."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"nothing was found within {seconds} s"
        time.sleep(0.002)
    return value


def tried(http: httpx.Client, path: str) -> httpx.Response | None:
    try:
        return http.get(path)
    except httpx.ConnectError:
        return None


def test_a_start_answers_with_its_progress_until_it_serves(launch_fake: Launch, tmp_path: Path) -> None:
    port = free_port()
    process = launch_fake("--port", str(port), wait=False, WAITS="1")
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        until(lambda: (answer := tried(http, "/healthz")) and answer.json()["starting"]["phase"] == "planning views")
        for method, path in (
            ("GET", "/readyz"),
            ("POST", "/v1/sql"),
        ):
            answer = http.request(method, path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            shown = answer.json()
            assert shown["error"]["code"] == "unavailable"
            assert re.fullmatch(r"the server is starting \(planning views: \d+ of 500\)", shown["error"]["message"])
            assert shown["starting"]["total"] == 500
        assert http.get("/healthz").json()["status"] == "starting"
        (reason,) = http.get("/readyz").json()["reasons"]
        assert (reason["reason"], reason["message"][:14]) == ("starting", "planning views")
        assert "headrace_start_done " in http.get("/metrics").text
        assert http.head("/readyz").content == b""
        with ThreadPoolExecutor(1) as beside:
            waits = beside.submit(httpx.get, f"http://127.0.0.1:{port}/v1/views", timeout=60)
            (tmp_path / "data" / "GO").touch()
            answer = waits.result()
        assert (answer.status_code, answer.json()) == (200, {"views": []})
        # Over the connection that was there before anything was served.
        until(lambda: http.get("/readyz").status_code == 200)
        assert http.get("/v1/views").json() == {"views": []}
        assert http.get("/v1/views/V?id=1").status_code == 404
    process.read_until("answers at")
    process.popen.send_signal(signal.SIGTERM)
    assert process.finish()[0] == 0


def test_a_start_that_is_stopped_gives_up(launch_fake: Launch, tmp_path: Path) -> None:
    for stop in (signal.SIGTERM, signal.SIGINT):
        port = free_port()
        process = launch_fake("--port", str(port), wait=False, WAITS="1")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            until(
                lambda: (answer := tried(http, "/healthz")) and answer.json()["starting"]["phase"] == "planning views"
            )
        process.popen.send_signal(stop)
        code, out, err = process.finish()
        assert code == 0
        assert "Traceback" not in err
        assert "answers at" not in out


def can_be_stopped(process: subprocess.Popen[str]) -> bool:
    """Whether it has a handler for SIGTERM: before that, Python itself starts."""
    caught = re.search(r"SigCgt:\s*([0-9a-f]+)", Path(f"/proc/{process.pid}/status").read_text())
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux to see when a signal is caught")
def test_a_signal_at_any_moment_of_the_start_ends_it_with_0(tmp_path: Path) -> None:
    views = [f"CREATE VIEW P{n} AS SELECT id FROM t WHERE a = ? AND id > {n}" for n in range(60)]
    full = [f"CREATE EXT VIEW F{n} AS SELECT a, COUNT(*) AS n FROM t WHERE id > {n} GROUP BY a" for n in range(6)]
    with embedded(tmp_path / "data") as db:
        db.execute("; ".join(["CREATE TABLE t (id INT PRIMARY KEY, a INT)", *views, *full]))
        db.table("t").insert([{"id": n, "a": n % 9} for n in range(4_000)])
    random = Random(f"start {SEED}")
    command = [sys.executable, "-m", "headrace", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    for _ in range(8):
        moment, stop = random.uniform(0.0, 2.2), random.choice((signal.SIGTERM, signal.SIGINT))
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ)
        )
        until(lambda: can_be_stopped(process))  # noqa: B023
        time.sleep(moment)
        process.send_signal(stop)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, f"START_SEED={SEED}: {stop.name} after {moment:.3f} s: {errors}"
        assert "Traceback" not in errors, f"START_SEED={SEED}: {stop.name} after {moment:.3f} s: {errors}"
    with embedded(tmp_path / "data") as db:
        assert sum(row["n"] for row in db.view("F0").lookup()) == 3_999
