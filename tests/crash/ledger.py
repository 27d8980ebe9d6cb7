"""What clients know of a server that may die at any moment: what was answered, and what was asked and not answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock


@dataclass
class Batch:
    """Rows of one request; ``rows`` of them are there or none. ``stored`` is None while nobody can know."""

    rows: int
    stored: bool | None = None
    deleting: bool = False


@dataclass
class Ledger:
    """Told by the writers' threads, checked when the server is dead."""

    batches: dict[int, Batch] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    """Rows of a batch that a reader was shown: whatever was seen is durable."""
    numbers: dict[int, int] = field(default_factory=dict)
    """AUTO_INCREMENT values and the batch that was given each, rows that were deleted since among them."""
    lock: Lock = field(default_factory=Lock)

    def ask(self, batch: int, rows: int) -> None:
        with self.lock:
            self.batches[batch] = Batch(rows)

    def acknowledge(self, batch: int, first: int | None = None) -> None:
        with self.lock:
            entry = self.batches[batch]
            entry.stored = True
            for number in range(first or 0, (first or 0) + (entry.rows if first else 0)):
                self._number(number, batch)

    def refuse(self, batch: int) -> None:
        with self.lock:
            self.batches[batch].stored = False

    def begin_delete(self, batch: int) -> None:
        with self.lock:
            self.batches[batch].deleting = True

    def deleted(self, batch: int) -> None:
        with self.lock:
            self.batches[batch].stored = False
            self.batches[batch].deleting = False
            self.seen.pop(batch, None)

    def saw(self, batch: int, rows: int) -> None:
        with self.lock:
            entry = self.batches[batch]
            if entry.stored is not False and not entry.deleting:  # else it may have been deleted since it was read
                self.seen[batch] = rows

    def check(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """The stored rows as (number, batch, ordinal). Afterwards every batch is known to be there or not."""
        ordinals: dict[int, Counter[int]] = {}
        for number, batch, ordinal in rows:
            self._number(number, batch)
            ordinals.setdefault(batch, Counter())[ordinal] += 1
        unknown = ordinals.keys() - self.batches.keys()
        assert not unknown, f"rows that nobody wrote: {unknown}"
        for batch, entry in self.batches.items():
            found = ordinals.get(batch, Counter())
            whole = found == Counter(range(entry.rows))
            assert whole or not found, f"batch {batch} is there in part: {dict(found)} of {entry.rows} rows"
            if entry.stored and not entry.deleting:
                assert whole, f"batch {batch} was acknowledged and is gone"
            if entry.stored is False:
                assert not found, f"batch {batch} was refused or deleted, and is there"
            if self.seen.get(batch) and not entry.deleting:
                assert whole, f"batch {batch} was shown to a reader and is gone"
            entry.stored, entry.deleting = whole, False
            if not whole:
                self.seen.pop(batch, None)  # Its deletion was done and not answered: nobody is to be shown it again.

    def _number(self, number: int, batch: int) -> None:
        known = self.numbers.setdefault(number, batch)
        assert known == batch, f"AUTO_INCREMENT gave {number} to batch {known} and to batch {batch}"
