"""TopK: of each group, the first ``limit`` rows by the order, after ``offset``; ties go by the whole row.

An entry holds some more rows than it shows. A retraction is then mostly served from what is held, and only when
fewer than ``offset + limit`` are left while the parent may have more is the entry computed anew (rule 8; earlier
systems answered too few rows there).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from domains.language.encoding import encode_key, encode_order
from domains.language.types import Column, Delta, Row, collations_of
from domains.operators.operator import Forward, Found, KeepingOperator, Lookups, never_refilled
from domains.operators.state import ENTRY_BYTES, Index, RowIndex, ShownIndex, row_bytes
from domains.plan import graph
from domains.plan.deltas import consolidate, group_by_key, key_function
from domains.plan.graph import Columns

SPARE_ROWS = 16
"""Held beyond ``offset + limit``, at least. More spare rows make a refill rarer; each costs memory in every group."""

Ranked = tuple[bytes, Row]


class Ranking:
    """The order of rows and how many are held: shared by all indexes of the node."""

    def __init__(self, descriptor: graph.TopK, columns: Sequence[Column]) -> None:
        self.collations = collations_of(columns)
        self._order_of = key_function(tuple(term.column for term in descriptor.order), self.collations)
        self._descending = tuple(term.descending for term in descriptor.order)
        self.key_of = key_function(descriptor.group, self.collations)
        self.offset = descriptor.offset
        self.shown = descriptor.offset + descriptor.limit
        self.capacity = self.shown + max(SPARE_ROWS, self.shown // 2)

    def rank(self, row: Row) -> Ranked:
        return (encode_order(self._order_of(row), self._descending) + encode_key(row), row)


class TopKGroup:
    """Held rows in order, each copy on its own; ``whole``: the parent has no others."""

    __slots__ = ("ranked", "whole")

    def __init__(self) -> None:
        self.ranked: list[Ranked] = []
        self.whole = True

    def show(self, ranking: Ranking) -> list[Row]:
        return [row for _, row in self.ranked[ranking.offset : ranking.shown]]


class TopIndex(ShownIndex[dict[Row, TopKGroup]]):
    """Groups by key, where the key is over some of the group columns."""

    __slots__ = ("ranking",)

    def __init__(self, columns: Columns, partial: bool, ranking: Ranking) -> None:
        super().__init__(columns, partial, ranking.collations)
        self.ranking = ranking

    def shown(self, entry: dict[Row, TopKGroup]) -> list[Delta]:
        return [(row, 1) for group in entry.values() for row in group.show(self.ranking)]

    def build(self, material: Iterable[Delta]) -> dict[Row, TopKGroup]:
        ranking = self.ranking
        entry: dict[Row, TopKGroup] = {}
        for row, weight in consolidate(material):
            group = entry.setdefault(ranking.key_of(row), TopKGroup())
            group.ranked.extend([ranking.rank(row)] * weight)
        for group in entry.values():
            group.ranked.sort()
            if len(group.ranked) > ranking.capacity:
                del group.ranked[ranking.capacity :]
                group.whole = False
        return entry

    @staticmethod
    def held_bytes(entry: dict[Row, TopKGroup]) -> int:
        held = (ranked for group in entry.values() for ranked in group.ranked)
        return ENTRY_BYTES + sum(row_bytes(row) + len(rank) for rank, row in held)

    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        mine, anew = self.entries.get(key, {}), self.build(material)
        shown = {k: rows for k, g in mine.items() if (rows := g.show(self.ranking))}
        return shown == {k: rows for k, g in anew.items() if (rows := g.show(self.ranking))}

    def exported(self) -> Iterator[Any]:
        groups = (group for entry in self.entries.values() for group in entry.values())
        return ((*(row for _, row in group.ranked), group.whole) for group in groups)

    def load(self, items: Sequence[Any]) -> list[Delta]:
        """Load a full index, whose key is the group."""
        rows: list[Delta] = []
        for *held, whole in items:
            group = TopKGroup()
            group.ranked, group.whole = [self.ranking.rank(row) for row in held], whole
            key = self.key_of(held[0])
            entry = self.entries[key] = {key: group}
            self.bytes += self.held_bytes(entry)
            rows.extend(self.shown(entry))
        return rows

    def apply(self, deltas: list[Delta], refill: Callable[[Row], Found]) -> list[Delta]:
        """Apply the parent's deltas where the key is filled; answers how the shown rows change."""
        output: list[Delta] = []
        for key, of_key in group_by_key(deltas, self.key_of).items():
            entry = self.entries.get(key)
            if entry is None:
                if self.partial:
                    continue
                entry = self.entries[key] = {}
                self.bytes += ENTRY_BYTES
            groups = group_by_key(consolidate(of_key), self.ranking.key_of)
            old = {name: entry[name].show(self.ranking) if name in entry else [] for name in groups}
            if not all(self._change(entry.setdefault(name, TopKGroup()), ds) for name, ds in groups.items()):
                rows = refill(key)
                assert rows is not None, "an entry stands on a hole (rule 2)"
                self.bytes -= self.held_bytes(entry)
                entry = self.entries[key] = self.build(rows)
                self.bytes += self.held_bytes(entry)
            for name, before in old.items():
                group = entry.get(name)
                after = group.show(self.ranking) if group is not None else []
                if after != before:  # Most changes are below what is shown, of 51 rows on a front page.
                    output.extend(consolidate([(row, -1) for row in before] + [(row, 1) for row in after]))
                if group is not None and not group.ranked:
                    del entry[name]
            if not entry and not self.partial:
                del self.entries[key]
                self.bytes -= ENTRY_BYTES
        return output

    def _change(self, group: TopKGroup, deltas: list[Delta]) -> bool:
        """Apply one group's deltas; False where it now shows fewer rows than the parent may have."""
        ranking, ranked = self.ranking, group.ranked
        for row, weight in deltas:
            rank = ranking.rank(row)
            cost = row_bytes(row) + len(rank[0])
            if weight > 0:
                if group.whole or (ranked and rank < ranked[-1]):
                    for _ in range(weight):
                        insort(ranked, rank)
                    self.bytes += weight * cost
            else:
                place = bisect_left(ranked, rank)
                for _ in range(-weight):
                    if place < len(ranked) and ranked[place] == rank:
                        del ranked[place]
                        self.bytes -= cost
        while len(ranked) > ranking.capacity:
            rank_bytes, row = ranked.pop()
            self.bytes -= row_bytes(row) + len(rank_bytes)
            group.whole = False
        return group.whole or len(ranked) >= ranking.shown


class TopKOperator(KeepingOperator):
    def __init__(self, descriptor: graph.TopK, columns: Sequence[Column]) -> None:
        self.ranking = Ranking(descriptor, columns)
        self.group = descriptor.group

    def make_index(self, columns: Columns, partial: bool) -> Index:
        """Ranked rows are kept once where the state is full, and its other indexes hold the shown rows."""
        if partial or columns == self.group:
            return TopIndex(columns, partial, self.ranking)
        return RowIndex(columns, partial, self.ranking.collations)

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        output: list[Delta] = []
        earlier: list[TopIndex] = []
        for index in self.vertex.indexes.values():
            if not isinstance(index, TopIndex):
                continue
            changes = index.apply(inputs[0], self._refill(index, act))
            if not index.partial:
                output = output or changes
            else:
                output.extend(d for d in changes if not any(other.key_of(d[0]) in other for other in earlier))
            earlier.append(index)
        return output

    def _refill(self, index: TopIndex, act: Forward) -> Callable[[Row], Found]:
        """Ask the parent for an entry's rows. By NULL nothing is looked up: a full state's NULL group is picked out of
        everything."""
        parent, columns, key_of = self.vertex.parents[0], index.columns, index.key_of

        def ask(key: Row) -> Found:
            if None not in key:
                return act.find(parent, columns, [key])[0]
            everything = act.find(parent, (), [()])[0]
            return None if everything is None else [delta for delta in everything if key_of(delta[0]) == key]

        return ask

    def gathered(self, parts: Iterable[list[Delta]], lookups: Lookups) -> list[Delta]:
        index = TopIndex(self.group, partial=False, ranking=self.ranking)
        for part in parts:
            index.apply(part, never_refilled)
        return [delta for key in index.keys() for delta in index.get(key) or ()]  # noqa: SIM118
