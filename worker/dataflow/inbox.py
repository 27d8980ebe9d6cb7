"""The inputs that wait for the dataflow thread, and their order.

Three things wait. What is *always* taken: packets of other workers, and what a cluster's leader wants. *Requests*,
which come from outside: they wait, in their order, while more than ``OUTBOUND_MAX`` is on its way to other workers. And
sliced commands that *rest* between two slices (``pacing.py``): one of them is taken at a time, behind the requests,
once the rest is over. It is a rest of them all: where several domains are fed side by side, the thread is free for as
long.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition

from domains.errors import HeadraceError, Overloaded, Unavailable
from worker.dataflow.batch import Answerer, Batch

INBOX_MAX = 10_000
"""Requests that may wait. At some 50 µs each this is half a second: past it a client had better hear that it is too
fast."""
BATCH_INPUTS = 128
"""Inputs to one batch: enough that one sync and one publish are shared, few enough that the first is not held long."""
OUTBOUND_MAX = 16 * 2**20
"""Bytes on their way to other workers past which nothing more is begun. A tenth of a second of a fast network; with
less, a brief hiccup of one worker would be felt by all who write, and with more it would only be felt later."""
OUTBOUND_CHECK = 0.02
"""Seconds between two looks whether there is room again, while requests wait for it."""

INPUT_BYTES = 1_000
"""Bytes of an input without rows: its closures, and who waits for it."""

Run = Callable[[Batch, Answerer], None]


class Stopping(Unavailable):
    """It takes nothing more. What was handed in is surely not done."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input for the dataflow thread, and the receiver of its error."""

    run: Run
    answer: Answerer
    size: int = INPUT_BYTES
    """Bytes that it takes, about."""


class Inbox:
    """Any thread may put; one takes. ``outbound_waiting`` says how many bytes are on their way to other workers,
    where there are any."""

    def __init__(
        self,
        outbound_waiting: Callable[[], int] | None = None,
        arrived: Condition | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outbound_waiting = outbound_waiting
        self.now = now
        self.stopping = False
        self.bytes = 0
        """The bytes of what waits."""
        self._refused: HeadraceError | None = None
        self._arrived = arrived or Condition()
        self._always: deque[Input] = deque()
        self._requests: deque[Input] = deque()
        self._resting: deque[Input] = deque()
        self.queues = (self._always, self._requests, self._resting)
        """To see whether anything waits, which is asked after each batch: ``any`` of them."""
        self._rested = 0.0
        """When what rests may go on, by ``now``."""

    def __len__(self) -> int:
        return sum(map(len, self.queues))

    @property
    def is_half_full(self) -> bool:
        return len(self._requests) >= INBOX_MAX // 2

    def put(self, one: Input, *, limited: bool = True, always: bool = False) -> None:
        """:raises Stopping, Overloaded: it is not taken.
        :raises HeadraceError: what ``fail`` was told."""
        with self._arrived:
            if self._refused is not None:
                raise self._refused
            if limited and not always and len(self._requests) >= INBOX_MAX:
                raise Overloaded(f"{INBOX_MAX} requests are waiting already", hint="send fewer at once, or later")
            (self._always if always else self._requests).append(one)
            self.bytes += one.size
            self._arrived.notify()

    def rest(self, one: Input, seconds: float) -> None:
        """A command that was taken goes on after a while, or at once when the others are stopping. For the thread that
        takes."""
        with self._arrived:
            self._resting.append(one)
            self.bytes += one.size
            self._rested = self.now() + seconds

    def take(self) -> list[Input]:
        """The inputs of the next batch, or of several, when there are any; none when there will be no more."""
        with self._arrived:
            while True:
                taken = _first(self._always, BATCH_INPUTS) if self._always else []
                full = bool(self._requests) and self.is_outbound_full
                if self._requests and not full:
                    taken += _first(self._requests, BATCH_INPUTS)
                rest = 0.0 if self.stopping or not self._resting else self._rested - self.now()
                if self._resting and rest <= 0:
                    taken += _first(self._resting, 1)
                if taken:
                    self.bytes -= sum([one.size for one in taken])
                if taken or (self.stopping and not self._requests):
                    return taken
                waits = [OUTBOUND_CHECK] * full + [rest] * bool(self._resting)
                self._arrived.wait(min(waits, default=None))

    @property
    def is_outbound_full(self) -> bool:
        waiting = self.outbound_waiting
        return waiting is not None and not self.stopping and waiting() > OUTBOUND_MAX

    def insert(self, run: Run) -> None:
        """An input that nobody waits for, and nothing refuses: where nothing is taken any more, it is not done."""
        with self._arrived:
            one = Input(run, lambda outcome: None)
            self._always.append(one)
            self.bytes += one.size
            self._arrived.notify()

    def stop(self) -> None:
        """Take nothing more; what is there can be taken still."""
        with self._arrived:
            self.stopping = True
            self._refused = self._refused or Stopping("headrace is stopping")
            self._arrived.notify_all()

    def fail(self, error: HeadraceError) -> list[Input]:
        """Take nothing more, and what waits is not done."""
        with self._arrived:
            self._refused = error
            self.bytes = 0
            return [one for queue in self.queues for one in _first(queue, len(queue))]


def _first(queue: deque[Input], most: int) -> list[Input]:
    return [queue.popleft() for _ in range(min(len(queue), most))]
