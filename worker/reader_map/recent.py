"""Pages that were read since their reader last changed, kept as Python bytes.

LMDB takes 0.45 µs to walk down to a key, which is twice what all the rest of a look-up of many keys takes. A reader's
version (``layout.py``) says whether anything was published to it since, so what is kept is exactly what the map holds.
Where something is published to the reader before every request this gains nothing, and costs 0.1 µs a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

RECENT_BYTES = 4 * 2**20
"""Of one reader: some 20,000 rows of ordinary size. Beyond it all are forgotten; they are in the map anyway."""


@dataclass(slots=True)
class RecentPages:
    """Of one reader, by the value of its INTEGER key, as of its ``version``."""

    version: bytes | None
    pages: dict[int, bytes] = field(default_factory=dict)
    held: int = 0

    def remember(self, values: Sequence[int], pages: Sequence[bytes | None]) -> None:
        """Holes are not kept."""
        found = {value: page for value, page in zip(values, pages, strict=True) if page is not None}
        size = sum(map(len, found.values()))
        if self.held + size > RECENT_BYTES:
            self.pages.clear()
            self.held = 0
        if size <= RECENT_BYTES:
            self.pages.update(found)
            self.held += size
