"""``headrace bench rebuild``: its parts. What it measures is no test; ``make spark`` runs it once, small."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from headrace.errors import BadRequest, ServerFault, Unavailable
from loadgen.bench.measurement import Processes, ProcessUse
from loadgen.bench.program import site
from loadgen.bench.recovery.rebuild import WAYS, MeasuredRebuild, RebuildFigures, SeenByClient, judge, run, table
from loadgen.bench.recovery.rebuild_cluster import Answers
from tests.told_process import ToldProcess

SECONDS = 60.0


def test_too_few_rows_say_nothing() -> None:
    with pytest.raises(BadRequest, match="1,000 rows"):
        run(rows=999, out=None)


@pytest.mark.parametrize("ways", [(), ("worker", "slices"), ("spark", "spark")])
def test_a_way_that_there_is_not_is_refused(ways: tuple[str, ...]) -> None:
    with pytest.raises(BadRequest, match="worker, spark"):
        run(rows=1_000, out=None, ways=ways)


def test_spark_that_is_turned_off_is_not_measured() -> None:
    with pytest.raises(BadRequest, match="turned off"):
        run(rows=1_000, out=None, master="none")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(BadRequest, match="not empty"):
        run(rows=1_000, out=None, folder=tmp_path)


@pytest.mark.parametrize(("ways", "needs"), [(("spark",), "Spark"), (("worker",), "ZooKeeper")])
def test_without_java_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ways: tuple[str, ...], needs: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Unavailable, match=f"{needs}.* needs Java") as caught:
        run(rows=1_000, out=None, ways=ways, folder=tmp_path / "cluster")
    assert "install Java" in str(caught.value.hint)
    assert not (tmp_path / "cluster").exists()


def test_the_rows_are_as_many_as_are_asked_for_and_the_same_each_time() -> None:
    first, second = ({name: list(rows) for name, _, _, rows in site(2_000)} for _ in range(2))
    assert first == second
    assert {name: len(rows) for name, rows in first.items()} == {"users": 20, "stories": 100, "votes": 1_880}


def test_another_answer_than_before_is_told() -> None:
    before = Answers([[{"n": 3}], [{"n": 4}]], [{"name": "user1", "votes": 7}])
    judge(before, Answers([[{"n": 3}], [{"n": 4}]], [{"name": "user1", "votes": 7}]))
    with pytest.raises(ServerFault, match="1 count is another one than before, and the ranking is as it was"):
        judge(before, Answers([[{"n": 3}], [{"n": 5}]], before.ranking))
    with pytest.raises(ServerFault, match="0 counts are others than before, and the ranking is another one"):
        judge(before, Answers(before.counted, [{"name": "user1", "votes": 8}]))


def test_what_is_told_of_each_way() -> None:
    quiet, meanwhile = (
        SeenByClient(1_000, 0, 2.0, 9.0, -3.0, []),
        SeenByClient(2_000, 3, 5.0, 250.4, 4.2, ["it is away"]),
    )
    taken = ProcessUse({"worker-1": 2 * 10**8, "api-1": 10**8}, {"worker-1": 6.5, "api-1": 1.0}, 10**9, {}, 31.0)
    ways = [
        MeasuredRebuild(way, 500_000, 20.0, 40.0, 1.0, {}, [], quiet, meanwhile, taken, 1.0, 1.0, 2.5) for way in WAYS
    ]
    out = StringIO()
    Console(file=out, width=200).print(table(RebuildFigures(1_000_000, ways)))
    for shown in (
        "by worker",
        "by Spark",
        "25,000",
        "5.0 ms (2.5)",
        "250 ms, 4.2",
        "3 of 2,000",
        "200 MB, 6.5",
        "1 GB, 31.0",
    ):
        assert shown in out.getvalue(), out.getvalue()


def test_what_a_process_and_its_children_take_is_told_apart() -> None:
    below = "import sys; print('there', flush=True); sys.stdin.read()"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {below!r}])"
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        with Processes(lambda: {"worker-1": process.pid}) as processes:
            pass
    assert processes.taken.peaks["worker-1"] > 0
    assert processes.taken.bulk_peak > 0
    assert processes.taken.cpu["worker-1"] >= 0


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.cluster
def test_a_small_run_measures_every_way(tmp_path: Path) -> None:
    run(rows=2_000, out=tmp_path / "figures.json", folder=tmp_path / "clusters", master="local[2]")
    figures = json.loads((tmp_path / "figures.json").read_text())
    by_worker, by_spark = figures["ways"]
    assert [each["way"] for each in (by_worker, by_spark)] == list(WAYS)
    for way in figures["ways"]:
        assert {each["by"] for each in way["told"]} == {way["way"]}
        assert sum(each["lost"] for each in way["told"]) == 0
        assert way["base_seconds"] > 0
        assert way["full_seconds"] > 0
        assert way["meanwhile"]["errors"] == 0, way["meanwhile"]["said"]
        assert way["taken"]["peaks"]["worker-1"] > 0
    assert by_spark["taken"]["bulk_largest"]["java"] > 0
    assert by_worker["taken"]["bulk_peak"] == 0
    assert any("build full states in bulk" in step for step in by_spark["phases"])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.cluster
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    command = ["-m", "headrace", "bench", "rebuild", "--rows", "1000000", "--folder", str(tmp_path / "clusters")]
    bench = ToldProcess(command, {})
    try:
        record = tmp_path / "clusters" / "worker" / "up.json"
        parts = _started(record)
        bench.popen.send_signal(signal.SIGINT)
        code, _, errors = bench.finish(SECONDS)
    finally:
        bench.kill()
    assert code == 130, errors
    assert "stopping the cluster" in errors
    assert not [pid for pid in parts if psutil.pid_exists(pid)]


def _started(record: Path) -> list[int]:
    """The processes of a cluster, when an api process is among them."""
    deadline = time.monotonic() + SECONDS
    while True:
        if record.exists():
            parts: dict[str, Any] = json.loads(record.read_text())["parts"]
            if "api-1" in parts:
                return [part["pid"] for part in parts.values()]
        assert time.monotonic() < deadline, os.listdir(record.parents[2])
        time.sleep(0.05)
