"""The server serves without any extra, and what needs one names it in a line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from serving_process import ROOT

from headrace.errors import EXTRAS

FORBID = f"""
import sys
class Forbidding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Forbidding())
"""
SERVES = """
from headrace import embedded
with embedded("data", read_your_writes=True) as db:
    db.execute("CREATE TABLE t (a INT PRIMARY KEY)")
    db.execute("CREATE VIEW v AS SELECT a FROM t WHERE a = ?")
    db.table("t").insert({"a": 1})
    print(db.view("v").lookup(a=1))
"""


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python", "NO_COLOR": "1"}
    command = [sys.executable, "-c", FORBID + program]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_it_serves_without_any(tmp_path: Path) -> None:
    assert run(tmp_path, SERVES).stdout == "[{'a': 1}]\n"


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("backup to", "spark"),
        ("load t f.csv", "spark"),
        ("follow mysql://root@127.0.0.1/shop", "upstream"),
        ("up", "cluster"),
        ("drill --list", "bench"),
        ("loadgen vote --sweep", "bench"),
        ("bench scale", "bench"),
        ("bench --help", "bench"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, arguments: str, extra: str) -> None:
    done = run(tmp_path, f"sys.argv = ['headrace', *{arguments.split()!r}]\nfrom headrace.cli import main\nmain()")
    assert done.returncode == 1
    assert f"hint: pip install 'headrace[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
