"""A checksum inside of a JSON document, so that a bit that turned on a disk is not taken for what was written.

It is of the document's content, however that is spaced. A document without one is of an earlier version, or the bit was
in the checksum's own name; either way nothing else of it is known to be wrong.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

CHECKSUM = "checksum"


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """With its checksum as the last of its names."""
    return {**document, CHECKSUM: _checksum(document)}


def opened(document: Any) -> dict[str, Any]:
    """Without its checksum. Raises ValueError where that is another, or where there is no such document."""
    if not isinstance(document, dict):
        raise ValueError("it is no object")
    content = {name: value for name, value in document.items() if name != CHECKSUM}
    if CHECKSUM in document and document[CHECKSUM] != _checksum(content):
        raise ValueError("its checksum is another")
    return content


def _checksum(document: dict[str, Any]) -> str:
    return f"{crc32(json.dumps(document, sort_keys=True).encode()):08x}"
