"""A table as it is between two steps, for another thread to read while the steps go on: what the archive is made from.

A cut is taken on the thread of the steps, and costs nothing there. Its log is that of the database, whose entries never
change once they are written: those up to the cut's position are read with the codec of the cut, which knows the width
of all of them, whatever ALTER TABLE does later. Its rows, where they are wanted, are read from a view of the database.
Cuts that are taken between the same two steps show all tables as of the same moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from domains.language.types import Delta, TableSchema
from worker.rocks import layout
from worker.rocks.codec import RowCodec
from worker.rocks.database import Database, DatabaseView
from worker.rocks.layout import LOG, pack_sequence, table_end, table_prefix

# The base log: for each table, sequence number → the deltas of that step, in the same database as the rows.
#
# It is what the archive copies, what a backfill replays from a position, and what recovery reads. It is kept until
# ``trim`` says that somebody else has it.


def log_key(table: int, sequence: int) -> bytes:
    return table_prefix(LOG, table) + pack_sequence(sequence)


def read_log(database: Database, table: int, codec: RowCodec, after: int, limit: int) -> list[tuple[int, list[Delta]]]:
    """The next entries, at most ``limit``, with a sequence above ``after``, oldest first; rows in the table's present
    width."""
    entries = database.items(log_key(table, after + 1), table_end(LOG, table), limit)
    return [(int.from_bytes(key[-8:], "big"), codec.decode_log(value)) for key, value in entries]


def trim_log(database: Database, table: int, up_to: int) -> None:
    """Delete the entries up to and including ``up_to``."""
    database.write({}, delete_ranges=[(table_prefix(LOG, table), log_key(table, up_to + 1))])


LogEntries = list[tuple[int, list[Delta]]]


@dataclass(frozen=True, slots=True)
class TableCut:
    """Made by :meth:`worker.rocks.store.RocksStore.cut`. Reading raises StorageFailure once the store is closed."""

    _database: Database
    _number: int
    _codec: RowCodec
    schema: TableSchema
    identity: str
    position: int
    auto_increment: int
    """The last value that was given out."""
    _view: DatabaseView | None
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Those over several shards that are not settled, with the positions of their rows; some of them may be later."""

    def log(self, after: int, limit: int) -> LogEntries:
        """The next entries, at most ``limit``, with a sequence above ``after``, oldest first, in the width of the cut's
        schema."""
        limit = min(limit, self.position - after)
        return read_log(self._database, self._number, self._codec, after, limit) if limit > 0 else []

    def rows(self, limit: int) -> Iterator[list[Delta]]:
        """All rows of the cut, so many at a time. Equal rows of a bag come one by one."""
        assert self._view is not None, "the cut was taken without its rows"
        skip = len(layout.table_prefix(layout.ROWS, self._number)) + 1
        inline, decode = layout.INLINE, self._codec.decode
        for entries in self._view.slices(limit):
            if self.schema.primary_key:
                yield [(decode(value), 1) for _, value in entries]
            else:
                yield [
                    (decode(key[skip : -layout.UNIQUE_BYTES] if key[skip - 1 : skip] == inline else value), 1)
                    for key, value in entries
                ]
