"""The dependencies between transactions, of which only those are kept that can still be part of a cycle.

A node is a transaction, or stands between some of them: a moment that others had completed before (``moment``), or
the later versions of a key. A node is *closed* once all edges into it are known. What is closed and has no
predecessor that is still here can be in no cycle, now or later, and goes, with its edges; that in turn may be so of its
successors (Kahn). What stays are transactions with keys in use, what comes after those, and cycles. When that has
doubled, components of it that are closed and without predecessors are cycles that are complete: they are given out,
to be named, and go as well. So nothing that ends a piece of a history cuts an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Edge = tuple[int, str, Any, Any, Any]
"""Where to, the kind, the key, the version before, and the one after it; of ``wr`` both are what was read."""
TO, KIND = 0, 1
WW, WR, RW, PROCESS, REALTIME, ONWARD = "ww", "wr", "rw", "process", "realtime", "onward"
"""``onward`` leads to a node between, from where an edge of the kind that is meant goes on."""

FEWEST = 20_000
"""So many nodes are not yet worth a search for components."""


class Graph:
    def __init__(self) -> None:
        self.edges: dict[int, list[Edge]] = {}
        self.names: dict[int, int] = {}
        """Of nodes that are transactions: the index of the event by which one is called."""
        self._into: dict[int, int] = {}
        self._closed: set[int] = set()
        self._free: list[int] = []
        self._next = 0
        self._search_at = FEWEST
        self.most = 0
        """So many nodes were there at once."""

    def node(self) -> int:
        node = self._next
        self._next += 1
        self.edges[node] = []
        self._into[node] = 0
        return node

    def edge(self, start: int, end: int, kind: str, key: Any = None, before: Any = None, after: Any = None) -> None:
        out = self.edges.get(start)
        if out is None or start == end:
            return  # What has gone leads nowhere that it could be reached from again.
        self._into[end] += 1
        out.append((end, kind, key, before, after))

    def fan(self, starts: Sequence[int], ends: Sequence[int], kind: str, key: Any, before: Any, after: Any) -> None:
        """An edge from each start to each end: by way of a node between, where this makes fewer."""
        if not starts or not ends:
            return
        if len(starts) > 1 and len(ends) > 1:
            both = set(starts) & set(ends)  # By way of another node they would be their own predecessors.
            apart = [each for each in starts if each not in both]
            if apart:
                between = self.node()
                for start in apart:
                    self.edge(start, between, ONWARD)
                for end in ends:
                    self.edge(between, end, kind, key, before, after)
                self.close(between)
            starts = sorted(both)
        for start in starts:
            for end in ends:
                self.edge(start, end, kind, key, before, after)

    def close(self, node: int) -> None:
        """All edges into this node are known."""
        self._closed.add(node)
        if not self._into[node]:
            self._free.append(node)

    def drop(self, node: int) -> None:
        """This transaction has had no effect; no edge leads out of it."""
        assert not self.edges[node]
        self._forget(node)

    def _forget(self, node: int) -> list[Edge]:
        del self._into[node]
        self._closed.discard(node)
        self.names.pop(node, None)
        return self.edges.pop(node)

    def shed(self) -> None:
        """Forget what can be in no cycle."""
        into, closed, free = self._into, self._closed, self._free
        self.most = max(self.most, len(into))
        while free:
            for edge in self._forget(free.pop()):
                end = edge[0]
                if end not in into:
                    continue  # It has aborted since.
                into[end] -= 1
                if not into[end] and end in closed:
                    free.append(end)

    def complete_cycles(self, found: Callable[[list[int]], None], *, at_end: bool = False) -> None:
        """Give out each component that is complete, and forget it."""
        self.shed()
        if len(self.edges) < self._search_at and not at_end:
            return
        waited_for: set[int] = set()
        for component in reversed(components(self.edges, self._ends)):
            ends = {edge[TO] for node in component for edge in self.edges[node]}
            if not at_end and not (self._closed.issuperset(component) and waited_for.isdisjoint(component)):
                waited_for |= ends
                continue
            if len(component) > 1:
                found(component)
            for node in component:
                for edge in self._forget(node):
                    if edge[TO] in self._into:
                        self._into[edge[TO]] -= 1
        self._free = [node for node in self._closed if not self._into[node]]
        self.shed()
        self._search_at = max(FEWEST, 2 * len(self.edges))

    def _ends(self, node: int) -> list[int]:
        edges = self.edges
        return [edge[0] for edge in edges[node] if edge[0] in edges]


def components(nodes: Iterable[int], ends_of: Callable[[int], Sequence[int]]) -> list[list[int]]:
    """Strongly connected components (Tarjan, without recursion), each before those that lead to it."""
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    found: list[list[int]] = []
    for root in nodes:
        if root in numbers:
            continue
        numbers[root] = lowest[root] = len(numbers)
        open_nodes.append(root)
        is_open.add(root)
        path = [(root, iter(ends_of(root)))]
        while path:
            node, ends = path[-1]
            for end in ends:
                if end not in numbers:
                    numbers[end] = lowest[end] = len(numbers)
                    open_nodes.append(end)
                    is_open.add(end)
                    path.append((end, iter(ends_of(end))))
                    break
                if end in is_open and numbers[end] < lowest[node]:
                    lowest[node] = numbers[end]
            else:
                path.pop()
                if path and lowest[node] < lowest[path[-1][0]]:
                    lowest[path[-1][0]] = lowest[node]
                if lowest[node] == numbers[node]:
                    component = []
                    while not component or component[-1] != node:
                        component.append(open_nodes.pop())
                        is_open.discard(component[-1])
                    found.append(component)
    return found
