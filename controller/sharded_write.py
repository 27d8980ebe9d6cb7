"""A write whose rows are in several shards: a write to each, applied whole or not at all, but each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from controller.deployment import WriteResult
from controller.hosts import SchemaChanged
from domains.errors import HeadraceError, OutcomeUnknown, Unavailable
from domains.packets import Operation, Written
from migrations.routing import Split

Write = Callable[[int, Operation], Awaitable[Written]]
"""Carries the part of one shard out."""


async def write_parts(divided: Split, write: Write) -> WriteResult:
    """Carry all parts out. If any fails, the first of the errors is raised when all have ended, one of an unknown
    outcome before others, with a hint where others have changed rows."""
    if divided.limit is not None:
        return joined(await _one_by_one(divided, divided.limit, write))
    ended = await asyncio.gather(*(write(shard, part) for shard, part in divided), return_exceptions=True)
    written = [each for each in ended if isinstance(each, Written)]
    errors = [each for each in ended if isinstance(each, BaseException)]
    if errors:
        raise _told(min(errors, key=lambda error: not isinstance(error, OutcomeUnknown)), written)
    return joined(written)


async def _one_by_one(divided: Split, limit: int, write: Write) -> list[Written]:
    written: list[Written] = []
    left = limit
    for number in range(len(divided)):
        part = divided.limited(number, limit - left)
        if part is None:
            break
        try:
            written.append(await write(*part))
        except HeadraceError as error:
            raise _told(error, written) from error
        left -= written[-1].rows_affected
    return written


def _told(error: BaseException, written: Sequence[Written]) -> BaseException:
    """The error, saying that it is not the whole story."""
    rows = sum(each.rows_affected for each in written)
    if rows and isinstance(error, SchemaChanged):
        # It is not to be made anew, since a part of it is done.
        error = Unavailable(error.message, hint="the rest was not done")
    if rows and isinstance(error, HeadraceError):
        also = f"{rows} rows were changed in other shards, each of which writes by itself"
        error.hint = f"{error.hint}; {also}" if error.hint else also
    return error


def joined(written: Sequence[Written]) -> WriteResult:
    """As if one shard had done it all. Each shard has values of its own, so the first is the least."""
    return WriteResult(
        sum(each.rows_affected for each in written),
        {base: position for each in written for base, position in each.clock.items()},
        min((each.first_id for each in written if each.first_id is not None), default=None),
        all(each.repeated for each in written),
    )
