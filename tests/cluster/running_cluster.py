"""A ``headrace up`` in a process of its own, as a user has it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0
NO_JAVA = shutil.which("java") is None


class Running:
    def __init__(self, data: Path, *arguments: str, fake: bool = False, **environment: str) -> None:
        self.data = data
        program = [str(ROOT / "tests" / "cluster" / "fake_up.py")] if fake else ["-m", "headrace"]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it lives as long as the process)
        port = [] if "--port" in arguments else ["--port", "0"]
        self.popen = subprocess.Popen(
            [sys.executable, *program, "up", "--data", str(data), *port, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment},
            cwd=data.parent,
        )
        self.lines: list[str] = []
        self.url = ""

    def read_until(self, pattern: str) -> re.Match[str]:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern!r} in {self.lines}, {self.errors()}")

    def serves(self) -> Running:
        self.url = self.read_until(r"answers at (http://\S+)")[1]
        self.read_until("stop with Ctrl-C")
        return self

    def pids(self) -> dict[str, int]:
        recorded: dict[str, Any] = json.loads((self.data / "up.json").read_text())
        return {name: part["pid"] for name, part in recorded["parts"].items()}

    def zookeeper(self) -> str:
        address: str = json.loads((self.data / "up.json").read_text())["zookeeper"]
        return address

    def stop(self, how: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        self.popen.send_signal(how)
        return self.finish()

    def finish(self) -> tuple[int, str, str]:
        code = self.popen.wait(timeout=DEADLINE)
        assert self.popen.stdout
        return code, "".join(self.lines) + self.popen.stdout.read(), self.errors()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def kill(self) -> None:
        """It and all that it has started."""
        parts = list(self.pids().values()) if (self.data / "up.json").exists() else []
        for pid in (self.popen.pid, *parts):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.popen.wait()
        assert self.popen.stdout
        self.popen.stdout.close()
        self._errors.close()


def until(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return value


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
