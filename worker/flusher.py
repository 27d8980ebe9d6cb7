"""The second thread: makes batches durable, then visible, then answers, strictly in order.

Invariant: an effect is performed only after a sync that began after its step was written. Since the dataflow thread
hands a batch over after its writes, and batches are taken in order, one sync at the front of a run of batches serves
all of them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from threading import Condition, Thread

from domains.errors import HeadraceError, Unavailable
from domains.graph import NodeIndex
from domains.packets import Clock, Failed, Publish
from worker.batch import Batch, Look
from worker.reader_map import ReaderLayout, ReaderMap

BATCHES_WAITING = 16
"""Batches that may wait for the disk. More would only let memory grow: past it, the dataflow thread waits too."""

_log = logging.getLogger("headrace.worker")


class Flusher:
    """``published`` is the clock that every reader reflects; ``failed`` is what stopped the flusher, for good."""

    def __init__(
        self,
        sync: Callable[[], None],
        reader_map: ReaderMap,
        layouts: Mapping[NodeIndex, ReaderLayout],
        on_progress: Callable[[], None],
    ) -> None:
        self._sync = sync
        self._reader_map = reader_map
        self._layouts = layouts
        self._on_progress = on_progress
        self._batches: deque[Batch] = deque()
        self._changed = Condition()
        self._stopping = False
        self.published: Clock = {}
        self.syncs = 0
        self.failed: HeadraceError | None = None
        self._thread = Thread(target=self._run, name="headrace-flusher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hand(self, batch: Batch) -> None:
        """Called by the dataflow thread; waits while too many batches wait for the disk."""
        with self._changed:
            while len(self._batches) >= BATCHES_WAITING and self.failed is None:
                self._changed.wait()
            self._batches.append(batch)
            self._changed.notify_all()

    def stop(self) -> None:
        """Flush what was handed over, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._batches and not self._stopping:
                    self._changed.wait()
                run = list(self._batches)
                self._batches.clear()
                self._changed.notify_all()
            if not run:
                return
            try:
                if self.failed is None:
                    self._flush(run)
            except Exception as error:
                # Whatever it is, memory is now ahead of what anyone may see: nothing may be performed any more.
                _log.exception("the worker stops: a batch could not be made durable and visible")
                self.failed = error if isinstance(error, HeadraceError) else Unavailable(f"the worker stopped: {error}")
            if self.failed is not None:
                for batch in run:
                    for answer, _ in batch.answers:
                        answer(Failed(self.failed))
            self._on_progress()

    def _flush(self, run: list[Batch]) -> None:
        if any(batch.writes for batch in run):
            self._sync()
            self.syncs += 1
        for batch in run:
            self._publish(batch)
            for layout in batch.dropped:
                self._reader_map.drop(layout)
            self.published = batch.clock
            for answer, outcome in batch.answers:
                answer(outcome)

    def _publish(self, batch: Batch) -> None:
        """One transaction for the batch; one more for each look whose keys the rest of it may evict (see ``Look``)."""
        gathered: list[Publish] = []
        looks: list[Look] = []
        for effect in batch.publishes:
            if isinstance(effect, Look):
                looks.append(effect)
                continue
            if looks and effect.evicted:
                self._make_visible(gathered, looks)
            gathered.append(effect)
        self._make_visible(gathered, looks)

    def _make_visible(self, gathered: list[Publish], looks: list[Look]) -> None:
        if gathered:
            self._reader_map.publish(gathered, self._layouts)
        for look in looks:
            look.take()
        gathered.clear()
        looks.clear()
