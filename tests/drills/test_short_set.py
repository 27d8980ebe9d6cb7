"""The short set on a real cluster: what must hold does. Times are told by the drills and not judged here, where other
tests run beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headrace.drills.catalogue import DRILLS, SHORT
from headrace.drills.running import Plan, run

SEED = 20_260_101
RATES = (100.0, 30.0)


@pytest.mark.cluster
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no java on PATH")
@pytest.mark.parametrize("name", SHORT)
def test_it_holds(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    result = run(Plan(DRILLS[name], 1, SEED, tmp_path, tmp_path / "data", RATES), said.append)
    assert result.held, (SEED, result.document["findings"], result.document["broken"], result.document["examples"])
    document = json.loads((tmp_path / f"{name}.json").read_text())
    assert document["acknowledged_writes"] > 0
    assert document["rounds"]
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
