"""Makes batches durable, then visible, then answers and sends, strictly in order: the second thread, or the first.

While the dataflow thread has more to do, this is another thread's; where it has nothing else to do it does it itself.

Invariant: an effect is performed only after a sync that began after its step was written. Since the dataflow thread
hands a batch over after its writes, and batches are taken in order, one sync of each store at the front of a run of
batches serves all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread

from domains.errors import HeadraceError, Unavailable
from domains.plan.commands import Progress
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock, Failed, Outcome
from worker.dataflow.batch import Answerer, Batch, LinkPacket, Look, Reveal
from worker.dataflow.crowding import Crowding
from worker.dataflow.watches import Watches
from worker.reader_map import ReaderMap
from worker.reader_map.environment import CannotGrow
from worker.reader_map.writer import Publication

BATCHES_WAITING = 16
"""Batches that may wait for the disk. More would only let memory grow: past it, the dataflow thread waits too."""

Deliver = Callable[[Sequence[tuple[DomainIndex, LinkPacket]]], None]
"""Takes packets for domains that are hosted elsewhere; it must not wait for anybody."""

_log = logging.getLogger("headrace.worker")


class GroupCommit:
    """``published`` are the positions that every reader of this process reflects, by the domain that has the base;
    ``failed`` is what stopped the flusher, for good."""

    def __init__(
        self,
        reader_map: ReaderMap,
        deliver: Deliver,
        listeners: list[Callable[[], None]],
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Tells the ``listeners`` after each run of batches."""
        self._reader_map = reader_map
        self.crowding = Crowding(reader_map)
        self.watches: Watches | None = None
        self._watching = False
        self._deliver = deliver
        self._listeners = listeners
        self._on_failure = on_failure
        self._batches: deque[Batch] = deque()
        self._flushing = False
        """Whether the flusher's thread has taken batches that are not flushed yet."""
        self._changed = Condition()
        self._stopping = False
        self.published: dict[DomainIndex, Clock] = {}
        self.syncs = 0
        self.batches = 0
        self.failed: HeadraceError | None = None
        self._thread = Thread(target=self._run, name="headrace-flusher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hand(self, batch: Batch, *, at_once: bool = False) -> None:
        """Called by the dataflow thread; waits while too many batches wait for the disk.

        ``at_once``: the caller has nothing else to do, and flushes the batch itself where no other is before it. That
        spares a client who is alone the way to another thread, some 25 µs.
        """
        with self._changed:
            if not at_once or self._batches or self._flushing:
                while len(self._batches) >= BATCHES_WAITING and self.failed is None:
                    self._changed.wait()
                self._batches.append(batch)
                self._changed.notify_all()
                return
        # Only the caller hands batches over, so the flusher's thread has none before this one is done.
        self._perform([batch])

    @property
    def is_idle(self) -> bool:
        """Whether all that was handed over is flushed; asked while nobody hands over."""
        with self._changed:
            return not self._batches and not self._flushing

    def stop(self) -> None:
        """Flush what was handed over, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._flushing = False
                while not self._batches and not self._stopping:
                    self._changed.wait()
                run = list(self._batches)
                self._batches.clear()
                self._flushing = True
                self._changed.notify_all()
            if not run:
                return
            self._perform(run)

    def _perform(self, run: list[Batch]) -> None:
        try:
            if self.failed is None:
                self._flush(run)
        except Exception as error:
            # Whatever it is, memory is now ahead of what anyone may see: nothing may be performed any more.
            _log.exception("the worker stops: a batch could not be made durable and visible")
            self.failed = error if isinstance(error, HeadraceError) else Unavailable(f"the worker stopped: {error}")
        if self.failed is not None:
            for batch in run:
                batch.fail(self.failed)
        for listener in list(self._listeners):
            listener()
        if self.failed is not None:
            self._on_failure()

    def _flush(self, run: list[Batch]) -> None:
        for sync in dict.fromkeys(sync for batch in run for sync in batch.syncs):
            sync()
            self.syncs += 1
        self.batches += len(run)
        for batch in run:
            self._show(batch)
            if batch.positions:
                self.published = {**self.published, **batch.positions}
            if self._watching or batch.watching:
                assert self.watches is not None, "whoever watches does so through it"
                self._watching = self.watches.step(batch)
            answers, batch.answers = batch.answers, []
            for answer, outcome in answers:
                answer(outcome)
            if batch.sends:
                self._deliver(batch.sends)

    def _show(self, batch: Batch) -> None:
        """One transaction for the batch; one more for each look whose keys the rest of it may evict (see ``Look``), and
        for each reader that comes or goes."""
        gathered: list[Publication] = []
        looks: list[Look] = []
        for entry in batch.visible:
            if isinstance(entry, tuple):
                if looks and entry[1].evicted:
                    self._publish(gathered, looks)
                gathered.append(entry)
            elif isinstance(entry, Look):
                looks.append(entry)
            else:
                self._publish(gathered, looks)
                if isinstance(entry, Reveal):
                    self._reader_map.reveal(entry.layout)
                else:
                    self._reader_map.drop(entry.layout)
        self._publish(gathered, looks)

    def _publish(self, gathered: list[Publication], looks: list[Look]) -> None:
        if gathered and self.crowding.why is not None:
            self.crowding.publish(gathered)
        elif gathered:
            try:
                self._reader_map.publish(gathered)
            except CannotGrow as error:
                self.crowding.begin(error, gathered)
        for look in looks:
            look.take()
        gathered.clear()
        looks.clear()


# Outcomes on their way from the group commit's thread to an event loop, which is woken once for all of a flush.
#
# An ``asyncio`` future that is chained to a ``concurrent.futures`` one costs 40 µs a request, most of it for locks, and
# each wakes the loop by itself. Here outcomes go into a queue, and the loop is woken if the queue was empty.

Waiting = asyncio.Future[Outcome]


class LoopCompletions:
    """Completions on one event loop. If a caller goes away, what was begun is carried through."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._given: deque[tuple[Waiting, Outcome | Progress]] = deque()
        self._woken = False
        """Whether :meth:`_hand_out` is scheduled."""

    def new(self) -> tuple[Waiting, Answerer]:
        """A future, and a function that sets its outcome from any thread."""
        waiting: Waiting = self._loop.create_future()

        def answer(outcome: Outcome | Progress) -> None:
            self._given.append((waiting, outcome))
            if not self._woken and not self._loop.is_closed():
                self._woken = True
                self._loop.call_soon_threadsafe(self._hand_out)

        return waiting, answer

    def _hand_out(self) -> None:
        self._woken = False  # First, so that later outcomes wake the loop again.
        while self._given:
            waiting, outcome = self._given.popleft()
            if waiting.done():
                continue
            if isinstance(outcome, Failed):
                waiting.set_exception(outcome.error)
            else:
                assert not isinstance(outcome, Progress)
                waiting.set_result(outcome)
