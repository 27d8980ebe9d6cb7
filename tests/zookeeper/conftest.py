"""The contract's tests run on each kind of ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from authority_kinds import NO_JAVA, InMemory, Kind, Real, Shared

KINDS = ["memory", pytest.param("kazoo", marks=pytest.mark.skipif(NO_JAVA, reason="there is no java on PATH"))]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    server = Shared(tmp_path_factory.mktemp("zookeeper"))
    yield server
    server.stop()


@pytest.fixture(params=KINDS)
async def kind(request: pytest.FixtureRequest) -> AsyncIterator[Kind]:
    if request.param == "memory":
        memory = InMemory()
        yield memory
        await memory.close()
        return
    real = Real(request.getfixturevalue("shared"))
    await real.start()
    yield real
    await real.close()
