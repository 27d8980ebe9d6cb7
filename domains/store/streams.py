"""Numbered streams of writes: whoever sends a write again, not knowing whether it was done, does not do it twice.

::

    writer ── 1, 2, 3, 3, 4 … ──► shard    3 is done once; the second 3 is answered as done and changes nothing
           ── 1, 2, 4 ──────────► shard    4 is refused: OutOfOrder

A table's shard keeps the last number of each stream *in the same commit as the rows*, so a crash leaves both or
neither. What holds: **a number is never done twice in a shard, and never before the one below it**, whatever crashes
between, and however often and through whomever a write is sent. So every shard of a table takes every number, with
no rows where it has none; the last number of all shards is the least of theirs. A write that is refused (a key that is
taken) has not used its number up.

That a number means the same rows every time is the writer's promise. Numbers are remembered until the table is
dropped, or its stream is forgotten (number 0); they are not in the log, so a table that is made anew out of the log's
archive knows no stream.
"""

from __future__ import annotations

from domains.errors import BadRequest, LimitExceeded, OutOfOrder
from domains.plan.packets import Once
from domains.store.storage import TableStore

STREAMS_MAX = 4096
"""Remembered by a table: all are in memory, at some 200 bytes each. None is forgotten by itself, since its writes could
be done a second time then."""
NAME_MAX = 128
"""Characters of a stream's name: a digest, or what a person would call it."""


def check_name(stream: str) -> None:
    """:raises BadRequest: it is no name of a stream."""
    if not 0 < len(stream) <= NAME_MAX or not stream.isprintable() or "/" in stream:
        raise BadRequest(f"the name of a stream has 1 to {NAME_MAX} printable characters, and no /")


def is_repeated(table: TableStore, once: Once) -> bool:
    """Whether the shard has done the number already; else it is the one that comes next.

    :raises OutOfOrder: there is one between.
    :raises LimitExceeded: the table remembers too many streams to begin another.
    """
    if once.number == 0:
        return False
    last = table.last_number(once.stream)
    if once.number <= last:
        return True
    if once.number > last + 1:
        raise OutOfOrder(
            f'number {once.number} of stream "{once.stream}" skips numbers: the last of table "{table.schema.name}" is '
            f"{last}",
            hint=f"go on with number {last + 1}; a stream that is forgotten, or not known, begins with 1",
        )
    if last == 0 and len(table.streams()) >= STREAMS_MAX:
        raise LimitExceeded(
            f'table "{table.schema.name}" remembers {STREAMS_MAX} streams of numbered writes, and no more',
            hint="forget those whose writers are done: DELETE /v1/tables/{table}/streams/{stream}",
        )
    return False
