"""A server for the load to run against: one process, four shards. And drills as tests carry them out: without the quiet
stretches that percentiles are made of, and with patience."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.drills import cluster, faults, running, stage
from tests.told_process import FORKED_PARTS, ToldProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Its URL."""
    command = ["-m", "headrace", "serve", "--data", str(tmp_path / "data"), "--port", "0", "--shards", "4"]
    process = ToldProcess(command, {}, tmp_path)
    yield process.read_until(r"answers at (http://\S+)")[1]
    process.kill()


@pytest.fixture(autouse=True)
def forked_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster's parts are forks of its supervisor."""
    real = cluster.DrillCluster._command

    def command(self: cluster.DrillCluster) -> list[str]:
        python, *words = real(self)
        return [python, str(FORKED_PARTS), *words]

    monkeypatch.setattr(cluster.DrillCluster, "_command", command)


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
