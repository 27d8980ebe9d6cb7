"""A group of an aggregate: its row, its accumulators, and how a batch of deltas changes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from domains import graph
from domains.deltas import group_by_key, key_function
from domains.graph import AggregateFunction
from domains.operators.accumulators import Accumulator, KeptExtremum, Multiset, accumulator
from domains.state import row_bytes
from domains.types import Column, Delta, Row

GROUP_BYTES = 80
"""A group's object."""
SLOT_BYTES = 170
"""A group's key, and its slot in the dict of the groups of an entry."""
ACCUMULATOR_BYTES = 120
"""An aggregate function's state in one group: a small list of numbers."""
VALUE_BYTES = 150
"""A value in the multiset of a DISTINCT or GROUP_CONCAT."""


class Group:
    """A group's output row, how many input rows it has, and its accumulators' states."""

    __slots__ = ("bytes", "row", "rows", "states")

    def __init__(self, states: Sequence[list[Any]]) -> None:
        self.row: Row | None = None
        self.rows = 0
        self.states = states
        self.bytes = 0


class Grouping:
    """How a group changes: shared by all indexes of the node."""

    def __init__(
        self, descriptor: graph.Aggregate, parent: Sequence[Column], *, full: bool, slot: int = SLOT_BYTES
    ) -> None:
        self.group = descriptor.group
        self.scalar = descriptor.scalar
        self.key_of = key_function(descriptor.group)
        self.accumulators: list[Accumulator] = [
            accumulator(call, parent[call.argument or 0].type.kind, full=full) for call in descriptor.calls
        ]
        self.keeps_values = any(isinstance(a, (Multiset, KeptExtremum)) for a in self.accumulators)
        self.only_counts = all(c.function is AggregateFunction.COUNT_ROWS for c in descriptor.calls)
        kept = [] if self.only_counts else self.accumulators
        self._group_bytes = slot + GROUP_BYTES + ACCUMULATOR_BYTES * len(kept)

    def new(self) -> Group:
        return Group(() if self.only_counts else [a.start() for a in self.accumulators])

    def change(self, group: Group, key: Row, deltas: Sequence[Delta]) -> bool:
        """Apply the deltas of one group; False where it must be computed anew from the parent."""
        rows = group.rows
        for _, weight in deltas:
            rows += weight
        assert rows >= 0, f"group {key} has {rows} rows"
        group.rows = rows
        if self.only_counts:  # votes are counted far more often than anything else: 2.5 times faster than below
            group.row = self.counted(key, rows)
            return True
        for one, state in zip(self.accumulators, group.states, strict=True):
            if not one.update(state, deltas):
                return False
        group.row = self.row(group, key)
        return True

    def counted(self, key: Row, rows: int) -> Row:
        """The group's row, where all functions are COUNT(*)."""
        return key + (rows,) * len(self.accumulators)

    def row(self, group: Group, key: Row) -> Row:
        if self.only_counts:
            return self.counted(key, group.rows)
        results = [a.result(s, group.rows) for a, s in zip(self.accumulators, group.states, strict=True)]
        return (*key, *results)

    def exists(self, group: Group) -> bool:
        return group.rows > 0 or self.scalar

    def size(self, group: Group) -> int:
        """The group's accounted bytes; the key is counted within the row."""
        size = self._group_bytes + row_bytes(group.row or ())
        if self.keeps_values:
            size += sum(VALUE_BYTES * len(kept) for state in group.states for kept in state if isinstance(kept, dict))
        return size

    def build(self, material: Iterable[Delta]) -> dict[Row, Group]:
        """Groups computed anew from the parent's rows."""
        built: dict[Row, Group] = {}
        groups = group_by_key(material, self.key_of)
        if self.scalar:
            groups.setdefault((), [])
        for key, deltas in groups.items():
            group = self.new()
            # Retractions within the material are sums of links' pieces; insertions first keeps extrema knowable.
            known = self.change(group, key, sorted(deltas, key=lambda delta: -delta[1]))
            assert known, f"group {key} cannot be computed from its rows"
            if self.exists(group):
                group.bytes = self.size(group)
                built[key] = group
        return built

    # --- out and in again ---------------------------------------------------------------------------------------

    def export(self, key: Row, group: Group) -> tuple[Any, ...]:
        """A group as plain values: its key, how many rows it has, its row, its accumulators' states."""
        return (key, group.rows, group.row, tuple(frozen(state) for state in group.states))

    def restore(self, item: tuple[Any, ...]) -> Group:
        """The group that ``export`` made the item of."""
        _, rows, row, states = item
        group = Group(() if self.only_counts else [thawed(state) for state in states])
        group.rows, group.row = rows, row
        group.bytes = self.size(group)
        return group


def frozen(state: list[Any]) -> tuple[Any, ...]:
    """An accumulator's state without a list or a dict: a multiset becomes the tuple of its pairs."""
    return tuple(tuple(kept.items()) if isinstance(kept, dict) else kept for kept in state)


def thawed(state: tuple[Any, ...]) -> list[Any]:
    return [dict(kept) if isinstance(kept, tuple) else kept for kept in state]
