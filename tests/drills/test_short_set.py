"""The short set on a real cluster: what must hold does. Times are told by the drills and not judged here, where other
tests run beside them; so the load's quiet stretches, which are there for the percentiles, are short, and a cluster has
only what its fault needs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from loadgen.drills import running
from loadgen.drills.catalogue import DRILLS, SHORT
from loadgen.drills.cluster import ClusterShape
from loadgen.drills.running import DrillPlan, run

SEED = 20_260_101
RATES = (100.0, 30.0)
SHAPES = {
    "worker-kill": ClusterShape(workers=2, shards=3, controllers=1),
    "controller-kill": ClusterShape(workers=1, shards=2, controllers=2),
    "link-cut": ClusterShape(workers=2, shards=2, controllers=1),
    "restart-all": ClusterShape(workers=2, shards=3, controllers=1),
}
DRAWN = "worker-kill"
"""One picture shows that they can be drawn."""


@pytest.mark.cluster
@pytest.mark.usefixtures("brief", "patient")
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")
@pytest.mark.parametrize("name", SHORT)
def test_it_holds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_drawn(plan: DrillPlan) -> None:
        assert plan.drill.name != DRAWN

    if name != DRAWN:
        monkeypatch.setattr(running, "_draw", not_drawn)
    if name == "link-cut":  # Nobody is to be taken for dead, and a busy machine may keep a worker from its turn.
        monkeypatch.setenv("HEADRACE_DEAD_AFTER", "20")
        monkeypatch.setenv("HEADRACE_SESSION_TIMEOUT", "20")
    said: list[str] = []
    drill = replace(DRILLS[name], shape=SHAPES[name])
    result = run(DrillPlan(drill, 1, SEED, tmp_path, tmp_path / "data", RATES), said.append)
    assert result.held, (SEED, result.document["findings"], result.document["broken"], result.document["examples"])
    document = json.loads((tmp_path / f"{name}.json").read_text())
    assert document["acknowledged_writes"] > 0
    assert document["rounds"]
    assert name != DRAWN or (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
