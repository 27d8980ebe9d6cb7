"""The ledger of writes: acknowledged, refused, or unknown. Pure.

Every entry has an id of its own, so what is missing, there twice, or there without having been written can be named.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

# One line for each request of a load: when it was due, how long it took, and what came of it.


class Record(NamedTuple):
    """Times are seconds of the machine's monotonic clock, the same for all of its processes."""

    due: float
    """When it was to be sent; it may have gone out later."""
    latency: float
    """Seconds from ``due`` to its answer, or until it was given up."""
    kind: str
    """A view's name, or the kind of a write (``program.BY_STORY``)."""
    key: int
    """Story or user; -1 where there is none."""
    outcome: str
    """``ok``, ``refused``, ``unknown`` (a write), ``error`` (a read), ``wrong``."""

    @property
    def end(self) -> float:
        return self.due + self.latency

    @property
    def good(self) -> bool:
        return self.outcome == "ok"


def write(path: Path, records: Iterable[Record]) -> None:
    """Add them to the file, which is made if it is not there."""
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        for due, latency, kind, key, outcome in records:
            writer.writerow((f"{due:.6f}", f"{latency:.6f}", kind, key, outcome))


def read(path: Path) -> list[Record]:
    with path.open(newline="") as file:
        rows = csv.reader(file)
        return [
            Record(float(due), float(latency), kind, int(key), outcome) for due, latency, kind, key, outcome in rows
        ]


class Fate(StrEnum):
    """What is known of one write."""

    ASKED = "asked"
    DONE = "done"
    """It was acknowledged."""
    REFUSED = "refused"
    """The answer says that it was not done."""
    UNKNOWN = "unknown"
    """No answer came, or one that says that nobody knows."""


@dataclass(slots=True)
class LedgerEntry:
    story: int
    user: int
    amount: int
    written: Fate = Fate.ASKED
    deleted: Fate = Fate.REFUSED
    """``REFUSED`` also while nobody has asked for it."""
    seen: bool = False
    """A reader was shown it: then it is there, acknowledged or not."""

    @property
    def must_be_there(self) -> bool:
        return (self.written is Fate.DONE or self.seen) and self.deleted is Fate.REFUSED

    @property
    def may_be_there(self) -> bool:
        return (self.written is not Fate.REFUSED or self.seen) and self.deleted is not Fate.DONE


@dataclass(slots=True)
class Revision:
    """A story's register. One writer at a time, each with a greater number than any before."""

    done: int = 0
    unknown: set[int] = field(default_factory=set)
    """Written without an answer; each may be what is there."""
    last: int = 0
    """The greatest that was asked for."""


@dataclass(slots=True)
class WriteLedger:
    entries: dict[int, LedgerEntry] = field(default_factory=dict)
    revisions: dict[int, Revision] = field(default_factory=dict)
    next_id: int = 1

    def ask(self, story: int, rows: Iterable[tuple[int, int]]) -> list[int]:
        """New entries of a story, each (user, amount); their ids."""
        numbers = []
        for user, amount in rows:
            self.entries[self.next_id] = LedgerEntry(story, user, amount)
            numbers.append(self.next_id)
            self.next_id += 1
        return numbers

    def written(self, numbers: Iterable[int], fate: Fate) -> None:
        for number in numbers:
            self.entries[number].written = fate

    def ask_delete(self, number: int) -> None:
        self.entries[number].deleted = Fate.ASKED

    def deleted(self, number: int, fate: Fate) -> None:
        self.entries[number].deleted = fate

    def ask_revision(self, story: int) -> int:
        register = self.revisions.setdefault(story, Revision())
        register.last += 1
        register.unknown.add(register.last)
        return register.last

    def revised(self, story: int, revision: int, fate: Fate) -> None:
        register = self.revisions[story]
        if fate is Fate.DONE:
            register.done = max(register.done, revision)
        if fate is not Fate.UNKNOWN:
            register.unknown.discard(revision)

    def saw(self, numbers: Iterable[int]) -> None:
        """Entries that a reader was shown."""
        for number in numbers:
            entry = self.entries.get(number)
            if entry is not None and entry.deleted is Fate.REFUSED:  # Else it may have been deleted since it was read.
                entry.seen = True

    def acknowledged(self) -> int:
        """Writes that were acknowledged, of all kinds; a revision counts once for its story."""
        entries = self.entries.values()
        inserted = sum(entry.written is Fate.DONE for entry in entries)
        return inserted + sum(entry.deleted is Fate.DONE for entry in entries) + len(self.revisions)
