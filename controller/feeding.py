"""How long a backfill in slices still takes, in one domain, by what its tables have taken so far.

Rows are no measure of it: the largest table is fed first (``domains/backfill.py``), while there is nothing to join its
rows with, and then a row of the next one brings all of its joined rows at once. Of 50 million rows the last 5 % may
take four fifths of the time. So a table that is yet to come counts for the rows that it is likely to bring along, and
one that is under way for the seconds that its rows have taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIRST_JOINED, THEN_JOINED = 4.0, 1.0
"""How many times as long a joined row takes as a row that meets nothing: where the first table is fed that meets the
largest, and those after it. Measured with two joins over 200,000 rows: 4, and 0.2 to 1.5."""
GUESSED_PART = 0.01
"""Of a table: so much of it counts as if it had taken what was expected. The first slices are of 20 rows."""


@dataclass(frozen=True, slots=True)
class FedTable:
    """``rows``, about, and what they are expected to take, in rows that meet nothing."""

    rows: float
    work: float


def expected(rows: Sequence[int], *, joined: bool) -> tuple[FedTable, ...]:
    """``rows`` of a domain's tables, in the order in which they are fed; ``joined``: with each other, or some of them.

    With those that come after the largest, it is likely that as many joined rows come about as the largest has.
    """
    most = max(rows, default=0)
    turn = list(rows).index(most) if rows else 0

    def work(place: int, own: int) -> float:
        if not joined or place <= turn:
            return own
        return own + most * (FIRST_JOINED if place == turn + 1 else THEN_JOINED)

    return tuple(FedTable(own, work(place, own)) for place, own in enumerate(rows) if own)


class Feeding:
    """Of one domain, with its tables in the order in which they are fed; none where their rows are not known."""

    def __init__(self, tables: Sequence[FedTable]) -> None:
        self._tables = tables
        self._place = 0
        self._rows, self._seconds = 0.0, 0.0
        """Of the table that is under way."""
        self._before = 0.0
        """Seconds that the tables before it took."""

    def fed(self, rows: int, seconds: float) -> None:
        """What a worker has told of: slices of one table, and where that ends perhaps the first of the next."""
        if self._place + 1 < len(self._tables) and self._rows >= self._tables[self._place].rows:
            self._before += self._seconds
            self._place, self._rows, self._seconds = self._place + 1, 0.0, 0.0
        self._rows += rows
        self._seconds += seconds

    @property
    def seconds_left(self) -> float | None:
        """None before anything was fed."""
        if not self._rows or not self._tables:
            return None
        table = self._tables[self._place]
        rest = max(0.0, table.rows - self._rows)
        done = self._work(slice(0, self._place)) + table.work * (1 - rest / table.rows)
        unit = (self._before + self._seconds) / done
        return rest * self._seconds_a_row() + unit * self._work(slice(self._place + 1, None))

    def _work(self, which: slice) -> float:
        return sum(table.work for table in self._tables[which])

    def _seconds_a_row(self) -> float:
        """Of the table that is under way."""
        if self._place == 0:
            return self._seconds / self._rows
        table = self._tables[self._place]
        expected = self._before / self._work(slice(0, self._place)) * table.work / table.rows
        guessed = GUESSED_PART * table.rows
        return (self._seconds + guessed * expected) / (self._rows + guessed)

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        left, taken = self.seconds_left, self._before + self._seconds
        return 0.0 if left is None or taken + left <= 0 else taken / (taken + left)
