"""Transactions on one shard of the base tables: staged beside the tables, watched by what they have read.

::

    statement ──► looked up in: stored rows + own staged changes ──► more staged changes      nothing is written
                        │ every look-up is remembered (LookUps)
    others' commit ──► meets a look-up of an open transaction? ──► that one is in conflict, and holds no more
    COMMIT ──► not in conflict: the staged changes are one commit, and one pass (as TableDeltas says)

**The invariant**: *all that an open transaction has looked up, it would find again now, but for its own changes; or it
is in conflict.* For steps come one after another, each commit is compared with the look-ups of all open transactions,
row by row and with the old rows and the new ones, before anything else is done; and a transaction's later look-ups are
of now, as its earlier ones still are. So

* its reads are all of one position at every moment, which moves on while nothing that it has read changes;
* at its commit all its reads and writes are as if it had run at that moment alone: transactions are serializable, in
  the order of their commits (and plain writes, which are transactions of one statement, with them);
* its staged changes fit the tables then: a row that it takes away was looked up, and is there; a key that it takes was
  looked up, and is free. A commit can fail by what a migration has decided meanwhile (``expected``), and by the disk.

What is looked up is a key by some columns, which may find nothing, a range of an order, or a table whole. Statistics
(``row_count``, ``count_many``) only choose the way of a look-up, and are no part of its answer.

**Over several shards** each has a part. A shard that is not to decide is *prepared* first: its part is stored, and
what it has looked up and is to change is held. *No commit changes what a prepared transaction has looked up, or has
looked up what a prepared one is to change*: it waits (``Locked``), a plain write too, which is worked out as a
transaction of one operation meanwhile. So at the moment when the decider commits, all parts hold at once: that is the
transaction's place in the order. What is prepared is restored before the shard takes anything else, and holds then the
tables that it has read whole. The shard that decides keeps with its own part that it has, until all others have done
theirs; asked about a transaction that it has not committed it rolls that back, and so it answers the same for ever
(presumed abort: C. Mohan, B. Lindsay and R. Obermarck, *Transaction Management in the R* Distributed Database
Management System*, 1986).

**With locks** (``locks``: READ COMMITTED and REPEATABLE READ) what a transaction looks up *to write* is a lock, from
when it was looked up until its end; what it only reads is not remembered at all::

    statement ──► looked up apart ──► met nobody: the look-ups are its own now, the changes are staged
                        └──► met somebody: forgotten, and it waits. When who holds it ends, it is worked out
                             again, on what is stored then: so a write is always of the latest commit

*Nobody changes, or looks up to write, what another has locked or staged*: statements of such transactions wait in the
order in which they came, plain writes as well (as a transaction of one statement), a COMMIT of one without locks
waits, or is in conflict. That is checked in the step in which a statement is worked out, and there are no steps
between that and the staging. So no commit ever meets a lock; would one, the transaction that holds it is in conflict
as any other: **the invariant above holds of all that it has looked up to write, and does not rest on locks**. Where all
in a ring wait for one another, over all shards of the process, the youngest that waits in the shard where the ring
closes ends; what becomes of a ring over several processes is in ``controller/transactions/deadlocks.py``.

Locks are not stored, but for those of what is prepared. A shard that is opened elsewhere knows nothing of the others'
holders, and refuses what these ask of it next; and who commits asks each shard in which it has locked anything. *So
nothing is committed that has lost a lock*, and nobody has to tell a shard, or to be told, that a lock was lost.

Its plain reads are of a snapshot: the stored rows, and back from them what others have committed since (``Snapshot``),
of all shards between the same two steps; what a shard has only prepared, and its decider committed, counts as done. A
row that it has written itself is as it wrote it.

A snapshot of all shards is taken while none of them commits anything (``snapshots.py``).

Nothing else is stored before the commit, so a crash forgets open transactions. The first to commit wins; whoever is in
conflict begins again, since only the application knows what it would do with other rows. (H. Kung and J. Robinson, *On
Optimistic Methods for Concurrency Control*, 1981, with validation forward: by T. Härder, 1984.)
"""
