"""A worker: one process that hosts domains, performs their effects, and keeps what they promise.

The domains are pure; everything that touches the world is here. One thread runs the domains (``dataflow.py``, around
``hosted.py``, which has no thread), a second one makes their steps durable and visible (``flusher.py``)::

    writes, misses ─────► inbox ─► dataflow thread: Hosted ─► batch of effects ─► flusher thread
    packets of others' ─►   │        Domain ⇄ Domain ⇄ …                            1. sync each store, once a batch
    leader's commands ──►   ▼                                                       2. publish into the reader map
                        RocksDB (written, not synced)                               3. answer
                                                                                    4. send to domains elsewhere

Effects are held back until the sync has returned, so what anybody has seen is durable; meanwhile the dataflow thread
goes on with the next steps, and one sync serves all the writes that were gathered. Where none waits, and the process
hosts every domain, the dataflow thread flushes its batch itself. Reads that hit never come here:
they are look-ups in the reader map (``reader_map/``).

What the disk fails, a commit, a sync or a step behind a commit, leaves memory ahead of the disk, and nothing goes on
from there: ``Dataflow`` takes nothing more, and who opened it opens the stores again, or lets the process end. The
invariant is that memory never survives its store:

* what was published was durable before, so hits go on out of the old reader map, and are right as of what it reflects;
* whoever was told of a write finds it in the store that is opened again: it refuses to open with less;
* a write that came to its commit and was not acknowledged is ``OutcomeUnknown``: whole steps of such may be there. One
  that was refused before is not there;
* what the reader map has no room for are holes in it (``crowding.py``), which are never wrong;
* domains and reader map begin from the opened store alone. So what is there of the unknown writes is in every view.

The embedded server hosts all domains in its own process (``embedded.py``). In a cluster a worker is a process of its
own (``process.py``) with a port (``server.py``): a leader opens domains here and says who the others are, and what the
domains send to those of other workers goes over ``wire/``. Domains come and go; which packet is of which time says
``hosted_domain.py``. A shard's RocksDB is opened by whoever hosts its domain next (``shards.py``), who makes sure that
the one before writes no more, and a data directory says whose it is (``belonging.py``).

With ``--archive`` a third thread copies the base log to Parquet files somewhere else (``archive/``, ``archiving.py``),
from which everything can be had again when the disk is gone; what is archived the log need not keep.

``rocks/`` is the only room that imports rocksdict, ``reader_map/`` the only one that imports lmdb, ``wire/`` the only
one that imports msgpack, ``archive/`` the only one that imports pyarrow.
"""
