"""A worker: one process that hosts domains, performs their effects, and keeps what they promise.

The domains are pure; everything that touches the world is here. One thread runs the domains (``dataflow.py``), a second
one makes their steps durable and visible (``flusher.py``)::

    writes, misses ──► inbox ─► dataflow thread: Domain.handle … ─► batch of effects ─► flusher thread
                                 │      ▲                                                 1. sync the WAL, once a batch
                                 ▼      │ links between domains of this process           2. publish into the reader map
                              RocksDB (written, not synced)                               3. answer

Effects are held back until the sync has returned, so what anybody has seen is durable; meanwhile the dataflow thread
goes on with the next steps, and one sync serves all the writes that were gathered. Reads that hit never come here:
they are look-ups in the reader map (``reader_map/``).

``rocks/`` is the only room that imports rocksdict, ``reader_map/`` the only one that imports lmdb.
"""
