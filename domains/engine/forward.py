"""The forward act: one topological pass through the domain, deltas and evictions side by side.

A vertex is visited at most once a step, after all its parents, so a diamond or a self-join sees both sides at once.
At a vertex, evictions come first: what is evicted becomes a hole, and the deltas that meet the hole are dropped.

::

    patterns of the parents ─► translate ─► evict own entries ─┐
                                                               ├─► patterns, deltas of this vertex ─► children
    deltas of the parents ───► forward ──► (named rows evict) ─► settle ┘
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush

from domains.engine.eviction import entry_pattern, victims
from domains.engine.pulls import Peek, PeekOld, SeenByBackfill
from domains.language.types import Delta, Row
from domains.operators.operator import Found, Vertex
from domains.plan.graph import Columns
from domains.plan.packets import Pattern
from domains.store.storage import Store

NOTHING: list[Delta] = []


class ForwardPass:
    """One pass. ``deltas`` and ``patterns`` hold, per visited vertex, what it says to its children.

    A *building* pass goes only to vertices that are being backfilled (and stateless ones above them) and sees only the
    base rows that ``seen`` lets through; every other pass goes only to the others.

    A *gated* vertex takes what comes and says nothing, and nobody sees its state: so a bulk job lets a full state come
    to its end before what it says goes on, once (``inject_output``).
    """

    def __init__(
        self,
        store: Store,
        *,
        building: bool = False,
        seen: SeenByBackfill | None = None,
        gated: Collection[Vertex] = (),
    ) -> None:
        self.deltas: dict[Vertex, list[Delta]] = {}
        self.patterns: dict[Vertex, list[Pattern]] = {}
        self.evicted: dict[tuple[Vertex, Columns], dict[Row, Found]] = {}
        self.visited: list[Vertex] = []
        self._building = building
        self._gated = gated
        self._peek = Peek(store, seen, gated)
        self._peek_old = PeekOld(store, self.evicted)
        self._queue: list[tuple[int, Vertex]] = []
        self._queued: set[Vertex] = set()
        self._named: list[Pattern] = []

    # --- sources --------------------------------------------------------------------------------------------

    def inject(self, vertex: Vertex, deltas: list[Delta], patterns: Sequence[Pattern] = ()) -> None:
        """Deltas that enter the domain at a base or an ingress (or, for a backfill, at a vertex with full state)."""
        said = self._evict(vertex, patterns) if patterns else []
        settled = vertex.operator.settle(deltas, self) if deltas and vertex.indexes else deltas
        self._say(vertex, settled, said)

    def inject_output(self, vertex: Vertex, deltas: list[Delta]) -> None:
        """Deltas that the vertex's own state reflects already."""
        self._say(vertex, deltas, [])

    def evict_keys(self, vertex: Vertex, columns: Columns, keys: Iterable[Row]) -> int:
        """Evict filled keys of one index of a vertex; answers how many there were."""
        index = vertex.indexes[columns]
        filled = [key for key in dict.fromkeys(keys) if key in index]
        self._say(vertex, NOTHING, self._drop(vertex, columns, filled))
        return len(filled)

    # --- the pass -------------------------------------------------------------------------------------------

    def run(self) -> None:
        while self._queue:
            _, vertex = heappop(self._queue)
            self._visit(vertex)

    def _visit(self, vertex: Vertex) -> None:
        operator = vertex.operator
        patterns: list[Pattern] = []
        if self.patterns:
            for position, parent in enumerate(vertex.parents):
                if parent in self.patterns:
                    patterns.extend(operator.translate(position, self.patterns[parent], self))
        said = self._evict(vertex, patterns) if patterns else []
        said_by = self.deltas.get
        inputs = [said_by(parent, NOTHING) for parent in vertex.parents]
        deltas = NOTHING
        if any(inputs):
            deltas = operator.forward(inputs, self)
            if self._named:
                named, self._named = self._named, []
                said.extend(self._evict(vertex, named))
            if deltas and vertex.indexes and not vertex.feeds_building:
                deltas = operator.settle(deltas, self)
        self._say(vertex, deltas, said)

    def _say(self, vertex: Vertex, deltas: list[Delta], patterns: list[Pattern]) -> None:
        if (not deltas and not patterns) or vertex in self._gated:
            return
        self.visited.append(vertex)
        if deltas:
            self.deltas[vertex] = deltas
        if patterns:
            self.patterns.setdefault(vertex, []).extend(patterns)
        for child in vertex.children:
            mine = child.building or child.feeds_building if self._building else not child.building
            if mine and child not in self._queued:
                self._queued.add(child)
                heappush(self._queue, (child.rank, child))

    # --- evictions ------------------------------------------------------------------------------------------

    def _evict(self, vertex: Vertex, patterns: Sequence[Pattern]) -> list[Pattern]:
        """Evict the vertex's own entries; answers what goes on: a state speaks for what it held. (No look-up passes
        through a vertex with state: the plan gives each an index.)"""
        if not vertex.indexes:
            return list(patterns)
        said: list[Pattern] = []
        for columns, index in vertex.indexes.items():
            if index.partial:
                said.extend(self._drop(vertex, columns, victims(index, patterns)))
        return said

    def _drop(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Pattern]:
        index = vertex.indexes[columns]
        held = self.evicted.setdefault((vertex, columns), {})
        said = []
        for key in keys:
            held[key] = index.evict(key)
            said.append(entry_pattern(index, key))
        return said

    # --- what operators ask -----------------------------------------------------------------------------------

    def peek(self, parent: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return self._peek.find(parent, columns, keys) if keys else []

    def count(self, parent: Vertex, columns: Columns, keys: Sequence[Row], most: int) -> list[int | None]:
        return self._peek.count(parent, columns, keys, most) if keys else []

    def peek_old(self, parent: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return self._peek_old.find(parent, columns, keys) if keys else []

    def name_rows(self, patterns: Iterable[Pattern]) -> None:
        self._named.extend(patterns)
