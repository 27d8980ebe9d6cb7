"""States of readers that clients walk: taken between two batches, with the clock that they reflect.

A hold keeps pages of the reader map from being used again, so a worker has few of them, and releases one that was not
asked for some seconds. All methods are for the event loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from domains.errors import LimitExceeded, Unavailable
from domains.plan.graph import DomainIndex, NodeIndex
from worker.dataflow.thread import DataflowThread
from worker.protocol.operations import HeldRows, Hold
from worker.reader_map import ReaderSnapshot
from worker.reader_map.merging import HeldRow

ROWS_AT_ONCE = 1_000
"""A fraction of a megabyte on the wire, and a millisecond of the event loop."""

HOLDS_MAX = 8
"""Few of LMDB's 510 slots for readers, and few pages that are kept."""

PATIENCE = 30.0
"""Seconds without a request after which a hold is released. The map grows meanwhile."""


@dataclass(slots=True)
class _Walk:
    snapshot: ReaderSnapshot
    rows: Iterator[HeldRow]
    timer: asyncio.TimerHandle


class Holds:
    def __init__(self, dataflow: DataflowThread) -> None:
        self._dataflow = dataflow
        self._walks: dict[int, _Walk] = {}
        self._last = time.time_ns()  # So no two processes give the same number.

    async def take(self, domain: DomainIndex, reader: NodeIndex) -> Hold:
        """Raises NotHere if the reader is not here, LimitExceeded."""
        if len(self._walks) >= HOLDS_MAX:
            raise LimitExceeded(f"{HOLDS_MAX} readers are being walked already", hint="wait until they are done")
        layout = self._dataflow.layouts.get((domain, reader))
        clock, snapshot = await asyncio.wrap_future(self._dataflow.hold(domain, reader))
        assert layout is not None, "the dataflow says so where there is none"
        self._last += 1
        number = self._last
        timer = asyncio.get_running_loop().call_later(PATIENCE, self.release, number)
        self._walks[number] = _Walk(snapshot, snapshot.walk(layout), timer)
        return Hold(number, clock)

    def next(self, number: int) -> HeldRows:
        """Raises Unavailable if the hold was released, or the map has grown."""
        walk = self._walks.get(number)
        if walk is None:
            raise Unavailable("the reader's state was let go meanwhile", hint="begin again, and read without pausing")
        try:
            with walk.snapshot.guarded():
                rows = tuple(islice(walk.rows, ROWS_AT_ONCE))
        except Unavailable:
            self.release(number)
            raise
        if rows:
            walk.timer.cancel()
            walk.timer = asyncio.get_running_loop().call_later(PATIENCE, self.release, number)
        else:
            self.release(number)
        return HeldRows(rows)

    def release(self, number: int) -> None:
        walk = self._walks.pop(number, None)
        if walk is not None:
            walk.timer.cancel()
            walk.snapshot.close()

    def close(self) -> None:
        for number in list(self._walks):
            self.release(number)
