"""What the shards of a transaction keep for each other, against the loss of a disk (``archive/redo.py``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from domains.language.json_rows import value_from_json, value_to_json
from domains.language.types import Delta
from domains.plan.graph import DomainIndex

TableId = tuple[str, int]
"""A table's name, and its generation: another one after DROP and CREATE."""


Behind = tuple[str, int, bytes]
"""A transaction, its number in a shard, and its changes there."""


@dataclass(frozen=True, slots=True)
class PartCopy:
    """A shard's part of a transaction over several, as the others keep it."""

    shard: DomainIndex
    incarnation: int
    """In which the shard has told it. What it told in an earlier one than it has now, it may have lost since."""
    order: int = 0
    """Its number among what was prepared and committed in the shard: of two transactions that met there, the first has
    the smaller one."""
    changes: bytes = b""
    """What it changes there, of :func:`copied`."""
    behind: tuple[Behind, ...] = ()
    """Those that the shard has decided, and others have perhaps not heard of, and that this one has met there: where it
    stays, they stay."""
    is_left_out: bool = False
    """All parts together have more than :data:`COPIES_MOST` bytes: what it changes is not kept."""


COPIES_MOST = 32 << 20
"""Bytes of all copies of a transaction: they go in one message."""


def kept_copies(copies: Iterable[PartCopy]) -> tuple[PartCopy, ...]:
    """As they are kept."""
    found = tuple(copies)
    if sum(len(copy.changes) + sum(len(changes) for *_, changes in copy.behind) for copy in found) <= COPIES_MOST:
        return found
    return tuple([replace(copy, changes=b"", behind=(), is_left_out=bool(copy.changes)) for copy in found])


def copied(changes: Mapping[TableId, Sequence[Delta]]) -> bytes:
    """As JSON, whose rows have the width that the table had: b"" where nothing is changed."""
    if not changes:
        return b""
    document = [
        [name, generation, [[[value_to_json(value) for value in row], weight] for row, weight in deltas]]
        for (name, generation), deltas in changes.items()
    ]
    return json.dumps(document, separators=(",", ":")).encode()


def changes_of(copy: bytes) -> dict[TableId, list[Delta]]:
    """Raises ValueError, TypeError: it is damaged."""
    if not copy:
        return {}
    return {
        (name, generation): [(tuple(map(value_from_json, row)), weight) for row, weight in deltas]
        for name, generation, deltas in json.loads(copy)
    }
