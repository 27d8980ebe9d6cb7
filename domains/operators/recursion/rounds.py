"""What a round does, and what it may ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from domains.language.types import Column, Delta, Row
from domains.operators.operator import Found, Lookups, Operator, Vertex
from domains.operators.ranged import Partners, ranged
from domains.plan import graph
from domains.plan.deltas import at_most
from domains.plan.graph import Columns, Node, NodeIndex
from domains.plan.packets import Pattern
from domains.plan.sides import COMPUTED, LEFT, RIGHT
from domains.plan.traits import traits_of

INSIDE = NodeIndex(-1)
"""The number of the nodes of a round, which are no nodes of the graph."""

Make = Callable[[Node, list[Vertex]], Operator]
"""The running form of a node's operator."""
SoFar = Callable[[Columns, Row], Collection[Delta]]
"""What there is of a recursion by the values of some columns."""


class Rounds:
    """The dataflow of a round."""

    def __init__(self, descriptor: graph.FixedPoint, vertex: Vertex, make: Make) -> None:
        self.so_far = _inside(graph.Ingress(INSIDE), vertex.node.columns, [], make)
        self.further = vertex.parents[1:]
        self.steps: list[Vertex] = []
        sources = [self.so_far, *self.further]
        self._inputs = [step.inputs for step in descriptor.steps]
        for step in descriptor.steps:
            parents = [sources[at] for at in step.inputs]
            self.steps.append(_inside(step.operator, step.columns, parents, make))
            sources.append(self.steps[-1])
        recursive = {0}
        for at, inputs in enumerate(self._inputs, 1 + len(self.further)):
            if recursive.intersection(inputs):
                recursive.add(at)
        self._is_recursive = {sources[at] for at in recursive}

    def done(self, deltas: Sequence[list[Delta]], act: RoundAct) -> list[Delta]:
        """What a round comes to more, or less, where its sources have changed so."""
        said = list(deltas)
        for vertex, inputs in zip(self.steps, self._inputs, strict=True):
            mine = [said[at] for at in inputs]
            said.append(vertex.operator.forward(mine, act) if any(mine) else [])
        return said[-1]

    def drive(self, vertex: Vertex, columns: Columns) -> None:
        """Have a look-up of a join go on from the side that is of the recursion: that is indexed by whatever is asked
        for."""
        traits = traits_of(vertex.node.operator)
        if traits.matching is not None:
            origins = traits.origins(columns, [len(parent.node.columns) for parent in vertex.parents])
            sides = [side for side in (LEFT, RIGHT) if vertex.parents[side] in self._is_recursive]
            known = [sum(column != COMPUTED for column in own) for own in origins]
            vertex.operator.drive_from(columns, max(sides, key=known.__getitem__))


def _inside(operator: graph.Operator, columns: tuple[Column, ...], parents: list[Vertex], make: Make) -> Vertex:
    node = Node(INSIDE, operator, (), columns)
    return Vertex(node, make(node, parents), parents, 0)


class RoundAct:
    """What the operators of a round may ask: of the recursion what there is of it, of further parents whoever runs the
    round."""

    def __init__(self, rounds: Rounds, rows: SoFar, outside: Lookups) -> None:
        self._rounds = rounds
        self._rows = rows
        self._outside = outside

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        if vertex is self._rounds.so_far:
            return [self._rows(columns, key) for key in keys]
        if vertex in self._rounds.steps:
            self._rounds.drive(vertex, columns)
            return vertex.operator.compute(self, columns, keys)
        return self._outside.find(vertex, columns, keys)

    def ranged(self, vertex: Vertex, columns: Columns, column: int, keys: Sequence[Row]) -> list[Partners | None]:
        if vertex in self._rounds.further:
            return self._outside.ranged(vertex, columns, column, keys)
        return [ranged(rows, column, vertex.collations) for rows in self.find(vertex, columns, keys)]

    def count(self, parent: Vertex, columns: Columns, keys: Sequence[Row], most: int) -> list[int | None]:
        return [None if rows is None else at_most(rows, most) for rows in self.find(parent, columns, keys)]

    def missing(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        raise AssertionError("what a recursion goes on by is complete")

    def name_rows(self, patterns: Iterable[Pattern]) -> None:
        raise AssertionError("a round meets no hole")

    def peek_old(self, parent: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        raise AssertionError("a round evicts nothing")
