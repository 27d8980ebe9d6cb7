"""How many rows a sliced command does at once, so that others wait for a slice no longer than they would notice.

What a row costs is known only when it is done: one of a table that nothing joins yet costs a microsecond, one that a
thousand others are joined with a few thousand. So slices begin small and grow to what fits into ``SLICE_SECONDS``, or
into twice the time of a slice of one row: a slice costs something by itself, and were that all there is time for, each
row would pay it.
What is measured is the processor time of the one thread that does it, so that a busy machine makes no slice smaller.

Where other work keeps the thread busy, a slice may take as long as that did since the one before: a backfill has half
of the thread then, and comes to its end however much is written.

A command goes on by itself, slice after slice with a rest between, for as long as its *stretch*: were each slice asked
for, it would wait for the main thread, which is with the clients for several times as long as a slice takes. What is
small, such as a view of a table of some thousand rows, is through before the first rest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from domains.plan.commands import BuildIndex, CheckRows, Feed, Follow, Progress, StartReplay
from domains.plan.graph import DomainIndex
from worker.dataflow.batch import Answerer, Batch
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.inbox import Inbox, Input

Sliced = Feed | Follow | BuildIndex | CheckRows | StartReplay

SLICE_SECONDS = 0.0005
"""Seconds that others wait for the dataflow thread: a write, and a read that misses. With 1 ms a view of a million rows
is there in 8 s, not 13, but the p99 of reads is 2.3 times a quiet server's, not 1.9, and a fifth fewer writes go on."""
LOCK_SECONDS = 0.0001
"""Seconds that others wait for Python's lock, instead of a whole slice: a read that hits asks for it three or four
times. Slices of 1 ms had a p99 of reads of 3.3 times a quiet server's without this, and of 1.7 with it."""
USUAL_LOCK_SECONDS = sys.getswitchinterval()
SLICE_SECONDS_MAX = 0.05
REST_SECONDS = 0.00025
"""Seconds between two slices: who wants the thread or the lock finds it free. Without it a third of the writes go on
and the p99 of reads is five times a quiet server's; half or twice of it made no measurable difference."""
UNRESTED_SECONDS = 0.01
"""Slices until here follow one another: what is small is through."""
STRETCH_SECONDS = 0.02
"""Seconds between two reports of progress, each of which also checks for a cancel."""
FIRST_ROWS = 250
GROWTH = 4
"""How many times as many rows the next slice may have."""


@dataclass(slots=True)
class SlicePace:
    """The pace of one command that is given again and again. ``now`` is in seconds."""

    now: Callable[[], float]
    rows: int = FIRST_ROWS
    """Rows of the next slice, at most."""
    spent: float = 0.0
    """Seconds that all slices so far have taken."""
    of_one_row: float = 0.0
    """Seconds that the latest slices of one row have taken on average; zero before there was one."""

    def perform(self, command: Sliced, act: Callable[[Sliced], Progress], others: float) -> Progress:
        """One slice: the command with no more rows than its own limit says. ``others`` are the seconds that went to
        what is not sliced since the last slice."""
        began = self.now()
        with _lending_the_lock():
            progress = act(replace(command, limit=min(command.limit, self.rows)))
        took = self.now() - began
        self.spent += took
        if progress.rows == 1:
            self.of_one_row = (3 * (self.of_one_row or took) + took) / 4
        if progress.rows:
            allowed = min(max(SLICE_SECONDS, others, 2 * self.of_one_row), SLICE_SECONDS_MAX)
            fits = int(progress.rows * allowed / max(took, 1e-6) + 0.01)
            self.rows = max(1, min(fits, GROWTH * progress.rows))
        return progress

    @property
    def rest(self) -> float:
        """Seconds until the next slice is due."""
        return REST_SECONDS if self.spent > UNRESTED_SECONDS else 0.0


@contextmanager
def _lending_the_lock() -> Iterator[None]:
    """Only within a slice: what is done at once is over sooner than it would be with the lock going to and fro."""
    sys.setswitchinterval(LOCK_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(USUAL_LOCK_SECONDS)


class Paces:
    """The paces of all commands of one thread that are under way in slices."""

    def __init__(self, now: Callable[[], float] = time.thread_time) -> None:
        self._now = now
        self._under_way: dict[tuple[DomainIndex, type[Sliced]], SlicePace] = {}
        self._ended = 0.0
        """When the last slice did, whosever it was: were the slices of one domain time of others to the next domain's,
        they would make each other longer and longer."""

    def perform(self, hosted: DomainHost, domain: DomainIndex, command: Sliced, batch: Batch) -> tuple[Progress, float]:
        """One slice, and for how many seconds it had better rest then. See :meth:`Hosted.perform`."""
        which = domain, type(command)
        pace = self._under_way.get(which) or SlicePace(self._now)
        others = self._now() - self._ended if self._under_way else 0.0
        progress = pace.perform(command, lambda slice: hosted.perform(domain, slice, batch), others)
        self._ended = self._now()
        self._under_way[which] = pace
        if progress.finished:
            del self._under_way[which]
        return progress, pace.rest


@dataclass(slots=True)
class Stretch:
    """A sliced command that goes on by itself until it is finished, for ``STRETCH_SECONDS`` at most.

    ``perform`` does one slice, and says how long to rest then. ``overtaken`` says whether who gave the command has
    wanted something else since: then no further slice is begun, not even the first.
    """

    perform: Callable[[Batch], tuple[Progress, float]]
    overtaken: Callable[[], bool]
    inbox: Inbox
    rows: int = 0
    until: float = 0.0

    def run(self, batch: Batch, answer: Answerer) -> None:
        progress, rest = Progress(0, False), 0.0
        if not self.overtaken():
            self.until = self.until or self.inbox.now() + STRETCH_SECONDS
            progress, rest = self.perform(batch)
            self.rows += progress.rows
        if progress.finished or self._is_over():
            batch.answers.append((answer, Progress(self.rows, progress.finished)))
        else:
            self.inbox.rest(Input(self.run, answer), rest)

    def _is_over(self) -> bool:
        inbox = self.inbox
        return self.overtaken() or inbox.stopping or inbox.now() >= self.until or inbox.is_outbound_full
