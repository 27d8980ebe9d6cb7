"""A ``headrace serve`` of this repository in a process of its own, to be killed."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.told_process import ToldProcess


class KilledServer(ToldProcess):
    """Serves the data directory from construction on; ``kill`` is SIGKILL, ``stop`` is SIGTERM and a clean end."""

    def __init__(self, data: Path, *options: str) -> None:
        super().__init__(["-m", "headrace", "serve", "--data", str(data), "--port", "0", *options], {})
        try:
            self.url = self.read_until(r"answers at (http://\S+)")[1]
        except AssertionError:
            self.kill()
            raise

    def stop(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        code, _, _ = self.finish(60)
        self.kill()
        return code
