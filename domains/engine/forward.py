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
from itertools import repeat

from domains.engine.eviction import entry_pattern, victims
from domains.engine.pulls import Peek, PeekOld, SeenByBackfill
from domains.language.types import Delta, Row
from domains.operators.operator import Found, Vertex
from domains.plan.graph import Columns
from domains.plan.packets import Pattern

NOTHING: list[Delta] = []
_NOTHING = repeat(NOTHING)


class ForwardPass(Peek):
    """One pass. ``deltas`` and ``patterns`` hold, per visited vertex, what it says to its children. Operators look
    their parents up through it.

    A *building* pass goes only to vertices that are being backfilled (and stateless ones above them) and sees only the
    base rows that ``seen`` lets through; every other pass goes only to the others.

    A *gated* vertex takes what comes and says nothing, and nobody sees its state: so a bulk job lets a full state come
    to its end before what it says goes on, once (``inject_output``).
    """

    def __init__(
        self,
        *,
        building: bool = False,
        seen: SeenByBackfill | None = None,
        gated: Collection[Vertex] = (),
    ) -> None:
        self.deltas: dict[Vertex, list[Delta]] = {}
        self.patterns: dict[Vertex, list[Pattern]] = {}
        self.evicted: dict[tuple[Vertex, Columns], dict[Row, Found]] = {}
        self.visited: list[Vertex] = []
        """The vertices that have emitted something, in this order."""
        self._seen = seen
        self._gated = gated
        self._building = building
        self._heard = 0
        """How many of the visited the children have been queued of."""
        self._queue: list[tuple[int, Vertex]] = []
        self._queued: set[Vertex] = set()
        self._named: list[Pattern] = []

    # --- sources --------------------------------------------------------------------------------------------

    def inject(self, vertex: Vertex, deltas: list[Delta], patterns: Sequence[Pattern] = ()) -> None:
        """Deltas that enter the domain at a base or an ingress (or, for a backfill, at a vertex with full state)."""
        said = self._evict(vertex, patterns) if patterns else []
        settled = vertex.operator.settle(deltas) if deltas and vertex.settles else deltas
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
        """Visit what lies below the vertices that have said something."""
        # One loop that calls operators only: a write visits some twenty vertices, and each call adds 0.1 µs to a visit.
        queue, queued, visited, deltas_of = self._queue, self._queued, self.visited, self.deltas.get
        building = self._building
        while True:
            for speaker in visited[self._heard :]:
                for child in speaker.children:
                    mine = child.building or child.feeds_building if building else not child.building
                    if mine and child not in queued:
                        queued.add(child)
                        heappush(queue, (child.rank, child))
            self._heard = len(visited)
            if not queue:
                return
            _, vertex = heappop(queue)
            said = self._evict_below(vertex) if self.patterns else []
            inputs = list(map(deltas_of, vertex.parents, _NOTHING))
            deltas = NOTHING
            if any(inputs):
                deltas = vertex.operator.forward(inputs, self)
                if self._named:
                    named, self._named = self._named, []
                    said.extend(self._evict(vertex, named))
                if deltas and vertex.settles and not vertex.feeds_building:
                    deltas = vertex.operator.settle(deltas)
            if said:
                self._say(vertex, deltas, said)
            elif deltas and vertex not in self._gated:
                self.deltas[vertex] = deltas
                vertex.emitted += len(deltas)
                visited.append(vertex)

    def _say(self, vertex: Vertex, deltas: list[Delta], patterns: list[Pattern]) -> None:
        if (not deltas and not patterns) or vertex in self._gated:
            return
        self.visited.append(vertex)
        if deltas:
            self.deltas[vertex] = deltas
            vertex.emitted += len(deltas)
        if patterns:
            self.patterns.setdefault(vertex, []).extend(patterns)

    # --- evictions ------------------------------------------------------------------------------------------

    def _evict_below(self, vertex: Vertex) -> list[Pattern]:
        """Evict the vertex's own entries by what its parents have said; answers what goes on."""
        patterns: list[Pattern] = []
        for position, parent in enumerate(vertex.parents):
            if parent in self.patterns:
                patterns.extend(vertex.operator.translate(position, self.patterns[parent], self))
        return self._evict(vertex, patterns) if patterns else []

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

    def peek_old(self, parent: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return PeekOld(self.evicted).find(parent, columns, keys)

    def name_rows(self, patterns: Iterable[Pattern]) -> None:
        self._named.extend(patterns)
