"""Answers to look-ups that were given already, by the text that asked for them, while their reader stays as it is.

The requests of a site's pages are much alike: every front page asks for the same stories, every page of a story for the
same comments. So the body of ``POST /v1/lookups`` is taken apart as text, and each *piece*, one look-up, is looked for
here before it is parsed, bound, and read::

    {"lookups":[{"view":"a","keys":[[1]]},{"view":"b","keys":[[2]]}]}
                 └──── a piece ─────────┘   └──── another ────────┘

A piece between ``},{`` is a look-up only if it is JSON by itself, within its braces; where that is so for all of them,
the body is the list of just these objects, whatever stands in their strings. A body that is written otherwise (spaces,
another field, a ``},{`` in a string or between two references) is parsed as a whole, and means the same.

A page of seven look-ups takes 20 µs so, and 320 where all are read anew; with a write before every second page 80 and
390.

An answer stands while its reader's version does, and then while the states of its own keys do
(``worker/reader_map/layout.py``). Both were read in the same state of the map as the answer was: what is given out
again is exactly what reading anew would give. Holes are not kept.

A look-up that refers to others' answers (``references.py``) is kept by its piece and what the references stand for,
which is kept with the answer that it was taken from: it goes when that does, and is not parsed again before (without
that such a page takes 65 µs).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from api.lookups.references import Take, Values
from controller.deployment import MapReading, PreparedLookup

KEPT_BYTES = 16 * 2**20
"""Bytes of pieces and answers that one process keeps, about: a front page of 51 stories takes 20 kB. With less, a busy
site's pages push each other out; with more, it is memory that answers nothing, since versions change."""
ANSWER_MAX = 2**18
"""Bytes of one answer. What is larger is seldom asked for twice, and would push out what is."""
MARKERS_MAX = 64
"""Keys of an answer whose states are kept with it: to look at one takes a half of what reading it does."""
OVERHEAD = 250
"""Bytes that an entry takes beside its texts."""
VALUE_BYTES = 50
"""Bytes of a value that was taken from an answer, about: a number, its place in a list, and its digits."""

Name = bytes | tuple[bytes, ...]
"""A piece, and what its references stand for, if it has any."""

_SPELLINGS = ((b'{"lookups":[{', b"},{", b"}]}"), (b'{"lookups": [{', b"}, {", b"}]}"))
"""The two usual spellings: JSON without spaces, and as Python's ``json`` writes it."""


def pieces_of(body: bytes) -> list[bytes] | None:
    """The look-ups in a body, without their braces; None where it is not in one of the usual spellings."""
    for begin, between, end in _SPELLINGS:
        if body.startswith(begin) and body.endswith(end):
            return body[len(begin) : -len(end)].split(between)
    return None


@dataclass(slots=True, eq=False)
class Kept:
    lookup: PreparedLookup
    version: bytes
    """Empty where only the states were read: then they are asked first."""
    keys: int
    """How many."""
    answer: bytes
    """``[[row, …], …]``: the rows of each key."""
    markers: list[bytes] | None = None
    """The markers of the keys that the answer was read from, if they are not too many."""
    states: list[bytes | None] = field(default_factory=list)
    """The states of these keys."""
    told: bool = False
    """Whether the keys were reported to the look-up."""
    values: dict[Take, Values] = field(default_factory=dict)
    """Values that other look-ups took from the answer."""

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        states = sum([len(state or b"") for state in self.states])
        taken = sum(map(_bytes_of, self.values.values()))
        return len(self.answer) + sum(map(len, self.markers or ())) + states + taken + OVERHEAD

    def stands(self, reading: MapReading) -> bool:
        """Whether reading anew would give the same answer."""
        if self.lookup.stale:
            return False
        version = self.lookup.version(reading)
        if version != self.version:
            if self.markers is None or self.lookup.states(self.markers, reading) != self.states:
                return False
            assert version is not None
            self.version = version
        return True

    def is_to_tell(self) -> bool:
        """Count one more use: whether to report the keys to the look-up."""
        if self.lookup.again(self.keys, self.told):
            self.told = True
            return True
        return False


class ResponseCache:
    """The two halves take turns: where one is full, the other one is forgotten, but for what was used since."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._half = most // 2
        self._young: dict[Name, Kept] = {}
        self._old: dict[Name, Kept] = {}
        self._young_bytes = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, name: Name) -> Kept | None:
        """Whether it still stands is to be asked by whoever takes it."""
        kept = self._young.get(name)
        if kept is None:
            kept = self._old.pop(name, None)
            if kept is not None:
                self.keep(name, kept)
        return kept

    def keep(self, name: Name, kept: Kept) -> None:
        if len(kept.answer) > ANSWER_MAX:
            return
        if name not in self._young:
            size = (len(name) if isinstance(name, bytes) else sum(map(len, name))) + kept.size
            self._young_bytes += size
            if self._young_bytes > self._half:
                self._old, self._young = self._young, {}
                self._young_bytes = size
        self._young[name] = kept

    def keep_values(self, kept: Kept, take: Take, values: Values) -> None:
        """Keep with an answer what was taken from it."""
        kept.values[take] = values
        self._young_bytes += _bytes_of(values)


def _bytes_of(values: Values) -> int:
    """The bytes that the values take, about."""
    return VALUE_BYTES * values.text.count(b",") + OVERHEAD
