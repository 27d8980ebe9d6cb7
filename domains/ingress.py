"""Holes that wait for another domain: which shards have answered, and what changed meanwhile.

An answer comes in the same link as the updates, so a shard's piece reflects exactly what that link has delivered.
While some shards have answered and others have not, updates from one that has are folded into its piece, and those from
one that has not are dropped, for its piece will hold them. An eviction from a shard that has answered makes its piece
worthless: it is asked again. One upquery per hole, however many reads wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from domains.deltas import Entry, add_row
from domains.evict import means
from domains.graph import Columns
from domains.packets import Fill, LinkId, Pattern
from domains.types import Delta, Row
from domains.vertex import Vertex

Hole = tuple[Vertex, Columns, Row]


@dataclass(slots=True)
class Pending:
    """A hole with an upquery under way; ``pieces`` are the shards' answers so far."""

    sources: tuple[LinkId, ...]
    pieces: dict[LinkId, Entry] = field(default_factory=dict)


class Ingresses:
    """The pending holes of one domain."""

    def __init__(self) -> None:
        self.sources: dict[Vertex, tuple[LinkId, ...]] = {}
        self.pending: dict[Hole, Pending] = {}

    def ask(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[tuple[LinkId, list[Row]]]:
        """Register holes; answers which keys are to be asked for on which links (none for those asked already)."""
        new = [key for key in keys if (vertex, columns, key) not in self.pending]
        for key in new:
            self.pending[vertex, columns, key] = Pending(self.sources[vertex])
        return [(link, new) for link in self.sources[vertex]] if new else []

    def evicted(self, link: LinkId, vertex: Vertex, patterns: Sequence[Pattern]) -> list[Hole]:
        """Pieces of ``link`` that the patterns mean are discarded; answers the holes to ask that shard for again."""
        again: list[Hole] = []
        for hole, pending in self.pending.items():
            of, columns, key = hole
            if of is vertex and link in pending.pieces and any(means(columns, key, p) for p in patterns):
                del pending.pieces[link]
                again.append(hole)
        return again

    def updated(self, link: LinkId, vertex: Vertex, deltas: Sequence[Delta]) -> None:
        """Fold updates into the pieces that their sender has answered already."""
        for (of, columns, key), pending in self.pending.items():
            piece = pending.pieces.get(link)
            if of is vertex and piece is not None:
                key_of = vertex.indexes[columns].key_of
                for row, weight in deltas:
                    if key_of(row) == key:
                        add_row(piece, row, weight)

    def answered(self, link: LinkId, vertex: Vertex, fill: Fill) -> list[Delta] | None:
        """Take a shard's piece; the whole entry when it was the last one, else None.

        A piece for no pending hole, or one that is there already, is ignored.
        """
        pending = self.pending.get((vertex, fill.columns, fill.key))
        if pending is None or link in pending.pieces:
            return None
        piece: Entry = {}
        for row, weight in fill.rows:
            add_row(piece, row, weight)
        pending.pieces[link] = piece
        if len(pending.pieces) < len(pending.sources):
            return None
        del self.pending[vertex, fill.columns, fill.key]
        return [delta for piece in pending.pieces.values() for delta in piece.items()]

    def reset(self, link: LinkId) -> list[Hole]:
        """The link's sender began anew: its pieces are void, and every hole that awaits it is to be asked for again."""
        again: list[Hole] = []
        for hole, pending in self.pending.items():
            if link in pending.sources:
                pending.pieces.pop(link, None)
                again.append(hole)
        return again

    def forget(self, vertex: Vertex) -> None:
        self.sources.pop(vertex, None)
        for hole in [hole for hole in self.pending if hole[0] is vertex]:
            del self.pending[hole]
