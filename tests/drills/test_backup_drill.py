"""Back-ups of a real cluster, taken while a table is written and replaced: each has what was acknowledged before."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from loadgen.drills import backup, running
from loadgen.drills.backup import judge
from loadgen.drills.catalogue import DRILLS
from loadgen.drills.cluster import ClusterShape
from loadgen.drills.running import DrillPlan, run

SEED = 20_260_103
RATES = (60.0, 30.0)
SHAPE = ClusterShape(workers=2, shards=2, controllers=1)


@pytest.mark.cluster
@pytest.mark.usefixtures("brief", "patient")
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")
def test_every_back_up_has_what_was_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_drawn(plan: DrillPlan) -> None:
        assert plan.drill is drill

    monkeypatch.setattr(running, "_draw", not_drawn)
    monkeypatch.setattr(backup, "BACKUPS", 1)  # ``make drill NAME=backup`` takes several.
    drill = replace(DRILLS["backup"], shape=SHAPE)
    said: list[str] = []
    result = run(DrillPlan(drill, 1, SEED, tmp_path, tmp_path / "data", RATES), said.append)
    document = json.loads((tmp_path / "backup.json").read_text())
    assert result.held, (SEED, document["findings"], document["broken"], document["examples"])
    notes = document["notes"]
    assert notes["backups"] == 1
    assert notes["replaced"] > 0
    assert notes["rows"] > 0
    assert notes["times"] == 1
    assert document["acknowledged_writes"] > 0


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({"swapped_2": set[int]()}, "3 of 3 acknowledged rows are missing"),
        ({"swapped_2": {0, 2}}, r"1 of 3 acknowledged rows are missing: \[1\]"),
        ({"swapped_3": {0, 1, 2}}, '"swapped_2" is missing'),
        ({"swapped_1": {0}, "swapped_2": {0, 1, 2}}, '"swapped_1" was dropped before'),
        ({"swapped_2": {0, 1, 2, 5}}, "1 rows are there that nobody had sent"),
        ({"swapped_2": {0, 1, 2, 3}, "swapped_3": {0, 1}}, None),
    ],
)
def test_the_judge_finds(found: dict[str, set[int]], problem: str | None) -> None:
    problems = judge(found, kept=3, asked=5, here={"swapped_2"}, gone={"swapped_1"})
    if problem is None:
        assert problems == []
    else:
        assert any(re.search(problem, each) for each in problems), problems
