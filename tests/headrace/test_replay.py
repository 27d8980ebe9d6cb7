"""``headrace bench replay``: its parts. What it measures is no test; ``make spark`` runs it once, small."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from serving_process import ROOT

from headrace.errors import BadRequest
from headrace.settings import Settings
from loadgen.bench.measurement import ProcessUse
from loadgen.bench.recovery.replay import WAYS, ReplayFigures, ReplayMethod, ready, run, tables
from migrations.backfill.spark.settings import SparkSettings


def test_too_few_rows_say_nothing() -> None:
    with pytest.raises(BadRequest, match="10,000 rows"):
        run(rows=9_999, out=None, spark=SparkSettings())


@pytest.mark.parametrize("ways", [(), ("slices", "child")])
def test_a_way_that_there_is_not_is_refused(ways: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="slices, local, spark"):
        run(rows=10_000, out=None, spark=SparkSettings(), ways=ways)


def test_what_others_notice_is_told_as_a_ratio_to_the_quiet_server() -> None:
    figures = ReplayFigures(1_000_000)
    taken = ProcessUse({"server": 10**9}, {"server": 4.0}, 2 * 10**9, {}, 31.5)
    figures.ways.append(ReplayMethod("spark", 20.0, 50_000, 150.0, 3.0, 200.0, 2.0, taken, load=2.5))
    out = StringIO()
    for table in tables(figures):
        Console(file=out, width=200).print(table)
    for shown in ("1,000,000 base rows", "50,000", "150 (0.75)", "3.0 ms (1.5)", "4.0 + 31.5", "1 GB + 2 GB", "2.5"):
        assert shown in out.getvalue(), out.getvalue()


def test_the_default_threshold_is_the_one_that_the_figures_give() -> None:
    configured = re.search(r"`HEADRACE_SPARK_THRESHOLD` \| `(\d+)`", (ROOT / "docs" / "configuration.md").read_text())
    reasoned = re.search(r"`--spark-threshold` is \*\*([\d,]+)\*\*", (ROOT / "docs" / "performance.md").read_text())
    assert configured is not None
    assert reasoned is not None
    assert int(configured[1]) == int(reasoned[1].replace(",", "")) == Settings().spark_threshold


def test_rows_that_are_kept_are_made_once_and_anew_where_they_are_others(tmp_path: Path) -> None:
    folder, told = tmp_path / "kept", list[str]()
    assert ready(folder, 200, told.append)
    assert ready(folder, 200, told.append) is None
    assert ready(folder, 300, told.append)
    assert told == ["loading 200 rows …", f"the 200 rows in {folder} are there", "loading 300 rows …"]


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(BadRequest, match="not empty"):
        ready(tmp_path, 200, lambda text: None)


@pytest.mark.long
@pytest.mark.spark
def test_a_small_run_measures_every_way(tmp_path: Path) -> None:
    run(rows=20_000, out=tmp_path / "figures.json", spark=SparkSettings("local[2]"))
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [way["way"] for way in figures["ways"]] == list(WAYS)
    assert all(way["seconds"] > 0 and way["taken"]["peaks"]["server"] > 0 for way in figures["ways"])
    assert all(list(way["phases"]) == ["computed", "loaded", "caught up"] for way in figures["ways"][1:])
    assert figures["ways"][2]["taken"]["bulk_largest"]["java"] > 0
