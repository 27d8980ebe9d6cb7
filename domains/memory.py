"""Memory eviction: which keys go when the limit is passed. A step of its own, never mixed into another's processing.

Victims are keys of whichever partial index holds the most, in rounds, until enough is freed. An entry's cost counts
what it pins: evicting a key of a state evicts what was computed from it, in the same pass.

Which keys: state goes by last use. A reader goes by its segments (:class:`ReaderIndex`), and what one reader alone is
computed from goes by that reader's, key by key, since the reads are known there. In a simulation of Zipf(1.15) reads of
a million keys with room for a fifth of them, last use makes 94.7 % hits and this 95.1 %, every read being known; to
know what is to come would make 96.5 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from domains.forward import ForwardPass
from domains.graph import Columns
from domains.recency import indexes_at, sole_reader
from domains.vertex import Vertex

Place = tuple[Vertex, Columns]
"""One index of a vertex."""

SHARE = 16
"""One round takes a sixteenth of an index: small enough that the order of use still decides, large enough that
a scan of composite keys is paid for by many victims."""


def evict_least_used(vertices: Iterable[Vertex], act: ForwardPass, excess: int) -> int:
    """Choose victims worth ``excess`` accounted bytes and start their eviction; answers how many keys go."""
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
        (vertex, columns), places = _order(max(partial, key=_bytes))
        index = vertex.indexes[columns]
        before = sum(map(_bytes, places))
        per_key = max(1, before // len(index))
        count = min(max(1, len(index) // SHARE), -(-excess // per_key))
        keys = list(islice(index.keys(), count))
        for place in places:
            act.evict_keys(*place, keys)
        evicted += len(keys)
        excess -= before - sum(map(_bytes, places))
    return evicted


def _order(largest: Place) -> tuple[Place, list[Place]]:
    """The index whose order of keys decides, and the indexes that the victims leave.

    Of an index and those above at the same keys, the one with most has the say: it holds what nobody below asks for any
    more. Where it holds nothing of the kind, the one reader that it is for has it.
    """
    top = max(indexes_at(*largest), key=_keys)
    reader = sole_reader(top[0])
    if reader is not None:
        for columns, index in reader.indexes.items():
            places = [place for place in dict.fromkeys(indexes_at(reader, columns)) if sole_reader(place[0]) is reader]
            if top in places and len(index) == _keys(top):
                return (reader, columns), places
    return top, [top]


def _keys(place: Place) -> int:
    vertex, columns = place
    return len(vertex.indexes[columns])


def _bytes(place: Place) -> int:
    vertex, columns = place
    return vertex.indexes[columns].bytes
