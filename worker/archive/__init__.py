"""The archive of the base tables: their log as Parquet files under a URL, from which everything can be had again.

Every base shard's log is cut into segments, in the background, while its domain serves. What is archived need not be
kept in RocksDB any longer. A *fold* gives the rows as of any archived position: a snapshot, and the log after it::

    RocksDB: rows, log ── cut between two steps ──► Archiver ──► segments (Parquet) ──► manifest.json replaced
                  ▲                                    │                                     │
                  └──────── trim what is archived ◄────┘                fold: restore, compaction, check, Spark

A segment counts once a manifest names it, and the log is trimmed after that. So a crash anywhere leaves at most a file
that nobody names, which is written anew under the same or another name and is swept away later. Who may write is
decided by the epoch: a manifest that a later one has taken over is not written by an earlier one any more.

What a segment and a manifest are, and which of them give a position, is in ``domains/archive/manifest.py``; the columns
are in ``domains/archive/rows.py``. docs/archive.md shows others how to read it.

==================  ============================================================================================
``options.py``      what a process is told of archiving, and what a pass has archived
``place.py``        files below a URL: read, written whole or as a stream, synced; errors by name
``segments.py``     one Parquet file, deltas ⇄ Arrow columns: written with its digest, read only after it was checked
``manifests.py``    the manifest of a shard: read, taken over, changed
``folding.py``      the rows as of a position, in bounded memory
``shard.py``        :class:`ShardArchive`: append, snapshot, compact, expire
``compacting.py``   the same in a process of its own, so that nobody waits for it
``checking.py``     everything that is there, read and compared
``lost_shard.py``   a lost shard's RocksDB from an archive, made where another worker has its data
``recipes.py``      which recipe was in force at which positions
``tidying.py``      compaction and retention: started by a process, run in a child
``alarms.py``       what goes on going wrong
``archiver.py``     :class:`Archiver`: the thread that does it all for the shards of a process
==================  ============================================================================================

pyarrow enters by this room alone; importing it takes a tenth of a second, so nobody imports it who has no archive.
"""
