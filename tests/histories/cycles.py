"""What kind of cycles a strongly connected component has, weakest level first, and one example of each in words."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.histories.anomalies import Finding
from tests.histories.graph import KIND, ONWARD, PROCESS, REALTIME, RW, TO, WR, WW, Edge, components

DATA = (WW, WR, RW, ONWARD)
ORDERS = (("", ()), ("-process", (PROCESS,)), ("-realtime", (PROCESS, REALTIME)))
BLOCK = 2048
"""So many ends of anti-dependencies are followed at once, a bit each."""
TRIES = 64
"""So many anti-dependencies are asked for the shortest cycle through one. The first is in one, whichever it is."""

Steps = list[tuple[int, Edge]]
"""The edges of a cycle or a path, each with where it begins."""


class Component:
    """A component's nodes with the edges among them."""

    def __init__(self, nodes: Iterable[int], edges: Mapping[int, Sequence[Edge]], names: Mapping[int, int]) -> None:
        inner = set(nodes)
        self.edges = {node: [edge for edge in edges[node] if edge[TO] in inner] for node in sorted(inner)}
        self._names = names
        self._kinds = frozenset({edge[KIND] for out in self.edges.values() for edge in out})

    def findings(self) -> Iterator[Finding]:
        """One of each kind; what needs no order of processes or of the clock is found without it."""
        named: set[str] = set()
        for suffix, orders in ORDERS:
            if orders and orders[-1] not in self._kinds:
                continue
            for part in self._parts(frozenset((*DATA, *orders))):
                kept = {node: [edge for edge in self.edges[node] if edge[KIND] in (*DATA, *orders)] for node in part}
                for name, cycle in Component(part, kept, self._names)._cycles(frozenset(orders)):
                    if name not in named and (not orders or any(edge[KIND] == orders[-1] for _, edge in cycle)):
                        named.add(name)
                        yield Finding(name + suffix, self._words(cycle), self._called(cycle))

    def _cycles(self, orders: frozenset[str]) -> Iterator[tuple[str, Steps]]:
        writes = orders | {WW}
        calm = writes | {WR, ONWARD}
        for nodes in self._parts(writes):
            yield "G0", self._path(nodes[0], nodes[0], writes)
        for nodes in self._parts(calm):
            inner = set(nodes)
            found = next((s for n in nodes for s in self._out(n, {WR}) if s[1][TO] in inner), None)
            if found is not None:
                yield "G1c", [found, *self._path(found[1][TO], found[0], calm)]
        single = self._single(calm)
        yield from single
        if not single:
            yield from self._nonadjacent(calm)
        yield from self._several(calm)

    def _parts(self, kinds: frozenset[str]) -> list[list[int]]:
        found = components(self.edges, lambda node: [edge[TO] for edge in self.edges[node] if edge[KIND] in kinds])
        return [nodes for nodes in found if len(nodes) > 1]

    def _out(self, node: int, kinds: frozenset[str] | set[str]) -> list[tuple[int, Edge]]:
        return [(node, edge) for edge in self.edges[node] if edge[KIND] in kinds]

    def _anti_dependencies(self) -> Iterator[Steps]:
        """Each edge ``rw``, with the one that leads to it where it begins between transactions."""
        for node, out in self.edges.items():
            for edge in out:
                if edge[KIND] == RW and node in self._names:
                    yield [(node, edge)]
                elif edge[KIND] == ONWARD:
                    yield from ([(node, edge), step] for step in self._out(edge[TO], {RW}))

    def _path(self, start: int, end: int, kinds: frozenset[str]) -> Steps:
        """A shortest one; of one edge at least."""
        came: dict[int, tuple[int, Edge]] = {}
        waiting = deque([start])
        while waiting and end not in came:
            for step in self._out(waiting.popleft(), kinds):
                if step[1][TO] not in came:
                    came[step[1][TO]] = step
                    waiting.append(step[1][TO])
        return _back(came, start, end)

    def _single(self, calm: frozenset[str]) -> list[tuple[str, Steps]]:
        """A cycle with one anti-dependency: does its end reach its beginning by other edges? All ends are followed in
        blocks, along the order of the other edges' components, so that this takes linear time a block."""
        parts = components(self.edges, lambda node: [edge[TO] for edge in self.edges[node] if edge[KIND] in calm])
        part_of = {node: number for number, nodes in enumerate(parts) for node in nodes}
        onward: list[set[int]] = [set() for _ in parts]
        for node, out in self.edges.items():
            onward[part_of[node]].update(part_of[edge[TO]] for edge in out if edge[KIND] in calm)
        steps = list(self._anti_dependencies())
        fractured = self._fractured(steps)
        ends = sorted({step[-1][1][TO] for step in steps})
        for first in range(0, len(ends), BLOCK):
            block = {end: 1 << bit for bit, end in enumerate(ends[first : first + BLOCK])}
            reached = [0] * len(parts)
            for end, bit in block.items():
                reached[part_of[end]] |= bit
            for number in range(len(parts) - 1, -1, -1):
                if bits := reached[number]:
                    for end in onward[number]:
                        reached[end] |= bits
            for step in steps:
                if reached[part_of[step[0][0]]] & block.get(step[-1][1][TO], 0):
                    return [*fractured, ("G-single", [*step, *self._path(step[-1][1][TO], step[0][0], calm)])]
        return fractured

    def _fractured(self, steps: list[Steps]) -> list[tuple[str, Steps]]:
        seen = {(node, edge[TO]): edge for node, out in self.edges.items() for edge in out if edge[KIND] == WR}
        for step in steps:
            start, end = step[0][0], step[-1][1][TO]
            if (end, start) in seen and seen[end, start][2] != step[-1][1][2]:
                return [("fractured-read", [(end, seen[end, start]), *step])]
        return []

    def _nonadjacent(self, calm: frozenset[str]) -> Iterator[tuple[str, Steps]]:
        """Nodes are doubled: after an anti-dependency (odd) none may follow."""

        def out(double: int) -> list[int]:
            node, after = double >> 1, double & 1
            ends = [edge[TO] << 1 for edge in self.edges[node] if edge[KIND] in calm and edge[KIND] != ONWARD]
            return ends + ([] if after else beyond.get(node, []))

        beyond: dict[int, list[int]] = {}
        by: dict[tuple[int, int], Steps] = {}
        for step in self._anti_dependencies():
            start, end = step[0][0], step[-1][1][TO]
            beyond.setdefault(start, []).append(end << 1 | 1)
            by[start, end] = step
        doubles = [node << 1 | after for node in self.edges for after in (0, 1)]
        for nodes in components(doubles, out):
            inner = set(nodes)
            if len(inner) > 1 and (start := next((each for each in nodes if each & 1), None)) is not None:
                walk = _walk(start, lambda each, inner=inner: [end for end in out(each) if end in inner])
                cycle: Steps = []
                for one, other in pairwise(walk):
                    if other & 1:
                        cycle += by[one >> 1, other >> 1]
                    else:
                        cycle.append(next(s for s in self._out(one >> 1, calm) if s[1][TO] == other >> 1))
                yield "G-nonadjacent", cycle
                return

    def _several(self, calm: frozenset[str]) -> Iterator[tuple[str, Steps]]:
        """A cycle through an anti-dependency that needs another one: with as few as possible."""
        for step, _ in zip(self._anti_dependencies(), range(TRIES), strict=False):
            back = self._fewest(step[-1][1][TO], step[0][0], calm)
            if any(edge[KIND] == RW for _, edge in back):
                kinds = [edge[KIND] for _, edge in (*step, *back) if edge[KIND] != ONWARD]
                adjacent = any(one == other == RW for one, other in zip(kinds, [*kinds[1:], kinds[0]], strict=True))
                yield ("G2-item" if adjacent else "G-nonadjacent"), [*step, *back]
                if adjacent:
                    return

    def _fewest(self, start: int, end: int, calm: frozenset[str]) -> Steps:
        """The path with the fewest anti-dependencies; empty if there is none."""
        came: dict[int, tuple[int, Edge]] = {}
        layer = [start]
        seen = {start}
        while layer and end not in came:
            after: list[int] = []
            waiting = deque(layer)
            while waiting:
                node = waiting.popleft()
                for step in self._out(node, calm):
                    if step[1][TO] not in seen:
                        seen.add(step[1][TO])
                        came[step[1][TO]] = step
                        waiting.append(step[1][TO])
                after.append(node)
            layer = []
            for node in after:
                for step in self._out(node, {RW}):
                    if step[1][TO] not in seen:
                        seen.add(step[1][TO])
                        came[step[1][TO]] = step
                        layer.append(step[1][TO])
        return _back(came, start, end) if end in came else []

    def _called(self, cycle: Steps) -> tuple[int, ...]:
        return tuple(self._names[node] for node, _ in cycle if node in self._names)

    def _words(self, cycle: Steps) -> str:
        while cycle[0][0] not in self._names:
            cycle = [*cycle[1:], cycle[0]]
        start = cycle[0][0]
        names = [f"T{name}" for name in self._called(cycle)]
        lines = [" → ".join([*names, names[0]])]
        for node, edge in cycle:
            start = node if node in self._names else start
            if edge[TO] in self._names:
                lines.append(f"  {_relation(f'T{self._names[start]}', f'T{self._names[edge[TO]]}', edge)}")
        return "\n".join(lines)


def _back(came: Mapping[int, tuple[int, Edge]], start: int, end: int) -> Steps:
    path: Steps = []
    while not path or end != start:
        path.append(came[end])
        end = came[end][0]
    return path[::-1]


def _walk(start: int, ends_of: Callable[[int], list[int]]) -> list[int]:
    """A shortest closed walk."""
    came: dict[int, int] = {}
    waiting = deque([start])
    while start not in came:
        node = waiting.popleft()
        for end in ends_of(node):
            if end not in came:
                came[end] = node
                waiting.append(end)
    walk = [start]
    while len(walk) == 1 or walk[-1] != start:
        walk.append(came[walk[-1]])
    return walk[::-1]


def _relation(one: str, other: str, edge: Edge) -> str:
    _, kind, key, before, after = edge
    match kind:
        case "ww":
            return f"{one} wrote {_version(before)} to key {key}, and {other} wrote {_version(after)} after it"
        case "wr":
            return f"{one} wrote {_version(after)} to key {key}, and {other} read it"
        case "rw":
            missed = "what" if after is None else f"{_version(after)}, which"
            return f"{one} read key {key} at {_version(before)}, and did not see {missed} {other} wrote after it"
        case "process":
            return f"{one} and then {other} were of one process, {key}"
        case _:
            return f"{one} had completed before {other} began"


def _version(value: Any) -> str:
    return "no value" if value is None else str(value)
