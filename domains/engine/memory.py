"""Memory eviction: which keys go when the limit is passed. A step of its own, never mixed into another's processing.

Victims are keys of whichever partial index holds the most, in rounds, until enough is freed. An entry's cost counts
what it pins: evicting a key of a state evicts what was computed from it, in the same pass.

Which keys: state goes by last use. A reader goes by its segments (:class:`ReaderIndex`), and what one reader alone is
computed from goes by that reader's, key by key, since the reads are known there. In a simulation of Zipf(1.15) reads of
a million keys with room for a fifth of them, last use makes 94.7 % hits and this 95.1 %, every read being known; to
know what is to come would make 96.5 %.

An index whose next victim was evicted not long ago, and is back, is passed over once: an answer that is most of the
memory is in the largest index, and would else go with the batch that fills it for ever, and state that nobody asks for
stay (a ghost list, as in ARC: Megiddo and Modha, 2003).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from domains.engine.forward import ForwardPass
from domains.language.types import Row
from domains.operators.operator import Vertex
from domains.plan.graph import Columns
from domains.plan.sides import COMPUTED
from domains.plan.traits import traits_of

# Reads that hit tell only the reader. What its key pins above is as recent as the key itself.
#
# Without this an aggregate's entries would stand in the order of their fills, and memory pressure would take the
# hottest keys' groups, and the readers' keys with them, once in every turnover: under Zipf(1.15) reads and a quarter
# of the memory that cost three of a hundred hits.


def indexes_at(vertex: Vertex, columns: Columns) -> list[tuple[Vertex, Columns]]:
    """The partial indexes, this vertex's own among them, that hold what a look-up by ``columns`` finds at the very same
    key. What stands there under other keys (the far side of a join) has no part in it."""
    own = vertex.indexes.get(columns)
    found = [(vertex, columns)] if own is not None and own.partial else []
    for parent, above in _sources(vertex, columns):
        found.extend(indexes_at(parent, above))
    return found


def touch(reader: Vertex, keys: Sequence[Row]) -> None:
    """These keys were read."""
    for columns in reader.indexes:
        for vertex, at in indexes_at(reader, columns):
            for key in keys:
                vertex.indexes[at].touch(key)


def sole_reader(vertex: Vertex) -> Vertex | None:
    """The reader that alone is computed from this vertex; None if there are several, or if another domain reads it too.

    Only that reader's order says what the state above is worth: with two, what one has done with may be what the other
    is asked for all the time.
    """
    leaf: Vertex | None = None
    below, seen = [vertex], {vertex}
    while below:
        one = below.pop()
        if not one.children:
            if leaf is not None:
                return None
            leaf = one
        new = [child for child in one.children if child not in seen]
        seen.update(new)
        below.extend(new)
    return leaf if leaf is not None and leaf.is_reader else None


def _sources(vertex: Vertex, columns: Columns) -> list[tuple[Vertex, Columns]]:
    """The parents, and where the columns stand there; those that do not have all of them are left out."""
    parents = vertex.parents
    if not parents:
        return []
    above = traits_of(vertex.node.operator).origins(columns, [len(parent.node.columns) for parent in parents])
    return [(parent, own) for parent, own in zip(parents, above, strict=True) if COMPUTED not in own]


Place = tuple[Vertex, Columns]
"""One index of a vertex."""

SHARE = 16
"""One round takes a sixteenth of an index: small enough that the order of use still decides, large enough that
a scan of composite keys is paid for by many victims."""
GHOSTS = 64
"""Keys of an index that were evicted last. A larger index has others to give before these are the oldest again."""


def evict_least_used(vertices: Iterable[Vertex], act: ForwardPass, excess: int) -> int:
    """Choose victims worth ``excess`` accounted bytes and start their eviction; answers how many keys go."""
    partial = [
        (vertex, columns)
        for vertex in vertices
        for columns, index in vertex.indexes.items()
        if index.partial and len(index)
    ]
    evicted = 0
    passed: set[Place] = set()
    while excess > 0:
        partial = [(vertex, columns) for vertex, columns in partial if len(vertex.indexes[columns])]
        if not partial:
            break
        waiting = [place for place in partial if place not in passed]
        largest = max(waiting or partial, key=_bytes)
        place, places = _order(largest)
        index = place[0].indexes[place[1]]
        before = sum(map(_bytes, places))
        per_key = max(1, before // len(index))
        count = min(max(1, len(index) // SHARE), -(-excess // per_key))
        keys = list(islice(index.keys(), count))
        if waiting and (place in passed or not index.ghosts.keys().isdisjoint(keys)):
            passed.update((largest, place))
            index.ghosts.clear()
            continue
        index.ghosts = dict.fromkeys([*index.ghosts, *keys][-GHOSTS:])
        for each in places:
            act.evict_keys(*each, keys)
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
