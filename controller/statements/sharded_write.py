"""A write whose rows are in several shards: a write to each, applied whole or not at all, but each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from controller.deployment import WriteResult
from controller.hosts import SchemaChanged
from domains.errors import HeadraceError, OutcomeUnknown, RowsChanged, RowsRefused, Unavailable
from domains.plan.packets import Insert, Operation, Refused, Written
from migrations.flow.routing import NumberedPart, Split

Write = Callable[[int, Operation], Awaitable[Written]]
"""Carries the part of one shard out."""


async def write_parts(divided: Split, write: Write, *, apart: bool = True, together: bool = True) -> WriteResult:
    """Carry all parts out, ``together`` or each after the one before. If any fails, the first of the errors is raised
    when all have ended, one of an unknown outcome before others, with a hint where others have changed rows, each
    ``apart``."""
    if divided.limit is not None:
        return joined(await _one_by_one(divided, divided.limit, write, apart))
    if not together:
        return joined([await write(shard, part) for shard, part in divided])
    ended = await asyncio.gather(*(write(shard, part) for shard, part in divided), return_exceptions=True)
    written = [each for each in ended if isinstance(each, Written)]
    errors = [each for each in ended if isinstance(each, BaseException)]
    if errors:
        error = min(errors, key=lambda error: not isinstance(error, OutcomeUnknown))
        raise _told(error, written) if apart else error
    return joined(written)


async def _one_by_one(divided: Split, limit: int, write: Write, apart: bool) -> list[Written]:
    written: list[Written] = []
    left = limit
    for number in range(len(divided)):
        part = divided.limited(number, limit - left)
        if part is None:
            break
        try:
            written.append(await write(*part))
        except HeadraceError as error:
            raise (_told(error, written) if apart else error) from error
        left -= written[-1].rows_affected
    return written


def _told(error: BaseException, written: Sequence[Written]) -> BaseException:
    """The error, saying that it is not the whole story."""
    rows = sum(each.rows_affected for each in written)
    if rows and isinstance(error, (SchemaChanged, RowsChanged)):
        # It is not to be made anew, since a part of it is done.
        error = Unavailable(error.message, hint="the rest was not done")
    if rows and isinstance(error, HeadraceError):
        also = f"{rows} rows were changed in other shards, each of which writes by itself"
        error.hint = f"{error.hint}; {also}" if error.hint else also
    return error


def joined(written: Sequence[Written]) -> WriteResult:
    """One result, as if one shard had written it all. Each shard has values of its own, so the first is the least."""
    return WriteResult(
        sum(each.rows_affected for each in written),
        {base: position for each in written for base, position in each.clock.items()},
        min((each.first_id for each in written if each.first_id is not None), default=None),
        all(each.repeated for each in written),
        tuple([row for each in written for row in each.returned]),
        sum([each.matched for each in written]),
    )


# A numbered insert: each shard of the table does its part under the number, once, and tells which rows it refuses.
#
# ::
#
#     insert, number 7 ──► shard 0: done before        ─┐
#                      ──► shard 1: done               ─┼─► done, or RowsRefused with the numbers that the rows had
#                      ──► shard 2: refuses two rows   ─┘
#
# Shards decide by themselves, so a part may be done where another is refused or lost. Sent again, without the refused
# rows or as it was, it is done where it was not, and changes nothing where it was.

NumberedWrite = Callable[[int, Insert], Awaitable[Written | Refused]]
"""Carries the part of one shard out."""


async def write_numbered(parts: Sequence[NumberedPart], write: NumberedWrite) -> WriteResult:
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
