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
