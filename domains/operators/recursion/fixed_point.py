"""The operator: one index for each way its entries are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domains.language.types import Delta, Row
from domains.operators.operator import Forward, Found, KeepingOperator, Lookups, rename
from domains.operators.recursion.best import BestIndex
from domains.operators.recursion.entries import FixedPointIndex
from domains.operators.recursion.rounds import Make, Rounds
from domains.operators.state import Index, RowIndex
from domains.plan import graph
from domains.plan.graph import Columns, Materialization
from domains.plan.packets import Pattern


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
            return self._recursions(columns, partial)
        return RowIndex(columns, partial, self.vertex.collations)

    def _recursions(self, columns: Columns, partial: bool) -> FixedPointIndex:
        kind = FixedPointIndex if self._descriptor.best is None else BestIndex
        return kind(columns, partial, self._descriptor, self.vertex.collations)

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
        alone = self._recursions(columns, False)
        alone.limited = self.vertex.node.materialization is not Materialization.FULL
        alone.apply([list(begun), *([] for _ in self.vertex.parents[1:])], self.rounds, lookups)
        return alone

    def translate(self, parent: int, patterns: Sequence[Pattern], act: Forward) -> list[Pattern]:
        """Of what a recursion goes on by nothing is evicted; a column that it does not carry means no key."""
        assert parent == 0, "what a recursion goes on by is complete"
        carried = self._descriptor.carried
        width = len(self.vertex.node.columns)
        return rename(patterns, [(at,) if at in carried else () for at in range(width)])
