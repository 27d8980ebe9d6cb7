"""What a developer is told to run is what CI runs, and the output of the tests ends with their result."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def commands(target: str) -> list[str]:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert found is not None
    return [line.strip().removeprefix("@").replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_pre_commit_runs_what_make_check_runs() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    assert re.findall(r"entry: ([^,]+),", hooks) == commands("check")


def test_the_fast_tests_are_there() -> None:
    (command,) = commands("test-fast")
    assert [each for each in command.split() if each.startswith("tests/") and not (ROOT / each).is_dir()] == []


def test_what_a_test_serves_in_its_own_process_is_not_told_as_a_leak(tmp_path: Path) -> None:
    """DuckDB's binding tells at the end of the process what is still there, and a server sets its garbage apart."""
    pytest.importorskip("duckdb")
    (tmp_path / "test_one.py").write_text(
        "import duckdb\nfrom worker.service.system import expect_long_lives\n\n"
        "def test_it():\n    expect_long_lives()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "-p", "tests.conftest", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    assert "1 passed" in done.stdout.splitlines()[-1]
    assert "leaked" not in done.stderr


def test_a_test_that_logs_a_secret_fails(tmp_path: Path) -> None:
    """As all tests do, since ``tests/conftest.py`` looks at what each has said."""
    key = "hrk_" + "A1b-" * 10
    (tmp_path / "test_leak.py").write_text(
        f"import logging\n\ndef test_it():\n    logging.getLogger('x').error('is {key} wrong?')\n\n"
        "def test_not():\n    pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout
    assert "a secret is in what was said" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
