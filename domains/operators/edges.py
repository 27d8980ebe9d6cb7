"""The vertices at the rim of a domain: bases and ingresses bring deltas in, egresses and readers take them out.

They compute nothing. What enters and leaves is the business of the acts (``write``, ``links``, ``forward``, ``read``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from domains import graph
from domains.deltas import key_function
from domains.graph import Columns
from domains.operators.operator import Forward, Found, Lookups, Operator
from domains.packets import Pattern
from domains.state import Index, row_weigher
from domains.types import Delta, Row


class Base(Operator):
    """A base table's rows, cut to the columns that were live when the view was planned."""

    def __init__(self, descriptor: graph.Base, stored_width: int) -> None:
        self.table = descriptor.table
        self.columns = descriptor.columns
        whole = descriptor.columns == tuple(range(stored_width))
        self._cut = None if whole else key_function(descriptor.columns)

    def cut(self, deltas: Iterable[Delta]) -> list[Delta]:
        if self._cut is None:
            return deltas if isinstance(deltas, list) else list(deltas)
        cut = self._cut
        return [(cut(row), weight) for row, weight in deltas]

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        raise AssertionError("a base has no parents")

    def settle(self, deltas: list[Delta], act: Forward) -> list[Delta]:
        return deltas

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return lookups.base(self.vertex, columns, keys)

    def translate(self, parent: int, pattern: Pattern, act: Forward) -> list[Pattern]:
        raise AssertionError("a base is never evicted")


class Ingress(Operator):
    """What another domain sends. Its holes are filled by upqueries alone."""

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        raise AssertionError("an ingress has no parent in its domain")

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return lookups.missing(self.vertex, columns, keys)

    def translate(self, parent: int, pattern: Pattern, act: Forward) -> list[Pattern]:
        raise AssertionError("an ingress has no parent in its domain")


class Egress(Operator):
    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        return inputs[0]

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return lookups.find(self.vertex.parents[0], columns, keys)

    def translate(self, parent: int, pattern: Pattern, act: Forward) -> list[Pattern]:
        return [pattern]


class ReaderIndex(Index):
    """Which keys of a view are filled, and about how many bytes each pins in the reader map, which has the rows."""

    __slots__ = ("sizes", "weigh")

    def __init__(self, columns: Columns, partial: bool, weigh: Callable[[Row], int]) -> None:
        super().__init__(columns, partial)
        self.weigh = weigh
        self.sizes: dict[Row, int] = {}

    def get(self, key: Row) -> Collection[Delta] | None:
        raise AssertionError("a reader's rows are in the reader map")

    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        size = READER_KEY_BYTES + sum(weight * (READER_ROW_BYTES + self.weigh(row)) for row, weight in material)
        self.sizes[key] = size
        self.bytes += size

    def evict(self, key: Row) -> Collection[Delta]:
        self.bytes -= self.sizes.pop(key)
        return ()

    def touch(self, key: Row) -> None:
        if key in self.sizes:
            self.sizes[key] = self.sizes.pop(key)

    def keys(self) -> Iterator[Row]:
        return iter(self.sizes)

    def __contains__(self, key: object) -> bool:
        return key in self.sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        raise AssertionError("a reader's rows are in the reader map")


READER_KEY_BYTES = 200
"""A filled key: its tuple and dict slot here, its marker in the reader map."""
READER_ROW_BYTES = 40
"""A row's LMDB entry beside its values: key, header, and the free part of its page."""


class Reader(Operator):
    def __init__(self, descriptor: graph.Reader) -> None:
        self.descriptor = descriptor
        self.key_of = key_function(descriptor.key)

    def make_index(self, columns: Columns, partial: bool) -> Index:
        return ReaderIndex(columns, partial, row_weigher([column.type for column in self.vertex.node.columns]))

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        return inputs[0]

    def settle(self, deltas: list[Delta], act: Forward) -> list[Delta]:
        """Those for filled keys; the act publishes them."""
        index = self.filled
        filled, key_of, weigh = index.sizes, self.key_of, index.weigh
        kept: list[Delta] = []
        grown = 0
        for delta in deltas:
            row, weight = delta
            key = key_of(row)
            if key in filled:
                kept.append(delta)
                size = weight * (READER_ROW_BYTES + weigh(row))
                filled[key] += size
                grown += size
        index.bytes += grown
        return kept

    @property
    def filled(self) -> ReaderIndex:
        index = self.vertex.indexes[self.descriptor.key]
        assert isinstance(index, ReaderIndex)
        return index

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return lookups.find(self.vertex.parents[0], columns, keys)

    def translate(self, parent: int, pattern: Pattern, act: Forward) -> list[Pattern]:
        return [pattern]
