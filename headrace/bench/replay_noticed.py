"""What others notice while ``replay.py`` has a view built: one client that writes, and reads a view that is there."""

from __future__ import annotations

import time
from array import array
from random import Random

from headrace_client.connection import Connection

from headrace.bench.beside import Beside

KEYS_READ = 1000
"""Of the view, all of them filled before: what is measured is how long a read that hits takes."""


class Noticed(Beside):
    """One client that writes and reads by turns, in a thread, while the block lasts."""

    def __init__(self, url: str, rows: int) -> None:
        self._url, self._random, self._stories = url, Random(rows), max(1, rows // 20)
        self.writes = 0.0
        """A second."""
        self.reads = array("d")
        """Seconds of each."""

    def warm(self) -> None:
        """Fill the keys that are read: of a quiet server too many reads would miss, and look like its tail."""
        with Connection(self._url) as db:
            for story in range(min(self._stories, KEYS_READ)):
                db.view("Counted").lookup(story=story)

    def _begin(self) -> None:
        self.reads, self._written = array("d"), 0
        self._began = time.perf_counter()

    def _end(self) -> None:
        self.writes = self._written / (time.perf_counter() - self._began)

    def _run(self) -> None:
        random = self._random
        with Connection(self._url) as db:
            votes, counts = db.table("votes"), db.view("Counted")
            while not self._over.is_set():
                votes.insert({"user": random.randrange(10**9, 2 * 10**9), "story": random.randrange(self._stories)})
                self._written += 1
                began = time.perf_counter()
                counts.lookup(story=random.randrange(min(self._stories, KEYS_READ)))
                self.reads.append(time.perf_counter() - began)
