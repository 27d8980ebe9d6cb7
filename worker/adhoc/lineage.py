"""Which base rows one row of an answer comes from: the way of its values back through the plan, by look-ups.

Each node is asked for the rows of its parents that made the row::

    σ π ∪, rows of a document    those that become it when they pass: looked up by the columns that are kept
    ⋈ ⟕                          its left part, and its right part; of a mark the matches
    γ, window functions          all rows of its group or partition
    τ                            the row itself

A group's rows are all meant, also where a MIN shows one of them: without the others it might be another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domains.engine.evaluation import Evaluation
from domains.language.json_rows import json_value
from domains.language.types import Delta, Row, Value
from domains.operators.operator import Vertex
from domains.plan.deltas import key_function
from domains.plan.graph import Columns
from domains.plan.questions import Matching
from domains.plan.sides import COMPUTED, LEFT, RIGHT
from domains.plan.traits import is_base, traits_of

LINEAGE_MOST = 1_000
"""Base rows that are told: a count of a whole table comes from all of its rows, and nobody reads them."""


class Lineage(Evaluation):
    """See :class:`Evaluation`, whose look-ups it uses; :meth:`of` tells the base rows of a row of the root."""

    def of(self, row: Row) -> list[tuple[str, tuple[str, ...], Row]]:
        """Each as its table, its columns and its values as JSON has them; at most LINEAGE_MOST, and one that tells of
        more."""
        found: dict[tuple[str, Row], tuple[str, tuple[str, ...], Row]] = {}
        seen, pending = {(self._root, row)}, [(self._root, row)]
        while pending and len(found) <= LINEAGE_MOST:
            vertex, at = pending.pop()
            operator = vertex.node.operator
            if is_base(operator):
                names = tuple(column.name for column in vertex.node.columns)
                found[operator.table, at] = operator.table, names, tuple(map(json_value, at))
                continue
            for origin in self._made_of(vertex, at):
                if origin not in seen:
                    seen.add(origin)
                    pending.append(origin)
        return list(found.values())

    def _made_of(self, vertex: Vertex, row: Row) -> list[tuple[Vertex, Row]]:
        traits = traits_of(vertex.node.operator)
        if traits.matching is not None:
            return self._of_sides(vertex, row, traits.matching)
        widths = [len(parent.node.columns) for parent in vertex.parents]
        columns = tuple(range(len(row))) if traits.groups_by is None else traits.groups_by
        origins = traits.origins(columns, widths)
        made = []
        for side, (parent, own) in enumerate(zip(vertex.parents, origins, strict=True)):
            known = {origin: row[column] for column, origin in zip(columns, own, strict=True) if origin != COMPUTED}
            for each in self._rows_with(parent, known):
                if traits.cut is not None:
                    if each == row:
                        made.append((parent, each))
                elif traits.groups_by is not None or self._becomes(vertex, side, each, row):
                    made.append((parent, each))
        return made

    def _becomes(self, vertex: Vertex, side: int, given: Row, row: Row) -> bool:
        inputs: list[list[Delta]] = [[] for _ in vertex.parents]
        inputs[side] = [(given, 1)]
        return any(each == row for each, _ in vertex.operator.forward(inputs, self))

    def _of_sides(self, vertex: Vertex, row: Row, matching: Matching) -> list[tuple[Vertex, Row]]:
        left, right = vertex.parents
        width = len(left.node.columns)
        own, other = row[:width], row[width:]
        made = [(left, each) for each in self._rows_with(left, dict(enumerate(own))) if each == own]
        if len(other) == len(right.node.columns):
            if not matching.outer or any(value is not None for value in other):
                made += [(right, each) for each in self._rows_with(right, dict(enumerate(other))) if each == other]
        elif other[0]:  # A mark: the matches themselves are in no row.
            on = dict(zip(matching.on[RIGHT], (own[column] for column in matching.on[LEFT]), strict=True))
            made += [(right, each) for each in self._rows_with(right, on)]
        return made

    def _rows_with(self, vertex: Vertex, known: Mapping[int, Value]) -> Sequence[Row]:
        """The node's rows that have these values, as its collations compare them; by an index where one decides it."""
        by = self._deciding(vertex, tuple(column for column, value in known.items() if value is not None))
        (found,) = self.find(vertex, by, [key_function(by, vertex.collations)(_filled(known, vertex))] if by else [()])
        columns = tuple(known)
        key_of = key_function(columns, vertex.collations)
        wanted = key_of(_filled(known, vertex))
        return [row for row, weight in found or () if weight > 0 and key_of(row) == wanted]

    def _deciding(self, vertex: Vertex, columns: Columns) -> Columns:
        if not columns or self._decides(vertex, columns):
            return columns
        alone = tuple(column for column in columns if self._decides(vertex, (column,)))
        if alone and self._decides(vertex, alone):
            return alone
        return alone[:1] or columns


def _filled(known: Mapping[int, Value], vertex: Vertex) -> Row:
    return tuple(known.get(column) for column in range(len(vertex.node.columns)))
