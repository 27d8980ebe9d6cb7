"""The base log: for each table, sequence number → the deltas of that step, in the same database as the rows.

It is what the archive copies, what a backfill replays from a position, and what recovery reads. It is kept until
``trim`` says that somebody else has it.
"""

from __future__ import annotations

from domains.types import Delta
from worker.rocks.codec import RowCodec
from worker.rocks.database import Database
from worker.rocks.layout import LOG, pack_sequence, table_end, table_prefix


def log_key(table: int, sequence: int) -> bytes:
    return table_prefix(LOG, table) + pack_sequence(sequence)


def read_log(database: Database, table: int, codec: RowCodec, after: int, limit: int) -> list[tuple[int, list[Delta]]]:
    """At most ``limit`` entries with a sequence above ``after``, oldest first; rows in the table's present width."""
    entries = database.items(log_key(table, after + 1), table_end(LOG, table), limit)
    return [(int.from_bytes(key[-8:], "big"), codec.decode_log(value)) for key, value in entries]


def trim_log(database: Database, table: int, up_to: int) -> None:
    """Delete the entries up to and including ``up_to``."""
    database.write({}, delete_ranges=[(table_prefix(LOG, table), log_key(table, up_to + 1))])
