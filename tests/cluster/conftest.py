"""Clusters in a directory of the test's own; what is left of them is killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running_cluster import NO_JAVA, Running

Launch = Callable[..., Running]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts ``headrace up`` with the parts as they are."""
    yield from launching(tmp_path, fake=False)


@pytest.fixture
def launch_fake(tmp_path: Path) -> Iterator[Launch]:
    """Starts it with parts that only register and answer: for tests of the supervisor."""
    yield from launching(tmp_path, fake=True)


def launching(tmp_path: Path, *, fake: bool) -> Iterator[Launch]:
    if NO_JAVA:
        pytest.skip("there is no java on PATH")
    started: list[Running] = []

    def start(*arguments: str, data: str = "data", **environment: str) -> Running:
        started.append(Running(tmp_path / data, *arguments, fake=fake, **environment))
        return started[-1]

    yield start
    for each in started:
        each.kill()
