"""Groups by their whole key: one an entry, which most aggregates have.

Without a dict of groups in each entry a count takes 0.35 kB instead of 0.8, and a batch of votes half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from domains import graph
from domains.deltas import group_by_key
from domains.graph import Columns
from domains.operators.grouping import Group, Grouping
from domains.operators.operator import Found
from domains.state import EntryIndex
from domains.types import Column, Delta, Row

WHOLE_ENTRY_BYTES = 150
"""A key's tuple and its slot in the index's dict."""


class WholeGroups(EntryIndex[Group | None]):
    """An entry is a group, or None where the key is known to be empty. Not for the scalar aggregate."""

    __slots__ = ("grouping", "parent_columns")

    def __init__(self, columns: Columns, partial: bool, descriptor: graph.Aggregate, parent: Sequence[Column]) -> None:
        super().__init__(columns, partial)
        self.grouping = Grouping(descriptor, parent, full=not partial, slot=0)
        self.parent_columns: Columns = descriptor.group

    def get(self, key: Row) -> Collection[Delta] | None:
        group = self.entries.get(key)
        if group is not None:
            return () if group.row is None else ((group.row, 1),)
        return None if self.partial and key not in self.entries else ()

    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        self._set(key, self.grouping.build(material).get(key))

    def _set(self, key: Row, group: Group | None) -> None:
        self.entries[key] = group
        self.bytes += WHOLE_ENTRY_BYTES + (group.bytes if group is not None else 0)

    def evict(self, key: Row) -> Collection[Delta]:
        group = self.entries.pop(key)
        self.bytes -= WHOLE_ENTRY_BYTES
        if group is None:
            return ()
        self.bytes -= group.bytes
        return () if group.row is None else ((group.row, 1),)

    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        mine, anew = self.entries.get(key), self.grouping.build(material).get(key)
        return (mine.row if mine is not None else None) == (anew.row if anew is not None else None)

    def exported(self) -> Iterator[Any]:
        return (self.grouping.export(key, group) for key, group in self.entries.items() if group is not None)

    def load(self, items: Sequence[Any]) -> list[Delta]:
        groups = [(item[0], self.grouping.restore(item)) for item in items]
        for key, group in groups:
            self._set(key, group)
        return [(group.row, 1) for _, group in groups if group.row is not None]

    # --- updates --------------------------------------------------------------------------------------------

    def apply(self, deltas: list[Delta], refill: Callable[[Row], Found]) -> list[Delta]:
        """Apply the parent's deltas where the key is filled; answers the retractions and insertions of group rows.

        ``refill`` looks the parent up by this index's key.
        """
        if self.grouping.only_counts:
            return self._count(deltas)
        entries, partial = self.entries, self.partial
        output: list[Delta] = []
        for key, of_key in group_by_key(deltas, self.grouping.key_of).items():
            group = entries.get(key)
            if group is None and partial and key not in entries:
                continue
            before = group.row if group is not None else None
            group = self._changed(key, group, of_key, refill)
            after = group.row if group is not None else None
            if before != after:
                if before is not None:
                    output.append((before, -1))
                if after is not None:
                    output.append((after, 1))
        return output

    def _changed(
        self, key: Row, group: Group | None, deltas: Sequence[Delta], refill: Callable[[Row], Found]
    ) -> Group | None:
        """The group after these deltas, put in its place."""
        grouping = self.grouping
        if group is None:
            group = self._new(key)
        if not grouping.change(group, key, deltas):
            rows = refill(key)
            assert rows is not None, "an entry stands on a hole (rule 2)"
            self.evict(key)
            group = grouping.build(rows).get(key)
            self._set(key, group)
        elif not group.bytes or grouping.keeps_values:
            size = grouping.size(group)
            self.bytes += size - group.bytes
            group.bytes = size
        if group is None or not grouping.exists(group):
            self._remove(key, group)
            return None
        return group

    def _new(self, key: Row) -> Group:
        if key not in self.entries:
            self.bytes += WHOLE_ENTRY_BYTES
        group = self.entries[key] = self.grouping.new()
        return group

    def _remove(self, key: Row, group: Group | None) -> None:
        """The group has no rows left: its key is known-empty, which in a full index is to be absent."""
        if group is not None:
            self.bytes -= group.bytes
        if self.partial:
            self.entries[key] = None
        else:
            del self.entries[key]
            self.bytes -= WHOLE_ENTRY_BYTES

    def _count(self, deltas: list[Delta]) -> list[Delta]:
        """``apply`` where all functions are COUNT(*) (or none: DISTINCT), which no retraction can surprise.

        Votes are counted far more often than anything else: 0.6 µs a changed group here, 2.3 by the general way.
        """
        grouping, entries, partial = self.grouping, self.entries, self.partial
        key_of, copies = grouping.key_of, len(grouping.accumulators)
        changes: dict[Row, int] = {}
        for row, weight in deltas:
            key = key_of(row)
            changes[key] = changes.get(key, 0) + weight
        output: list[Delta] = []
        for key, change in changes.items():
            group = entries.get(key)
            if not change or (group is None and partial and key not in entries):
                continue
            if group is None:
                group = self._new(key)
            before = group.row
            rows = group.rows = group.rows + change
            assert rows >= 0, f"group {key} has {rows} rows"
            if before is not None and rows and not copies:
                continue  # DISTINCT: the row was there and is there.
            if before is not None:
                output.append((before, -1))
            if not rows:
                group.row = None
                self._remove(key, group)
                continue
            after = group.row = key + (rows,) * copies
            output.append((after, 1))
            if not group.bytes:
                group.bytes = grouping.size(group)
                self.bytes += group.bytes
        return output
