"""Old cycles: garbage that Python's collector, as ``expect_long_lives`` sets it, would leave for hours."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable

from worker.service.system import give_back_now, resident_bytes

COLLECT_SECONDS = 20.0
"""Seconds between two collections. A cycle that has become old goes within twice of it."""
PAUSE_SECONDS = 0.01
"""A collection that took longer sets apart what it has left, so that the next one is short."""
WHOLE_SECONDS = 600.0
"""Seconds between two collections of all that was set apart, where nothing is asked of the process meanwhile."""
GROWN = 1.25
"""Times as many objects as were left by the latest such collection, after which there is one in any case: what is set
apart while it is used, as the tree of a long text of SQL is, would else be left for ever by a process that is never
idle."""
GROWN_OBJECTS = 200_000
"""The least growth in objects: some 60 MB."""
GROWN_SECONDS = 60.0
SHARE = 200
"""Times as long as such a collection takes, at least, until the next one."""
GIVEN_BACK = 64_000_000
"""Bytes by which the process has grown, after which its allocator is told to give back the free pages that it keeps
between others: 10 to 60 ms in a thread, in which others wait for large blocks only."""


class CycleCollector:
    """Collects old cycles now and then, on the event loop, without the pauses that walking over all rows would make.

    ::

        every 20 s   what is not set apart ── short? ──► stays     all of it is walked again: nothing escapes
                                           └─ long ────► set apart  the next one walks over what is new only
        idle         what was set apart, too, once it is ten minutes old
        grown        the same, once what is set apart is a quarter more than was left by the latest of these

    A cycle goes within the first of these unless it was set apart before it became garbage: that takes a process that
    holds some 200,000 rows, and a cycle that is as old as they are.
    """

    def __init__(
        self,
        is_idle: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        """``spent``: seconds of the processor, which on a busy machine are fewer than those that pass."""
        self._is_idle = is_idle
        self._now = now
        self._spent = spent
        self._whole = now()
        self._timer: asyncio.TimerHandle | None = None
        self.found = 0
        """Objects, so far."""
        self.longest = 0.0
        """Seconds, of one collection of what is not set apart."""
        self.longest_whole = 0.0
        self._left = gc.get_freeze_count()
        """Objects that the latest collection of all has left."""
        self._size = resident_bytes()
        """After the allocator was last told to give back."""

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
        now, before = self._now(), self._spent()
        since = now - self._whole
        whole = (since >= WHOLE_SECONDS and self._is_idle()) or (
            since >= max(GROWN_SECONDS, SHARE * self.longest_whole)
            and gc.get_freeze_count() > self._left * GROWN + GROWN_OBJECTS
        )
        if whole:
            self._whole = now
            gc.unfreeze()
        self.found += gc.collect()
        took = self._spent() - before
        if whole:
            self.longest_whole = max(self.longest_whole, took)
        else:
            self.longest = max(self.longest, took)
        if took > PAUSE_SECONDS or whole:
            gc.freeze()
        if whole:
            self._left = gc.get_freeze_count()
        if resident_bytes() - self._size > GIVEN_BACK:
            threading.Thread(target=self._give_back, name="given back", daemon=True).start()

    def _give_back(self) -> None:
        give_back_now()
        self._size = resident_bytes()

    def status(self) -> dict[str, float]:
        return {
            "found": self.found,
            "longest_pause": round(self.longest, 4),
            "longest_whole_pause": round(self.longest_whole, 4),
        }
