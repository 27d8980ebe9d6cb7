"""Clocks: which writes a vertex reflects.

A clock maps base shards to sequence numbers. A vertex reflects of a shard what *all* the ways from it to the vertex
have delivered: the least of its links' clocks, and the local position where the table lives in this domain.
"""

from __future__ import annotations

from collections.abc import Iterable

from domains.operators.operator import Vertex
from domains.plan.packets import Clock, LinkId

Origins = dict[str, frozenset[LinkId | None]]
"""Base shard → the links that its changes come by; None stands for a base of this domain."""


def latest(clocks: Iterable[Clock]) -> Clock:
    """The greatest position of each base shard that any of the clocks has."""
    found: Clock = {}
    for clock in clocks:
        for base, position in clock.items():
            found[base] = max(position, found.get(base, 0))
    return found


class Clocks:
    def __init__(self) -> None:
        self.local: Clock = {}
        self.links: dict[LinkId, Clock] = {}
        self.version = 0
        """Grows with every change, so that nobody works a clock out again for nothing."""
        self._origins: dict[Vertex, Origins] = {}
        self._ends: dict[Vertex, list[LinkId]] = {}
        """Keyed by ingress: ways that stand in for links over which no more comes for it. They have numbers below zero.
        """
        self._ended = 0

    def add(self, vertex: Vertex, own: Origins) -> None:
        """Record where a new vertex's rows come from: ``own`` at a base or ingress, else its parents' origins."""
        merged: dict[str, frozenset[LinkId | None]] = dict(own)
        for parent in vertex.parents:
            for table, ways in self._origins[parent].items():
                merged[table] = merged.get(table, frozenset()) | ways
        self._origins[vertex] = merged

    def write(self, base: str, position: int) -> None:
        """A base of this domain has reached a position."""
        self.local[base] = position
        self.version += 1

    def advance(self, link: LinkId, clock: Clock) -> None:
        """A packet has come that carries ``clock``."""
        if self.links.get(link) != clock:
            self.links[link] = dict(clock)
            self.version += 1

    def end(self, link: LinkId, ingress: Vertex) -> None:
        """No more comes for an ingress over a link that goes on for others: from now on what is computed from it
        reflects of that way what had come by now, and claims no more."""
        self._ended += 1
        way = LinkId(-self._ended)
        self.links[way] = dict(self.links.get(link, {}))
        self._ends.setdefault(ingress, []).append(way)
        bases = {base for base, ways in self._origins[ingress].items() if link in ways}
        below = {ingress: None}
        pending = [ingress]
        while pending:
            vertex = pending.pop()
            origins = self._origins[vertex]
            self._origins[vertex] = {**origins, **{base: origins[base] | {way} for base in bases}}
            pending.extend(child for child in vertex.children if child not in below)
            below.update(dict.fromkeys(vertex.children))
        self.version += 1

    def remove(self, vertex: Vertex) -> None:
        self._origins.pop(vertex, None)
        for way in self._ends.pop(vertex, ()):
            del self.links[way]

    def of(self, vertex: Vertex) -> Clock:
        return self.reached(self._origins[vertex])

    def merged(self, vertices: Iterable[Vertex]) -> Origins:
        """The origins of the rows of all these vertices together."""
        merged: Origins = {}
        for vertex in vertices:
            for base, ways in self._origins[vertex].items():
                merged[base] = merged.get(base, frozenset()) | ways
        return merged

    def reached(self, origins: Origins) -> Clock:
        """The least that the ways have delivered, base by base."""
        local, links = self.local, self.links
        clock: Clock = {}
        for base, ways in origins.items():
            clock[base] = min(
                local.get(base, 0) if way is None else links[way].get(base, 0) if way in links else 0 for way in ways
            )
        return clock

    def agree(self, vertex: Vertex) -> bool:
        """Whether all ways to a vertex have delivered the same of each base shard: then it reflects one state of them,
        where it may have one way's part of a write, and wait for another's."""
        local, links = self.local, self.links
        return all(
            len(ways) == 1
            or len({local.get(base, 0) if way is None else links.get(way, {}).get(base, 0) for way in ways}) == 1
            for base, ways in self._origins[vertex].items()
        )

    def reflects(self, vertex: Vertex, wanted: Clock) -> bool:
        """Whether the vertex has reached ``wanted``, for the tables that it reads."""
        reached = self.of(vertex)
        return all(reached[table] >= position for table, position in wanted.items() if table in reached)
