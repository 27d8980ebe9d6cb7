"""MIN or MAX within a recursion: of rows that are alike but for one column, the best in it is there.

All that are derived are candidates, with their derivations, and a round goes on from the best alone::

    Y  =  best of each group of ( X₁ ∪ s(Y, X₂, …) )

A better row never makes worse ones (``migrations/query/plans/monotone.py``). So *take* leaves rows that are derived
without need of themselves, though there may be better ones, and from there each round only betters them: what comes
of that is the best that there is. A circle whose only way in is cut is taken whole, and does not count up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from domains.language.collating.collation import Collations
from domains.language.encoding import encode_order
from domains.language.types import Delta, Row
from domains.operators.recursion.entries import Changed, Derive, FixedPointIndex
from domains.operators.state import ENTRY_BYTES, row_bytes
from domains.plan import graph
from domains.plan.graph import Columns


class BestIndex(FixedPointIndex):
    """An entry is the candidates of a key, each with the number of its derivations."""

    __slots__ = ("_at", "_descending", "_groups")

    def __init__(self, columns: Columns, partial: bool, descriptor: graph.FixedPoint, collations: Collations) -> None:
        super().__init__(columns, partial, descriptor, collations)
        best = descriptor.best
        assert best is not None, f"the recursion {descriptor.title} has no best rows"
        self._at, self._descending = best.column, (best.descending,)
        self._groups: dict[Row, dict[Row, None]] = {}
        """The candidates that entries have, by what they are alike in."""

    def _group(self, row: Row) -> Row:
        return row[: self._at] + row[self._at + 1 :]

    def _rank(self, row: Row) -> tuple[bool, bytes]:
        """NULL is the worst, as aggregates leave it out."""
        value = row[self._at]
        return value is None, encode_order((value,), self._descending)

    def get(self, key: Row) -> Collection[Delta] | None:
        entry = self.entries.get(key)
        if entry is None:
            return None if self.partial else ()
        groups = dict.fromkeys(map(self._group, entry))
        return [(min(self._groups[group], key=self._rank), 1) for group in groups]

    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        entry = dict(material)
        self._add(entry)
        super().fill(key, entry.items())

    def evict(self, key: Row) -> Collection[Delta]:
        rows = list(self.entries[key])
        held = super().evict(key)
        for row in rows:
            self._drop(row)
        return held

    def exported(self) -> Iterator[Any]:
        return ([(row, self.entries[self.key_of(row)][row]) for row in group] for group in self._groups.values())

    def load(self, items: Sequence[Any]) -> list[Delta]:
        rows = [item for group in items for item in group]
        self._add(row for row, _ in rows)
        for row, derived in rows:
            key = self.key_of(row)
            if key not in self.entries:
                self.entries[key] = {}
                self.bytes += ENTRY_BYTES
            self.entries[key][row] = derived
            self.bytes += 2 * row_bytes(row)
        said = [(min((row for row, _ in group), key=self._rank), 1) for group in items]
        self._move(said)
        return said

    def _add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._groups.setdefault(self._group(row), {})[row] = None

    def _drop(self, row: Row) -> None:
        group = self._group(row)
        del self._groups[group][row]
        if not self._groups[group]:
            del self._groups[group]

    def _held(self, row: Row, is_held: bool) -> None:
        super()._held(row, is_held)
        if is_held:
            self._add([row])
        else:
            self._drop(row)

    def _put(self, key: Row, entry: dict[Row, int]) -> None:
        for row in self.entries[key]:
            self._drop(row)
        self._add(entry)
        super()._put(key, entry)

    def _go_round(self, begun: list[Delta], changed: Changed, derive: Derive) -> None:
        self._take(begun, changed, derive)
        candidates: dict[Row, dict[Row, None]] = {}
        rounds, rows = 0, list(changed.derived)
        while True:
            groups: dict[Row, None] = {}
            for row in rows:
                group = self._group(row)
                groups[group] = None
                if group not in candidates:
                    candidates[group] = dict(self._groups.get(group, {}))
                candidates[group][row] = None
            moved = [delta for group in groups for delta in self._bettered(candidates[group], changed)]
            if not moved:
                return
            self._within_limit(changed, [row for row, weight in moved if weight > 0], rounds)
            rounds += 1
            rows = [row for row, _ in changed.count(derive(self._moved(changed, moved)))]

    def _bettered(self, candidates: dict[Row, None], changed: Changed) -> list[Delta]:
        """How the best of a group changes; leaves of the candidates those that are derived."""
        moved: list[Delta] = []
        for row in [row for row in candidates if self._derivations(row, changed) <= 0]:
            del candidates[row]
            if row in self.there:
                moved.append((row, -1))
        best = min(candidates, key=self._rank, default=None)
        moved += [(row, -1) for row in candidates if row in self.there and row != best]
        if best is not None and changed.may_come(best):
            moved.append((best, 1))
        return moved

    def _derivations(self, row: Row, changed: Changed) -> int:
        known = changed.derived.get(row)
        return self.entries.get(self.key_of(row), {}).get(row, 0) if known is None else known
