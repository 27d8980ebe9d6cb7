"""What was written, and what is known of it: acknowledged, refused, or nobody can know. Pure.

Every entry has an id of its own, so what is missing, there twice, or there without having been written can be named.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Fate(StrEnum):
    """Of one write."""

    ASKED = "asked"
    DONE = "done"
    """It was acknowledged."""
    REFUSED = "refused"
    """The answer says that it was not done."""
    UNKNOWN = "unknown"
    """No answer came, or one that says that nobody knows."""


@dataclass(slots=True)
class Entry:
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
class Ledger:
    entries: dict[int, Entry] = field(default_factory=dict)
    revisions: dict[int, Revision] = field(default_factory=dict)
    next_id: int = 1

    def ask(self, story: int, rows: Iterable[tuple[int, int]]) -> list[int]:
        """New entries of a story, each (user, amount); their ids."""
        numbers = []
        for user, amount in rows:
            self.entries[self.next_id] = Entry(story, user, amount)
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
