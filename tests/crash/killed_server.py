"""A ``headrace serve`` of this repository in a process of its own, to be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class KilledServer:
    """Serves the data directory from construction on; ``kill`` is SIGKILL, ``stop`` is SIGTERM and a clean end."""

    def __init__(self, data: Path, *options: str) -> None:
        self._errors = (data.parent / "errors.log").open("a+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace", "serve", "--data", str(data), "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout
        line = self._process.stdout.readline()
        found = re.search(r"answers at (http://\S+)", line)
        if found is None:
            self.kill()
            self._errors.seek(0)
            raise AssertionError(f"the server did not start: {line!r} {self._errors.read()}")
        self.url = found[1]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(timeout=60)
        assert self._process.stdout
        self._process.stdout.close()
        return code
