"""A server for the load to run against: one process, four shards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Its URL."""
    command = [sys.executable, "-m", "headrace", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    process = subprocess.Popen(
        [*command, "--shards", "4"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        cwd=tmp_path,
    )
    assert process.stdout is not None
    found = re.search(r"answers at (http://\S+)", process.stdout.readline())
    assert found, "the server did not start"
    yield found[1]
    process.kill()
    process.wait()
    process.stdout.close()
