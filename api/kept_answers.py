"""Answers to look-ups that were given already, by the text that asked for them, while their reader stays as it is.

The requests of a site's pages are much alike: every front page asks for the same stories, every page of a story for the
same comments. So the body of ``POST /v1/lookups`` is taken apart as text, and each *piece*, one look-up, is looked for
here before it is parsed, bound, and read::

    {"lookups":[{"view":"a","keys":[[1]]},{"view":"b","keys":[[2]]}]}
                 └──── a piece ─────────┘   └──── another ────────┘

A piece between ``},{`` is a look-up only if it is JSON by itself, within its braces; where that is so for all of them,
the body is the list of just these objects, whatever stands in their strings. A body that is written otherwise (spaces,
another field, a ``},{`` in a string) is parsed as a whole, and means the same.

An answer stands while its reader's version does, and then while the states of its own keys do
(``worker/reader_map/layout.py``). Both were read in the same state of the map as the answer was: what is given out
again is exactly what reading anew would give. Holes are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.deployment import PreparedLookup, Reading

KEPT_BYTES = 16 * 2**20
"""Of pieces and answers of one process, about: a front page of 51 stories takes 20 kB. With less, a busy site's pages
push each other out; with more, it is memory that answers nothing, since versions change."""
ANSWER_MAX = 2**18
"""Bytes of one answer. What is larger is seldom asked for twice, and would push out what is."""
MARKERS_MAX = 64
"""Keys of an answer whose states are kept with it: to look at one takes a half of what reading it does."""
OVERHEAD = 250
"""Bytes that an entry takes beside its texts."""

_SPELLINGS = ((b'{"lookups":[{', b"},{", b"}]}"), (b'{"lookups": [{', b"}, {", b"}]}"))
"""As JSON is written without spaces, and as Python's ``json`` writes it."""


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
    """Of the reader's keys that it was read of, if they are not too many."""
    states: list[bytes | None] = field(default_factory=list)
    """Those of the keys."""
    told: bool = False
    """Whether the look-up was told of the keys."""

    @property
    def size(self) -> int:
        """Bytes that it takes, about."""
        states = sum([len(state or b"") for state in self.states])
        return len(self.answer) + sum(map(len, self.markers or ())) + states + OVERHEAD

    def stands(self, reading: Reading) -> bool:
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


class KeptAnswers:
    """The two halves take turns: where one is full, the other one is forgotten, but for what was used since."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._half = most // 2
        self._young: dict[bytes, Kept] = {}
        self._old: dict[bytes, Kept] = {}
        self._young_bytes = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, piece: bytes) -> Kept | None:
        """Whether it still stands is to be asked by whoever takes it."""
        kept = self._young.get(piece)
        if kept is None:
            kept = self._old.pop(piece, None)
            if kept is not None:
                self.keep(piece, kept)
        return kept

    def keep(self, piece: bytes, kept: Kept) -> None:
        if len(kept.answer) > ANSWER_MAX:
            return
        if piece not in self._young:
            size = len(piece) + kept.size
            self._young_bytes += size
            if self._young_bytes > self._half:
                self._old, self._young = self._young, {}
                self._young_bytes = size
        self._young[piece] = kept
