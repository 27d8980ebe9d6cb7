"""What clients see while ``rebuild.py`` has a shard rebuilt: those who read others, and those who wait for it."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Sequence
from threading import Event, Thread
from typing import Any

from headrace_client.connection import Connection

from headrace.bench.measurement import Beside, p99_ms
from headrace.errors import HeadraceError

READS_PER_SECOND = 50
"""Few enough to take no processor from what is measured, and so many that some seconds have a 99th percentile."""
AGAIN_SECONDS = 0.02
"""Between two tries of who waits: a request is held by the server, which answers at once when it can."""
KEPT_ERRORS = 5


class Reads(Beside):
    """A client that reads counts by turns, while the block lasts, one at a time. Those that would have been due behind
    a slow one are not read: on a busy machine they would queue up, and their times say how long it has been busy."""

    def __init__(self, url: str, stories: Sequence[int]) -> None:
        self._url, self._stories = url, stories
        self.count = self.errors = 0
        self.p99_ms = self.max_ms = 0.0
        self.max_at = 0.0
        """When the longest began, by ``time.perf_counter``."""
        self.said: list[str] = []
        """By errors, the most frequent."""

    def warm(self) -> None:
        """Fill the keys that are read: what is measured are hits."""
        with Connection(self._url) as db:
            db.view("Counted").lookup_many([[story] for story in self._stories])

    def _begin(self) -> None:
        self._taken, self._errors = array("d"), Counter[str]()

    def _end(self) -> None:
        self.count, self.errors = len(self._taken), self._errors.total()
        self.said = [text for text, _ in self._errors.most_common(KEPT_ERRORS)]
        self.p99_ms = p99_ms(self._taken)

    def _run(self) -> None:
        due, number = time.perf_counter(), 0
        with Connection(self._url) as db:
            view = db.view("Counted")
            while not self._over.wait(max(0.0, due - time.perf_counter())):
                began = time.perf_counter()
                try:
                    view.lookup(story=self._stories[number % len(self._stories)])
                except HeadraceError as error:
                    self._errors[str(error)] += 1
                taken = time.perf_counter() - began
                if taken * 1000 > self.max_ms:
                    self.max_ms, self.max_at = taken * 1000, began
                self._taken.append(taken)
                due, number = max(due + 1 / READS_PER_SECOND, time.perf_counter()), number + 1


class WaitingClient:
    """A client that asks a view until it answers: what, and when, by ``time.perf_counter``."""

    def __init__(self, url: str, view: str, **key: Any) -> None:
        self._url, self._view, self._key = url, view, key
        self.at: float | None = None
        self._over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it has answered by then."""
        self._thread.join(seconds)
        return self.at is not None

    def end(self) -> None:
        self._over.set()

    def _run(self) -> None:
        with Connection(self._url) as db:
            view = db.view(self._view)
            while not self._over.is_set():
                try:
                    view.lookup(**self._key)
                except HeadraceError:  # Its shard is not there yet, which is what is waited for.
                    self._over.wait(AGAIN_SECONDS)
                else:
                    self.at = time.perf_counter()
                    return
