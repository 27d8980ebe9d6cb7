"""The benchmark's own parts; the figures are no tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import BadRequest
from loadgen.bench import measurement, ratios
from loadgen.bench.beside_mariadb import contention, inserts, protocols
from loadgen.bench.measurement import Measurement, Rate, ratio
from loadgen.bench.servers import missing


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
        ratios.run(only="speed", out=None, quick=True)


def test_a_ratio_may_fall_by_the_tolerance_and_no_more() -> None:
    least = 0.6 * (1 - ratios.TOLERANCE)
    baseline = {"reads": 0.6, "writes": 0.6, "lookups": 0.6}
    compared = ratios.compare(baseline, {"writes": least + 0.001, "reads": least - 0.001})
    assert [(each.name, each.held) for each in compared] == [("writes", True), ("reads", False)]
    assert all(each.held for each in ratios.compare(baseline, {"lookups": 5.0}))
    with pytest.raises(BadRequest, match="no ratio of pages"):
        ratios.compare(baseline, {"pages": 1.0})


def test_what_falls_short_is_measured_again_and_the_best_counts() -> None:
    given = iter((0.3, 0.5, 0.9))
    assert ratios.best_of(lambda: next(given), 0.4) == 0.5, "and no more often than it must be"
    given = iter((0.3, 0.35, 0.2, 0.9))
    assert ratios.best_of(lambda: next(given), 0.4) == 0.35
    assert list(given) == [0.9], "nor for ever"


def test_a_regression_fails_with_a_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measured(directory: Path, quick: bool) -> Measurement:
        assert quick
        return Measurement("", "", "", "", "", 1.0, 1.0, details={ratios.RATIO: 0.1})

    monkeypatch.setattr(ratios, "GUARDED", {"writes": measured, "reads": measured})
    monkeypatch.setattr(ratios, "baseline", lambda: {"writes": 0.6, "reads": 0.1})
    out = tmp_path / "ratios.json"
    with pytest.raises(ratios.Regressed) as regressed:
        ratios.run_guard(None, out)
    assert "33%: writes" in regressed.value.message
    assert json.loads(out.read_text())["ratios"] == {"writes": 0.1, "reads": 0.1}
    shown = capsys.readouterr().out
    assert "0.60" in shown
    assert "0.40" in shown
    ratios.run_guard("reads", None)
    with pytest.raises(BadRequest, match='no measurement "memory"'):
        ratios.run_guard("memory", None)


def test_the_committed_baseline_is_of_what_is_guarded() -> None:
    assert ratios.baseline().keys() == ratios.GUARDED.keys()
    assert all(ratio > 0 for ratio in ratios.baseline().values())


def test_writes_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    ratios.run(only="writes", out=out, quick=True)
    (row,) = json.loads(out.read_text())["measurements"]
    assert row["name"] == "writes"
    assert row["ratio"] > 0
    assert "vote writes" in capsys.readouterr().out
    assert measurement.machine()["cores"]


def test_a_measurement_whose_peer_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("loadgen.bench.ratios.missing", lambda program: f"{program} is not installed")
    out = tmp_path / "bench.json"
    ratios.run(only="insert", out=out, quick=True)
    assert json.loads(out.read_text())["measurements"] == []
    assert "insert is left out: mariadb is not installed" in capsys.readouterr().err


@pytest.mark.skipif(missing("mariadb") is not None, reason="MariaDB is not installed")
def test_inserts_are_measured_beside_mariadb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(inserts, "QUICK", (1, 20))
    measured = inserts.measure(tmp_path, True)
    assert measured.at_most
    assert measured.ratio > 0
    assert measured.details["append_and_fdatasync_ms"] > 0


@pytest.mark.skipif(missing("mariadb") is not None, reason="MariaDB is not installed")
def test_contention_is_measured_beside_mariadb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(contention, "QUICK", (1, 0.3))
    measured = contention.measure(tmp_path, True)
    assert measured.ratio > 0
    assert measured.details["our_repeatable_read_again"] == 0


def test_look_ups_over_mysql_are_measured_beside_http(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(protocols, "QUICK", (1, 0.2))
    monkeypatch.setattr(protocols, "CLIENTS", (1, 3))
    out = tmp_path / "mysql.json"
    protocols.run(out=out, quick=True, only="Listing 3.1")
    measured = json.loads(out.read_text())["measured"]
    sides = {"http", "mysql"} | ({"mariadb"} if missing("mariadb") is None else set())
    assert {(each["clients"], each["side"]) for each in measured} == {(n, side) for n in (1, 3) for side in sides}
    assert all(each["cpu_us"] >= 0 and each["a_second"] > 0 for each in measured)
    with pytest.raises(BadRequest, match="nothing"):
        protocols.run(out=None, quick=True, only="nothing")
