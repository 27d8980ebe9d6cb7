"""Which bytes stand for what in the one key space of a domain's RocksDB.

==============================================  ==========================================  =======================
key                                             value                                       what
==============================================  ==========================================  =======================
``m 00``                                        marshal: format, next table id              the store
``m 01 ‖ table``                                JSON: schema, indexes, pads                 a table's catalog entry
``m 02 ‖ table``                                marshal: rows, auto-increment, unique, …    its counters
``m 03 ‖ table ‖ stream``                       the last number, 8 bytes                    a stream of writes
``m 04 ‖ id``                                   marshal: decider, others, rows, changes, …  a transaction's record
``m 05 ‖ id``                                   marshal: decider, others, positions         where its part stands
``m 06 ‖ id``                                   marshal: shard, …, changes, of each         the other shards' parts
``r ‖ table ‖ row key``                         the row's content, or nothing               a row
``i ‖ table ‖ index ‖ columns ‖ row key``       the row's content, or nothing               an index entry
``l ‖ table ‖ sequence``                        marshal: deltas                             a step in the log
``u``, ``u ‖ number``                           nothing; marshal: changes                   a long write under way
==============================================  ==========================================  =======================

Table ids have 4 bytes, index numbers 2, sequences 8, all big-endian. The *row key* of a table with a primary key is the
encoded primary key. A bag's is made so that an insert need not read: ``00 ‖ content ‖ unique`` where the content is
short (the row is then read from its key, and index entries hold it for free), ``01 ‖ 16-byte digest ‖ unique`` where it
is long. Equal rows stand side by side, and storage order is that of the content, whatever the unique part.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from hashlib import blake2b

from worker.rocks.database import Database

STORE_KEY = b"m\x00"
CATALOG = b"m\x01"
COUNTERS = b"m\x02"
STREAMS = b"m\x03"
TRANSACTIONS = b"m\x04"
"""What is kept of transactions over several shards, by their ids."""
PARTS = b"m\x05"
"""Where the parts of transactions stand among a shard's writes, by their ids, until that is archived."""
COPIES = b"m\x06"
"""With them, what the other shards have told of theirs."""
ROWS = b"r"
INDEXES = b"i"
LOG = b"l"

INLINE_LIMIT = 64
"""A bag's row of so many bytes stands in its key. Not more: the key is repeated in every index entry."""

COVERING_LIMIT = 128
"""A keyed row of so many bytes is repeated in its index entries: a look-up of five rows of 70 bytes takes 8 µs so, 19
with a second read of each, and an insert 3.0 µs where it took 2.5. Not more: a table with long texts would be stored
once for each index."""

INLINE, DIGEST = b"\x00", b"\x01"
UNIQUE_BYTES = 8
DIGEST_BYTES = 16

_pack_table = struct.Struct(">I").pack
_pack_index = struct.Struct(">H").pack
pack_sequence = struct.Struct(">Q").pack
"""The packer of log sequences, of a bag's unique parts and of streams' numbers."""


def table_prefix(kind: bytes, table: int) -> bytes:
    return kind + _pack_table(table)


def index_prefix(table: int, index: int) -> bytes:
    return INDEXES + _pack_table(table) + _pack_index(index)


def prefix_end(prefix: bytes) -> bytes:
    """The least key above all keys with this prefix (whose last byte must not be ff)."""
    assert prefix[-1] != 0xFF
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def table_end(kind: bytes, table: int) -> bytes:
    return kind + _pack_table(table + 1)


def index_end(table: int, index: int) -> bytes:
    return INDEXES + _pack_table(table) + _pack_index(index + 1)


def bag_place(content: bytes) -> bytes:
    """A bag row's key without its unique part: the same for equal rows, and no prefix of another's."""
    if len(content) <= INLINE_LIMIT:
        return INLINE + content
    return DIGEST + blake2b(content, digest_size=DIGEST_BYTES).digest()


# The last numbers of a table's streams of writes (``domains/store/storage.py``), written with the step they belong
# to.


class StreamNumbers:
    """The stream numbers of one table. ``pending`` is the store's write of the step."""

    def __init__(self, pending: dict[bytes, bytes | None], table: int, known: Mapping[str, int]) -> None:
        self._pending = pending
        self._prefix = table_prefix(STREAMS, table)
        self.known = dict(known)
        """As of the last commit."""
        self.staged: dict[str, int] = {}

    @classmethod
    def load(cls, database: Database, pending: dict[bytes, bytes | None], table: int) -> StreamNumbers:
        prefix = table_prefix(STREAMS, table)
        entries = database.items(prefix, table_end(STREAMS, table))
        known = {key[len(prefix) :].decode(): int.from_bytes(value, "big") for key, value in entries}
        return cls(pending, table, known)

    def remember(self, stream: str, number: int) -> None:
        """0 forgets the stream."""
        self.staged[stream] = number
        self._pending[self._prefix + stream.encode()] = pack_sequence(number) if number else None

    def settle(self) -> None:
        """The step was committed."""
        self.known |= self.staged
        for stream in [stream for stream, number in self.staged.items() if not number]:
            del self.known[stream]
        self.staged.clear()

    def rollback(self) -> None:
        self.staged.clear()
