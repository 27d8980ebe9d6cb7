"""Memory eviction: which keys go when the limit is passed. A step of its own, never mixed into another's processing.

Victims are the least recently used keys of whichever partial index holds the most, in rounds, until enough is freed. An
entry's cost counts what it pins: evicting a key of a state evicts what was computed from it, in the same pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from domains.forward import ForwardPass
from domains.graph import Columns
from domains.recency import indexes_at
from domains.vertex import Vertex

SHARE = 16
"""One round takes a sixteenth of an index: small enough that the order of use still decides, large enough that
a scan of composite keys is paid for by many victims."""


def accounted_bytes(vertices: Iterable[Vertex]) -> int:
    return sum(index.bytes for vertex in vertices for index in vertex.indexes.values())


def evict_least_recent(vertices: Iterable[Vertex], act: ForwardPass, excess: int) -> int:
    """Choose victims worth ``excess`` accounted bytes and start their eviction; answers how many there are."""
    partial = [
        (vertex, columns)
        for vertex in vertices
        for columns, index in vertex.indexes.items()
        if index.partial and len(index)
    ]
    evicted = 0
    while excess > 0:
        partial = [(vertex, columns) for vertex, columns in partial if len(vertex.indexes[columns])]
        if not partial:
            break
        vertex, columns = max(indexes_at(*max(partial, key=_bytes)), key=_keys)
        index = vertex.indexes[columns]
        before = index.bytes
        per_key = max(1, before // len(index))
        count = min(max(1, len(index) // SHARE), -(-excess // per_key))
        keys = list(islice(index.keys(), count))
        evicted += act.evict_keys(vertex, columns, keys)
        excess -= before - index.bytes
    return evicted


def _keys(place: tuple[Vertex, Columns]) -> int:
    """Of an index and those above at the same keys, the one with most: it holds what nobody below asks for any more,
    since an evicted reader's key leaves the state that it was computed from."""
    vertex, columns = place
    return len(vertex.indexes[columns])


def _bytes(place: tuple[Vertex, Columns]) -> int:
    vertex, columns = place
    return vertex.indexes[columns].bytes
