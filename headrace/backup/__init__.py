"""Back-up and restore of a whole deployment, on top of the archive of its base tables.

::

    running   POST /v1/archive ──► all up to now is archived ──► copy what the archive names ─┐
    stopped   the stores themselves ──► a snapshot of every table ────────────────────────────┤
                                                                                              ▼
    DEST/table=…/shard=…/   an archive like any other       DEST/recipes/   the recipe and its history
    DEST/backup.json        written last: positions and the digest of every file
                                                                                              │
    restore   the fold of every shard as of a position or a time ──► a data directory  ◄──────┘

Views, indexes and everything else follow from the recipe when the restored directory is first served. An archive that
is no back-up is restored in the same way: it lacks only ``backup.json``.

==================  ============================================================================================
``taking.py``       of a running deployment, and of a data directory that nobody uses
``choosing.py``     what ``backup.json`` says, and whether the files are so; which recipe and positions "as of" means
``restoring.py``    the data directory, of a server or of a cluster
==================  ============================================================================================
"""
