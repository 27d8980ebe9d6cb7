"""The contract's tests run on each kind of ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from authority_kinds import NO_JAVA, InMemory, Kind, Real


@pytest.fixture(
    params=["memory", pytest.param("kazoo", marks=pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH"))]
)
async def kind(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kind]:
    chosen = InMemory() if request.param == "memory" else Real(tmp_path / "zookeeper")
    if isinstance(chosen, Real):
        await chosen.start()
    try:
        yield chosen
    finally:
        await chosen.close()
