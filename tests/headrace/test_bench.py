"""The benchmark's own parts; the figures are no tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.bench import report, run
from headrace.bench.measurement import Measurement, Rate, ratio
from headrace.errors import BadRequest


def test_a_round_is_compared_with_itself() -> None:
    """The machine was three times slower during the second round, for both sides."""
    ours = [Rate(50, 5), Rate(16, 5), Rate(60, 4)]
    theirs = [Rate(100, 10), Rate(32, 10), Rate(100, 10)]
    assert ratio(ours, theirs) == (0.5, 0.5)


def test_goals_go_both_ways() -> None:
    assert Measurement("a", "", "", "", "", 0.4, 0.4).met
    assert not Measurement("a", "", "", "", "", 0.39, 0.4).met
    assert Measurement("a", "", "", "", "", 0.2, 0.25, at_most=True).met
    assert not Measurement("a", "", "", "", "", 0.3, 0.25, at_most=True).met


def test_unknown_measurements_are_refused() -> None:
    with pytest.raises(BadRequest, match='no measurement "speed"'):
        run(only="speed", out=None, quick=True)


def test_writes_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    run(only="writes", out=out, quick=True)
    (row,) = json.loads(out.read_text())["measurements"]
    assert row["name"] == "writes"
    assert row["ratio"] > 0
    assert "vote writes" in capsys.readouterr().out
    assert report.machine()["cores"]
