"""``headrace load`` on the command line; and what docs/loading.md shows is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from serving_process import ROOT, Launch
from typer.testing import CliRunner

from headrace.cli import app

LOADING = (ROOT / "docs" / "loading.md").read_text("utf-8")
EXAMPLE = re.compile(r"^```sh\n(.*?)^```\n```text\n(.*?)^```$", re.M | re.S)

runner = CliRunner()


def shown(text: str) -> re.Pattern[str]:
    """A pattern in which … stands for any text without a space or quote."""
    return re.compile(re.escape(text).replace("…", r"[^\s\"]+"))


def test_what_the_documentation_shows(launch_local: Launch, tmp_path: Path) -> None:
    command = tmp_path / "bin" / "headrace"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m headrace "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python",
        "HEADRACE_URL": launch_local().url,
    }
    examples = EXAMPLE.findall(LOADING)
    assert len(examples) == 3
    for script, expected in examples:
        done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert shown(expected).search(done.stdout), done.stdout


def test_every_option_is_documented() -> None:
    declared = set(re.findall(r"--[a-z][a-z-]+", runner.invoke(app, ["load", "--help"], env={"COLUMNS": "200"}).output))
    plain = {"--help", "--url", "--config", "--delimiter"}
    assert declared - plain <= set(re.findall(r"--[a-z][a-z-]+", LOADING))
    assert set(re.findall(r"--[a-z][a-z-]+", LOADING)) <= declared


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--map", "nothing"], '"nothing" maps no column'),
        (["--map", "a=b", "--map", "=c"], '"=c" maps no column'),
        (["--delimiter", ";;"], '";;" is not a delimiter'),
        (["--delimiter", "§"], '"§" is not a delimiter'),
    ],
)
def test_mistakes_on_the_command_line(arguments: list[str], message: str) -> None:
    result = runner.invoke(app, ["load", "t", "f.csv", *arguments])
    assert result.exit_code == 1
    assert message in str(result.exception)
