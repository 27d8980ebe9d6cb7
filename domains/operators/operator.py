"""The interface of an operator, and of its surroundings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from domains.language.types import Delta, Row, collations_of
from domains.operators.ranged import Partners
from domains.operators.state import Index, RowIndex
from domains.plan.graph import Columns, Materialization, Node, NodeIndex
from domains.plan.packets import Pattern
from domains.plan.traits import is_base, is_reader

Found = Collection[Delta] | None
"""The rows of one key; None where the look-up met a hole."""


class Lookups(Protocol):
    """How state is read during an act: with or without filling holes, as it is or as it was."""

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        """The rows of ``vertex`` at each key, in order. Keys hold no NULL."""

    def ranged(self, vertex: Vertex, columns: Columns, column: int, keys: Sequence[Row]) -> list[Partners | None]:
        """``find``, for ranges of a further column; None where the look-up met a hole."""

    def missing(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        """``find`` at an ingress that has a hole there: only another domain can answer."""


class Forward(Lookups, Protocol):
    """The services that an operator may use while its parents' deltas pass through it. Look-ups show the parents in
    their new state, and a hole stays a hole."""

    def count(self, parent: Vertex, columns: Columns, keys: Sequence[Row], most: int) -> list[int | None]:
        """How many rows of a parent each key has, but no more than ``most``; None for a hole."""

    def name_rows(self, patterns: Iterable[Pattern]) -> None:
        """An update could not be completed: evict below what these rows name (rule 5)."""

    def peek_old(self, parent: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        """Rows of a parent as they were before this step's evictions."""


class Operator(ABC):
    """The running form of an operator of ``graph.py``; bound to its vertex when that is linked to its parents."""

    vertex: Vertex
    """Set once the vertex has its parents."""

    def make_index(self, columns: Columns, partial: bool) -> Index:
        return RowIndex(columns, partial, self.vertex.collations)

    @abstractmethod
    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        """The output's change, given each parent's. State of the vertex itself is changed by ``settle``."""

    def settles(self) -> bool:
        """Whether the vertex has indexes that ``settle`` changes."""
        return bool(self.vertex.indexes)

    def settle(self, deltas: list[Delta]) -> list[Delta]:
        """Apply the output's change to the vertex's indexes, where ``settles``; answers what goes on (rule 4)."""
        indexes = self.vertex.indexes
        if len(indexes) == 1:
            (index,) = indexes.values()
            assert isinstance(index, RowIndex)
            return index.apply(deltas)
        goes_on: list[Delta] = []
        for delta in deltas:
            held_by = [index for index in indexes.values() if isinstance(index, RowIndex) and index.apply((delta,))]
            if held_by:
                goes_on.append(delta)
        return goes_on

    def drive_from(self, columns: Columns, side: int) -> None:
        """Have a join's look-ups by these columns pulled from that side, whatever its node says."""
        raise AssertionError(f"{self.vertex} has no sides")

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        """The material of each key out of the parents: output rows, or what this operator's index is filled from.

        Unless an operator says otherwise, the parent's rows at these columns.
        """
        return lookups.find(self.vertex.parents[0], columns, keys)

    def gathered(self, parts: Iterable[list[Delta]], lookups: Lookups) -> list[Delta]:
        """The rows of an operator with state of its own over all of the parent's, which come in parts."""
        raise AssertionError(f"{self.vertex} keeps no state of its own")

    def translate(self, parent: int, patterns: Sequence[Pattern], act: Forward) -> list[Pattern]:
        """The patterns of the ``parent``-th parent in terms of the output: the same, unless columns move."""
        return list(patterns)


class KeepingOperator(Operator):
    """One with state of its own, changed as updates pass: the rows that these come to go into its further indexes."""

    def settles(self) -> bool:
        return any(isinstance(index, RowIndex) for index in self.vertex.indexes.values())

    def settle(self, deltas: list[Delta]) -> list[Delta]:
        for index in self.vertex.indexes.values():
            if isinstance(index, RowIndex):
                index.apply(deltas)
        return deltas


def never_refilled(key: Row) -> Found:
    raise AssertionError("insertions alone refill nothing")


def rename(patterns: Iterable[Pattern], places: Sequence[Columns]) -> list[Pattern]:
    """The patterns with each column replaced by its output positions; ``places[c]`` is () where it is projected away.

    A strict pattern of which a value is lost means no key below; of a naming row, what is left still names. Patterns
    that have become equal are one.

    The rows of an update that meets a hole at a join have the same columns all, so that their renaming is worked out
    once: 0.4 µs a pattern, where each by itself took 4, a tenth of what a read ribbon's update cost.
    """
    renamed: dict[tuple[tuple[Columns, ...], bool], dict[Row, None]] = {}
    columns: tuple[Columns, ...] | None = None
    strict = False
    kept: list[int] = []
    chosen: dict[Row, None] = {}
    for pattern in patterns:
        if pattern.columns is not columns or pattern.strict is not strict:
            columns, strict = pattern.columns, pattern.strict
            kept, names = _renaming(columns, places)
            if strict and len(kept) < len(columns):
                kept = []
            chosen = renamed.setdefault((names, strict), {})
        if kept:
            values = pattern.values
            chosen[tuple([values[at] for at in kept])] = None
    return [Pattern(names, values, strict) for (names, strict), chosen in renamed.items() for values in chosen]


def _renaming(columns: tuple[Columns, ...], places: Sequence[Columns]) -> tuple[list[int], tuple[Columns, ...]]:
    """Which of a pattern's columns are there below, and as which."""
    found = [tuple(sorted({place for column in copies for place in places[column]})) for copies in columns]
    kept = [at for at, names in enumerate(found) if names]
    return kept, tuple(found[at] for at in kept)


# A vertex: a node at run time, bound to its operator, its state and its neighbours within the domain.


class Vertex:
    """Identity is by object: one vertex stands for one node in one domain shard."""

    __slots__ = (
        "building",
        "children",
        "collations",
        "emitted",
        "feeds_building",
        "indexes",
        "is_base",
        "is_reader",
        "may_miss",
        "node",
        "operator",
        "parents",
        "rank",
        "settles",
    )

    def __init__(self, node: Node, operator: Operator, parents: list[Vertex], rank: int) -> None:
        self.node = node
        self.operator = operator
        operator.vertex = self
        self.settles = False
        """Whether the operator settles: asked when the vertex is given an index, and not with each delta."""
        self.parents = parents
        self.children: list[Vertex] = []
        self.rank = rank
        self.emitted = 0
        """The number of deltas that it has said to its children so far."""
        self.indexes: dict[Columns, Index] = {}
        self.collations = collations_of(node.columns)
        self.is_base = is_base(node.operator)
        self.is_reader = is_reader(node.operator)
        """Cached: a vote passes twenty vertices, and isinstance costs 0.7 µs a vote."""
        self.building = False
        """A full state that is being backfilled: it sees only what has been fed to it."""
        self.feeds_building = False
        """Stateless, and above a vertex that is being backfilled."""
        self.may_miss: bool = node.materialization is Materialization.PARTIAL or (
            node.materialization is Materialization.NONE and any(parent.may_miss for parent in parents)
        )
        """Whether a look-up here can meet a hole."""

    @property
    def index(self) -> NodeIndex:
        return self.node.index

    def give_up(self) -> None:
        """Let go of the state, once nobody looks it up any more: vertices stand in circles, and those are seldom
        looked for where millions of rows are."""
        self.indexes = {}

    def __repr__(self) -> str:
        return f"<{self.node.index} {type(self.node.operator).__name__} {self.node.materialization.value}>"
