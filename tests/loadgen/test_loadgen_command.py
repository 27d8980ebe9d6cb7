"""``headrace loadgen`` as a user runs it: against a real server, against nobody, and ended by Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_http_target import closed_port
from typer.testing import CliRunner

from headrace.cli import app
from tests.told_process import ToldProcess, headrace

DATA = ("--data-scale", "0.002", "--in-flight", "8")
WITHIN = 120
"""Seconds that a command of a test may take on a machine with other work."""


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
    command = ["-m", "headrace", "serve", "--data", str(directory / "data"), "--port", "0"]
    process = ToldProcess(command, {}, forked=False)  # The generator names it by its command.
    try:
        yield process.read_until(r"answers at (http://\S+)", WITHIN)[1]
    finally:
        process.popen.terminate()
        process.finish(WITHIN)
        process.kill()


ENOUGH = 600
"""Requests of a run until some of its pages have been answered: it looks first what is there, and has eight pages of
some ten requests each under way."""


def asked(url: str) -> float:
    """How many requests the server has answered."""
    lines = httpx.get(f"{url}/metrics", timeout=WITHIN).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("headrace_http_seconds_count"))


def run(url: str, out: Path, *more: str, code: int = 0) -> dict[str, Any]:
    """A short run's result. What a busy machine made of it is not this test's business, but that it is whole."""
    ended, told, err = headrace("loadgen", "lobsters", "--target", url, *DATA, "--out", str(out), *more)
    assert ended in (code, 1), told + err
    assert "written: " in told, told + err
    result: dict[str, Any] = json.loads((out / "lobsters-headrace-natural.json").read_text())
    return result


def refused(*arguments: str) -> str:
    """What the command says of an error."""
    code, out, err = headrace(*arguments)
    assert code == 1, out + err
    return err


def test_a_target_without_the_schema_is_told(empty: str, tmp_path: Path) -> None:
    err = refused("loadgen", "lobsters", "--target", empty, *DATA, "--out", str(tmp_path))
    assert "has no view" in err
    assert "--prime" in err
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
    err = refused("loadgen", "lobsters", "--target", primed.url, *DATA, "--prime", "--out", str(tmp_path))
    assert "has tables of that name already" in err


def test_less_data_than_asked_for_is_told(primed: Primed, tmp_path: Path) -> None:
    err = refused("loadgen", "lobsters", "--target", primed.url, "--data-scale", "0.05", "--out", str(tmp_path))
    assert "less data" in err


@contextmanager
def begun(url: str, out: Path, *more: str) -> Iterator[ToldProcess]:
    """A run that somebody watches: what it says comes in the order in which it says it."""
    process = ToldProcess(
        ["-m", "headrace", "loadgen", "lobsters", "--target", url, *DATA, "--out", str(out), *more], {}
    )
    try:
        yield process
    finally:
        process.kill()


def cut(process: ToldProcess, out: Path) -> dict[str, Any]:
    """The result of a run that is ended by Ctrl-C."""
    process.popen.send_signal(signal.SIGINT)
    code, told, err = process.finish(WITHIN)
    assert code == 130, told + err
    assert "ended early" in told + err
    result: dict[str, Any] = json.loads((out / "lobsters-headrace-natural.json").read_text())
    assert result["cut"]
    return result


def test_a_sweep_draws_its_curve(primed: Primed, tmp_path: Path) -> None:
    """Of its first points: how many there are until it ends, and how long each takes, is the machine's business."""
    with begun(primed.url, tmp_path, "--sweep", "--rate", "4", "--runtime", "0.6", "--warmup", "0.2") as process:
        deadline = time.monotonic() + WITHIN
        while process.errors().count("offered") < 2:
            assert process.popen.poll() is None, process.errors()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        result = cut(process, tmp_path)
    assert len(result["points"]) >= 2
    html = (tmp_path / "lobsters-headrace-natural.html").read_text()
    assert html.count("<svg") == 3


def test_ctrl_c_keeps_what_was_measured(primed: Primed, tmp_path: Path) -> None:
    # Without a warm-up, every page that the server has answered is one that was measured.
    with begun(primed.url, tmp_path, "--rate", "40", "--runtime", "600", "--warmup", "0") as process:
        before, deadline = asked(primed.url), time.monotonic() + WITHIN
        while asked(primed.url) < before + ENOUGH:
            assert process.popen.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        result = cut(process, tmp_path)
    assert result["points"][0]["cut"]
    assert result["points"][0]["answered"] > 5


def test_nobody_there(tmp_path: Path) -> None:
    err = refused("loadgen", "vote", "--target", f"http://127.0.0.1:{closed_port()}", "--out", str(tmp_path))
    assert "cannot reach" in err
    assert "Traceback" not in err


def test_a_rate_that_the_generator_cannot_make(tmp_path: Path) -> None:
    err = refused("loadgen", "lobsters", "--target", "null:", *DATA, "--rate", "1000000", "--out", str(tmp_path))
    assert re.search(r"at most [\d,]+ pages a second here, not 1,000,000", err)


@pytest.mark.parametrize("workload", ["lobsters", "ribbons", "vote", "crud", "graph"])
def test_every_workload_runs_against_nothing(workload: str, tmp_path: Path) -> None:
    arguments = ["--runtime", "1", "--warmup", "0.2", "--data-scale", "0.01", "--out", str(tmp_path)]
    code, _, err = headrace("loadgen", workload, "--target", "null:", *arguments)
    assert code in (0, 1), err
    result = json.loads((tmp_path / f"{workload}-null-natural.json").read_text())
    assert result["points"][0]["answered"] > 10
    assert result["points"][0]["failed"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lobsters", "--target", "null:", "--variant", "odd"], 'no variant "odd"'),
        (["graph", "--target", "null:", "--distribution", "odd"], 'no distribution "odd"'),
        (["crud", "--target", "gopher://x"], "no target of the kind"),
    ],
)
def test_unknown_names_are_told(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["loadgen", *arguments])
    assert done.exit_code == 1
    assert says in str(done.exception)
