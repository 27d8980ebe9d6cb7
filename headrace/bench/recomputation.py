"""The peer of ``new_view.py``: DuckDB, which computes a view whole, in a process of its own as ours would be.

``python -m headrace.bench.recomputation DIR`` loads ``DIR/stories.csv`` and ``DIR/votes.csv``, says ``ready``, and
computes the SELECT of each line that it reads; the answer is how many seconds that took, without the way to here.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Recomputation:
    """The process as its caller sees it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def seconds(self, select: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(select.split()) + "\n")
        self._process.stdin.flush()
        return float(self.line())

    def line(self) -> str:
        """The child's next line. Raises ChildProcessError if it has ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ChildProcessError("the process of DuckDB has ended")
        return line.strip()


@contextmanager
def recomputation(directory: Path) -> Iterator[Recomputation]:
    """Over the files in the directory; it is ready when this begins."""
    command = [sys.executable, "-m", "headrace.bench.recomputation", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            found = Recomputation(process)
            assert found.line() == "ready"
            yield found
        finally:
            process.kill()


def _compute(directory: Path) -> None:
    import duckdb

    peer = duckdb.connect()
    peer.execute("CREATE TABLE stories (id INTEGER PRIMARY KEY, author INTEGER, title VARCHAR, url VARCHAR)")
    peer.execute("CREATE TABLE votes (user_id INTEGER, story_id INTEGER)")
    for name in ("stories", "votes"):
        peer.execute(f"COPY {name} FROM '{directory / name}.csv' (HEADER false)")
    print("ready", flush=True)
    for select in sys.stdin:
        begun = time.perf_counter()
        peer.execute(f"CREATE TABLE fresh AS {select}")
        taken = time.perf_counter() - begun
        peer.execute("DROP TABLE fresh")
        print(taken, flush=True)


if __name__ == "__main__":
    _compute(Path(sys.argv[1]))
