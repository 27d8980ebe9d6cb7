"""The JavaScript client, by Node's own test runner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "js"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_live_views_in_node() -> None:
    assert NODE is not None
    told = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", "test/live.test.js"],
        cwd=CLIENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "# pass 13" in told.stdout, told.stdout
