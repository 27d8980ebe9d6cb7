"""The entries of a recursion, and how a change goes round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from domains.errors import LimitExceeded
from domains.language.collating.collation import Collations
from domains.language.types import Delta, Row
from domains.operators.operator import Lookups
from domains.operators.recursion.rounds import RoundAct, Rounds
from domains.operators.state import ENTRY_BYTES, EntryIndex, row_bytes
from domains.plan import graph
from domains.plan.deltas import add_row, consolidate, key_function
from domains.plan.graph import Columns

ROWS_MAX = 200_000
"""Rows of one entry: some 100 MB, and seconds."""
ROUNDS_MAX = 10_000
"""Rounds of one change: a quarter of a second, where each has a row. UNION ALL goes round for ever where rows derive
themselves, and so does what makes new values."""


class FixedPointIndex(EntryIndex[dict[Row, int]]):
    """An entry is the rows of a key, each with the number of its derivations."""

    __slots__ = ("_by", "_collations", "_title", "distinct", "limited", "said_before", "there")

    def __init__(self, columns: Columns, partial: bool, descriptor: graph.FixedPoint, collations: Collations) -> None:
        super().__init__(columns, partial, collations)
        self._collations = collations
        self.distinct = descriptor.distinct
        self._title = descriptor.title
        self.limited = partial
        self.there: dict[Row, int] = {}
        """The rows of all entries, as rounds find them: also in the midst of a change."""
        self._by: dict[Columns, tuple[Callable[[Row], Row], dict[Row, dict[Row, int]]]] = {}
        """The same by what a round looks up."""
        self.said_before: dict[Row, dict[Row, int]] = {}
        """What entries that are given up had before the change that did not come to an end."""

    # --- what there is ------------------------------------------------------------------------------------------

    def get(self, key: Row) -> Collection[Delta] | None:
        entry = self.entries.get(key)
        if entry is None:
            return None if self.partial else ()
        return [(row, 1) for row in entry] if self.distinct else entry.items()

    def at(self, columns: Columns, key: Row) -> Collection[Delta]:
        if columns not in self._by:
            key_of = key_function(columns, self._collations)
            by: dict[Row, dict[Row, int]] = {}
            for row, weight in self.there.items():
                by.setdefault(key_of(row), {})[row] = weight
            self._by[columns] = key_of, by
        found = self._by[columns][1].get(key)
        return found.items() if found else ()

    def _move(self, deltas: Collection[Delta]) -> None:
        """Rows come and go in what rounds look up."""
        for row, weight in deltas:
            add_row(self.there, row, weight)
        for key_of, by in self._by.values():
            for row, weight in deltas:
                key = key_of(row)
                rows = by.setdefault(key, {})
                add_row(rows, row, weight)
                if not rows:
                    del by[key]

    # --- entries ------------------------------------------------------------------------------------------------

    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        entry = self.entries[key] = dict(material)
        self._move(self.get(key) or ())
        self.bytes += self._bytes_of(entry)

    def evict(self, key: Row) -> Collection[Delta]:
        """Of one that was given up also what it had before: what is below was computed from that."""
        held = list(self.get(key) or ())
        self._move([(row, -weight) for row, weight in held])
        self.bytes -= self._bytes_of(self.entries.pop(key))
        before = self.said_before.pop(key, None)
        return held if before is None else list((dict(held) | before).items())

    def _bytes_of(self, entry: dict[Row, int]) -> int:
        return ENTRY_BYTES + sum(2 * row_bytes(row) for row in entry)

    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        return self.entries.get(key, {}) == dict(material)

    def exported(self) -> Iterator[Any]:
        return (item for entry in self.entries.values() for item in entry.items())

    def load(self, items: Sequence[Any]) -> list[Delta]:
        for row, derived in items:
            key = self.key_of(row)
            if key not in self.entries:
                self.entries[key] = {}
                self.bytes += ENTRY_BYTES
            self.entries[key][row] = derived
            self.bytes += 2 * row_bytes(row)
        said = [(row, 1 if self.distinct else derived) for row, derived in items]
        self._move(said)
        return said

    # --- changes ------------------------------------------------------------------------------------------------

    def apply(self, deltas: Sequence[list[Delta]], rounds: Rounds, outside: Lookups) -> list[Delta]:
        """Let the changes of the parents go round, where the key is filled; answers how the rows change.

        :raises LimitExceeded: it comes to no end, and is no partial state."""
        act = RoundAct(rounds, self.at, outside)
        nothing: list[list[Delta]] = [[] for _ in deltas[1:]]
        changed = Changed(self)
        begun = [delta for delta in deltas[0] if changed.takes(delta[0])]
        if any(deltas[1:]):
            begun += rounds.done([[], *deltas[1:]], act)
        self._go_round(begun, changed, lambda moved: rounds.done([moved, *nothing], act))
        return self._settled(changed)

    def _go_round(self, begun: list[Delta], changed: Changed, derive: Derive) -> None:
        if not self.distinct:
            self._all(begun, changed, derive)
            return
        self._take(begun, changed, derive)
        came, rounds = dict.fromkeys(changed.derived), 0
        while rows := [row for row in came if changed.derived[row] > 0 and changed.may_come(row)]:
            self._within_limit(changed, rows, rounds)
            rounds += 1
            counted = changed.count(derive(self._moved(changed, [(row, 1) for row in rows])))
            came = dict.fromkeys(row for row, _ in counted)

    def _take(self, begun: list[Delta], changed: Changed, derive: Derive) -> None:
        counted = changed.count(begun)
        while lost := dict.fromkeys(row for row, weight in counted if weight < 0 and row in self.there):
            counted = changed.count(derive(self._moved(changed, [(row, -1) for row in lost])))

    def _all(self, begun: list[Delta], changed: Changed, derive: Derive) -> None:
        """UNION ALL: as often as it is derived."""
        rounds = 0
        while moved := changed.net(begun):
            changed.count(moved)
            self._moved(changed, moved)
            self._within_limit(changed, [row for row, _ in moved], rounds)
            begun = derive(moved)
            rounds += 1

    def _moved(self, changed: Changed, deltas: list[Delta]) -> list[Delta]:
        changed.move(deltas)
        self._move(deltas)
        return deltas

    def _within_limit(self, changed: Changed, rows: Sequence[Row], rounds: int) -> None:
        for key in {self.key_of(row) for row in rows}:
            if self.limited and (rounds >= ROUNDS_MAX or changed.size(key) > ROWS_MAX):
                if not self.partial:
                    what = f"{ROWS_MAX:,} rows of one key" if rounds < ROUNDS_MAX else f"{ROUNDS_MAX:,} rounds"
                    raise LimitExceeded(
                        f'the recursion "{self._title}" has more than {what}',
                        hint="bound it by a condition in the part that repeats; UNION ALL does not end in circles",
                    )
                changed.given_up[key] = None

    def _settled(self, changed: Changed) -> list[Delta]:
        for row, derived in changed.derived.items():
            key = self.key_of(row)
            if key in changed.given_up:
                continue
            assert derived >= 0, f"row {row!r} is derived {derived} times"
            entry = self.entries.get(key)
            if entry is None:
                if not derived:
                    continue
                entry = self.entries[key] = {}
                self.bytes += ENTRY_BYTES
            is_held = row in entry
            if derived:
                entry[row] = derived
            elif is_held:
                del entry[row]
            if is_held is not bool(derived):
                self._held(row, bool(derived))
            if not entry and not self.partial:
                del self.entries[key]
                self.bytes -= ENTRY_BYTES
        output = [delta for delta in changed.moved.items() if self.key_of(delta[0]) not in changed.given_up]
        for key in changed.given_up:
            self._give_up(key, changed)
        return output

    def _held(self, row: Row, is_held: bool) -> None:
        """A row has come into an entry, or gone from it."""
        self.bytes += 2 * row_bytes(row) * (1 if is_held else -1)

    def _give_up(self, key: Row, changed: Changed) -> None:
        """What is there now goes into the entry, which is to be evicted with all below it."""
        self.said_before[key] = dict(self.get(key) or ())
        entry = self.entries[key]
        mine = [row for row in changed.derived if self.key_of(row) == key and row not in entry]
        self._put(key, {row: self.there[row] for row in (*entry, *mine) if row in self.there})

    def _put(self, key: Row, entry: dict[Row, int]) -> None:
        self.bytes += self._bytes_of(entry) - self._bytes_of(self.entries[key])
        self.entries[key] = entry


Derive = Callable[[list[Delta]], list[Delta]]
"""What is derived more, or less, where rows come or go."""


class Changed:
    """What a change comes to, until it is settled."""

    def __init__(self, index: FixedPointIndex) -> None:
        self._index = index
        self.derived: dict[Row, int] = {}
        """The number of derivations of what has won or lost some."""
        self.moved: dict[Row, int] = {}
        """How rows have come and gone, net."""
        self._came: dict[Row, int] = {}
        """How many rows more an entry has."""
        self.given_up: dict[Row, None] = {}

    def takes(self, row: Row) -> bool:
        index = self._index
        return not index.partial or index.key_of(row) in index.entries

    def count(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Answers those that count."""
        index, derived = self._index, self.derived
        counted: list[Delta] = []
        for delta in deltas:
            row, weight = delta
            key = index.key_of(row)
            if key in self.given_up:
                continue
            known = derived.get(row)
            if known is None:
                known = index.entries.get(key, {}).get(row, 0)
            derived[row] = known + weight
            counted.append(delta)
        return counted

    def may_come(self, row: Row) -> bool:
        return row not in self._index.there and self._index.key_of(row) not in self.given_up

    def move(self, deltas: Iterable[Delta]) -> None:
        """Ahead of the index."""
        for row, weight in deltas:
            before = self._index.there.get(row, 0)
            key = self._index.key_of(row)
            self._came[key] = self._came.get(key, 0) + bool(before + weight) - bool(before)
            add_row(self.moved, row, weight)

    def net(self, deltas: Iterable[Delta]) -> list[Delta]:
        return [delta for delta in consolidate(deltas) if self._index.key_of(delta[0]) not in self.given_up]

    def size(self, key: Row) -> int:
        return len(self._index.entries.get(key, ())) + self._came.get(key, 0)
