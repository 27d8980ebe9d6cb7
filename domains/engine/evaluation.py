"""A query answered over base rows alone, by the operators of the dataflow, with state that is thrown away. Pure.

What is not kept is computed: the rows of a plan's nodes flow down from scanned base tables as insertions, slice by
slice, and look-ups climb up, each to an index of a base table where one decides it::

    base ─slices─► σ ─► ⋈ ─► γ ─► answer        forward: Δ of everything, which is everything
                        │
    base ◄─── σ ◄───────┘ keys                  find: by an index, or in a table hashed once by these columns

All base rows that it reads are to be of one position of each shard: it is given a store between two steps, or a view of
one as it was between two steps. Then the answer is that of a view over these rows, since the operators are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from domains.engine.vertices import Vertices
from domains.engine.walks import FEW_KEYS, GUESSED, LOOKUP_ROWS, SLICE_ROWS, Walks
from domains.errors import LimitExceeded
from domains.language.types import Column, Delta, Kind, Row, TableColumn, TableSchema, collations_of
from domains.operators.edges import BaseOperator
from domains.operators.operator import Found, Vertex
from domains.operators.ranged import Partners, ranged
from domains.plan.deltas import group_by_key, key_function
from domains.plan.estimates import Estimated
from domains.plan.graph import Columns, Node, NodeIndex, Parameter, Reader
from domains.plan.packets import Access
from domains.plan.sides import COMPUTED, LEFT, RIGHT
from domains.plan.traits import traits_of
from domains.store.selecting import keys_of
from domains.store.storage import StoredRows, TableRows

PAIRS = 50_000
"""Rows that a slice may become at a join whose other side has many rows for a key: some 10 MB."""
FEW_BYTES = 4 * 2**20
"""The most bytes of text that an evaluation of few rows reads: rows may be long."""
SHORT = frozenset((Kind.INTEGER, Kind.DOUBLE, Kind.DECIMAL, Kind.DATE, Kind.DATETIME, Kind.TIME))
"""Kinds of values that are never long."""


Slices = Callable[[], Iterator[list[Delta]]]
"""All rows of a node, some at a time."""
NOWHERE: Mapping[NodeIndex, Slices] = {}


class RowsExceeded(LimitExceeded):
    """More rows are read and made than the evaluation may: it is to be done elsewhere, or not at all."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What a query comes to, as data; picklable."""

    nodes: tuple[Node, ...]
    """Which keep nothing, in topological order; the last one is the root, which has the reader's columns."""
    reader: Reader
    parameters: tuple[Parameter, ...]
    tables: tuple[TableSchema, ...]
    ties: dict[NodeIndex, Access]
    """The keys that a filter directly above a base table demands, by the filter's index, in its own columns."""
    grows: bool = False
    """Whether it makes texts that may be far longer than those that it reads (REPEAT, LPAD), or rows by recursion."""
    estimates: dict[NodeIndex, Estimated] = field(default_factory=dict)
    """What each node is expected to have, where statistics tell."""


class Evaluation(Walks):
    """The answer of one plan over ``tables``.

    Of ``most`` rows read, or made at a node, one more raises RowsExceeded, and so do long rows, and a plan that grows;
    0: as many as there are. ``elsewhere`` has nodes whose rows, when all are wanted, are made where the tables are.
    """

    def __init__(
        self, plan: EvaluationPlan, tables: TableRows, *, most: int = 0, elsewhere: Mapping[NodeIndex, Slices] = NOWHERE
    ) -> None:
        self._elsewhere = elsewhere
        self._ties = plan.ties
        self._estimates = plan.estimates
        self._left = most or None
        self._bytes = FEW_BYTES
        if most and plan.grows:
            raise RowsExceeded("the query may make far more than it reads", hint="a process of its own evaluates it")
        super().__init__(Vertices(tables), few=most > 0)
        for node in plan.nodes:
            self._root = self._vertices.add(node)
        self._whole: dict[Vertex, list[Delta]] = {}
        self._hashed: dict[tuple[Vertex, Columns], dict[Row, list[Delta]]] = {}
        self._in_order: dict[tuple[Vertex, int], Partners | None] = {}
        self._guesses: dict[Vertex, int] = {}
        self._decided: dict[tuple[Vertex, Columns], bool] = {}

    # --- everything of a node -------------------------------------------------------------------------------

    def rows(self) -> Iterator[list[Delta]]:
        """All rows of the root, some at a time."""
        return self._slices(self._root)

    def at(self, columns: Columns, keys: Sequence[Row]) -> Iterator[list[Delta]]:
        """The rows of the root at each key, whose values are no NULLs."""
        if keys and (self._root.index in self._elsewhere or not self._is_looked_up(self._root, columns, keys)):
            wanted, key_of = set(keys), key_function(columns, self._root.collations)
            for part in self._slices(self._root):
                yield [delta for delta in part if key_of(delta[0]) in wanted]
            return
        for found in self.find(self._root, columns, keys):
            assert found is not None, "base tables have no holes"
            yield list(found)

    def _slices(self, vertex: Vertex) -> Iterator[list[Delta]]:
        made = self._whole.get(vertex)
        if made is not None:
            return iter([made])
        return self._spent(self._source(vertex), vertex)

    def _spent(self, slices: Iterator[list[Delta]], vertex: Vertex) -> Iterator[list[Delta]]:
        for part in slices:
            self._spend([part], vertex)
            yield part

    def _source(self, vertex: Vertex) -> Iterator[list[Delta]]:
        elsewhere = self._elsewhere.get(vertex.index)
        if elsewhere is not None:
            return elsewhere()
        ranged = self._ranged_part(vertex)
        if ranged is not None:
            return ranged
        tied = self._tied(vertex)
        if tied is not None:
            return ([*found] for found in vertex.operator.compute(self, *tied) if found)
        traits = traits_of(vertex.node.operator)
        if vertex.is_base:
            return self._scanned(vertex)
        if traits.own_state:
            return self._grouped(vertex)
        if traits.matching is not None:
            return self._joined(vertex)
        return self._passed(vertex)

    def _scanned(self, vertex: Vertex) -> Iterator[list[Delta]]:
        base = vertex.operator
        assert isinstance(base, BaseOperator)
        table = base.stored
        self._afford(table.row_count)
        return (base.cut(part) for part in table.slices(SLICE_ROWS if self._left is None else FEW_KEYS))

    def _passed(self, vertex: Vertex) -> Iterator[list[Delta]]:
        """Row by row: σ, π and ∪ of all is that of each part."""
        forward = vertex.operator.forward
        for place, parent in enumerate(vertex.parents):
            for part in self._slices(parent):
                inputs: list[list[Delta]] = [[] for _ in vertex.parents]
                inputs[place] = part
                yield forward(inputs, self)

    def _forwarded(self, vertex: Vertex, slices: Iterator[list[Delta]]) -> Iterator[list[Delta]]:
        return (vertex.operator.forward([part], self) for part in slices)

    def _grouped(self, vertex: Vertex) -> Iterator[list[Delta]]:
        """γ and τ take one part after another, and are then listed."""
        first = self._first_of(vertex, (), [()])
        yield vertex.operator.gathered(self._slices(vertex.parents[0]) if first is None else first, self)

    def _joined(self, vertex: Vertex) -> Iterator[list[Delta]]:
        """⋈: the rows of one side come in parts, as insertions, and those of the other are looked up."""
        side = self._drive(vertex, ())
        return self._matched(vertex, side, self._slices(vertex.parents[side]))

    def _matched(self, vertex: Vertex, side: int, slices: Iterator[list[Delta]]) -> Iterator[list[Delta]]:
        matching = traits_of(vertex.node.operator).matching
        assert matching is not None
        other = vertex.parents[1 - side]
        key_of = key_function(matching.on[side], vertex.parents[side].collations)
        for part in slices:
            keys = [key for key in dict.fromkeys(key_of(row) for row, _ in part) if None not in key]
            found = self.find(other, matching.on[1 - side], keys)
            several = max((len(rows) for rows in found if rows is not None), default=0)
            step = max(1, PAIRS // max(1, several))
            for start in range(0, len(part), step):
                inputs: list[list[Delta]] = [[], []]
                inputs[side] = part[start : start + step]
                yield vertex.operator.forward(inputs, self)

    # --- look-ups: what an operator asks its parents --------------------------------------------------------

    def find(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        if not keys:
            return []
        if not columns:
            return [self._all(vertex)] * len(keys)
        if self._is_looked_up(vertex, columns, keys):
            return self._computed(vertex, columns, keys)
        hashed = self._hashed.get((vertex, columns))
        if hashed is None:
            key_of = key_function(columns, vertex.collations)
            hashed = self._hashed[vertex, columns] = group_by_key(self._all(vertex), key_of)
        return [hashed.get(key, ()) for key in keys]

    def ranged(self, vertex: Vertex, columns: Columns, column: int, keys: Sequence[Row]) -> list[Partners | None]:
        if columns or not keys:
            return [ranged(rows, column, vertex.collations) for rows in self.find(vertex, columns, keys)]
        if (vertex, column) not in self._in_order:
            self._in_order[vertex, column] = ranged(self._all(vertex), column, vertex.collations)
        return [self._in_order[vertex, column]] * len(keys)

    def _is_looked_up(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> bool:
        """Whether by an index of a base table; else all rows are gone through."""
        return self._decides(vertex, columns) and len(keys) * LOOKUP_ROWS <= max(self._guess(vertex), LOOKUP_ROWS * 8)

    def _all(self, vertex: Vertex) -> list[Delta]:
        whole = self._whole.get(vertex)
        if whole is None:
            whole = self._whole[vertex] = list(chain.from_iterable(self._slices(vertex)))
        return whole

    def _computed(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        traits = traits_of(vertex.node.operator)
        if traits.matching is not None:
            self._drive(vertex, columns)
        operator = vertex.operator
        if isinstance(operator, BaseOperator):
            found = self._stored(operator, columns, keys)
        else:
            first = self._first_of(vertex, columns, keys)
            found = operator.compute(self, columns, keys) if first is None else [*first]
        if traits.own_state:
            index = vertex.operator.make_index(columns, partial=True)
            for key, material in zip(keys, found, strict=True):
                assert material is not None, "base tables have no holes"
                index.fill(key, material)
            found = [index.get(key) for key in keys]
        self._spend([rows for rows in found if rows], vertex)
        return found

    def _stored(self, base: BaseOperator, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        table, stored = base.stored, tuple(base.columns[column] for column in columns)
        indexed = table.best_key(set(stored))
        assert indexed, "a base table is looked up by an index, or scanned"
        part_of = key_function(tuple(map(stored.index, indexed)))
        parts = list(dict.fromkeys(map(part_of, keys)))
        self._afford_found(table, indexed, parts)
        found: dict[Row, list[Delta]] = {}
        step = len(parts) if self._left is None else FEW_KEYS
        for start in range(0, len(parts), step):
            some = parts[start : start + step]
            found.update(zip(some, table.find_many(indexed, some), strict=True))
            if self._left is not None:
                self._weigh(list(map(found.__getitem__, some)), table.schema.columns)
        if len(indexed) == len(stored):
            return [base.cut(found[part_of(key)]) for key in keys]
        key_of = key_function(stored, collations_of(table.schema.columns))
        return [base.cut([delta for delta in found[part_of(key)] if key_of(delta[0]) == key]) for key in keys]

    def missing(self, vertex: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        raise AssertionError("an evaluation has no links")

    # --- what an operator may ask while rows pass it --------------------------------------------------------

    def count(self, parent: Vertex, columns: Columns, keys: Sequence[Row], most: int) -> list[int | None]:
        return [len(rows or ()) for rows in self.find(parent, columns, keys)]

    def name_rows(self, patterns: object) -> None:
        raise AssertionError("an evaluation meets no hole")

    def peek_old(self, parent: Vertex, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        raise AssertionError("an evaluation evicts nothing")

    # --- which way ------------------------------------------------------------------------------------------

    def _tied(self, vertex: Vertex) -> tuple[Columns, list[Row]] | None:
        """Columns and keys by which a filter's rows are looked up, where an index has them."""
        access = self._ties.get(vertex.index)
        if access is None:
            return None
        base = vertex.parents[0].operator
        assert isinstance(base, BaseOperator)
        table = base.stored
        if not all(keys for _, keys in access):
            return (), []
        stored = {base.columns[column]: column for tied, _ in access for column in tied}
        columns = tuple(stored[column] for column in table.best_key(stored))
        while columns:
            keys = keys_of(access, columns, max(table.row_count // LOOKUP_ROWS, 1))
            if keys is not None:
                return columns, keys
            columns = columns[:-1]
        return None

    def _decides(self, vertex: Vertex, columns: Columns) -> bool:
        """Whether a look-up by these columns comes down to indexes of base tables."""
        known = self._decided.get((vertex, columns))
        if known is None:
            known = self._decided[vertex, columns] = self._is_decided(vertex, columns)
        return known

    def _is_decided(self, vertex: Vertex, columns: Columns) -> bool:
        if vertex.is_base:
            base = vertex.operator
            assert isinstance(base, BaseOperator)
            return bool(base.stored.best_key({base.columns[column] for column in columns}))
        traits = traits_of(vertex.node.operator)
        if traits.groups_by is not None and not set(traits.groups_by).issuperset(columns):
            return False
        if traits.matching is not None:
            return self._side_of(vertex, columns) is not None
        origins = traits.origins(columns, [len(parent.node.columns) for parent in vertex.parents])
        return all(
            COMPUTED not in own and len(set(own)) == len(own) and self._decides(parent, own)
            for parent, own in zip(vertex.parents, origins, strict=True)
        )

    def _side_of(self, vertex: Vertex, columns: Columns) -> int | None:
        """The side of a join that an index finds by these columns; the one that has more of them."""
        widths = [len(parent.node.columns) for parent in vertex.parents]
        origins = traits_of(vertex.node.operator).origins(columns, widths)
        known = [tuple(dict.fromkeys(column for column in own if column != COMPUTED)) for own in origins]
        sides = [side for side in (LEFT, RIGHT) if known[side] and self._decides(vertex.parents[side], known[side])]
        return max(sides, key=lambda side: len(known[side]), default=None)

    def _drive(self, vertex: Vertex, columns: Columns) -> int:
        """Choose the side that a look-up of a join, or everything of it, comes from."""
        side = self._side_of(vertex, columns) if columns else self._lesser(vertex)
        assert side is not None, "a join is looked up where an index decides it"
        vertex.operator.drive_from(columns, side)
        return side

    def _lesser(self, vertex: Vertex) -> int:
        """The side to begin with: the one for which less is read. An outer join begins with its left one."""
        matching = traits_of(vertex.node.operator).matching
        assert matching is not None
        if matching.outer:
            return LEFT
        costs: list[float] = []
        for side in (LEFT, RIGHT):
            parent, other = vertex.parents[side], vertex.parents[1 - side]
            read, all_others, on = self._guess(parent), self._guess(other), matching.on[1 - side]
            rows = min(read, self._estimates[parent.index].rows) if parent.index in self._estimates else read
            found = self._sought(other, on, rows)[0] if self._decides(other, on) else all_others
            costs.append(read + min(found, all_others))
        return RIGHT if costs[RIGHT] < costs[LEFT] else LEFT

    def _sought(self, vertex: Vertex, columns: Columns, keys: float) -> tuple[float, float]:
        """What so many look-ups by columns that an index decides cost, in rows of a scan, and the rows they find."""
        known = self._estimates.get(vertex.index)
        if vertex.is_base or known is None:
            return LOOKUP_ROWS * keys, keys if known is None else keys * known.rows / known.keys(columns)
        traits = traits_of(vertex.node.operator)
        widths = [len(parent.node.columns) for parent in vertex.parents]
        origins = [tuple(c for c in own if c != COMPUTED) for own in traits.origins(columns, widths)]
        if (matching := traits.matching) is not None:
            side = self._side_of(vertex, columns)
            assert side is not None, "an index decides it"
            cost, rows = self._sought(vertex.parents[side], origins[side], keys)
            other, on = vertex.parents[1 - side], matching.on[1 - side]
            more, rows = self._sought(other, on, rows) if self._decides(other, on) else (self._guess(other), rows)
            return cost + more, rows
        found = [self._sought(parent, own, keys) for parent, own in zip(vertex.parents, origins, strict=True)]
        return sum(cost for cost, _ in found), sum(rows for _, rows in found)

    def _guess(self, vertex: Vertex) -> int:
        """About how many rows are read to have all of a node."""
        known = self._guesses.get(vertex)
        if known is None:
            known = self._guesses[vertex] = self._guessed(vertex)
        return known

    def _guessed(self, vertex: Vertex) -> int:
        operator = vertex.operator
        if isinstance(operator, BaseOperator):
            return operator.stored.row_count
        ranged = self._ranged_rows(vertex)
        if ranged is not None:
            return len(ranged)
        tied = self._tied(vertex)
        if tied is not None:
            columns, keys = tied
            base = vertex.parents[0].operator
            assert isinstance(base, BaseOperator)
            stored = tuple(base.columns[column] for column in columns)
            return sum(base.stored.count_many(stored, keys, GUESSED)) if columns else 0
        guesses = [self._guess(parent) for parent in vertex.parents]
        return max(guesses) if traits_of(vertex.node.operator).matching is not None else sum(guesses)

    # --- how much -------------------------------------------------------------------------------------------

    def _spend(self, parts: Sequence[Collection[Delta]], vertex: Vertex) -> None:
        if self._left is not None:
            rows = sum(map(len, parts))
            self._afford(rows)
            self._left -= rows
            self._weigh(parts, vertex.node.columns)

    def _weigh(self, parts: Iterable[Collection[Delta]], columns: Sequence[Column | TableColumn]) -> None:
        for at, column in enumerate(columns):
            if column.type.kind not in SHORT:
                texts = [value for part in parts for row, _ in part if isinstance(value := row[at], (str, bytes))]
                self._bytes -= sum(map(len, texts))
        if self._bytes < 0:
            raise RowsExceeded("the query reads longer rows than it may", hint="narrow it, or raise the limit")

    def _afford(self, rows: int) -> None:
        if self._left is not None and rows > self._left:
            raise RowsExceeded("the query reads more rows than it may", hint="narrow it, or raise the limit")

    def _afford_found(self, table: StoredRows, columns: Columns, keys: Sequence[Row]) -> None:
        """Before as many rows are read as one key may have."""
        if self._left is not None and table.row_count > self._left and columns != table.schema.primary_key:
            self._afford(sum(table.count_many(columns, keys, self._left + 1)))
