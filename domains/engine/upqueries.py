"""Holes that wait for another domain: which shards have answered, and what changed meanwhile.

An answer comes in the same link as the updates, so a shard's piece reflects exactly what that link has delivered.
While some shards have answered and others have not, updates from one that has are folded into its piece, and those from
one that has not are dropped, for its piece will hold them. An eviction from a shard that has answered makes its piece
worthless: it is asked again. One upquery per hole, however many reads wait for it. A shard that cannot read what is
asked says so in place of its piece, and once all have answered those who wait are told: the hole stays one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from domains.engine.eviction import entry_pattern, means
from domains.errors import HeadraceError
from domains.language.types import Delta, Row
from domains.operators.operator import Vertex
from domains.plan.deltas import Entry, add_row
from domains.plan.graph import Columns
from domains.plan.packets import Fill, LinkId, Pattern, Unfilled
from domains.plan.sharding import shard_of

Hole = tuple[Vertex, Columns, Row]


@dataclass(frozen=True, slots=True)
class IngressSources:
    """The links that feed an ingress, in the order of the shards that send; ``by`` decides a row's."""

    links: tuple[LinkId, ...]
    by: int | None = None

    def of_key(self, columns: Columns, key: Row) -> tuple[LinkId, ...]:
        """The links over which rows with this key can come: one where the key decides it, else all."""
        if self.by is not None and len(self.links) > 1 and self.by in columns:
            return (self.links[shard_of(key[columns.index(self.by)], len(self.links))],)
        return self.links


@dataclass(slots=True)
class PendingHole:
    """A hole with an upquery under way; ``pieces`` are the shards' answers so far, ``failures`` those that are none."""

    sources: tuple[LinkId, ...]
    pieces: dict[LinkId, Entry] = field(default_factory=dict)
    failures: dict[LinkId, HeadraceError] = field(default_factory=dict)

    @property
    def is_answered(self) -> bool:
        return len(self.pieces) + len(self.failures) == len(self.sources)


class Ingresses:
    """The pending holes of one domain."""

    def __init__(self) -> None:
        self.sources: dict[Vertex, IngressSources] = {}
        self.pending: dict[Hole, PendingHole] = {}
        self._pieces: dict[tuple[LinkId, Vertex], dict[Columns, dict[Row, Entry]]] = {}
        """The pieces of ``pending``, found by what a packet names: a cold start has thousands of holes that wait."""

    def ask(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[tuple[LinkId, list[Row]]]:
        """Register holes; answers which keys are to be asked for on which links (none for those asked already)."""
        sources = self.sources[vertex]
        asked: dict[LinkId, list[Row]] = {}
        for key in keys:
            if (vertex, columns, key) not in self.pending:
                links = sources.of_key(columns, key)
                self.pending[vertex, columns, key] = PendingHole(links)
                for link in links:
                    asked.setdefault(link, []).append(key)
        return list(asked.items())

    def evicted(self, link: LinkId, vertex: Vertex, patterns: Sequence[Pattern]) -> list[Hole]:
        """Pieces of ``link`` that the patterns mean are discarded; answers the holes to ask that shard for again."""
        again: list[Hole] = [
            (vertex, columns, key)
            for columns, pieces in self._pieces.get((link, vertex), {}).items()
            for key in pieces
            if any(means(columns, key, pattern) for pattern in patterns)
        ]
        for hole in again:
            self._discard(link, hole)
        return again

    def updated(self, link: LinkId, vertex: Vertex, deltas: Sequence[Delta]) -> None:
        """Fold updates into the pieces that their sender has answered already."""
        for columns, pieces in self._pieces.get((link, vertex), {}).items():
            key_of = vertex.indexes[columns].key_of
            for row, weight in deltas:
                piece = pieces.get(key_of(row))
                if piece is not None:
                    add_row(piece, row, weight)

    def answered(self, link: LinkId, vertex: Vertex, fill: Fill | Unfilled) -> list[Delta] | HeadraceError | None:
        """Take a shard's piece; when it was the last one the whole entry, or why there is none, else None.

        A piece for no pending hole, or one that is there already, is ignored.
        """
        pending = self.pending.get((vertex, fill.columns, fill.key))
        if pending is None or link in pending.pieces or link in pending.failures:
            return None
        if isinstance(fill, Unfilled):
            pending.failures[link] = fill.error
        else:
            piece: Entry = {}
            for row, weight in fill.rows:
                add_row(piece, row, weight)
            pending.pieces[link] = piece
            if not pending.is_answered:
                self._pieces.setdefault((link, vertex), {}).setdefault(fill.columns, {})[fill.key] = piece
        if not pending.is_answered:
            return None
        self._remove((vertex, fill.columns, fill.key))
        if pending.failures:
            return next(iter(pending.failures.values()))
        return [delta for piece in pending.pieces.values() for delta in piece.items()]

    def reset(self, link: LinkId) -> list[Hole]:
        """The link's sender began anew: its pieces are void, and every hole that awaits it is to be asked for again."""
        again: list[Hole] = []
        for hole, pending in self.pending.items():
            if link in pending.sources:
                self._discard(link, hole)
                again.append(hole)
        return again

    def forget(self, vertex: Vertex) -> None:
        self.sources.pop(vertex, None)
        for hole in [hole for hole in self.pending if hole[0] is vertex]:
            self._remove(hole)

    def _remove(self, hole: Hole) -> None:
        for link in self.pending.pop(hole).pieces:
            self._unindex(link, hole)

    def _discard(self, link: LinkId, hole: Hole) -> None:
        """The link's piece of a pending hole, if it is there, or what it said instead."""
        self.pending[hole].failures.pop(link, None)
        if self.pending[hole].pieces.pop(link, None) is not None:
            self._unindex(link, hole)

    def _unindex(self, link: LinkId, hole: Hole) -> None:
        vertex, columns, key = hole
        by_columns = self._pieces.get((link, vertex), {})
        pieces = by_columns.get(columns, {})
        if pieces.pop(key, None) is not None and not pieces:
            del by_columns[columns]
            if not by_columns:
                del self._pieces[link, vertex]


def fed_by(links: set[LinkId], vertex: Vertex, sources: IngressSources) -> list[Pattern]:
    """Patterns for the entries of an ingress that hold rows of these links, or would."""
    patterns: list[Pattern] = []
    for columns, index in vertex.indexes.items():
        assert index.partial, f"{vertex} is full: it is to be removed before its source is reset"
        keys = list(index.keys())
        patterns.extend(entry_pattern(index, k) for k in keys if not links.isdisjoint(sources.of_key(columns, k)))
    return patterns
