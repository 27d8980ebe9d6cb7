"""A server for the load to run against: one process, four shards. And drills as tests carry them out: without the quiet
stretches that percentiles are made of, and with patience."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.drills import cluster, faults, running, stage

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Its URL."""
    command = [sys.executable, "-m", "headrace", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--shards", "4"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python", "PYTHONUNBUFFERED": "1"},
        cwd=tmp_path,
    )
    assert process.stdout is not None
    found = re.search(r"answers at (http://\S+)", process.stdout.readline())
    assert found, "the server did not start"
    yield found[1]
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FIRST_SECONDS", 2.0)
    monkeypatch.setattr(running, "DURING", 1.5)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer than a drill is made for, and what is right late is right."""
    monkeypatch.setattr(cluster, "START_SECONDS", 180.0)
    for module in (faults, stage):
        monkeypatch.setattr(module, "DETECTION_SECONDS", 60.0)
    monkeypatch.setattr(running, "JUDGE_SECONDS", 60.0)
    monkeypatch.setattr(stage, "WHOLE_SECONDS", 180.0)
