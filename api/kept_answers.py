"""Answers to look-ups that were given already, by the text that asked for them, while their reader stays as it is.

The requests of a site's pages are much alike: every front page asks for the same stories, every page of a story for the
same comments. So the body of ``POST /v1/lookups`` is taken apart as text, and each *piece*, one look-up, is looked for
here before it is parsed, bound, and read::

    {"lookups":[{"view":"a","keys":[[1]]},{"view":"b","keys":[[2]]}]}
                 └──── a piece ─────────┘   └──── another ────────┘

A piece between ``},{`` is a look-up only if it is JSON by itself, within its braces; where that is so for all of them,
the body is the list of just these objects, whatever stands in their strings. A body that is written otherwise (spaces,
another field, a ``},{`` in a string) is parsed as a whole, and means the same.

An answer stands while its reader's version does (``worker/reader_map/layout.py``), which is read in the same state of
the map as the answer was: what is given out again is exactly what reading anew would give. Holes are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller.deployment import PreparedLookup

KEPT_BYTES = 16 * 2**20
"""Of pieces and answers of one process, about: a front page of 51 stories takes 20 kB. With less, a busy site's pages
push each other out; with more, it is memory that answers nothing, since versions change."""
ANSWER_MAX = 2**18
"""Bytes of one answer. What is larger is seldom asked for twice, and would push out what is."""
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
    keys: int
    """How many."""
    answer: bytes
    """``[[row, …], …]``: the rows of each key."""
    told: bool = False
    """Whether the look-up was told of the keys."""


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
            self._young_bytes += len(piece) + len(kept.answer) + OVERHEAD
            if self._young_bytes > self._half:
                self._old, self._young = self._young, {}
                self._young_bytes = len(piece) + len(kept.answer) + OVERHEAD
        self._young[piece] = kept
