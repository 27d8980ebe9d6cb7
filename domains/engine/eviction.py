"""Which entries an eviction pattern means (rules 2, 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence

from domains.language.types import Row, Value
from domains.operators.state import Index
from domains.plan.graph import Columns
from domains.plan.packets import Pattern


def entry_pattern(index: Index, key: Row) -> Pattern:
    """The pattern that the eviction of one entry sends to those below."""
    return Pattern(tuple((column,) for column in index.columns), key, strict=True)


def victims(index: Index, patterns: Sequence[Pattern]) -> list[Row]:
    """The filled keys of a partial index that the patterns mean."""
    if not len(index):
        return []
    chosen: dict[Row, None] = {}
    scans: dict[Columns, set[Row]] = {}
    for pattern in patterns:
        for agreed in agreements(index.columns, pattern):
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


def agreements(key_columns: Columns, pattern: Pattern) -> list[dict[int, Value]]:
    """Each way for a key to agree with the pattern, as position in the key → value; none where it means no entry of
    this index.

    Where a key has several copies of a value, one that agrees is enough: ``(7, 8)`` over the two columns of an
    equi-join finds nothing, but it was found to be nothing by consulting 7, or 8.
    """
    ways: list[dict[int, Value]] = [{}]
    for copies, value in zip(pattern.columns, pattern.values, strict=True):
        positions = [position for position, column in enumerate(key_columns) if column in copies]
        if pattern.strict and not positions:
            return []
        if positions:
            if value is None:
                return []
            ways = [{**way, p: value} for way in ways for p in positions if way.get(p, value) == value]
    return [way for way in ways if way]


def means(key_columns: Columns, key: Row, pattern: Pattern) -> bool:
    """Whether the pattern means this key."""
    return any(all(key[p] == value for p, value in way.items()) for way in agreements(key_columns, pattern))
