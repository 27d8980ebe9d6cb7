"""From two answers to the difference between them, as messages of the Durable Streams' State Protocol; and offsets.

A row is its JSON. It is called by the values of the view's unique columns, where there are any and none is NULL: a row
with other values under the same key is an update. Other rows are called by their digest and a number among equal rows,
and come and go. A message has everything but its ``type``, which each subscription may choose.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from json.encoder import encode_basestring
from typing import Any

from domains.plan.packets import Clock

_scan = json.JSONDecoder().raw_decode
"""What ``json.loads`` does in a third of its time, of what is known to be JSON. A number of any length stays exact."""

OFFSET_DIGITS = 20
"""Of an offset's sum: that of positions of 64 bits in fewer than 5 shards, and in all that anybody will ever write."""

Rows = tuple[bytes, ...]
"""The JSON of each row, in the order of the answer."""
Vector = tuple[tuple[str, int], ...]
"""The position of each base shard, by name, for each shard of the reader in turn."""


@dataclass(eq=False, slots=True)
class TopicStep:
    """The state that a topic came to, and the messages that lead there from the state before."""

    number: int
    offset: str
    vector: Vector
    token: str
    """Of the write that it is of, or of the last ones."""
    rows: Rows
    messages: Sequence[bytes] = ()


class RowNames:
    """What the rows of one view are called. ``unique``: the columns whose values tell them apart."""

    def __init__(self, unique: Sequence[str] | None) -> None:
        self.unique = unique

    def of(self, row: bytes) -> str | None:
        """None where it has no name but its digest."""
        if self.unique is None:
            return None
        values, _ = _scan(row.decode())
        found = [values[name] for name in self.unique]
        if None in found:
            return None
        return "|".join(map(_plain, found)) or "row"


def _plain(value: Any) -> str:
    if type(value) is int:
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("#", "\\#")


def digest(row: bytes, ordinal: int) -> str:
    return f"#{blake2b(row, digest_size=12).hexdigest()}.{ordinal}"


def difference(old: Rows, new: Rows, names: RowNames, ordered: bool, token: str) -> list[bytes]:
    """What leads from one answer to another: first the rows that go, then those that come or change, in their order.

    ``ordered``: each row that comes, changes or moves has its ``place`` in the new answer. Those that stay keep their
    order, so whoever takes out what goes, changes and moves, and puts in the rest place by place, has the new answer.
    """
    if old == new:
        return []
    had, has = Counter(old), Counter(new)
    gone: dict[str, None] = {}
    for row, count in had.items():
        left = has[row]
        if count > left:
            name = names.of(row)
            gone.update(dict.fromkeys([name] if name is not None else [digest(row, at) for at in range(left, count)]))
    moved = _moved(old, new) if ordered else frozenset()
    seen: Counter[bytes] = Counter()
    come: list[bytes] = []
    for place, row in enumerate(new):
        ordinal, seen[row] = seen[row], seen[row] + 1
        if ordinal < had[row] and place not in moved:
            continue
        name = names.of(row)
        if name is None:
            name = digest(row, ordinal)
        operation = "insert"
        if ordinal < had[row]:
            operation = "update"
        elif name in gone:
            operation = "update"
            del gone[name]
        come.append(_message(name, operation, token, row, place if ordered else None))
    return [*(_message(name, "delete", token) for name in gone), *come]


def _moved(old: Rows, new: Rows) -> frozenset[int]:
    """The places of rows that are the same and in another order, as after a change of what ORDER BY reads and SELECT
    does not show: all but a longest run of rows that kept their order (by patience sorting)."""
    places: dict[bytes, deque[int]] = {}
    for at, row in enumerate(old):
        places.setdefault(row, deque()).append(at)
    stay = [(place, places[row].popleft()) for place, row in enumerate(new) if places.get(row)]
    ends: list[int] = []
    """For each length the least old place that a run of so many rows ends with."""
    lengths: list[int] = []
    for _, before in stay:
        length = bisect_left(ends, before)
        ends[length : length + 1] = [before]
        lengths.append(length)
    wanted = len(ends) - 1
    moved = []
    for (place, _), length in zip(reversed(stay), reversed(lengths), strict=True):
        if length == wanted:
            wanted -= 1
        else:
            moved.append(place)
    return frozenset(moved)


def snapshot(rows: Rows, names: RowNames, ordered: bool) -> list[bytes]:
    """All rows, as insertions into nothing."""
    return difference((), rows, names, ordered, "")


def _message(name: str, operation: str, token: str, row: bytes | None = None, place: int | None = None) -> bytes:
    """By hand, since ``json.dumps`` takes 5 µs for each of the two, and this is written for each row that changes."""
    txid = f',"txid":"{token}"' if token else ""
    at = "" if place is None else f',"place":{place}'
    headers = f'"headers":{{"operation":"{operation}"{txid}{at}}}'.encode()
    value = b"" if row is None else b'"value":' + row + b","
    return b'"key":%b,%b%b' % (encode_basestring(name).encode(), value, headers)


# Offsets: the zero-padded sum of the positions, "_", a digest of what is asked, and the positions themselves, of shards
# that are in the order of their names. So they increase as text, are the same in every process, and stay so over
# restarts.


def vector_of(clocks: Iterable[tuple[frozenset[str], Mapping[str, int]]]) -> Vector:
    """``clocks``: for each shard of the reader its base shards, and what it reflects of them."""
    return tuple((base, clock.get(base, 0)) for bases, clock in clocks for base in sorted(bases))


class Offsets:
    """Of one answer. ``question``: what tells it from others at the same positions. A view that is replaced by
    another one under its name would else go on at the offsets of the earlier one."""

    def __init__(self, question: str) -> None:
        self._question = question
        self._named: tuple[list[str], bytes] = [], b""

    def of(self, vector: Vector) -> str:
        names = [name for name, _ in vector]
        if names != self._named[0] or not self._named[1]:
            text = "\0".join((self._question, *names))
            self._named = names, blake2b(text.encode(), digest_size=6).digest()
        return _offset(vector, self._named[1])


def _offset(vector: Vector, named: bytes) -> str:
    packed = bytearray(named)
    for _, position in vector:
        while position > 0x7F:
            packed.append(position & 0x7F | 0x80)
            position >>= 7
        packed.append(position)
    total = sum(position for _, position in vector)
    return f"{total:0{OFFSET_DIGITS}}_{urlsafe_b64encode(packed).rstrip(b'=').decode()}"


def clock_of(vector: Vector) -> Clock:
    """What the state reflects for certain: of a base shard that several shards of the reader read, the least."""
    clock: Clock = {}
    for base, position in vector:
        clock[base] = min(position, clock.get(base, position))
    return clock


def moved(before: Vector, after: Vector) -> Clock:
    """The positions that are new: of one write, those of its token."""
    known = clock_of(before)
    return {base: at for base, at in clock_of(after).items() if at != known.get(base, 0)}


def is_later(before: Vector, after: Vector) -> bool:
    """Whether a state holds all of another, or is it. Where their shards are others, they are not compared."""
    if [name for name, _ in before] != [name for name, _ in after]:
        return True
    return all(now >= then for (_, then), (_, now) in zip(before, after, strict=True))
