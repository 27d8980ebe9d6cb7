"""A node's state: indexes of filled keys, full or partial, accounted in bytes.

A *hole* is a key that is absent from a partial index; a *known-empty* key is present with no rows. ``get`` answers
``None`` for a hole and a (perhaps empty) collection of ``(row, weight)`` for a hit, so that the two cannot be confused.
In a full index every key is a hit.

``RowIndex`` keeps rows as they are. Aggregates and TopK keep what they need to go on instead of rows
(``operators/aggregate``, ``operators/topk``); all are an :class:`Index` to the acts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from decimal import Decimal
from sys import getsizeof
from typing import Generic, TypeVar

from domains.language.collating.collation import Collations
from domains.language.types import Delta, Kind, Row, SqlType, Value
from domains.operators.ranged import Partners, RowsInOrder, are_few, place_function, ranged
from domains.plan.deltas import Entry, add_row, consolidate, key_function
from domains.plan.graph import Columns

ENTRY_BYTES = 300
"""A filled key's own cost: its tuple, the slot in the index's dict and an empty dict, as getsizeof counts them."""
ROW_BYTES = 90
"""A row's cost beside its values: the tuple's header and the slot in the entry's dict."""


def row_bytes(row: Row) -> int:
    """A row's bytes in memory, nearly. Values that several rows share are counted for each: an upper bound.

    By class rather than by getsizeof: 1.8 µs a row of six columns came to 0.6, where a cold look-up spent a fifth of
    its time. And the same for equal texts whatever was done with them, since getsizeof grows with the UTF-8 form that a
    text keeps once it was sent over a link: what was accounted before that would never come out even.
    """
    size = ROW_BYTES
    for value in row:
        size += _value_bytes(value.__class__) or _long_bytes(value)
    return size


_VALUE_BYTES = {int: 32, type(None): 16, float: 24, Decimal: 104, bool: 32, timedelta: 40}
_value_bytes = _VALUE_BYTES.get


def _long_bytes(value: Value) -> int:
    """The size of a text or of bytes."""
    if isinstance(value, str):
        return 49 + len(value) if value.isascii() else 76 + 2 * len(value)
    return getsizeof(value)


def row_weigher(types: Sequence[SqlType]) -> Callable[[Row], int]:
    """``row_bytes`` for rows of these types, nearly: a number counts 32, a text its characters. Generated, since a
    reader weighs every delta: 0.12 µs a row of five columns against 0.5."""
    texts = [at for at, type_ in enumerate(types) if type_.kind not in _NUMBERS]
    fixed = ROW_BYTES + 32 * (len(types) - len(texts)) + 50 * len(texts)
    return eval(f"lambda r: {fixed}" + "".join(f" + len(r[{at}] or '')" for at in texts))  # type: ignore[no-any-return]


_NUMBERS = (Kind.INTEGER, Kind.DOUBLE, Kind.DECIMAL, Kind.TIME, Kind.NULL)


class Index(ABC):
    """One index of a node's state. Iteration order of the keys is that of their last use (oldest first)."""

    __slots__ = ("bytes", "columns", "ghosts", "key_of", "partial")

    def __init__(self, columns: Columns, partial: bool, collations: Collations = ()) -> None:
        """``collations`` are those of the node's rows."""
        self.ghosts: dict[Row, None] = {}
        """What was evicted for want of memory last."""
        self.columns = columns
        self.key_of = key_function(columns, collations)
        self.partial = partial
        self.bytes = 0

    @abstractmethod
    def get(self, key: Row) -> Collection[Delta] | None:
        """The rows at ``key``, or None for a hole."""

    def ranged(self, key: Row, column: int, collations: Collations) -> Partners | None:
        """The rows at ``key`` by a column of theirs, or None for a hole. ``collations`` are those of all columns."""
        return ranged(self.get(key), column, collations)

    @abstractmethod
    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        """Turn a hole into an entry. ``material`` is what the node's operator computes from its parents."""

    @abstractmethod
    def evict(self, key: Row) -> Collection[Delta]:
        """Turn an entry into a hole; answers what it held."""

    @abstractmethod
    def touch(self, key: Row) -> None:
        """Make a filled key the most recently used."""

    @abstractmethod
    def keys(self) -> Iterator[Row]: ...

    @abstractmethod
    def __contains__(self, key: object) -> bool:
        """Whether the key is filled (in a full index: has rows)."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        """Whether filling the key anew from ``material`` would give what it holds (for the invariants)."""


Held = TypeVar("Held")
"""An index's entry at one key."""


class EntryIndex(Index, Generic[Held]):
    """An index that is a dict of entries, in the order of their last use."""

    __slots__ = ("entries",)

    def __init__(self, columns: Columns, partial: bool, collations: Collations = ()) -> None:
        super().__init__(columns, partial, collations)
        self.entries: dict[Row, Held] = {}

    def touch(self, key: Row) -> None:
        if key in self.entries:
            self.entries[key] = self.entries.pop(key)

    def keys(self) -> Iterator[Row]:
        return iter(self.entries)

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __len__(self) -> int:
        return len(self.entries)


class ShownIndex(EntryIndex[Held]):
    """An index whose entries show other rows than those that they are built from."""

    __slots__ = ()

    def build(self, material: Iterable[Delta]) -> Held:
        """An entry of all of the parent's rows of its key."""
        raise NotImplementedError

    def shown(self, entry: Held) -> list[Delta]:
        """The rows of this vertex that an entry comes to."""
        raise NotImplementedError

    def held_bytes(self, entry: Held) -> int:
        raise NotImplementedError

    def get(self, key: Row) -> Collection[Delta] | None:
        entry = self.entries.get(key)
        if entry is None:
            return None if self.partial else ()
        return self.shown(entry)

    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        entry = self.entries[key] = self.build(material)
        self.bytes += self.held_bytes(entry)

    def evict(self, key: Row) -> Collection[Delta]:
        entry = self.entries.pop(key)
        self.bytes -= self.held_bytes(entry)
        return self.shown(entry)


class RowIndex(EntryIndex[Entry]):
    """Rows by key, those of a key with many also in the order of a column, from when a range of them is asked for."""

    __slots__ = ("in_order",)

    def __init__(self, columns: Columns, partial: bool, collations: Collations = ()) -> None:
        super().__init__(columns, partial, collations)
        self.in_order: dict[Row, dict[int, RowsInOrder]] = {}

    def get(self, key: Row) -> Collection[Delta] | None:
        entry = self.entries.get(key)
        if entry is None:
            return None if self.partial else ()
        return entry.items()

    def ranged(self, key: Row, column: int, collations: Collations) -> Partners | None:
        entry = self.entries.get(key)
        if entry is None or are_few(entry):
            return super().ranged(key, column, collations)
        orders = self.in_order.setdefault(key, {})
        if column not in orders:
            orders[column] = RowsInOrder(entry, place_function(column, collations))
            self.bytes += orders[column].bytes
        return orders[column]

    def fill(self, key: Row, material: Iterable[Delta]) -> None:
        entry = dict(consolidate(material))
        self.entries[key] = entry
        self.bytes += ENTRY_BYTES + sum(map(row_bytes, entry))

    def evict(self, key: Row) -> Collection[Delta]:
        entry = self.entries.pop(key)
        self._forget_order(key)
        self.bytes -= ENTRY_BYTES + sum(map(row_bytes, entry))
        return entry.items()

    def _forget_order(self, key: Row) -> None:
        self.bytes -= sum(order.bytes for order in self.in_order.pop(key, {}).values())

    def agrees(self, key: Row, material: Iterable[Delta]) -> bool:
        in_order = all(order.agrees() for order in self.in_order.get(key, {}).values())
        return in_order and self.entries.get(key, {}) == dict(consolidate(material))

    def adopt(self, other: Index) -> None:
        self.apply([delta for key in other.keys() for delta in other.get(key) or ()])  # noqa: SIM118

    def apply(self, deltas: Iterable[Delta]) -> list[Delta]:
        """Apply the deltas whose key is filled and answer those; the others meet holes."""
        held: list[Delta] = []
        entries, key_of, partial, in_order = self.entries, self.key_of, self.partial, self.in_order
        for delta in deltas:
            row, weight = delta
            key = key_of(row)
            entry = entries.get(key)
            if entry is None:
                if partial:
                    continue
                entry = entries[key] = {}
                self.bytes += ENTRY_BYTES
            before = len(entry)
            add_row(entry, row, weight)
            grown = len(entry) - before
            self.bytes += grown * row_bytes(row)
            if in_order and grown and key in in_order:
                self.bytes += sum([order.move(row, came=grown > 0) for order in in_order[key].values()])
            if not entry and not partial:
                del entries[key]
                self._forget_order(key)
                self.bytes -= ENTRY_BYTES
            held.append(delta)
        return held
