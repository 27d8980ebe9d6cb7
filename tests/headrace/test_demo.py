"""The demo as a user meets it: a process, what it prints, and the lines that it says to try."""

from __future__ import annotations

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
from rich.console import Console

from headrace import embedded
from headrace.demo import running
from headrace.demo.running import DemoContents, load, make_program
from headrace.demo.telling import Printer
from headrace.serving.listening import StartFailed
from lobsters.data import Data

SMALL = "0.03"
ROOT = Path(__file__).parents[2]
SECONDS = 180
"""For a process to say something that it says within three when nothing else runs."""


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "demo", "--scale", SMALL, "--port", "0", *options]


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "HEADRACE_SLOW_REQUEST": "0",  # a busy machine is no error of the demo's
        "PYTHONPATH": f"{ROOT}:{ROOT}/clients/python",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def test_once_it_ends_by_itself_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        command("--once"), cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for heading in ("A miss", "Its upquery", "The hit after it", "A vote", "An eviction", "How to go on"):
        assert heading in done.stdout
    assert re.search(r"● miss +[\d.]+ ms", done.stdout)
    assert re.search(r"● hit +[\d.]+ ms", done.stdout)
    assert "\x1b" not in done.stdout
    assert not list(tmp_path.iterdir())


class Demo:
    """A demo that serves on, with what it has printed."""

    def __init__(self, running: Path) -> None:
        self.process = subprocess.Popen(
            command("--data", "data"), cwd=running, env=environment(), stdout=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if "Ctrl-C" in line:
                break

    def stop(self) -> str:
        """Ctrl-C; what it says then."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode == 0
        return rest


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    running = Demo(tmp_path)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_lines_that_it_prints_work(demo: Demo, tmp_path: Path) -> None:
    lines = [line.strip() for line in demo.lines if line.startswith("   curl ") or ' sql "' in line]
    assert len(lines) == 6
    answers = [
        subprocess.run(
            line.replace("curl ", "curl -sS --fail ", 1) if line.startswith("curl") else line,
            shell=True,
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        ).stdout
        for line in lines
    ]
    page, vote, rows, table, tree, status = answers
    assert json.loads(page)["rows"][0]["title"]
    assert json.loads(vote)["rows_affected"] == 1
    assert json.loads(rows)["results"][0]["rows"]
    assert "title" in table
    assert "reader frontpage_ids" in tree
    assert json.loads(status)["health"] == "ok"
    assert "the data stays in data" in demo.stop()


def test_the_second_run_finds_the_data(demo: Demo, tmp_path: Path) -> None:
    demo.stop()
    again = Demo(tmp_path)
    again.stop()
    assert any("loading is skipped" in line for line in again.lines)


def test_a_load_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    data = Data(0.003)
    printer = Printer(Console(file=open(os.devnull, "w", encoding="utf-8")))  # noqa: SIM115
    with embedded(tmp_path) as db:
        make_program(db, printer)
        for _, (table, rows) in zip(range(6), Data(0.003).batches(1000), strict=False):
            db.table(table).insert(rows)
        make_program(db, printer)
        load(db, data, printer)
        stored = {table: entry["rows"] for table, entry in db.status()["tables"].items()}
    assert stored == data.totals


def test_a_directory_that_is_not_a_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("private")
    with pytest.raises(StartFailed, match="something else"):
        running.contents_of(tmp_path, DemoContents(1.0, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_a_directory_remembers_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "demo"
    assert running.contents_of(path, DemoContents(0.5, 7)) == DemoContents(0.5, 7, loaded=False)
    running.note(path, DemoContents(0.5, 7, loaded=True))
    assert running.contents_of(path, DemoContents(9.0, 9)) == DemoContents(0.5, 7, loaded=True)
