"""Arithmetic of deltas: weights form a group, batches consolidate.

``consolidate`` is the canonical form: each row once, no weight of zero. Equal multisets of changes have equal
consolidated forms up to order, which is what makes splitting a batch invisible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from domains.language.collating.collation import Collations, keyed
from domains.language.types import Delta, Row
from domains.plan.graph import Columns

Entry = dict[Row, int]
"""Rows with their weights: what one key of an index holds."""


def consolidate(deltas: Iterable[Delta]) -> list[Delta]:
    """Sum the weights of equal rows and drop the zeros, in order of first appearance."""
    if not isinstance(deltas, list):
        deltas = list(deltas)
    total: Entry = dict(deltas)
    if len(total) < len(deltas):  # Mostly each row is there once, and one hashing of it will do.
        total.clear()
        for row, weight in deltas:
            total[row] = total.get(row, 0) + weight
    return [(row, weight) for row, weight in total.items() if weight]


def add_row(entry: Entry, row: Row, weight: int) -> None:
    """Add ``weight`` copies of a row in place; a weight of zero leaves nothing behind."""
    total = entry.get(row, 0) + weight
    if total:
        entry[row] = total
    else:
        entry.pop(row, None)


@lru_cache(4096)
def key_function(columns: Columns, collations: Collations = ()) -> Callable[[Row], Row]:
    """Row → its key, always a tuple: the values of these columns, and of one that has a collation its key.

    Generated: it runs once a row and index, and a display is twice as fast as a generator. Remembered (a function is
    some hundred bytes), since a write of one row wants it too."""
    keys = {column: keyed(collation) for column, collation in collations}
    values = [f"k{int(c)}(r[{int(c)}])," if c in keys else f"r[{int(c)}]," for c in columns]
    names = {f"k{column}": key for column, key in keys.items()}
    return eval(f"lambda r: ({''.join(values)})", names)  # type: ignore[no-any-return]


def group_by_key(deltas: Iterable[Delta], key_of: Callable[[Row], Row]) -> dict[Row, list[Delta]]:
    groups: dict[Row, list[Delta]] = {}
    for delta in deltas:
        key = key_of(delta[0])
        if key in groups:
            groups[key].append(delta)
        else:
            groups[key] = [delta]
    return groups


def at_most(rows: Iterable[Delta], most: int) -> int:
    """How many rows there are, but no more than ``most``: no more are looked at."""
    count = 0
    for _, weight in rows:
        count += weight
        if count >= most:
            return most
    return count
