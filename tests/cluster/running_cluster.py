"""A ``headrace up`` in a process of its own, as a user has it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.told_process import FORKED_PARTS, SECONDS, ToldProcess
from zookeeper.secret import Secret, secret_of

DEADLINE = SECONDS
NO_JAVA = shutil.which("java") is None


class Running(ToldProcess):
    def __init__(self, data: Path, *arguments: str, parts: str = "forked", **environment: str) -> None:
        self.data = data
        self.url = self.mysql = ""
        self._speaks_mysql = "--mysql-port" in arguments
        program = [str(Path(__file__).with_name("fake_up.py"))] if parts == "fake" else ["-m", "headrace"]
        program = [str(FORKED_PARTS), *program] if parts == "forked" else program
        port = [] if "--port" in arguments else ["--port", "0"]
        patient = {"HEADRACE_READ_TIMEOUT": "30", **environment}  # an election on a busy machine takes a while
        super().__init__([*program, "up", "--data", str(data), *port, *arguments], patient, data.parent)

    def serves(self) -> Running:
        self.url = self.read_until(r"answers at (https?://\S+)")[1]
        if self._speaks_mysql:
            self.mysql = self.read_until(r"clients are answered at (\S+)")[1]
        self.read_until("stop with Ctrl-C")
        return self

    @property
    def secret(self) -> Secret | None:
        return secret_of(None, self.data)

    def pids(self) -> dict[str, int]:
        recorded: dict[str, Any] = json.loads((self.data / "up.json").read_text())
        return {name: part["pid"] for name, part in recorded["parts"].items()}

    def zookeeper(self) -> str:
        address: str = json.loads((self.data / "up.json").read_text())["zookeeper"]
        return address

    def stop(self, how: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        self.popen.send_signal(how)
        return self.finish()

    def kill(self) -> None:
        """It and all that it has started."""
        parts = list(self.pids().values()) if (self.data / "up.json").exists() else []
        self.popen.kill()
        for pid in parts:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()


Launch = Callable[..., Running]


def launching(directory: Path, parts: str = "forked") -> Iterator[Launch]:
    """``parts``: "real", as a user has them; "forked" of the supervisor, which has loaded the code; or "fake"."""
    if NO_JAVA:
        pytest.skip("there is no java on PATH")
    started: list[Running] = []

    def start(*arguments: str, data: str = "data", **environment: str) -> Running:
        started.append(Running(directory / data, *arguments, parts=parts, **environment))
        return started[-1]

    yield start
    for each in started:
        each.kill()


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
