"""What an evaluation does, node by node, for EXPLAIN ANALYZE: the rows that each makes, and the time that it takes.

Rows go through generators and look-ups call one another, so time is that of the node whose turn it is: a switch ends
one node's time and begins the other's. What stands above shards that others have is measured from where rows come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from domains.engine.evaluation import Evaluation, EvaluationPlan, Slices
from domains.language.types import Delta, Row
from domains.operators.operator import Found, Vertex
from domains.plan.graph import Columns, NodeIndex
from domains.store.storage import TableRows

WHOLE = NodeIndex(-1)
"""In the place of a node: the answer, with all that is not done at a node."""


@dataclass(slots=True, order=True)
class NodeMeasure:
    node: int
    rows: int = 0
    lookups: int = 0
    """Keys that were looked up by an index."""
    seconds: float = 0.0
    """Its own time, without that of its parents."""
    is_aside: bool = False
    """Whether the whole was done in a process beside."""

    def done(self) -> str:
        """The text of what was done at the node."""
        if not self.rows and not self.lookups and not self.seconds:
            return "not reached"
        by = f" by {self.lookups:,} look-up{'s' * (self.lookups != 1)}" if self.lookups else ""
        return f"{self.rows:,} row{'s' * (self.rows != 1)}{by}, {milliseconds(self.seconds)}"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


class MeasuredEvaluation(Evaluation):
    """See :class:`Evaluation`, whose work is that of any other."""

    def __init__(
        self, plan: EvaluationPlan, tables: TableRows, *, most: int, elsewhere: Mapping[NodeIndex, Slices]
    ) -> None:
        self.measures = {node.index: NodeMeasure(node.index) for node in plan.nodes}
        self.whole = self.measures[WHOLE] = NodeMeasure(WHOLE, is_aside=not most)
        self._turn, self._since = self.whole, perf_counter()
        super().__init__(plan, tables, most=most, elsewhere=elsewhere)

    def rows_of(self, parts: Iterable[Sequence[Row]]) -> list[Row]:
        """The measures as rows, when the answer's rows were made."""
        self.whole.rows = sum(map(len, parts))
        self._switch(self.whole)
        return [
            (each.node, each.rows, each.lookups, each.seconds, int(each.is_aside)) for each in self.measures.values()
        ]

    def _switch(self, to: NodeMeasure) -> NodeMeasure:
        """The one whose turn it was."""
        now = perf_counter()
        before = self._turn
        before.seconds += now - self._since
        self._turn, self._since = to, now
        return before

    def _slices(self, vertex: Vertex) -> Iterator[list[Delta]]:
        if vertex in self._whole:
            return super()._slices(vertex)
        measure = self.measures[vertex.index]
        before = self._switch(measure)
        slices = super()._slices(vertex)
        self._switch(before)
        return self._measured(measure, slices)

    def _turned(self, vertex: Vertex, slices: Iterator[list[Delta]]) -> Iterator[list[Delta]]:
        return self._measured(self.measures[vertex.index], slices)

    def _measured(self, measure: NodeMeasure, slices: Iterator[list[Delta]]) -> Iterator[list[Delta]]:
        while True:
            before = self._switch(measure)
            part = next(slices, None)
            self._switch(before)
            if part is None:
                return
            measure.rows += len(part)
            yield part

    def _computed(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        measure = self.measures[vertex.index]
        before = self._switch(measure)
        found = super()._computed(vertex, columns, keys)
        self._switch(before)
        measure.lookups += len(keys)
        measure.rows += sum(len(rows) for rows in found if rows)
        return found
