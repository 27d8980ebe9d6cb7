"""The vertices at the rim of a domain: bases and ingresses bring deltas in, egresses and readers take them out.

They compute nothing. What enters and leaves is the business of the acts (``write``, ``links``, ``forward``, ``pulls``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from domains.language.types import Column, Delta, Row, collations_of
from domains.operators.operator import Forward, Found, Lookups, Operator
from domains.operators.state import Index, row_weigher
from domains.plan import graph
from domains.plan.deltas import consolidate, key_function
from domains.plan.graph import Columns
from domains.plan.packets import Pattern
from domains.store.storage import StoredRows


class StoredKey(NamedTuple):
    """How rows of a base are looked up by some of its columns."""

    columns: Columns
    """The columns as they stand in the stored row."""
    unique: Columns = ()
    """The primary key, where it is among them and decides: what else the look-up names is then checked, and needs no
    index of its own."""
    part: Callable[[Row], Row] = tuple
    """The look-up's key → the primary key."""
    key_of: Callable[[Row], Row] = tuple
    """The look-up's key of a stored row."""


class BaseOperator(Operator):
    """A base table's rows, cut to the columns that were live when the view was planned."""

    def __init__(self, descriptor: graph.Base, stored: StoredRows) -> None:
        self.table = descriptor.table
        self.columns = descriptor.columns
        self.stored = stored
        self._cut = key_function(descriptor.columns)
        self.is_whole = descriptor.columns == tuple(range(len(stored.schema.columns)))
        """Rows go on as they are stored, so that nobody need call :meth:`cut`."""
        self.keys: dict[Columns, StoredKey] = {}
        """Those that were asked for, by the columns of the look-up: see :meth:`key`."""

    def cut(self, deltas: list[Delta]) -> list[Delta]:
        if self.is_whole:
            return deltas
        cut = self._cut
        return [(cut(row), weight) for row, weight in deltas]

    def key(self, columns: Columns) -> StoredKey:
        stored, unique = tuple(self.columns[column] for column in columns), self.stored.schema.primary_key
        by = StoredKey(stored)
        if unique and len(unique) < len(stored) and set(unique) <= set(stored):
            key_of = key_function(stored, collations_of(self.stored.schema.columns))
            by = StoredKey(stored, unique, key_function(tuple(map(stored.index, unique))), key_of)
        self.keys[columns] = by
        return by

    def order_by(self, columns: Columns, column: int) -> Columns | None:
        """An order of the table, in stored positions, that begins with these columns and goes on with the last one."""
        first, last = {self.columns[at] for at in columns}, self.columns[column]
        for order in self.stored.orders:
            if len(order) > len(first) and order[len(first)] == last and set(order[: len(first)]) == first:
                return order
        return None

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        raise AssertionError("a base has no parents")

    def translate(self, parent: int, patterns: Sequence[Pattern], act: Forward) -> list[Pattern]:
        raise AssertionError("a base is never evicted")


class IngressOperator(Operator):
    """Rows from another domain. Its holes are filled by upqueries alone."""

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        raise AssertionError("an ingress has no parent in its domain")

    def compute(self, lookups: Lookups, columns: Columns, keys: Sequence[Row]) -> list[Found]:
        return lookups.missing(self.vertex, columns, keys)

    def translate(self, parent: int, patterns: Sequence[Pattern], act: Forward) -> list[Pattern]:
        raise AssertionError("an ingress has no parent in its domain")


class EgressOperator(Operator):
    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        return inputs[0]


class ReaderIndex(Index):
    """Which keys of a view are filled, and about how many bytes each pins in the reader map, which has the rows.

    Two segments, as in segmented LRU (Karedla, Love and Wherry, 1994): keys that were filled and not read since go
    first, and one further read protects a key from them. Under Zipf reads most keys are asked for once; by last use
    alone each of them outlives keys that are asked for again and again. Bytes by key, in both segments.
    """

    __slots__ = ("once", "protected", "weigh")

    def __init__(self, columns: Columns, partial: bool, weigh: Callable[[Row], int]) -> None:
        super().__init__(columns, partial)
        self.weigh = weigh
        self.once: dict[Row, int] = {}
        """Filled, and not read since as far as is known; and what fell out of the protected ones. Oldest first."""
        self.protected: dict[Row, int] = {}
        """Read since they were filled, least recently read first. A key is in one segment only."""

    def get(self, key: Row) -> Collection[Delta] | None:
        raise AssertionError("a reader's rows are in the reader map")

    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        size = READER_KEY_BYTES + sum(weight * (READER_ROW_BYTES + self.weigh(row)) for row, weight in material)
        self.once[key] = _SIZES[size] if size < len(_SIZES) else size
        self.bytes += size

    def evict(self, key: Row) -> Collection[Delta]:
        self.bytes -= (self.once if key in self.once else self.protected).pop(key)
        return ()

    def touch(self, key: Row) -> None:
        once, protected = self.once, self.protected
        size = once.pop(key, None)
        if size is None:
            size = protected.pop(key, None)
        if size is None:
            return
        protected[key] = size
        if len(protected) > PROTECTED * (len(once) + len(protected)) // 100:
            self._demote()

    def _demote(self) -> None:
        """The least recently read of the protected become ordinary again: so a key that was popular once ages.

        A sixteenth at a time, since finding the first key of a dict walks over all that were taken from its front.
        """
        for key in list(islice(self.protected, max(1, len(self.protected) // 16))):
            self.once[key] = self.protected.pop(key)

    def keys(self) -> Iterator[Row]:
        """The keys; those to be evicted first come first."""
        return chain(self.once, self.protected)

    def __contains__(self, key: object) -> bool:
        return key in self.protected or key in self.once

    def __len__(self) -> int:
        return len(self.once) + len(self.protected)

    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        raise AssertionError("a reader's rows are in the reader map")


PROTECTED = 80
"""The most keys of a hundred that are protected: what is new must have time to be read a second time."""
_SIZES = tuple(range(2_048))
"""The same object for equal sizes of ordinary keys: one of its own would be a fifth of what a key takes here."""
READER_KEY_BYTES = 170
"""A filled key: its tuple, number and dict slot here (128, as tracemalloc counts for 60,000 of them), its marker in the
reader map (23, and the free part of its page)."""
READER_ROW_BYTES = 40
"""A row's LMDB entry beside its values: key, header, and the free part of its page."""


class ReaderOperator(Operator):
    def __init__(self, descriptor: graph.Reader, columns: Sequence[Column]) -> None:
        self.descriptor = descriptor
        self.key_of = key_function(descriptor.key, collations_of(columns))

    def make_index(self, columns: Columns, partial: bool) -> Index:
        return ReaderIndex(columns, partial, row_weigher([column.type for column in self.vertex.node.columns]))

    def forward(self, inputs: list[list[Delta]], act: Forward) -> list[Delta]:
        return inputs[0]

    def settle(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas for filled keys, each row once, accounted; the step publishes them."""
        index = self.filled
        once, protected, key_of, weigh = index.once, index.protected, self.key_of, index.weigh
        kept: list[Delta] = []
        grown = 0
        for delta in deltas:
            row, weight = delta
            key = key_of(row)
            if key in protected:
                held = protected
            elif key in once:
                held = once
            else:
                continue
            kept.append(delta)
            size = weight * (READER_ROW_BYTES + weigh(row))
            held[key] += size
            grown += size
        index.bytes += grown
        return consolidate(kept)

    @property
    def filled(self) -> ReaderIndex:
        index = self.vertex.indexes[self.descriptor.key]
        assert isinstance(index, ReaderIndex)
        return index

    def holes(self, keys: Iterable[Row]) -> list[Row]:
        """The keys that are not filled, each once."""
        once, protected = self.filled.once, self.filled.protected
        return [key for key in dict.fromkeys(keys) if key not in protected and key not in once]
