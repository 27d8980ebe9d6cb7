"""Clocks: which writes a vertex reflects.

A clock maps base tables to sequence numbers. A vertex reflects of a table what *all* the ways from that table to it
have delivered: the least of its links' clocks, and the local position where the table lives in this domain.
"""

from __future__ import annotations

from collections.abc import Iterable

from domains.packets import Clock, LinkId
from domains.vertex import Vertex

Origins = dict[str, frozenset[LinkId | None]]
"""Base table → the links that its changes come by; None stands for a base of this domain."""


class Clocks:
    def __init__(self) -> None:
        self.local: Clock = {}
        self.links: dict[LinkId, Clock] = {}
        self._origins: dict[Vertex, Origins] = {}

    def add(self, vertex: Vertex, own: Origins) -> None:
        """Record where a new vertex's rows come from: ``own`` at a base or ingress, else its parents' origins."""
        merged: dict[str, frozenset[LinkId | None]] = dict(own)
        for parent in vertex.parents:
            for table, ways in self._origins[parent].items():
                merged[table] = merged.get(table, frozenset()) | ways
        self._origins[vertex] = merged

    def remove(self, vertex: Vertex) -> None:
        self._origins.pop(vertex, None)

    def of(self, vertex: Vertex) -> Clock:
        return self.of_all([vertex])

    def of_all(self, vertices: Iterable[Vertex]) -> Clock:
        clock: Clock = {}
        for vertex in vertices:
            for table, ways in self._origins[vertex].items():
                for way in ways:
                    reached = self.local.get(table, 0) if way is None else self.links.get(way, {}).get(table, 0)
                    clock[table] = min(clock.get(table, reached), reached)
        return clock

    def reflects(self, vertex: Vertex, wanted: Clock) -> bool:
        """Whether the vertex has reached ``wanted``, for the tables that it reads."""
        reached = self.of(vertex)
        return all(reached[table] >= position for table, position in wanted.items() if table in reached)
