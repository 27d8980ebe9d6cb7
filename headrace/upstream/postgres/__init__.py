"""A PostgreSQL as the upstream, by logical replication.

``pgoutput.py`` decodes what its plug-in of that name sends, ``stream.py`` makes transactions of it, ``columns.py`` has
the types and values, ``source.py`` asks by SQL, and ``kind.py`` is the door.

    **A chunk is of one position.** A snapshot of PostgreSQL sees transactions as they end in memory, which is another
    order than that of its log, so no position tells what a snapshot has. The one that making a replication slot exports
    is of the log: it has what was committed before the slot's first position, and nothing else. So a slot is made for
    the snapshot (and goes at once), chunks are read in it for half a minute, and then in another one.

A slot is made only when all transactions have ended that were open as its making began. So what has written to a table
before the publication had it, whose changes are not told, is in the first snapshot.
"""
