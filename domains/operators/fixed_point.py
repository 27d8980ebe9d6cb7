"""Recursion: the least Y with Y = X₁ ∪ s(Y, X₂, …), kept up to date.

``s`` is what a round does: joins of Y with further parents, filters, projections. It is a dataflow of its own within
the operator, whose first source is what there is of Y. Of each row an entry has the number of its derivations::

    derivations(r)  =  how often r is in X₁  +  how often r is in s(Y, X₂, …)

UNION ALL: a row is in Y as often as it is derived, so changes go round until there are none left. UNION: it is in Y
once, if it is derived. There counting alone would be wrong: rows in a circle derive each other, whatever becomes of
where they came from. So a change is made in two parts (Gupta, Mumick and Subrahmanian, *Maintaining Views
Incrementally*, 1993)::

    take   what has lost a derivation goes, though it may have others; what was derived from it loses some in its turn
    give   what is gone, or new, and has derivations, comes; what is derived from it has more of them

**The invariant** between two changes: derivations are exact, and Y has just the rows that have some. **Why nothing is
left that derives only itself**: a row stays through *take* if it has lost no derivation, so each of those that it had
is one of rows that stayed. Of how it was derived first, without need of itself, no step is lost. And each row that
*give* brings is derived of rows that are there before it.

Where rows have the same values in the *carried* columns they are a recursion of their own: an entry is by some of
these. What a round looks up of further parents is there completely, so no round meets a hole (``materialize.py``).

A recursion that comes to no end has too many rows, or rounds: then its entry is a hole again, with all below it, and
whoever reads it hears why. A write only ever gives it up. Only what always ends is kept whole (``Traits.ends``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from domains.errors import LimitExceeded
from domains.language.collating.collation import Collations
from domains.language.types import Column, Delta, Row
from domains.operators.operator import Forward, Found, KeepingOperator, Lookups, Operator, Vertex, rename
from domains.operators.ranged import Partners, ranged
from domains.operators.state import ENTRY_BYTES, EntryIndex, Index, RowIndex, row_bytes
from domains.plan import graph
from domains.plan.deltas import add_row, at_most, consolidate, key_function
from domains.plan.graph import Columns, Materialization, Node, NodeIndex
from domains.plan.packets import Pattern
from domains.plan.sides import COMPUTED, LEFT, RIGHT
from domains.plan.traits import traits_of

ROWS_MAX = 200_000
"""Rows of one entry: some 100 MB, and seconds."""
ROUNDS_MAX = 10_000
"""Rounds of one change: a quarter of a second, where each has a row. UNION ALL goes round for ever where rows derive
themselves, and so does what makes new values."""
INSIDE = NodeIndex(-1)
"""The number of the nodes of a round, which are no nodes of the graph."""

Make = Callable[[Node, list[Vertex]], Operator]
"""The running form of a node's operator."""


class Rounds:
    """The dataflow of a round."""

    def __init__(self, descriptor: graph.FixedPoint, vertex: Vertex, make: Make) -> None:
        self.so_far = _inside(graph.Ingress(INSIDE), vertex.node.columns, [], make)
        self.further = vertex.parents[1:]
        self.steps: list[Vertex] = []
        sources = [self.so_far, *self.further]
        self._inputs = [step.inputs for step in descriptor.steps]
        for step in descriptor.steps:
            parents = [sources[at] for at in step.inputs]
            self.steps.append(_inside(step.operator, step.columns, parents, make))
            sources.append(self.steps[-1])
        recursive = {0}
        for at, inputs in enumerate(self._inputs, 1 + len(self.further)):
            if recursive.intersection(inputs):
                recursive.add(at)
        self._is_recursive = {sources[at] for at in recursive}

    def done(self, deltas: Sequence[list[Delta]], act: RoundAct) -> list[Delta]:
        """What a round comes to more, or less, where its sources have changed so."""
        said = list(deltas)
        for vertex, inputs in zip(self.steps, self._inputs, strict=True):
            mine = [said[at] for at in inputs]
            said.append(vertex.operator.forward(mine, act) if any(mine) else [])
        return said[-1]

    def drive(self, vertex: Vertex, columns: Columns) -> None:
        """Have a look-up of a join go on from the side that is of the recursion: that is indexed by whatever is asked
        for."""
        traits = traits_of(vertex.node.operator)
        if traits.matching is not None:
            origins = traits.origins(columns, [len(parent.node.columns) for parent in vertex.parents])
            sides = [side for side in (LEFT, RIGHT) if vertex.parents[side] in self._is_recursive]
            known = [sum(column != COMPUTED for column in own) for own in origins]
            vertex.operator.drive_from(columns, max(sides, key=known.__getitem__))


def _inside(operator: graph.Operator, columns: tuple[Column, ...], parents: list[Vertex], make: Make) -> Vertex:
    node = Node(INSIDE, operator, (), columns)
    return Vertex(node, make(node, parents), parents, 0)


class RoundAct:
    """What the operators of a round may ask: of the recursion what there is of it, of further parents whoever runs the
    round."""

    def __init__(self, rounds: Rounds, rows: FixedPointIndex, outside: Lookups) -> None:
        self._rounds = rounds
        self._rows = rows
        self._outside = outside

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        if vertex is self._rounds.so_far:
            return [self._rows.at(columns, key) for key in keys]
        if vertex in self._rounds.steps:
            self._rounds.drive(vertex, columns)
            return vertex.operator.compute(self, columns, keys)
        return self._outside.find(vertex, columns, keys)

    def ranged(self, vertex: Vertex, columns: Columns, column: int, keys: Sequence[Row]) -> list[Partners | None]:
        if vertex in self._rounds.further:
            return self._outside.ranged(vertex, columns, column, keys)
        return [ranged(rows, column, vertex.collations) for rows in self.find(vertex, columns, keys)]

    def count(self, parent: Vertex, columns: Columns, keys: Sequence[Row], most: int) -> list[int | None]:
        return [None if rows is None else at_most(rows, most) for rows in self.find(parent, columns, keys)]

    def missing(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        raise AssertionError("what a recursion goes on by is complete")

    def name_rows(self, patterns: Iterable[Pattern]) -> None:
        raise AssertionError("a round meets no hole")

    def peek_old(self, parent: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        raise AssertionError("a round evicts nothing")


class FixedPointIndex(EntryIndex[dict[Row, int]]):
    """An entry is the rows of a key, each with the number of its derivations."""

    __slots__ = ("_by", "_collations", "_there", "_title", "distinct", "limited", "said_before")

    def __init__(self, columns: Columns, partial: bool, descriptor: graph.FixedPoint, collations: Collations) -> None:
        super().__init__(columns, partial, collations)
        self._collations = collations
        self.distinct = descriptor.distinct
        self._title = descriptor.title
        self.limited = partial
        self._there: dict[Row, int] = {}
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
            for row, weight in self._there.items():
                by.setdefault(key_of(row), {})[row] = weight
            self._by[columns] = key_of, by
        found = self._by[columns][1].get(key)
        return found.items() if found else ()

    def _move(self, deltas: Collection[Delta]) -> None:
        """Rows come and go in what rounds look up."""
        for row, weight in deltas:
            add_row(self._there, row, weight)
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
        act = RoundAct(rounds, self, outside)
        nothing: list[list[Delta]] = [[] for _ in deltas[1:]]
        changed = Changed(self)
        begun = [delta for delta in deltas[0] if changed.takes(delta[0])]
        if any(deltas[1:]):
            begun += rounds.done([[], *deltas[1:]], act)
        go_round = self._once if self.distinct else self._all
        go_round(begun, changed, lambda moved: rounds.done([moved, *nothing], act))
        return self._settled(changed)

    def _once(self, begun: list[Delta], changed: Changed, derive: Callable[[list[Delta]], list[Delta]]) -> None:
        """UNION: take, and give."""
        lost = changed.count(begun)
        while lost := [row for row in lost if changed.is_there(row)]:
            lost = changed.count(derive(self._moved(changed, lost, -1)))
        came, rounds = list(changed.derived), 0
        while came := [row for row in came if changed.derived[row] > 0 and changed.may_come(row)]:
            self._within_limit(changed, came, rounds)
            rounds += 1
            derived = derive(self._moved(changed, came, 1))
            changed.count(derived)
            came = list(dict.fromkeys(row for row, _ in derived if row in changed.derived))

    def _all(self, begun: list[Delta], changed: Changed, derive: Callable[[list[Delta]], list[Delta]]) -> None:
        """UNION ALL: as often as it is derived."""
        rounds = 0
        while moved := changed.net(begun):
            changed.count(moved)
            self._move(moved)
            self._within_limit(changed, [row for row, _ in moved], rounds)
            begun = derive(moved)
            rounds += 1

    def _moved(self, changed: Changed, rows: Sequence[Row], weight: int) -> list[Delta]:
        changed.move(rows, weight)
        deltas = [(row, weight) for row in rows]
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
        output: list[Delta] = []
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
            before = entry.get(row, 0)
            weight = bool(derived) - bool(before) if self.distinct else derived - before
            if weight:
                output.append((row, weight))
            if derived:
                entry[row] = derived
                self.bytes += 0 if before else 2 * row_bytes(row)
            elif before:
                del entry[row]
                self.bytes -= 2 * row_bytes(row)
            if not entry and not self.partial:
                del self.entries[key]
                self.bytes -= ENTRY_BYTES
        for key in changed.given_up:
            self._give_up(key, changed)
        return output

    def _give_up(self, key: Row, changed: Changed) -> None:
        """What is there now goes into the entry, which is to be evicted with all below it."""
        entry = self.entries[key]
        self.said_before[key] = dict(self.get(key) or ())
        now = {row: derived for row, derived in entry.items() if changed.is_there(row)}
        mine = (item for item in changed.derived.items() if self.key_of(item[0]) == key)
        now.update((row, derived) for row, derived in mine if changed.is_there(row))
        self.bytes += self._bytes_of(now) - self._bytes_of(entry)
        self.entries[key] = now


class Changed:
    """What a change comes to, until it is settled."""

    def __init__(self, index: FixedPointIndex) -> None:
        self._index = index
        self.derived: dict[Row, int] = {}
        """The number of derivations of what has won or lost some."""
        self._moved: dict[Row, bool] = {}
        """Whether what has come or gone is there."""
        self._came: dict[Row, int] = {}
        """How many rows more an entry has."""
        self.given_up: dict[Row, None] = {}

    def takes(self, row: Row) -> bool:
        index = self._index
        return not index.partial or index.key_of(row) in index.entries

    def _held(self, row: Row) -> int:
        return self._index.entries.get(self._index.key_of(row), {}).get(row, 0)

    def count(self, deltas: Iterable[Delta]) -> list[Row]:
        """Answers what has lost derivations."""
        derived, lost = self.derived, dict[Row, None]()
        for row, weight in deltas:
            if self._index.key_of(row) in self.given_up:
                continue
            known = derived.get(row)
            if known is None:
                known = self._held(row)
                if not known and not self._index.distinct:
                    key = self._index.key_of(row)
                    self._came[key] = self._came.get(key, 0) + 1
            derived[row] = known + weight
            if weight < 0:
                lost[row] = None
        return list(lost)

    def is_there(self, row: Row) -> bool:
        if self._index.distinct:
            moved = self._moved.get(row)
            return self._held(row) > 0 if moved is None else moved
        derived = self.derived.get(row)
        return (self._held(row) if derived is None else derived) > 0

    def may_come(self, row: Row) -> bool:
        return not self.is_there(row) and self._index.key_of(row) not in self.given_up

    def move(self, rows: Iterable[Row], weight: int) -> None:
        for row in rows:
            self._moved[row] = weight > 0
            key = self._index.key_of(row)
            self._came[key] = self._came.get(key, 0) + weight

    def net(self, deltas: Iterable[Delta]) -> list[Delta]:
        return [delta for delta in consolidate(deltas) if self._index.key_of(delta[0]) not in self.given_up]

    def size(self, key: Row) -> int:
        return len(self._index.entries.get(key, ())) + self._came.get(key, 0)


class FixedPointOperator(KeepingOperator):
    def __init__(self, descriptor: graph.FixedPoint, make: Make) -> None:
        self._descriptor = descriptor
        self._make = make
        self._made: Rounds | None = None

    @property
    def rounds(self) -> Rounds:
        if self._made is None:  # The vertex has its parents by now.
            self._made = Rounds(self._descriptor, self.vertex, self._make)
        return self._made

    def make_index(self, columns: Columns, partial: bool) -> Index:
        """Recursions are kept once where the state is full, and its other indexes hold rows."""
        if partial or columns == self._descriptor.carried:
            return FixedPointIndex(columns, partial, self._descriptor, self.vertex.collations)
        return RowIndex(columns, partial, self.vertex.collations)

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        output: list[Delta] = []
        earlier: list[FixedPointIndex] = []
        for index in self.vertex.indexes.values():
            if not isinstance(index, FixedPointIndex):
                continue
            changes = index.apply(inputs, self.rounds, act)
            output.extend(d for d in changes if not any(other.key_of(d[0]) in other for other in earlier))
            places = tuple((column,) for column in index.columns)
            act.name_rows(Pattern(places, key, strict=True) for key in index.said_before)
            earlier.append(index)
        return output

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        """The rows of each key with their derivations, out of those of the first parent."""
        found = lookups.find(self.vertex.parents[0], columns, keys)
        alone = self._explored(columns, (delta for rows in found for delta in rows or ()), lookups)
        return [
            None if rows is None else list(alone.entries.get(key, {}).items())
            for rows, key in zip(found, keys, strict=True)
        ]

    def gathered(self, parts: Iterable[list[Delta]], lookups: Lookups) -> list[Delta]:
        alone = self._explored(self._descriptor.carried, (delta for part in parts for delta in part), lookups)
        return [delta for key in alone.entries for delta in alone.get(key) or ()]

    def _explored(self, columns: Columns, begun: Iterable[Delta], lookups: Lookups) -> FixedPointIndex:
        alone = FixedPointIndex(columns, False, self._descriptor, self.vertex.collations)
        alone.limited = self.vertex.node.materialization is not Materialization.FULL
        alone.apply([list(begun), *([] for _ in self.vertex.parents[1:])], self.rounds, lookups)
        return alone

    def translate(self, parent: int, patterns: Sequence[Pattern], act: Forward) -> list[Pattern]:
        """Of what a recursion goes on by nothing is evicted; a column that it does not carry means no key."""
        assert parent == 0, "what a recursion goes on by is complete"
        carried = self._descriptor.carried
        width = len(self.vertex.node.columns)
        return rename(patterns, [(at,) if at in carried else () for at in range(width)])
