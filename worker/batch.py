"""What a run of steps orders to be done outside: publishes and answers, in order, held until they are durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from domains.commands import Progress
from domains.packets import Clock, Outcome, Publish
from worker.reader_map import ReaderLayout

Answerer = Callable[[Outcome | Progress], None]
"""Hands an outcome to whoever asked."""


@dataclass(slots=True)
class Look:
    """A read that waited for its keys: ``look`` reads them in the reader map, at the place where this stands.

    Whatever is published before it is visible to it, and whatever evicts is not. That is how a read that waits is
    always answered: its step filled all of its keys, and no eviction, be it by memory, by a write or by hand, comes
    between the fill and the look, however small the memory limit is.
    """

    look: Callable[[], Any]
    found: Any = None
    error: Exception | None = None

    def take(self) -> None:
        try:
            self.found = self.look()
        except Exception as error:  # It is the reader's own; those behind it are not to suffer.
            self.error = error


@dataclass(slots=True)
class Batch:
    """The gathered effects of the steps since the last batch."""

    writes: int = 0
    """Steps that wrote to a base table: only these need a sync."""
    publishes: list[Publish | Look] = field(default_factory=list)
    """In the order of the steps."""
    dropped: list[ReaderLayout] = field(default_factory=list)
    answers: list[tuple[Answerer, Outcome | Progress]] = field(default_factory=list)
    clock: Clock = field(default_factory=dict)
    """What every reader reflects once this batch is published."""

    def __bool__(self) -> bool:
        """Whether there is anything to do: a sample of read keys leaves nothing."""
        return bool(self.writes or self.publishes or self.dropped or self.answers)
