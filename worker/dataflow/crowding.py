"""The reader map without room on its disk: it has holes, and everything goes on.

A publish that does not fit is made to: the keys of partial readers that it changes become holes, and their domain is
told, in this order::

    publish ─► CannotGrow ─► shed: its keys are holes ────► evict them in the domain, and as much again of what is
                              └─ full readers have no room:   used least, so that the next ones fit
                                 all partial keys are holes

A hole is never wrong: who reads it asks the domain, which has heard of the eviction before. Only where full readers
alone have no room the publish fails, and all is opened again until there is some.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Publish
from worker.reader_map import ReaderLayout, ReaderMap
from worker.reader_map.environment import CannotGrow
from worker.reader_map.writer import Publication

FREE_SHARE = 4
"""A quarter of a map that cannot grow stays free: whatever is changed, be it to evict, takes as many pages again, and
those before are free two transactions later."""
LEAST_SHARE = 8
"""The least share: with less than an eighth nothing is filled."""
GROW_SECONDS = 1.0
"""Seconds between two looks whether there is room again."""

_log = logging.getLogger("headrace.worker")

Reader = tuple[DomainIndex, NodeIndex]
Evict = Callable[[Sequence[Publish], Sequence[Reader], int], None]
"""Called with keys that are holes, readers whose keys all are, and the number of bytes still to free."""


class Crowding:
    """Publishes for the flusher while the map does not grow. ``readers`` are those of the process."""

    def __init__(self, reader_map: ReaderMap) -> None:
        self._map = reader_map
        self.readers: Callable[[], Mapping[Reader, ReaderLayout]] = dict
        self.evict: Evict = lambda holes, cleared, excess: None
        self.evicting = False
        """Whether it was asked to, and has not come to it."""
        self._since = ""
        self.why: CannotGrow | None = None
        """Why the map did not grow; None: whatever is published fits."""
        self._tried = 0.0

    def publish(self, publications: Sequence[Publication]) -> None:
        """While the map does not grow.

        :raises CannotGrow: full readers have no room.
        """
        if self._is_full():
            self._make_fit(publications)
        else:
            try:
                self._map.publish(publications)
            except CannotGrow as error:
                self._begin(error)
                self._make_fit(publications)
        self._look()

    def begin(self, error: CannotGrow, publications: Sequence[Publication]) -> None:
        """A publish did not fit, and nothing of it is visible.

        :raises CannotGrow: full readers have no room.
        """
        self._begin(error)
        self._make_fit(publications)
        self._look()

    def alarms(self) -> list[dict[str, str]]:
        """JSON-ready. Any thread."""
        why = self.why
        return [] if why is None else [{"since": self._since, "error": str(why)}]

    def _is_full(self) -> bool:
        """Even if the next publish had room, there might be none left to make holes."""
        size, free = self._map.room()
        return free < size // LEAST_SHARE

    def _begin(self, error: CannotGrow) -> None:
        if self.why is None:
            self._since = datetime.now(UTC).isoformat(timespec="seconds")
            _log.warning("%s", error)
        self.why, self._tried = error, time.monotonic()

    def _make_fit(self, publications: Sequence[Publication]) -> None:
        cleared: list[Reader] = []
        try:
            holes = self._map.shed(publications)
        except CannotGrow:
            partial = {reader: layout for reader, layout in self.readers().items() if layout.reader.key}
            self._map.clear(list(partial.values()))
            cleared = list(partial)
            holes = self._map.shed(publications)
        self.evicting = True
        self.evict(holes, cleared, self._map.room()[0] // FREE_SHARE)

    def _look(self) -> None:
        """Keep some room, and grow once that can be done."""
        if time.monotonic() - self._tried >= GROW_SECONDS:
            try:
                self._map.grow()
            except CannotGrow as error:
                self._begin(error)
            else:
                self.why = None
                _log.info("the reader map has room again")
                return
        size, free = self._map.room()
        if free < size // FREE_SHARE and not self.evicting:
            self.evicting = True
            self.evict((), (), size // FREE_SHARE - free)
