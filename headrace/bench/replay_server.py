"""The server that ``replay.py`` measures: ``headrace serve``, watched as it grows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

import psutil

from headrace.errors import Unavailable

SAMPLE_SECONDS = 0.2
START_SECONDS = 120.0


@dataclass(slots=True)
class Used:
    """By a server's process, and by those below it together: a job's, a JVM's, its workers'. Bytes, and seconds of a
    processor. Processes that end between two looks are counted as of the last look."""

    server_peak: int = 0
    others_peak: int = 0
    largest: dict[str, int] = field(default_factory=dict)
    """By the name of a program, the most that one process of it had."""
    server_cpu: float = 0.0
    others_cpu: float = 0.0


class Watched:
    """A server's process: where it answers, and what it and all below it have used since ``begin``."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        self._process = psutil.Process(process.pid)
        self.begin()
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._used, self._spent = Used(), dict[int, float]()
        self._before = _seconds(self._process)

    def used(self) -> Used:
        self._look()
        return self._used

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        used = self._used
        with suppress(psutil.Error):
            used.server_peak = max(used.server_peak, self._process.memory_info().rss)
            used.server_cpu = _seconds(self._process) - self._before
            below = 0
            for child in self._process.children(recursive=True):
                with suppress(psutil.Error):
                    resident, name = child.memory_info().rss, child.name()
                    below += resident
                    used.largest[name] = max(used.largest.get(name, 0), resident)
                    self._spent[child.pid] = _seconds(child)
            used.others_peak, used.others_cpu = max(used.others_peak, below), sum(self._spent.values())


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def serving(folder: Path, threshold: int, environment: Mapping[str, str]) -> Iterator[Watched]:
    """``headrace serve`` on ``folder/data`` with the archive and the scratch files of bulk jobs beside it."""
    command = [sys.executable, "-m", "headrace", "serve", "--port", "0", "--data", str(folder / "data")]
    command += ["--archive", str(folder / "archive"), "--spark-threshold", str(threshold)]
    env = {**os.environ, "TMPDIR": str(folder), **environment, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    watched = None
    try:
        watched = Watched(process, _address(process))
        yield watched
    finally:
        if watched is not None:
            watched.end()
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    for line in process.stdout:
        found = re.search(r"answers at (http://\S+)", line)
        if found:
            return found[1]
        if time.monotonic() > deadline:
            break
    raise Unavailable("the server that is to be measured did not start", hint="headrace serve says why")
