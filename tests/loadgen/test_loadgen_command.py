"""``headrace loadgen`` as a user runs it: against a real server, against nobody, and ended by Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Timer
from typing import Any

import httpx
import pytest
from test_http_target import closed_port
from typer.testing import CliRunner

from headrace.cli import app

HEADRACE = (sys.executable, "-m", "headrace")
DATA = ("--data-scale", "0.002", "--in-flight", "8")
WITHIN = 120
"""Seconds that a command of a test may take on a machine with other work."""


def headrace(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*HEADRACE, *arguments], capture_output=True, text=True, timeout=WITHIN, check=False, env=environment()
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}


@pytest.fixture
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that has no tables."""
    with serving(tmp_path_factory.mktemp("empty")) as url:
        yield url


@pytest.fixture(scope="module")
def primed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Primed]:
    """A server with the Lobsters program and a little data, primed by the command itself: tests of it come in any
    order, and add to its data only."""
    with serving(tmp_path_factory.mktemp("served")) as url:
        out = tmp_path_factory.mktemp("primed")
        yield Primed(url, out, run(url, out, "--prime", "--rate", "30", "--runtime", "4", "--warmup", "1"))


@dataclass(frozen=True)
class Primed:
    url: str
    out: Path
    """Where the result of the run that primed it is."""
    result: dict[str, Any]


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    port = closed_port()
    url = f"http://127.0.0.1:{port}"
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*HEADRACE, "serve", "--data", str(directory / "data"), "--port", str(port)],
            stdout=log,
            stderr=log,
            env=environment(),
        )
        try:
            deadline = time.monotonic() + WITHIN
            while not is_up(url):
                assert process.poll() is None, (directory / "log").read_text()
                assert time.monotonic() < deadline, (directory / "log").read_text()
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()
            process.wait(WITHIN)


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


ENOUGH = 600
"""Requests of a run until some of its pages have been answered: it looks first what is there, and has eight pages of
some ten requests each under way."""


def asked(url: str) -> float:
    """How many requests the server has answered."""
    lines = httpx.get(f"{url}/metrics", timeout=WITHIN).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("headrace_http_seconds_count"))


def run(url: str, out: Path, *more: str, code: int = 0) -> dict[str, Any]:
    """A short run's result. What a busy machine made of it is not this test's business, but that it is whole."""
    done = subprocess.run(
        [*HEADRACE, "loadgen", "lobsters", "--target", url, *DATA, "--out", str(out), *more],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
        env=environment(),
    )
    assert done.returncode in (code, 1), done.stdout + done.stderr
    assert "written: " in done.stdout, done.stdout + done.stderr
    result: dict[str, Any] = json.loads((out / "lobsters-headrace-natural.json").read_text())
    return result


def test_a_target_without_the_schema_is_told(empty: str, tmp_path: Path) -> None:
    done = headrace("loadgen", "lobsters", "--target", empty, *DATA, "--out", str(tmp_path), code=1)
    assert "has no view" in done.stderr
    assert "--prime" in done.stderr
    assert not list(tmp_path.iterdir())


def test_prime_and_run(primed: Primed) -> None:
    (point,) = primed.result["points"]
    assert point["failed"] == 0, point["errors"]
    assert point["answered"] > 60
    assert point["kinds"]["Story"]["sojourn"]["p99"] >= point["kinds"]["Story"]["sojourn"]["p50"] > 0
    assert point["unseen"] == []
    process, *beside = point["servers"]
    assert "headrace serve" in process["name"]
    # Priming sends bodies so long that a process beside the server reads them: it counts as the server's.
    assert all("worker.service.child_pool" in each["name"] for each in beside)
    assert process["cpu_s"] > 0
    assert process["resident_max"] > 20_000_000
    assert len(process["memory"]) >= 3
    assert point["server_cpu_ms_each"] > 0
    assert 0 < point["generator_cpu"] < 1.5
    assert point["valid"] == (not point["doubts"])
    assert primed.result["generator_limit"] > 100
    html = (primed.out / "lobsters-headrace-natural.html").read_text()
    assert html.count("<svg") == 2
    assert "Frontpage" in html


def test_priming_what_is_there_is_refused(primed: Primed, tmp_path: Path) -> None:
    done = headrace("loadgen", "lobsters", "--target", primed.url, *DATA, "--prime", "--out", str(tmp_path), code=1)
    assert "has tables of that name already" in done.stderr


def test_less_data_than_asked_for_is_told(primed: Primed, tmp_path: Path) -> None:
    done = headrace(
        "loadgen", "lobsters", "--target", primed.url, "--data-scale", "0.05", "--out", str(tmp_path), code=1
    )
    assert "less data" in done.stderr


@contextmanager
def begun(url: str, out: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A run that somebody watches: what it says comes in the order in which it says it."""
    with subprocess.Popen(
        [*HEADRACE, "loadgen", "lobsters", "--target", url, *DATA, "--out", str(out), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
    ) as process:
        watch = Timer(WITHIN, process.kill)
        watch.start()
        try:
            yield process
        finally:
            watch.cancel()
            process.kill()


def cut(process: subprocess.Popen[str], out: Path) -> dict[str, Any]:
    """The result of a run that is ended by Ctrl-C."""
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=WITHIN)
    assert process.returncode == 130, told
    assert "ended early" in told
    result: dict[str, Any] = json.loads((out / "lobsters-headrace-natural.json").read_text())
    assert result["cut"]
    return result


def test_a_sweep_draws_its_curve(primed: Primed, tmp_path: Path) -> None:
    """Of its first points: how many there are until it ends, and how long each takes, is the machine's business."""
    with begun(primed.url, tmp_path, "--sweep", "--rate", "4", "--runtime", "0.6", "--warmup", "0.2") as process:
        assert process.stdout is not None
        points = (line for line in process.stdout if "offered" in line)
        assert len(list(islice(points, 2))) == 2
        result = cut(process, tmp_path)
    assert len(result["points"]) >= 2
    html = (tmp_path / "lobsters-headrace-natural.html").read_text()
    assert html.count("<svg") == 3


def test_ctrl_c_keeps_what_was_measured(primed: Primed, tmp_path: Path) -> None:
    # Without a warm-up, every page that the server has answered is one that was measured.
    with begun(primed.url, tmp_path, "--rate", "40", "--runtime", "600", "--warmup", "0") as process:
        before, deadline = asked(primed.url), time.monotonic() + WITHIN
        while asked(primed.url) < before + ENOUGH:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        result = cut(process, tmp_path)
    assert result["points"][0]["cut"]
    assert result["points"][0]["answered"] > 5


def test_nobody_there(tmp_path: Path) -> None:
    done = headrace("loadgen", "vote", "--target", f"http://127.0.0.1:{closed_port()}", "--out", str(tmp_path), code=1)
    assert "cannot reach" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rate_that_the_generator_cannot_make(tmp_path: Path) -> None:
    done = headrace(
        "loadgen", "lobsters", "--target", "null:", *DATA, "--rate", "1000000", "--out", str(tmp_path), code=1
    )
    assert re.search(r"at most [\d,]+ pages a second here, not 1,000,000", done.stderr)


@pytest.mark.parametrize("workload", ["lobsters", "ribbons", "vote", "crud"])
def test_every_workload_runs_against_nothing(workload: str, tmp_path: Path) -> None:
    arguments = ["--runtime", "1", "--warmup", "0.2", "--data-scale", "0.01", "--out", str(tmp_path)]
    done = subprocess.run(
        [*HEADRACE, "loadgen", workload, "--target", "null:", *arguments],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        check=False,
        env=environment(),
    )
    assert done.returncode in (0, 1), done.stderr
    result = json.loads((tmp_path / f"{workload}-null-natural.json").read_text())
    assert result["points"][0]["answered"] > 10
    assert result["points"][0]["failed"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lobsters", "--target", "null:", "--variant", "odd"], 'no variant "odd"'),
        (["crud", "--target", "gopher://x"], "no target of the kind"),
    ],
)
def test_unknown_names_are_told(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["loadgen", *arguments])
    assert done.exit_code == 1
    assert says in str(done.exception)
