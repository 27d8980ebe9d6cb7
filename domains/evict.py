"""Which entries an eviction pattern means (rules 2, 5 and 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domains.graph import Columns
from domains.packets import Pattern
from domains.state import Index
from domains.types import Row, Value


def entry_pattern(index: Index, key: Row) -> Pattern:
    """What the eviction of one entry says to those below."""
    return Pattern(tuple((column,) for column in index.columns), key, strict=True)


def victims(index: Index, patterns: Sequence[Pattern]) -> list[Row]:
    """The filled keys of a partial index that the patterns mean."""
    if not len(index):
        return []
    chosen: dict[Row, None] = {}
    scans: dict[Columns, set[Row]] = {}
    for pattern in patterns:
        agreed = agreement(index.columns, pattern)
        if agreed is None:
            continue
        if len(agreed) == len(index.columns):
            key = tuple(agreed[position] for position in range(len(agreed)))
            if key in index:
                chosen[key] = None
        else:
            positions = tuple(sorted(agreed))
            scans.setdefault(positions, set()).add(tuple(agreed[position] for position in positions))
    for positions, values in scans.items():
        chosen.update((key, None) for key in index.keys() if tuple(key[p] for p in positions) in values)  # noqa: SIM118
    return list(chosen)


def agreement(key_columns: Columns, pattern: Pattern) -> dict[int, Value] | None:
    """Position in the key → the value that it must have; None where the pattern means no entry of this index."""
    agreed: dict[int, Value] = {}
    for copies, value in zip(pattern.columns, pattern.values, strict=True):
        positions = [position for position, column in enumerate(key_columns) if column in copies]
        if pattern.strict and not positions:
            return None
        for position in positions:
            if value is None or agreed.get(position, value) != value:
                return None
            agreed[position] = value
    return agreed or None


def all_entries(index: Index) -> Iterable[Pattern]:
    """Patterns for everything that the index holds."""
    return [entry_pattern(index, key) for key in index.keys()]  # noqa: SIM118
