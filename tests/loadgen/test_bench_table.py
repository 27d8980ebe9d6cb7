"""The comparison's table: out of results, into the marked part of the page, with nothing else of it changed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from loadgen.bench import rounds
from loadgen.bench.rounds import ROUNDS, BenchRound
from loadgen.pace.point import Point, RequestKind, Times
from loadgen.pace.processes import Memory, ServerUse
from loadgen.peers.store import LoadRunError
from loadgen.running import RunOptions, RunResult

PAGE = f"# Benchmarks\n\nbefore\n\n{rounds.BEGIN}\nold\n{rounds.END}\n\nafter\n"


def result(workload: str, rate: float, cpu_s: float, **notes: Any) -> RunResult:
    def point(offered: float, mean: float) -> Point:
        times = Times(100, mean, mean, 2 * mean, 3 * mean, 4 * mean)
        kind = RequestKind(times, times)
        return Point(
            offered,
            arrived=int(offered * 10),
            answered=int(offered * 10),
            in_time=int(offered * 10),
            seconds=10,
            all=kind,
            kinds={"Story": kind, "Frontpage": kind},
            generator_cpu=0.2,
            servers=[ServerUse(7, "server", cpu_s, 50_000_000, [Memory(0.0, 50_000_000, 50_000_000)])],
            notes=dict(notes),
        )

    return RunResult(
        RunOptions(workload, "http://127.0.0.1:1", data_scale=0.1),
        target={"server": "Server 1", "flush": "on"},
        machine={"cpus": "2", "processor": "P", "system": "S", "python": "3"},
        date="2026-11-21T00:00:00",
        points=[point(rate / 2, 4.0), point(rate, 9.0), point(rate * 2, 900.0)],
    )


@pytest.fixture
def measured(tmp_path: Path) -> tuple[Path, Path]:
    out, docs = tmp_path / "out", tmp_path / "docs"
    docs.mkdir()
    (docs / "benchmarks.md").write_text(PAGE)
    turns: dict[str, list[RunResult]] = {
        "lobsters-headrace-natural": [result("lobsters", rate, 7.0) for rate in (900.0, 700.0, 100.0)],
        "lobsters-headrace-cluster-natural": [result("lobsters", 800.0, 6.0)],
        "lobsters-mariadb-hand-optimised": [result("lobsters", 100.0, cpu) for cpu in (10.0, 9.0, 50.0)],
        "lobsters-mariadb-hand-optimised-half": [result("lobsters", 50.0, 5.0)] * 3,
        "lobsters-mariadb-hand-optimised-cold": [result("lobsters", 50.0, 5.0)] * 3,
        "lobsters-cached-hand-optimised": [result("lobsters", 350.0, 7.0, stale_part=0.0123)],
        "vote-headrace-natural-uniform": [result("vote", 10.0, 1.0)],
        "vote-headrace-natural-zipf": [result("vote", 500.0, 1.0)],
        "vote-redis-natural-zipf": [result("vote", 1000.0, 1.0)],
    }
    for name, several in turns.items():
        label = name.split("-")[-1] if name.startswith("vote") else ""
        for turn, made in enumerate(several, 1):
            path = out / str(turn) / f"{name}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({**made.document(), "name": name, "durable": True, "label": label}))
    return out, docs


def test_the_table_is_written_between_its_marks(measured: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    out, docs = measured
    rounds.write(out, docs)
    text = (docs / "benchmarks.md").read_text()
    assert text.startswith("# Benchmarks\n\nbefore\n")
    assert text.endswith("after\n")
    assert "\nold\n" not in text
    assert "| lobsters-headrace-natural | 700 | 100 700 900 | 1 | 18.0 |" in text
    same_distribution = "| vote-headrace-natural-zipf | vote-redis-natural-zipf | 0.50× |"
    assert same_distribution in text
    assert "medians of the turns, 3 at most" in text
    assert "| lobsters-headrace-natural | lobsters-mariadb-hand-optimised | 7.00× | 10.00× |" in text
    assert "| lobsters-headrace-cluster-natural | lobsters-mariadb-hand-optimised | 8.00× | 13.33× |" in text
    assert "1.23% of the cached reads were stale" in text
    assert "Story, Frontpage" in text
    for picture in ("lobsters-latency", "lobsters-memory", "vote-latency"):
        assert f"(img/{picture}.svg)" in text
        assert (docs / "img" / f"{picture}.svg").read_text().startswith("<?xml")
    once, drawn = text, re.findall(r"\(img/(.*)\.svg\)", text)
    monkeypatch.setattr(rounds, "_pictures", lambda results, folder: drawn)
    rounds.write(out, docs)
    assert (docs / "benchmarks.md").read_text() == once


def test_without_results_nothing_is_touched(tmp_path: Path) -> None:
    (tmp_path / "benchmarks.md").write_text(PAGE)
    rounds.write(tmp_path / "none", tmp_path)
    assert (tmp_path / "benchmarks.md").read_text() == PAGE


def test_rounds_have_names_of_their_own() -> None:
    names = [each.name for each in ROUNDS]
    assert len(set(names)) == len(names)
    assert "lobsters-mariadb-hand-optimised-relaxed" in names
    assert "lobsters-headrace-cluster-natural" in names


def test_a_round_measures_and_is_not_measured_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The whole way, against nothing: sweep, half rate, JSONs, table; pictures are the other test's."""
    out, docs = tmp_path / "out", tmp_path / "docs"
    docs.mkdir()
    (docs / "benchmarks.md").write_text(PAGE)
    this = BenchRound("crud", "null", rate=20.0)
    patched = pytest.MonkeyPatch()
    with patched.context() as patch:
        patch.setattr(rounds, "ROUNDS", (this,))
        patch.setattr(rounds, "measure", _quick)
        patch.setattr(rounds, "_pictures", lambda results, folder: [])
        arguments = ["--out", str(out), "--docs", str(docs), "--data-scale", "0.01", "--runtime", "0.5", "--turns", "1"]
        assert rounds.main(arguments) == 0
        assert rounds.main(arguments) == 0
    assert "measured before" in capfd.readouterr().out
    assert "crud-null-natural" in (docs / "benchmarks.md").read_text()


def test_a_round_that_measured_nothing_is_an_error_and_not_a_trace(tmp_path: Path) -> None:
    with pytest.raises(LoadRunError, match="measured nothing"):
        rounds._taken(ROUNDS[0], tmp_path, tmp_path / "result.json")


def _quick(this: BenchRound, out: Path, scale: float, runtime: float) -> None:
    """One rate instead of a sweep."""
    flags = ["--target", "null:", "--data-scale", str(scale), "--runtime", str(runtime), "--warmup", "0.1"]
    source = out / "raw"
    rounds._loadgen(this, [*flags, "--rate", str(this.rate)], source)
    rounds._taken(this, source, out / f"{this.name}.json")
