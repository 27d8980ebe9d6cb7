"""A worker: one process that hosts domains, performs their effects, and keeps what they promise.

The domains are pure; everything that touches the world is here. One thread runs the domains (``dataflow/thread.py``,
around ``dataflow/domain_host.py``, which has no thread), a second one makes their steps durable and visible
(``dataflow/group_commit.py``)::

    writes, misses ─────► inbox ─► dataflow thread: domains ─► batch of effects ─► group commit
    packets of others' ─►   │        Domain ⇄ Domain ⇄ …                            1. sync each store, once a batch
    leader's commands ──►   ▼                                                       2. publish into the reader map
                        RocksDB (written, not synced)                               3. answer
                                                                                    4. send to domains elsewhere

Effects are held back until the sync has returned, so what anybody has seen is durable. Meanwhile the dataflow thread
goes on with the next steps, and one sync serves all the writes that were gathered. If none waits, and the process hosts
every domain, the dataflow thread flushes its batch itself. Reads that hit never come here: they are look-ups in the
reader map (``reader_map/``).

When the disk fails a commit, a sync or a step behind a commit, memory is ahead of the disk, and nothing goes on from
there: ``Dataflow`` takes nothing more, and its owner opens the stores again, or lets the process end. Memory never
survives its store:

* what was published was durable before, so hits go on from the old reader map, and are right as of what it reflects;
* a client finds each acknowledged write in the store that is opened again, which refuses to open with less;
* a write that came to its commit and was not acknowledged is ``OutcomeUnknown``: whole steps of such may be there. One
  that was refused before is not there;
* keys for which the reader map has no room are holes in it, which are never wrong;
* domains and reader map begin from the opened store alone, so each unknown write is in all views or in none.

The embedded server hosts all domains in its own process (``embedded.py``). In a cluster a worker is a process of its
own (``service/``): a leader opens domains here and says where the others are, and packets to domains of other workers
go over ``wire/``. ``dataflow/hosted_domain.py`` tells which packet belongs to which opening of a domain. The next host
of a domain opens its shard's RocksDB, and makes sure that the one before writes no more (``service/shards.py``);
``belonging.py`` says whose a data directory is.

With ``--archive`` a third thread copies the base log to Parquet files elsewhere (``archive/``), from which everything
can be restored when the disk is gone; the log need not keep what is archived.

``rocks/`` is the only room that imports rocksdict, ``reader_map/`` the only one that imports lmdb, ``wire/`` the only
one that imports msgpack, ``archive/`` the only one that imports pyarrow. ``protocol/`` has the messages to a worker.
"""
