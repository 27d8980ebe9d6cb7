"""The JavaScript client, by Node's own test runner: beside a server written by hand, and beside a real one."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

CLIENT = Path(__file__).resolve().parents[2] / "clients" / "js"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")

SCHEMA = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, score INT, name TEXT);
CREATE VIEW top AS SELECT id, name FROM t WHERE g = ? ORDER BY score DESC LIMIT 3;
CREATE VIEW count AS SELECT g, COUNT(*) AS n, SUM(score) AS score FROM t WHERE g = ? GROUP BY g;
CREATE VIEW names AS SELECT name FROM t WHERE g = ?
"""


def node(test: str, cwd: Path = CLIENT, **environment: str) -> None:
    assert NODE is not None
    command = [NODE, "--test", "--test-reporter=tap", f"test/{test}.test.js"]
    told = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "# pass 0" not in told.stdout


def test_live_views_in_node() -> None:
    node("live")


def test_it_shows_what_reads_answer(served_local: str) -> None:
    """``names`` has equal rows, ``top`` rows that only change their places."""
    httpx.post(f"{served_local}/v1/sql", json={"sql": SCHEMA}, timeout=60).raise_for_status()
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    node("real", HEADRACE_URL=served_local, SEED=str(seed))
