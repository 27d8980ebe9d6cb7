"""Tables of a database that runs elsewhere, copied into ours and kept up to date: ``headrace import`` and ``follow``.

::

    MariaDB, ── its log, rows by position ──► stream ── transactions ──► batch.py ── one row a key ──┐
    PostgreSQL                                                                                       ▼
       └─────── rows by key, of a snapshot ──► source ── chunks ──► following.py ──► target.py: one transaction
                                                                                     rows, cursor, position

It is a client on both sides: of the database as a replica is, and of a Headrace by HTTP, embedded or a cluster, with
the transactions that any application has. So it may be killed at any moment, and so may either server.

    **Invariant.** Our tables, at each moment that a reader sees, are those of the upstream at one position of its
    log, for whatever has been copied; and the row of ``headrace_upstream`` says at which.

1. *Each transaction once.* The position is written by the transaction that writes the rows, whatever shards they lie
   in. There is no other memory of how far a follower is: after any error it reads the position and begins there. The
   UPDATE that moves the position names the follower, so of two the one that came first is refused.
2. *Whole.* A transaction of the upstream is never parted. Many that wait are done as one of ours.
3. *Nothing is skipped.* What the stream does not know, or cannot decode, is an alarm and the end (``Stopped``): an
   event of a kind it has no decoder for, a statement where rows should be, a column that we have not, a value without
   an equal. The position stays before the transaction that has it.
4. *A chunk is of one position.* It is read in a snapshot whose position is known. The stream is applied up to just
   there, and then the chunk is stored, with where it ended. So chunk and stream need no merging, and a row is as it was
   at that position whichever of both brought it. While a table is copied, changes of rows that are not here yet bring
   them whole, or change nothing. One that gets another key, and comes without all columns, may now be where was read
   already: then the table is read again from its first row, and what is here stays.
5. *A server behind us is refused*: one that was restored, or has lost the end of its binlog, would give other
   transactions the numbers that we have seen.
6. *The tables are read-only here*, but for the follower.

Keys are the upstream's, and nothing else that it enforces is enforced again: UNIQUE is an index here, and there are no
foreign keys and no CHECKs. Rows come in another order than they were written in, and are right at the end only.

===================  ========================================================================================
``address.py``       where it is, as a URL says it
``kinds.py``         what is asked of a database, whichever it is: a source by SQL, a stream of changes
``mariadb/``         MariaDB's, by its binlog
``postgres/``        PostgreSQL's, by logical replication
``columns.py``       tables as the upstream has them, and what they become here
``batch.py``         transactions, and what becomes of each key by them
``target.py``        our side: the tables, the position, and what is written with it
``following.py``     all of it: copy, follow, begin again
===================  ========================================================================================
"""
