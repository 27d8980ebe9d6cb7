"""A numbered insert: each shard of the table does its part under the number, once, and tells which rows it refuses.

::

    insert, number 7 ──► shard 0: done before        ─┐
                     ──► shard 1: done               ─┼─► done, or RowsRefused with the numbers that the rows had
                     ──► shard 2: refuses two rows   ─┘

Shards decide by themselves, so a part may be done where another is refused or lost. Sent again, without the refused
rows or as it was, it is done where it was not, and changes nothing where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from controller.deployment import WriteResult
from controller.sharded_write import joined
from domains.errors import RowsRefused
from domains.packets import Insert, Refused, Written
from migrations.routing import NumberedPart

Write = Callable[[int, Insert], Awaitable[Written | Refused]]
"""Carries the part of one shard out."""


async def write_numbered(parts: Sequence[NumberedPart], write: Write) -> WriteResult:
    """Carry all parts out; the first error that is none of single rows is raised when all have ended.

    :raises RowsRefused: with the numbers that the rows have in the whole insert.
    """
    ended = await asyncio.gather(*(write(part.shard, part.operation) for part in parts), return_exceptions=True)
    refused: list[tuple[int, str]] = []
    written: list[Written] = []
    for part, each in zip(parts, ended, strict=True):
        if isinstance(each, BaseException):
            raise each
        if isinstance(each, Refused):
            refused += [(part.numbers[number - 1], reason) for number, reason in each.rows]
        else:
            written.append(each)
    if refused:
        raise RowsRefused.of(tuple(sorted(refused)))
    return joined(written)
