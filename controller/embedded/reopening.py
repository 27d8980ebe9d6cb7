"""Opening what the disk has failed again, by itself and in the same process, until it succeeds.

A failed sync leaves memory ahead of the disk; a failed write leaves nobody who knows how much of it is there; a step
that broke leaves a domain behind its tables. None of that can be gone on from. So what stands on the stores is given
up whole and made again from the disk, while hits go on out of the reader map that was published last::

    failure ─► writes and misses: 503 ─► close the stores ─► open them again ─► nodes, as at a start ─► swap the engines
                 hits go on                      ▲                │ it fails
                                                 └─── wait ───────┘ health says since when, and why
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from domains.errors import Cancelled, HeadraceError, Unavailable

FIRST_SECONDS = 0.05
"""Most failures are over at once: a full disk on which somebody has made room, a hiccup of a network's disk."""
LONGEST_SECONDS = 10.0
"""Each try reads what was not merged yet, and plans the recipe. Whoever repairs a disk waits for so long at most."""
SETTLED_SECONDS = 60.0
"""Seconds of serving after which a failure counts as over: the next one begins anew."""

_log = logging.getLogger("headrace.controller")


class Reopening:
    """``reopen`` makes the next engine and puts it in the place of the one that failed. Lives on one event loop."""

    def __init__(self, reopen: Callable[[], Awaitable[None]]) -> None:
        self._reopen = reopen
        self._loop = asyncio.get_running_loop()
        self._wait = FIRST_SECONDS
        self._served_since = self._loop.time()
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self.since = ""
        """When it failed; empty while it serves."""
        self._why = ""

    def begin(self, failure: HeadraceError) -> None:
        """It has failed. Nothing happens where that is known already, or the deployment is being closed."""
        if self.since or self._stopping.is_set():
            return
        self.since, self._why = datetime.now(UTC).isoformat(timespec="seconds"), str(failure)
        if self._loop.time() - self._served_since >= SETTLED_SECONDS:
            self._wait = FIRST_SECONDS
        _log.error("opened again, since it failed: %s", failure)
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not await self._stopped(self._wait):
            self._wait = min(2 * self._wait, LONGEST_SECONDS)
            try:
                await self._reopen()
            except Cancelled:
                return
            except Exception as error:
                expected = isinstance(error, (HeadraceError, OSError))
                self._why = str(error) if expected else f"an internal error: {error!r}"
                _log.error("cannot be opened again, next try in %g s: %s", self._wait, self._why, exc_info=not expected)
                continue
            _log.warning("opened again: it had failed at %s", self.since)
            self.since = self._why = ""
            self._served_since = self._loop.time()
            return

    async def _stopped(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def text(self) -> str:
        """The present trouble, for the health check."""
        return f"not ok since {self.since}: {self._why}; it is opened again by itself"

    def alarms(self) -> list[dict[str, str]]:
        """JSON-ready."""
        return [{"since": self.since, "error": self.text()}] if self.since else []

    def check(self) -> None:
        """Raises Unavailable while it does not serve."""
        if self.since:
            raise Unavailable(self.text(), hint="try again later")

    async def close(self) -> None:
        """Nothing is opened again from here on; what is being opened is done when this returns."""
        self._stopping.set()
        if self._task is not None:
            await self._task
