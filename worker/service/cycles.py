"""Old cycles: garbage that Python's collector, as ``expect_long_lives`` sets it, would leave for hours."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

COLLECT_SECONDS = 20.0
"""Between two collections. A cycle that has become old goes within twice of it."""
PAUSE_SECONDS = 0.01
"""A collection that took longer sets apart what it has left, so that the next one is short."""
WHOLE_SECONDS = 600.0
"""Between two collections of all that was set apart, where nothing is asked of the process meanwhile."""


class CycleCollector:
    """Collects old cycles now and then, on the event loop, without the pauses that walking over all rows would make.

    ::

        every 20 s   what is not set apart ── short? ──► stays     all of it is walked again: nothing escapes
                                           └─ long ────► set apart  the next one walks over what is new only
        idle         what was set apart, too, once it is ten minutes old

    A cycle goes within the first of these unless it was set apart before it became garbage: that takes a process that
    holds some 200,000 rows, and a cycle that is as old as they are.
    """

    def __init__(self, is_idle: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        self._is_idle = is_idle
        self._now = now
        self._whole = now()
        self._timer: asyncio.TimerHandle | None = None
        self.found = 0
        """Objects, so far."""
        self.longest = 0.0
        """Seconds, of one collection of what is not set apart."""
        self.longest_whole = 0.0

    def begin(self) -> None:
        loop = asyncio.get_running_loop()

        def again() -> None:
            self.collect()
            self._timer = loop.call_later(COLLECT_SECONDS, again)

        self._timer = loop.call_later(COLLECT_SECONDS, again)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def collect(self) -> None:
        before = self._now()
        whole = before - self._whole >= WHOLE_SECONDS and self._is_idle()
        if whole:
            self._whole = before
            gc.unfreeze()
        self.found += gc.collect()
        took = self._now() - before
        if whole:
            self.longest_whole = max(self.longest_whole, took)
        else:
            self.longest = max(self.longest, took)
        if took > PAUSE_SECONDS or whole:
            gc.freeze()

    def status(self) -> dict[str, float]:
        return {
            "found": self.found,
            "longest_pause": round(self.longest, 4),
            "longest_whole_pause": round(self.longest_whole, 4),
        }
