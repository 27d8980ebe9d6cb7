"""How far a start is, for who asks meanwhile, and for the log."""

from __future__ import annotations

import asyncio
import logging
import time

from domains.errors import Cancelled

TELL_SECONDS = 3.0
"""Seconds between two lines of the log about one phase."""

PLANNING = "planning the tables and views of the recipe"
"""A phase of every process that serves."""

_log = logging.getLogger("headrace.start")


class Opening:
    """The phases of one start. The threads that open it tell, and the event loop reads; each field is set at once."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.phase = "starting"
        self.done = 0
        self.total = 0
        """The size of the phase; 0 where it is not known."""
        self.stop = asyncio.Event()
        """Set when the start is given up, on the event loop."""
        self._told = self.began

    def begin(self, phase: str, total: int = 0) -> None:
        """The next phase. Raises Cancelled where the start was given up."""
        self.phase, self.done, self.total = phase, 0, total
        self._tell()
        self.check()

    def went(self, done: int) -> None:
        """So much of the phase is done. Raises Cancelled where the start was given up."""
        self.done = done
        if time.monotonic() - self._told >= TELL_SECONDS:
            self._tell()
        self.check()

    @property
    def given_up(self) -> bool:
        return self.stop.is_set()

    def check(self) -> None:
        if self.given_up:
            raise Cancelled("the start was given up")

    def give_up(self) -> None:
        """The opener sees it at the next step."""
        self.stop.set()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def text(self) -> str:
        return f"{self.phase}: {self.done} of {self.total}" if self.total else self.phase

    def _tell(self) -> None:
        self._told = time.monotonic()
        _log.info("%s (%.1f s)", self.text(), self.seconds)
