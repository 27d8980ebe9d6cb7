"""Outcomes on their way from the flusher's thread to an event loop: all of a flush with one waking.

A ``concurrent.futures.Future`` that an ``asyncio`` one is chained to costs 40 µs a request, most of it locks, and each
wakes the loop by itself. Here the flusher puts outcomes into a queue and wakes the loop when the queue was empty.
"""

from __future__ import annotations

import asyncio
from collections import deque

from domains.plan.commands import Progress
from domains.plan.packets import Failed, Outcome
from worker.dataflow.batch import Answerer

Waiting = asyncio.Future[Outcome]


class LoopCompletions:
    """Of one event loop. A caller may go away: what was begun is carried through."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._given: deque[tuple[Waiting, Outcome | Progress]] = deque()
        self._woken = False
        """Whether :meth:`_hand_out` is to come, so that nobody need wake it again."""

    def new(self) -> tuple[Waiting, Answerer]:
        """A future to wait for, and a function that delivers its outcome from any thread."""
        waiting: Waiting = self._loop.create_future()

        def answer(outcome: Outcome | Progress) -> None:
            self._given.append((waiting, outcome))
            if not self._woken and not self._loop.is_closed():
                self._woken = True
                self._loop.call_soon_threadsafe(self._hand_out)

        return waiting, answer

    def _hand_out(self) -> None:
        self._woken = False  # First: what is put in from here on wakes again.
        while self._given:
            waiting, outcome = self._given.popleft()
            if waiting.done():
                continue
            if isinstance(outcome, Failed):
                waiting.set_exception(outcome.error)
            else:
                assert not isinstance(outcome, Progress)
                waiting.set_result(outcome)
