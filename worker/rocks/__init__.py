"""Base tables on disk: the rows, indexes and log of one domain's base shards, in one RocksDB.

A step of the domain arrives as staged deltas and leaves as one atomic write that holds rows, index entries, log
entries, counters and positions, so a crash leaves whole steps only::

    stage(deltas) ──► pending {key: bytes or None} ──► commit(log) ──► WAL + memtable      seen by look-ups at once
                                                                           │
                          another thread ──► sync() ──► fsync of the WAL ◄─┘               durable for all steps so far

A long step is written down first and then made in parts, so that others have their turn (``Database.write``).
``commit`` never waits for the disk; ``sync`` may run in another thread meanwhile, and one sync serves every step that
was committed before it. Whoever holds effects back until ``sync`` returns has told nobody of a step that could be lost.

================  ================================================================================================
``store.py``    :class:`RocksStore`, the tables together: catalog, commit, log, sync
``opening.py``  what can be reached is compared with what was acknowledged, before RocksDB may change a file
``misread.py``  damage of RocksDB's log that RocksDB does not notice
``acknowledged``  the record of what was acknowledged, in a file beside the database
``table.py``    :class:`RocksTable`, one table: stage, find, scan
``indexes.py``  the secondary indexes of a table, their building and how a look-up picks one
``layout.py``   which bytes stand for what: prefixes, keys of rows and index entries, numbers of streams of writes
``cut.py``      a table between two steps, for the archive to read in another thread; reading and trimming the log
``held.py``     snapshots that a restart does not end
``codec.py``    rows as bytes
``database.py`` the only module that imports rocksdict: options, views, errors
``iterating.py``  entries out of its iterators, upwards and downwards
================  ================================================================================================

Its twin is :class:`domains.store.memory_store.MemoryStore`; one suite of tests runs against both.
"""

from worker.rocks.store import RocksStore

__all__ = ["RocksStore"]
