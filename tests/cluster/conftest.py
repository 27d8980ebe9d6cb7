"""Clusters in a directory of the test's own; what is left of them is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_cluster import Launch, launching


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts ``headrace up`` with the parts as they are."""
    yield from launching(tmp_path, fake=False)


@pytest.fixture
def launch_fake(tmp_path: Path) -> Iterator[Launch]:
    """Starts it with parts that only register and answer: for tests of the supervisor."""
    yield from launching(tmp_path, fake=True)
