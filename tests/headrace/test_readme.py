"""What README.md and docs/architecture.md show is run: every command, curl line and Python block, on a real server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving_process import ROOT
from test_documentation import agrees

from headrace import connect

README = (ROOT / "README.md").read_text("utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
COMMAND = ".venv/bin/headrace"
SECONDS = 180
"""For what takes one or two when nothing else runs."""
SPARK_SECONDS = 400
"""For what starts Java twice, ten seconds each when nothing else runs."""


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where ``.venv/bin/headrace`` is the headrace of this test run, as after ``make``."""
    command = tmp_path / COMMAND
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m headrace "$@"\n')
    command.chmod(0o755)
    given = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return {**given, "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python", "PYTHONUNBUFFERED": "1"}


@contextlib.contextmanager
def serving(directory: Path, environment: dict[str, str], *command: str) -> Iterator[str]:
    """``headrace serve``, or another command that serves, on a free port; its host and port."""
    process = subprocess.Popen(
        [COMMAND, *(command or ("serve",)), "--port", "0"],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = re.search(r"answers at http://(\S+)", process.stdout.readline())
        assert said is not None
        yield said[1]
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run(arguments: list[str], directory: Path, environment: dict[str, str], seconds: float = SECONDS) -> str:
    done = subprocess.run(
        arguments, cwd=directory, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_tour_works_as_printed(tmp_path: Path, environment: dict[str, str]) -> None:
    blocks = BLOCK.findall(section("A quick tour") + section("From Python"))
    kinds = [kind for kind, _ in blocks]
    assert (kinds.count("sh"), kinds.count("json"), kinds.count("python")) == (6, 3, 2)
    with serving(tmp_path, environment) as host:
        known = {**environment, "HEADRACE_URL": f"http://{host}"}
        answer = ""
        for kind, text in blocks:
            here = re.sub(r"(localhost|127\.0\.0\.1):8080", host, text)
            if kind == "sh":
                answer = run(
                    ["bash", "-euo", "pipefail", "-c", here.replace("curl ", "curl -sS --fail ")], tmp_path, known
                )
                assert answer
            elif kind == "json":
                assert agrees(json.loads(text), json.loads(answer)), (text, answer)
            else:
                run([sys.executable, "-c", here], tmp_path, known)


@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java, for ZooKeeper")
def test_the_cluster_and_the_demo_on_it(tmp_path: Path, environment: dict[str, str]) -> None:
    up, demo = (text.strip() for kind, text in BLOCK.findall(section("A cluster")) if kind == "sh")
    assert up == f"{COMMAND} up --workers 3"
    with serving(tmp_path, environment, *up.split()[1:]) as host:
        told = run([*demo.replace("127.0.0.1:8080", host).split(), "--scale", "0.03"], tmp_path, environment)
    assert "An eviction" in told
    assert "3 workers" in told


def archive_section(tmp_path: Path, environment: dict[str, str], *, judged: bool) -> str:
    """What the section's last command says."""
    [serve, *blocks] = BLOCK.findall(section("An archive, and Spark"))
    assert serve[1].startswith(f"{COMMAND} serve --archive ")
    assert blocks[-1] == ("sh", f"{COMMAND} verify\n")
    answer = ""
    with serving(tmp_path, environment, *serve[1].split()[1:]) as host:
        known = {**environment, "HEADRACE_URL": f"http://{host}"}
        for kind, text in blocks if judged else blocks[:-1]:
            if kind == "json":
                assert agrees(json.loads(text), json.loads(answer.splitlines()[-1])), answer
            else:
                script = text.replace("localhost:8080", host).replace("curl ", "curl -sS --fail ")
                answer = run(["bash", "-euo", "pipefail", "-c", script], tmp_path, known, SPARK_SECONDS)
                if "VIEW Ranking" in script:
                    with connect(f"http://{host}") as db:  # It is built now, and not when it is read.
                        assert [each["materialization"] for each in db.views()] == ["full"]
    assert (tmp_path / "restored" / "recipe.json").exists()
    return answer


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_archive_without_spark(tmp_path: Path, environment: dict[str, str]) -> None:
    """All but the judge; the bulk migration is done by a process beside."""
    told = archive_section(tmp_path, {**environment, "HEADRACE_SPARK_MASTER": "none"}, judged=False)
    assert "ballots: 5,000 rows" in told


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.skipif(shutil.which("java") is None or shutil.which("curl") is None, reason="needs Java and curl")
def test_the_archive_with_spark(tmp_path: Path, environment: dict[str, str]) -> None:
    assert "equal" in archive_section(tmp_path, environment, judged=True)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_tree_that_the_architecture_shows(tmp_path: Path, environment: dict[str, str]) -> None:
    program = BLOCK.findall(section("A quick tour"))[0][1]
    shown = next(text for _, text in BLOCK.findall(ARCHITECTURE) if text.startswith("[5] reader StoriesWithVC"))
    with serving(tmp_path, environment) as host:
        run(["bash", "-euc", program], tmp_path, {**environment, "HEADRACE_URL": f"http://{host}"})
        tree = run([COMMAND, "explain", "StoriesWithVC", "--url", f"http://{host}"], tmp_path, environment)
    assert tree == shown


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_the_two_commands(tmp_path: Path, environment: dict[str, str]) -> None:
    """What ``make`` would run; the demo is run, small, and so are the tests: this is one of them."""
    assert [text.strip() for kind, text in BLOCK.findall(section("Two commands")) if kind == "sh"] == [
        "make demo",
        "make test",
    ]
    assert "`make demo ONCE=1`" in README

    def planned(*arguments: str) -> str:
        return run(["make", "-s", "-n", "-C", str(ROOT), *arguments], tmp_path, environment).splitlines()[-1].strip()

    assert planned("demo") == f"{COMMAND} demo"
    assert planned("test", "JOBS=5").startswith(".venv/bin/python -m pytest -n 5 ")
    once = planned("demo", "ONCE=1", "SCALE=0.03", "PORT=0")
    assert once == f"{COMMAND} demo --once --scale 0.03 --port 0"
    assert "An eviction" in run(once.split(), tmp_path, environment)
