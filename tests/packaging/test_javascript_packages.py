"""Packages of npm beside the JavaScript client, on a real server: an unmodified client of Durable Streams with TanStack
DB, and React."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.headrace.test_javascript_client import node
from tests.told_process import ToldProcess

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("@durable-streams/state@0.3.1", "@tanstack/db@0.15.2", "zod@4", "react@19", "react-dom@19", "jsdom@27")
SCHEMA = """
CREATE TABLE t (id INT PRIMARY KEY, g INT, score INT, name TEXT);
CREATE VIEW top AS SELECT id, name FROM t WHERE g = ? ORDER BY score DESC LIMIT 10
"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_durable_streams_tanstack_db_and_react(tmp_path: Path) -> None:
    client = tmp_path / "js"
    shutil.copytree(ROOT / "clients" / "js", client)
    npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--silent", *PACKAGES]
    subprocess.run(npm, cwd=client, check=True, timeout=600)
    server = ToldProcess(["-m", "headrace", "serve", "--port", "0", "--data", str(tmp_path / "data")], {})
    try:
        url = server.read_until(r"http://127\.0\.0\.1:\d+").group()
        httpx.post(f"{url}/v1/sql", json={"sql": SCHEMA}, timeout=60).raise_for_status()
        node("packages", client, HEADRACE_URL=url)
        # It starts its server by itself, to kill it.
        paths = f"{ROOT}:{ROOT}/clients/python"
        node("collection", client, HEADRACE_PYTHON=sys.executable, PYTHONPATH=paths)
    finally:
        server.kill()
