"""Outcomes on their way from the group commit's thread to an event loop, which is woken once for all of a flush.

An ``asyncio`` future that is chained to a ``concurrent.futures`` one costs 40 µs a request, most of it for locks, and
each wakes the loop by itself. Here outcomes go into a queue, and the loop is woken if the queue was empty.
"""

from __future__ import annotations

import asyncio
from collections import deque

from domains.plan.commands import Progress
from domains.plan.packets import Failed, Outcome
from worker.dataflow.batch import Answerer

Waiting = asyncio.Future[Outcome]


class LoopCompletions:
    """Of one event loop. If a caller goes away, what was begun is carried through."""

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
