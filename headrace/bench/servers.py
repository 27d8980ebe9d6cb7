"""Starts the servers of ``serving.py``, each in a process of its own, and stops them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from headrace.bench.client import Client


@contextmanager
def running(kind: str, stories: int, directory: Path) -> Iterator[tuple[Client, psutil.Process]]:
    """A server of this kind, a client of it, and its process."""
    command = [sys.executable, "-m", "headrace.bench.serving", kind, str(stories), str(directory / kind)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, f"the server {kind} did not start"
        client = Client(int(line))
        yield client, psutil.Process(server.pid)
        client.close()
    finally:
        server.terminate()
        server.wait()
