"""A chunk to the server, under its number: again where no answer came, without the rows that the server refuses."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headrace_client.connection import Connection

from headrace.errors import ConnectionFailed, LimitExceeded, Overloaded, ReadTimeout, RowsRefused, Unavailable
from headrace.loading.chunks import Ready, Reject
from headrace.loading.rejects import shown

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between tries. A server that starts again takes one or two; a shard that moves, some tenths."""


class Poster:
    """Of one stream. ``patience``: for how many seconds a server that cannot be reached is tried again."""

    def __init__(self, connection: Connection, table: str, stream: str, patience: float) -> None:
        self._table = connection.table(table)
        self._stream = stream
        self._patience = patience

    def last_number(self) -> int:
        last: int = self._tried(lambda: self._table.last_number(self._stream))
        return last

    def post(self, number: int, rows: Sequence[Ready], refused: Callable[[list[Reject]], None]) -> int:
        """How many rows are stored under the number; ``refused`` hears of the others before it is done without them."""
        left = list(rows)
        while True:
            values = [row.values for row in left]
            try:
                self._tried(partial(self._table.insert, values, once=(self._stream, number)))
            except RowsRefused as error:
                reasons = dict(error.rows)
                refused([Reject(left[at - 1].source, reason) for at, reason in reasons.items()])
                left = [row for at, row in enumerate(left, 1) if at not in reasons]
            except LimitExceeded as error:
                widest = _widest(left, error)
                refused([Reject(widest.source, error.message)])
                left.remove(widest)
            else:
                return len(left)

    def _tried(self, call: Callable[[], Any]) -> Any:
        """What the server answers; it may be asked twice, as its number lets it be done once."""
        deadline, pause = time.monotonic() + self._patience, FIRST_PAUSE
        while True:
            try:
                return call()
            except (ConnectionFailed, Overloaded, Unavailable, ReadTimeout):
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _widest(rows: Sequence[Ready], error: LimitExceeded) -> Ready:
    """The row by which a request is larger than the server takes: most of it is that row.

    :raises LimitExceeded: it is no single row's fault.
    """
    sizes = [len(shown(row.values)) for row in rows]
    widest = max(range(len(rows)), key=sizes.__getitem__)
    if 2 * sizes[widest] < sum(sizes):
        raise LimitExceeded(error.message, hint="send fewer rows at once: --chunk-rows") from error
    return rows[widest]
