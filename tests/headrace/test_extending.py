"""docs/extending.md is done: each diff is applied to a copy of the tree, and its check is run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
KINDS = re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.M)
MOST = {"A scalar function": 4, "An aggregate": 5, "An operator": 8, "A CLI command": 3, "A setting": 2}
COPIED = ("api", "controller", "docs", "domains", "headrace", "migrations", "tests", "worker", "zookeeper", "lobsters")
TOLD = {
    "An aggregate": ("tests/domains/test_traits.py", "-k", "merges"),
    "An operator": ("tests/domains/test_traits.py", "-k", "answers_everything or names_operators"),
    "A scalar function": ("tests/domains/test_functions_text.py", "-k", "bit_length"),
}
"""Tests of the tree that have to hold with the change."""


def block(language: str, section: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)
    return str(found)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns(
        "*.so"
    )  # What is compiled comes along: only what the diff changes is compiled anew.
    for room in COPIED:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=ignored)
    shutil.copytree(ROOT / "clients" / "python", tmp_path / "clients" / "python", ignore=ignored)
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def run(copy: Path, *command: str, given: str | None = None) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(copy / "clients" / "python")])}
    # Git would take the copy for a part of a repository above it, and leave it alone.
    environment["GIT_CEILING_DIRECTORIES"] = str(copy.parent)
    done = subprocess.run(command, cwd=copy, env=environment, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout[-3000:], done.stderr[-3000:])


@pytest.mark.parametrize(("kind", "section"), KINDS, ids=[kind for kind, _ in KINDS])
def test_an_extension_is_made_as_written(kind: str, section: str, copy: Path) -> None:
    diff = block("diff", section)
    files = [name for name in re.findall(r"^\+\+\+ b/(.+)$", diff, re.M) if not name.startswith("tests/")]
    assert len([name for name in files if not name.endswith(".md")]) <= MOST[kind], files
    check = block("python", section)
    (
        elsewhere := copy / "before"
    ).mkdir()  # What a check writes is not to be met by the next one, nor left in the tree.
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(copy), str(copy / "clients" / "python")])}
    before = subprocess.run([sys.executable, "-c", check], cwd=elsewhere, env=path, capture_output=True, check=False)
    assert before.returncode, "the check holds without the change"
    run(copy, "git", "apply", "-", given=diff)
    run(copy, sys.executable, "-c", check)
    if kind in TOLD:
        run(copy, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TOLD[kind])


def test_every_kind_is_shown() -> None:
    assert {kind for kind, _ in KINDS} == set(MOST)
