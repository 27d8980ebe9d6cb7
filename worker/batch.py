"""What a run of steps orders to be done outside: publishes and answers, in order, held until they are durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from domains.commands import Progress
from domains.packets import Clock, Outcome, Publish
from worker.reader_map import ReaderLayout

Answerer = Callable[[Outcome | Progress], None]
"""Hands an outcome to whoever asked."""


@dataclass(slots=True)
class Batch:
    """The gathered effects of the steps since the last batch."""

    writes: int = 0
    """Steps that wrote to a base table: only these need a sync."""
    publishes: list[Publish] = field(default_factory=list)
    dropped: list[ReaderLayout] = field(default_factory=list)
    answers: list[tuple[Answerer, Outcome | Progress]] = field(default_factory=list)
    clock: Clock = field(default_factory=dict)
    """What every reader reflects once this batch is published."""
