"""ω_{g; o; f…}(X): each row of X, followed by window functions over its partition.

An entry holds whole partitions: their rows in order, ties by the whole row, with the values that their functions have
and the rows that were said. A batch moves rows in and out, has the functions revise what that can change
(``windows.py``), and says the difference. Nothing is ever computed anew from the parent: no retraction surprises.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from domains.language.encoding import encode_key, encode_order
from domains.language.types import Column, Delta, Row, collations_of
from domains.operators.framing import Dirty, PartitionBatch, PartitionChange, RankedRow, order_of, rank_of
from domains.operators.operator import Forward, KeepingOperator, Lookups
from domains.operators.state import ENTRY_BYTES, Index, RowIndex, ShownIndex, row_bytes
from domains.operators.windows import functions_of
from domains.plan import graph
from domains.plan.deltas import consolidate, group_by_key, key_function
from domains.plan.graph import Columns

RANKED_BYTES = 180
"""A row's object with its list of values and the row that was said, beside what is in them."""
VALUE_BYTES = 48
"""A value or a state of a function."""
FEW = 8
"""So many rows are put in their places one by one; more than an eighth of a partition are sorted into it."""


class Windows:
    """The order of rows and the functions: shared by all indexes of the node."""

    def __init__(self, descriptor: graph.Over, parent: Sequence[Column]) -> None:
        self.collations = collations_of(parent)
        self._ordered = key_function(tuple(term.column for term in descriptor.order), self.collations)
        self._descending = tuple(term.descending for term in descriptor.order)
        self.key_of = key_function(descriptor.partition, self.collations)
        self.functions, self._width = functions_of(descriptor, parent)
        self.calls = len(descriptor.calls)

    def ranked(self, row: Row) -> RankedRow:
        order = encode_order(self._ordered(row), self._descending)
        return RankedRow(row, order, order + encode_key(row), self._width)

    def bytes_of(self, ranked: RankedRow) -> int:
        return RANKED_BYTES + VALUE_BYTES * self._width + row_bytes(ranked.row) + len(ranked.rank)


class Partition:
    """Its rows in order, each copy on its own."""

    __slots__ = ("rows", "totals")

    def __init__(self, windows: Windows) -> None:
        self.rows: list[RankedRow] = []
        self.totals: list[Any] = [None] * windows.calls

    def change(self, deltas: Sequence[Delta], windows: Windows) -> tuple[list[Delta], int]:
        """Apply the parent's consolidated deltas; answers how the output rows change, and by how many bytes this."""
        came: list[RankedRow] = []
        going: dict[bytes, int] = {}
        moved: list[RankedRow] = []
        for row, weight in deltas:
            ranked = windows.ranked(row)
            moved.append(ranked)
            if weight < 0:
                going[ranked.rank] = -weight
            else:
                came.append(ranked)
                came.extend(windows.ranked(row) for _ in range(weight - 1))
        is_new = not self.rows
        gone = self._move(came, going)
        dirty: Dirty = dict.fromkeys(came)
        if self.rows:
            changes = [self._whole()] if is_new else self._changes(moved)
            batch = PartitionBatch(self.rows, changes, deltas, len(came), self.totals, dirty)
            for function in windows.functions:
                function.revise(batch)
        output: list[Delta] = [(each.said, -1) for each in gone if each.said is not None]
        for each in dirty:
            said = (*each.row, *each.values[: windows.calls])
            if said != each.said:
                if each.said is not None:
                    output.append((each.said, -1))
                output.append((said, 1))
                each.said = said
        bytes_of = windows.bytes_of
        return consolidate(output), sum(map(bytes_of, came)) - sum(map(bytes_of, gone))

    def _move(self, came: list[RankedRow], going: dict[bytes, int]) -> list[RankedRow]:
        """Put rows in and take rows out; answers those that are gone."""
        rows = self.rows
        moving = len(came) + sum(going.values())
        gone: list[RankedRow] = []
        if moving > FEW and moving * FEW > len(rows):
            kept: list[RankedRow] = []
            for row in rows:
                if going.get(row.rank):
                    going[row.rank] -= 1
                    gone.append(row)
                else:
                    kept.append(row)
            assert not any(going.values()), "a row is taken back that is not there"
            kept.extend(came)
            kept.sort(key=rank_of)
            rows[:] = kept
            return gone
        for rank, copies in going.items():
            place = bisect_left(rows, rank, key=rank_of)
            taken = rows[place : place + copies]
            assert [row.rank for row in taken] == [rank] * copies, "a row is taken back that is not there"
            gone += taken
            del rows[place : place + copies]
        for row in came:
            insort(rows, row, key=rank_of)
        return gone

    def _whole(self) -> PartitionChange:
        rows = self.rows
        return PartitionChange(0, len(rows), 0, len(rows), rows[0].order, rows[-1].order)

    def _changes(self, moved: list[RankedRow]) -> list[PartitionChange]:
        rows = self.rows
        changes = []
        for each in sorted(moved, key=rank_of):
            first, last = bisect_left(rows, each.rank, key=rank_of), bisect_right(rows, each.rank, key=rank_of)
            peers_first = bisect_left(rows, each.order, key=order_of)
            peers_last = bisect_right(rows, each.order, key=order_of)
            changes.append(PartitionChange(first, last, peers_first, peers_last, each.order, each.order))
        return changes

    def said(self) -> Iterator[Delta]:
        return ((row.said, 1) for row in self.rows if row.said is not None)


class OverIndex(ShownIndex[dict[Row, Partition]]):
    """Partitions by key, where the key is over some of the partition columns."""

    __slots__ = ("windows",)

    def __init__(self, columns: Columns, partial: bool, windows: Windows) -> None:
        super().__init__(columns, partial, windows.collations)
        self.windows = windows

    @staticmethod
    def shown(entry: dict[Row, Partition]) -> list[Delta]:
        return consolidate([delta for partition in entry.values() for delta in partition.said()])

    def build(self, material: Iterable[Delta]) -> dict[Row, Partition]:
        entry: dict[Row, Partition] = {}
        for name, deltas in group_by_key(consolidate(material), self.windows.key_of).items():
            entry[name] = Partition(self.windows)
            entry[name].change(deltas, self.windows)
        return entry

    def held_bytes(self, entry: dict[Row, Partition]) -> int:
        rows = (row for partition in entry.values() for row in partition.rows)
        return ENTRY_BYTES * (1 + len(entry)) + sum(map(self.windows.bytes_of, rows))

    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        mine, anew = self.entries.get(key, {}), self.build(material)
        return dict(self.shown(mine)) == dict(self.shown(anew))

    def exported(self) -> Iterator[Any]:
        """The parent's rows of each partition; all else follows from them."""
        partitions = (partition for entry in self.entries.values() for partition in entry.values())
        return (tuple(row.row for row in partition.rows) for partition in partitions)

    def load(self, items: Sequence[Any]) -> list[Delta]:
        """Load a full index, whose key is the partition."""
        rows: list[Delta] = []
        for held in items:
            rows.extend(self.apply([(row, 1) for row in held]))
        return rows

    def apply(self, deltas: list[Delta]) -> list[Delta]:
        """Apply the parent's deltas where the key is filled; answers how the output rows change."""
        output: list[Delta] = []
        for key, of_key in group_by_key(deltas, self.key_of).items():
            entry = self.entries.get(key)
            if entry is None:
                if self.partial:
                    continue
                entry = self.entries[key] = {}
                self.bytes += ENTRY_BYTES
            for name, changed in group_by_key(consolidate(of_key), self.windows.key_of).items():
                partition = entry.get(name)
                if partition is None:
                    partition = entry[name] = Partition(self.windows)
                    self.bytes += ENTRY_BYTES
                said, size = partition.change(changed, self.windows)
                output += said
                self.bytes += size
                if not partition.rows:
                    del entry[name]
                    self.bytes -= ENTRY_BYTES
            if not entry and not self.partial:
                del self.entries[key]
                self.bytes -= ENTRY_BYTES
        return output


class OverOperator(KeepingOperator):
    def __init__(self, descriptor: graph.Over, parent: Sequence[Column]) -> None:
        self.windows = Windows(descriptor, parent)
        self.partition = descriptor.partition

    def make_index(self, columns: Columns, partial: bool) -> Index:
        """Partitions are kept once where the state is full, and its other indexes hold output rows."""
        if partial or columns == self.partition:
            return OverIndex(columns, partial, self.windows)
        return RowIndex(columns, partial, self.vertex.collations)

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        output: list[Delta] = []
        earlier: list[OverIndex] = []
        for index in self.vertex.indexes.values():
            if not isinstance(index, OverIndex):
                continue
            changes = index.apply(inputs[0])
            if not index.partial:
                output = output or changes
            else:
                output.extend(d for d in changes if not any(other.key_of(d[0]) in other for other in earlier))
            earlier.append(index)
        return output

    def gathered(self, parts: Iterable[list[Delta]], lookups: Lookups) -> list[Delta]:
        """All is sorted once, where each part would have the functions go over all that came before."""
        index = OverIndex(self.partition, partial=False, windows=self.windows)
        return index.apply([delta for part in parts for delta in part])
