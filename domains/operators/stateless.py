"""Filter, projection, JSON_TABLE and union: linear operators, for which Δ of the output is the operator applied to Δ.

``σ_p(X + ΔX) = σ_p(X) + σ_p(ΔX)``, likewise π, μ and ∪. They look a key up by looking it up in their parents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from domains.language.compile import compile_expression, compile_filter_batch, compile_predicate, compile_project_batch
from domains.language.expressions import Field
from domains.language.functions.json.table import rows_maker
from domains.language.types import Delta, Row
from domains.operators.operator import Forward, Found, Lookups, Operator, rename
from domains.plan import graph
from domains.plan.graph import Columns
from domains.plan.packets import Pattern


class FilterOperator(Operator):
    def __init__(self, descriptor: graph.Filter) -> None:
        self._keep = compile_filter_batch(descriptor.predicate)

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        return self._keep(inputs[0])

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        found = lookups.find(self.vertex.parents[0], columns, keys)
        return [None if rows is None else self._keep(list(rows)) for rows in found]


class ProjectOperator(Operator):
    def __init__(self, descriptor: graph.Project, parent_width: int) -> None:
        self._project = compile_project_batch(descriptor.expressions)
        places: list[list[int]] = [[] for _ in range(parent_width)]
        self._sources: dict[int, int] = {}
        for position, expression in enumerate(descriptor.expressions):
            if isinstance(expression, Field):
                places[expression.position].append(position)
                self._sources[position] = expression.position
        self._places: list[Columns] = [tuple(place) for place in places]

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        return self._project(inputs[0])

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        sources = tuple(self._sources[column] for column in columns)
        found = lookups.find(self.vertex.parents[0], sources, keys)
        return [None if rows is None else self._project(list(rows)) for rows in found]

    def translate(self, parent: int, patterns: Sequence[Pattern], act: Forward) -> list[Pattern]:
        return rename(patterns, self._places)


class UnnestOperator(Operator):
    """A row in, any number of rows out, each with the columns of the row that came in: so a look-up by these, and what
    an eviction names by them, is the parent's."""

    def __init__(self, descriptor: graph.Unnest) -> None:
        self._document = compile_expression(descriptor.document)
        self._rows = rows_maker(descriptor.table)
        self._meets = None if descriptor.residual is None else compile_predicate(descriptor.residual)
        self._nothing: list[Row] = [(None,) * descriptor.table.width] if descriptor.outer else []

    def _unnested(self, deltas: Iterable[Delta]) -> list[Delta]:
        document_of, rows_of, meets, nothing = self._document, self._rows, self._meets, self._nothing
        result: list[Delta] = []
        for row, weight in deltas:
            document = document_of(row)
            made = [] if document is None else [row + each for each in rows_of(str(document))]
            if meets is not None:
                made = [each for each in made if meets(each)]
            result += [(each, weight) for each in made or [row + each for each in nothing]]
        return result

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        return self._unnested(inputs[0])

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        found = lookups.find(self.vertex.parents[0], columns, keys)
        return [None if rows is None else self._unnested(rows) for rows in found]


class UnionOperator(Operator):
    """A bag union of parents of equal width."""

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        return [delta for deltas in inputs for delta in deltas]

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        answers = [lookups.find(parent, columns, keys) for parent in self.vertex.parents]
        result: list[Found] = []
        for pieces in zip(*answers, strict=True):
            if None in pieces:
                result.append(None)
                continue
            filled = [piece for piece in pieces if piece]
            # Most keys have rows in one parent only, and may have thousands: they need not be copied.
            result.append(filled[0] if len(filled) == 1 else list(chain.from_iterable(filled)))
        return result
