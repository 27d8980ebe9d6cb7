"""The server that ``replay.py`` measures: filled without HTTP, served by ``headrace serve``, watched as it grows."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Event, Thread

import psutil

from controller.local import LocalDeployment
from headrace.bench.loading import load
from headrace.errors import Unavailable

SAMPLE_SECONDS = 0.2
START_SECONDS = 120.0

PROGRAM = """
CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20));
CREATE TABLE stories (id INT PRIMARY KEY, author INT, INDEX (author));
CREATE TABLE votes (user INT, story INT, INDEX (story));
CREATE EXT VIEW Counted AS SELECT COUNT(*) AS n FROM votes WHERE story = ?;
"""


def filled(path: Path, rows: int) -> None:
    """A data directory with so many rows: of a hundred, 94 are votes, five stories and one is a user."""
    asyncio.run(_fill(path, rows))


async def _fill(path: Path, rows: int) -> None:
    stories, users, random = rows // 20, rows // 100, Random(1)
    deployment = await LocalDeployment.open(path)
    try:
        await deployment.execute(PROGRAM)
        await load(deployment, "users", ((i, f"user{i}") for i in range(users)))
        await load(deployment, "stories", ((i, random.randrange(users)) for i in range(stories)))
        votes = rows - stories - users
        await load(deployment, "votes", ((random.randrange(10**9), random.randrange(stories)) for _ in range(votes)))
    finally:
        await deployment.close()


class Watched:
    """A server's process: where it answers, and the most memory that it and all below it had since ``forget_peaks``."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.url = url
        self._process = psutil.Process(process.pid)
        self._peaks = (0, 0)
        self._over = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def forget_peaks(self) -> None:
        self._peaks = (0, 0)

    def peaks(self) -> tuple[int, int]:
        """Bytes of the server, and of the processes below it together."""
        return self._peaks

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            with suppress(psutil.Error):
                own = self._process.memory_info().rss
                below = 0
                for child in self._process.children(recursive=True):
                    with suppress(psutil.Error):
                        below += child.memory_info().rss
                self._peaks = (max(own, self._peaks[0]), max(below, self._peaks[1]))


@contextmanager
def serving(folder: Path, threshold: int, environment: Mapping[str, str]) -> Iterator[Watched]:
    """``headrace serve`` on ``folder/data`` with the archive beside it."""
    command = [sys.executable, "-m", "headrace", "serve", "--port", "0", "--data", str(folder / "data")]
    command += ["--archive", str(folder / "archive"), "--spark-threshold", str(threshold)]
    env = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
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
