"""The last numbers of a table's streams of writes (``domains/streams.py``), written with the step they belong to."""

from __future__ import annotations

from collections.abc import Mapping

from worker.rocks.database import Database
from worker.rocks.layout import STREAMS, pack_sequence, table_end, table_prefix


class StreamNumbers:
    """Of one table. ``pending`` is the store's write of the step."""

    def __init__(self, pending: dict[bytes, bytes | None], table: int, known: Mapping[str, int]) -> None:
        self._pending = pending
        self._prefix = table_prefix(STREAMS, table)
        self.known = dict(known)
        """As of the last commit."""
        self._staged: dict[str, int] = {}

    @classmethod
    def load(cls, database: Database, pending: dict[bytes, bytes | None], table: int) -> StreamNumbers:
        prefix = table_prefix(STREAMS, table)
        entries = database.items(prefix, table_end(STREAMS, table))
        known = {key[len(prefix) :].decode(): int.from_bytes(value, "big") for key, value in entries}
        return cls(pending, table, known)

    def remember(self, stream: str, number: int) -> None:
        """0 forgets the stream."""
        self._staged[stream] = number
        self._pending[self._prefix + stream.encode()] = pack_sequence(number) if number else None

    def settle(self) -> None:
        """The step was committed."""
        self.known |= self._staged
        for stream in [stream for stream, number in self._staged.items() if not number]:
            del self.known[stream]
        self._staged.clear()

    def rollback(self) -> None:
        self._staged.clear()
