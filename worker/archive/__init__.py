"""The archive of the base tables: their log as Parquet files under a URL, from which everything can be restored.

Every base shard's log is cut into segments, in the background, while its domain serves. RocksDB need not keep archived
log. A *fold* gives the rows as of any archived position, from a snapshot and the log after it::

    RocksDB: rows, log ── cut between two steps ──► Archiver ──► segments (Parquet) ──► manifest.json replaced
                  ▲                                    │                                     │
                  └──────── trim what is archived ◄────┘                fold: restore, compaction, check, Spark

A segment counts once a manifest names it, and only then the log is trimmed. So a crash leaves at most a file that no
manifest names, which is swept away later. The epoch decides who may write: once a process of a later epoch has taken a
manifest over, those of earlier ones cannot change it.

``domains/archive/manifest.py`` defines segments and manifests, and which segments give a position;
``domains/archive/rows.py`` the columns. docs/archive.md shows how others can read the archive.

==================  ============================================================================================
``options.py``      the settings of archiving, and the result of a pass
``place.py``        files below a URL: read, written whole or as a stream, synced; errors by name
``segments.py``     one Parquet file, deltas ⇄ Arrow columns: written with its digest, read only after it was checked
``manifests.py``    the manifest of a shard: read, taken over, changed
``folding.py``      the rows as of a position, in bounded memory
``shard.py``        :class:`ShardArchive`: append, snapshot, compact, expire
``compacting.py``   folding old segments into snapshots, in a process of its own, and removing files
``checking.py``     a check of every file and of every fold
``lost_shard.py``   a lost shard's RocksDB, rebuilt from the archive in another worker's data directory
``recipes.py``      the recipes that were in force, and the cuts
``archiver.py``     :class:`Archiver`: the thread that archives the shards of a process
==================  ============================================================================================

Only this room imports pyarrow. That takes a tenth of a second, so it is loaded only where there is an archive.
"""
