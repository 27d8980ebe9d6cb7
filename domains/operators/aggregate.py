"""γ_{g; f…}(X): groups, each with its row and its accumulators.

For a batch, each touched group's old row is retracted and its new one inserted, if they differ. A group exists while
it has rows; only the scalar aggregate's one group () exists always. An index entry (a key over some of the group
columns) holds all groups of that key, so that a key of a partial index is a set of whole groups.

Also DISTINCT, which is the aggregate over all columns with no functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from domains.language.types import Column, Delta, Row
from domains.operators.operator import Forward, Found, KeepingOperator, Lookups, never_refilled, rename
from domains.operators.state import ENTRY_BYTES, EntryIndex, Index, RowIndex
from domains.operators.whole_groups import Group, Grouping, WholeGroups
from domains.plan import graph
from domains.plan.deltas import group_by_key, key_function
from domains.plan.graph import Columns
from domains.plan.packets import Pattern


class GroupIndex(EntryIndex[dict[Row, Group]]):
    """Groups by key; ``columns`` are positions in the output's group columns."""

    __slots__ = ("grouping", "parent_columns", "parent_key_of")

    def __init__(self, columns: Columns, partial: bool, grouping: Grouping) -> None:
        super().__init__(columns, partial, grouping.collations)
        self.grouping = grouping
        self.parent_columns: Columns = tuple(grouping.group[c] for c in columns)
        self.parent_key_of = key_function(self.parent_columns, grouping.parent_collations)
        if grouping.scalar and not partial:
            self.fill((), ())

    def conceal(self) -> None:
        """Hide the scalar aggregate's row over no input until :meth:`bear`, or until an input comes."""
        self.entries[()][()].row = None

    def bear(self) -> list[Delta]:
        """The scalar aggregate's row over no input, if it is still concealed."""
        group = self.entries[()][()]
        if group.row is not None:
            return []
        group.row = self.grouping.row(group, ())
        return [(group.row, 1)]

    def get(self, key: Row) -> Collection[Delta] | None:
        entry = self.entries.get(key)
        if entry is None:
            return None if self.partial else ()
        return [(group.row, 1) for group in entry.values() if group.row is not None]

    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        entry = self.entries[key] = self.grouping.build(material)
        self.bytes += self._bytes(entry)

    @staticmethod
    def _bytes(entry: dict[Row, Group]) -> int:
        return ENTRY_BYTES + sum(group.bytes for group in entry.values())

    def evict(self, key: Row) -> Collection[Delta]:
        entry = self.entries.pop(key)
        self.bytes -= self._bytes(entry)
        return [(group.row, 1) for group in entry.values() if group.row is not None]

    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        mine, anew = self.entries.get(key, {}), self.grouping.build(material)
        return {k: g.row for k, g in mine.items()} == {k: g.row for k, g in anew.items()}

    def exported(self) -> Iterator[Any]:
        return (self.grouping.export(n, group) for entry in self.entries.values() for n, group in entry.items())

    def load(self, items: Sequence[Any]) -> list[Delta]:
        """Load a full index. The scalar aggregate's one group is there already, and is replaced."""
        rows: list[Delta] = []
        part_of = key_function(self.columns)
        for item in items:
            key = part_of(item[0])
            if key in self.entries:
                self.evict(key)
            group = self.grouping.restore(item)
            entry = self.entries[key] = {item[0]: group}
            self.bytes += self._bytes(entry)
            if group.row is not None:
                rows.append((group.row, 1))
        return rows

    def apply(self, deltas: list[Delta], refill: Callable[[Row], Found]) -> list[Delta]:
        """Apply the parent's deltas where the key is filled; answers the retractions and insertions of group rows.

        ``refill`` looks the parent up by this index's key.
        """
        grouping = self.grouping
        direct = self.parent_columns == grouping.group
        output: list[Delta] = []
        for key, of_key in group_by_key(deltas, self.parent_key_of).items():
            entry = self.entries.get(key)
            if entry is None:
                if self.partial:
                    continue
                entry = self.entries[key] = {}
                self.bytes += ENTRY_BYTES
            groups = {key: of_key} if direct else group_by_key(of_key, grouping.key_of)
            old = {name: entry[name].row if name in entry else None for name in groups}
            if not self._change(entry, groups):
                rows = refill(key)
                assert rows is not None, "an entry stands on a hole (rule 2)"
                self.bytes -= self._bytes(entry)
                entry = self.entries[key] = self.grouping.build(rows)
                self.bytes += self._bytes(entry)
            for name, before in old.items():
                group = entry.get(name)
                after = group.row if group is not None else None
                if before != after:
                    if before is not None:
                        output.append((before, -1))
                    if after is not None:
                        output.append((after, 1))
            if not entry and not self.partial:
                del self.entries[key]
                self.bytes -= ENTRY_BYTES
        return output

    def _change(self, entry: dict[Row, Group], groups: dict[Row, list[Delta]]) -> bool:
        grouping = self.grouping
        for name, deltas in groups.items():
            group = entry.get(name)
            if group is None:
                group = entry[name] = grouping.new()
            if not grouping.change(group, name, deltas):
                return False
            if not group.bytes or grouping.keeps_values:
                size = grouping.size(group)
                self.bytes += size - group.bytes
                group.bytes = size
            if not grouping.exists(group):
                del entry[name]
                self.bytes -= group.bytes
        return True


class AggregateOperator(KeepingOperator):
    def __init__(self, descriptor: graph.Aggregate, parent: Sequence[Column]) -> None:
        self._descriptor, self._parent = descriptor, parent
        places: list[list[int]] = [[] for _ in parent]
        for position, column in enumerate(descriptor.group):
            places[column].append(position)
        self._places: list[Columns] = [tuple(place) for place in places]

    def make_index(self, columns: Columns, partial: bool) -> Index:
        """Groups are kept once where the state is full, and its other indexes hold rows."""
        whole = columns == tuple(range(len(self._descriptor.group)))
        if whole and not self._descriptor.scalar:
            return WholeGroups(columns, partial, self._descriptor, self._parent)
        if partial or whole:
            return GroupIndex(columns, partial, Grouping(self._descriptor, self._parent, full=not partial))
        return RowIndex(columns, partial, self.vertex.collations)

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        output: list[Delta] = []
        earlier: list[GroupIndex | WholeGroups] = []
        for index in self.vertex.indexes.values():
            if not isinstance(index, (GroupIndex, WholeGroups)):
                continue
            changes = index.apply(inputs[0], self._refill(index, act))
            if not index.partial:
                output = output or changes
            elif not earlier:
                output = changes
            else:
                output.extend(
                    delta for delta in changes if not any(other.key_of(delta[0]) in other for other in earlier)
                )
            earlier.append(index)
        return output

    def _refill(self, index: GroupIndex | WholeGroups, act: Forward) -> Callable[[Row], Found]:
        parent = self.vertex.parents[0]
        return lambda key: act.find(parent, index.parent_columns, [key])[0]

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        """The parent's rows: what an index entry is built from."""
        sources = tuple(self._descriptor.group[column] for column in columns)
        return lookups.find(self.vertex.parents[0], sources, keys)

    def gathered(self, parts: Iterable[list[Delta]], lookups: Lookups) -> list[Delta]:
        index = self.make_index(tuple(range(len(self._descriptor.group))), partial=False)
        assert isinstance(index, (GroupIndex, WholeGroups))
        for part in parts:
            index.apply(part, never_refilled)
        return [delta for key in index.keys() for delta in index.get(key) or ()]  # noqa: SIM118

    def translate(self, parent: int, patterns: Sequence[Pattern], act: Forward) -> list[Pattern]:
        return rename(patterns, self._places)
