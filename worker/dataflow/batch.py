"""The effects of a run of steps: held until they are durable, and then performed in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from domains.errors import HeadraceError, OutcomeUnknown
from domains.plan.commands import Progress
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock, Failed, LinkUpdate, Outcome, Upquery, Written
from domains.store.storage import unknown_outcome
from worker.reader_map import BoundLookup, Parts, ReaderLayout
from worker.reader_map.writer import Publication

Answerer = Callable[[Outcome | Progress], None]
"""Hands an outcome to whoever asked."""

LinkPacket = LinkUpdate | Upquery
"""Packets over links, to wherever the other end is hosted."""


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


@dataclass(frozen=True, slots=True)
class Reveal:
    """A full reader is complete: from here on it is found."""

    layout: ReaderLayout


@dataclass(frozen=True, slots=True)
class Drop:
    """A reader is gone, with all its keys. Another of the same number may follow."""

    layout: ReaderLayout


WatchedReader = tuple[DomainIndex, NodeIndex]


class Ended(StrEnum):
    """Why a watch is over."""

    GONE = "gone"
    """The reader is not here any more: it has moved, or its view was dropped or replaced."""
    EVICTED = "evicted"
    """Memory is too short for all that is watched."""


@dataclass(eq=False, slots=True)
class Watch:
    """A look-up, of keys of one reader here, that somebody watches."""

    reader: WatchedReader
    layout: ReaderLayout
    lookup: BoundLookup
    onlooker: Onlooker
    filling: bool = False
    """Whether a key is a hole, and is asked for."""
    in_vain: int = 0
    """How often it was filled, and evicted with the same batch."""


Seen = Parts | Ended | None
"""The rows of a look-up by key; None while one of its keys is a hole."""


class Onlooker(Protocol):
    """Of one client of the hub. It is called by the flusher's thread, and must not wait."""

    def tell(self, seen: Sequence[tuple[Watch, Seen]], clocks: Mapping[WatchedReader, Clock]) -> None:
        """What a batch has changed. ``clocks``: what the watched readers reflect now, as far as that has changed. They
        hold for all their look-ups but those with a hole."""


@dataclass(slots=True)
class Batch:
    """The gathered effects of the steps since the last batch."""

    syncs: dict[Callable[[], None], None] = field(default_factory=dict)
    """The syncs of the stores that were written to: only these need one."""
    visible: list[Publication | Look | Reveal | Drop] = field(default_factory=list)
    """Changes of the reader map, in the order of the steps."""
    holds: list[Callable[[], Look]] = field(default_factory=list)
    """Asked at the end of the batch, on the dataflow thread; their looks see what the batch publishes, and no more."""
    positions: dict[DomainIndex, Clock] = field(default_factory=dict)
    """Positions of the written bases that readers reflect once this batch is published."""
    answers: list[tuple[Answerer, Outcome | Progress]] = field(default_factory=list)
    watching: list[tuple[Watch, bool]] = field(default_factory=list)
    """Watches that begin (True) or end with this batch."""
    clocks: dict[tuple[DomainIndex, NodeIndex], Clock | None] = field(default_factory=dict)
    """What the watched readers reflect once this batch is published, as far as that has changed; None where they have
    a part of a write, and the rest is on its way over another link."""
    sends: list[tuple[DomainIndex, LinkPacket]] = field(default_factory=list)
    """The packets to domains that are not hosted here, last of all: what leaves the process is durable."""

    def fail(self, error: HeadraceError) -> None:
        """It is not performed. A write of it may be on the disk all the same, and whoever waits for it hears that."""
        answers, self.answers = self.answers, []
        for answer, outcome in answers:
            lost = isinstance(outcome, Written) or (
                isinstance(outcome, Failed) and isinstance(outcome.error, OutcomeUnknown)
            )
            answer(Failed(unknown_outcome(error) if lost else error))
