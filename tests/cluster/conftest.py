"""Clusters in a directory of the test's own; what is left of them is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_cluster import NO_JAVA, Launch, launching

from headrace.embedding import LoopThread
from zookeeper.server import Ensemble


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts ``headrace up`` with parts that are forks of it."""
    yield from launching(tmp_path)


@pytest.fixture
def launch_real(tmp_path: Path) -> Iterator[Launch]:
    """Starts it as a user does: for a test of how the parts are started, and of what a stranger sees of them."""
    yield from launching(tmp_path, "real")


@pytest.fixture
def launch_fake(tmp_path: Path) -> Iterator[Launch]:
    """Starts it with parts that only register and answer: for tests of the supervisor."""
    yield from launching(tmp_path, "fake")


@pytest.fixture(scope="module")
def ensemble_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A ZooKeeper for the tests of a module to which its server is all the same."""
    if NO_JAVA:
        pytest.skip("there is no java on PATH")
    thread, ensemble = LoopThread(), Ensemble(tmp_path_factory.mktemp("zookeeper"))
    thread.run(ensemble.start())
    yield ensemble.address
    thread.run(ensemble.stop())
    thread.stop()


@pytest.fixture
def elsewhere(ensemble_address: str, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Has ``up`` use that one, below a znode of the test's own: without a JVM of its own to start."""
    return "--zookeeper", f"{ensemble_address}/{request.node.name}"
