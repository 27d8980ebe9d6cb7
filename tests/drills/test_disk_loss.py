"""A real worker's disk is lost, given up and rebuilt: all that was archived is there, and the tail is named exactly."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from loadgen.drills import running
from loadgen.drills.catalogue import DRILLS
from loadgen.drills.cluster import ClusterShape
from loadgen.drills.running import DrillPlan, run

SEED = 20_260_102
RATES = (60.0, 30.0)
SHAPE = ClusterShape(workers=2, shards=3, controllers=1)
"""What is lost and what stays: a worker each."""


@pytest.mark.cluster
@pytest.mark.usefixtures("brief", "patient")
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")
def test_what_is_missing_is_what_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_drawn(plan: DrillPlan) -> None:
        assert plan.drill is drill

    monkeypatch.setattr(running, "_draw", not_drawn)
    drill = replace(DRILLS["disk-loss"], shape=SHAPE)
    said: list[str] = []
    result = run(DrillPlan(drill, 1, SEED, tmp_path, tmp_path / "data", RATES), said.append)
    document = json.loads((tmp_path / "disk-loss.json").read_text())
    assert result.held, (SEED, document["findings"], document["broken"], document["examples"])
    notes = document["notes"]
    assert notes["lost_writes"] + notes["brought_back"] == notes["named_writes"]
    assert notes["lost_writes"] > 0
    assert notes["brought_back"] > 0
    assert notes["kept_writes"] > 0
    (told,) = notes["rebuilt"]
    assert any(each["base"].startswith("tail@") and each["position"] and each["lost"] for each in told)
    assert document["acknowledged_writes"] > 0
    assert document["untouched_during"]["errors"] == 0
