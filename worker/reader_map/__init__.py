"""The answers of all readers in shared memory: an LMDB environment that the dataflow writes and everybody reads.

Each step's publishes become one write transaction. A look-up is one get or one cursor walk over bytes that are already
in response order and already JSON: it never waits for the writer, from whatever thread or process, and never makes the
writer wait. The environment is a cache without a past: it is made anew at start and never synced.

::

    domain ── Publish… ──► ReaderMap.publish ──► ┌─────────────────────────────┐ ──► ReaderClient.page   (other
                            one transaction      │ LMDB  key ‖ seek ‖ order ─► │ ──► ReaderClient.pages    processes,
                                                 │       JSON of a row         │ ──► ReaderSnapshot …      threads)
                                                 └─────────────────────────────┘

A key that is absent is a *hole*: the answer is None, and whoever asked sends the domain to fill it. A key that is
filled and has no rows is present with an empty value. The two are never confused.

==================  ============================================================================================
``layout.py``       :class:`ReaderLayout`: the bytes of a reader's keys, rows and orders; :class:`Window`: the part of a
                    key's entries that a look-up walks (equal and range parameters)
``writer.py``       :class:`ReaderMap`: publishing, growth, accounting
``application.py``  how one reader's evictions, fills and deltas change the entries
``reader.py``       :class:`ReaderClient` and :class:`ReaderSnapshot`: reading; :class:`MapReading`: the maps as one
                    request sees them, for all of its look-ups
``merging.py``      answers from rows in hand: several keys, ranges against the order; all that a reader holds
``lookup.py``       :class:`BoundLookup`: one look-up, and how its parts from several shards are joined
``seek_cache.py``   pages of whole-number keys that were read since their reader last changed; :class:`SoughtRows`:
                    rows sought within keys, kept while these stay as they are
``environment.py``  the only module that imports lmdb: flags, growth, errors
==================  ============================================================================================
"""

from worker.reader_map.layout import ReaderLayout
from worker.reader_map.lookup import BoundLookup, Parts
from worker.reader_map.reader import MapReading, ReaderClient, ReaderSnapshot, in_one_state
from worker.reader_map.writer import ReaderMap

__all__ = [
    "BoundLookup",
    "MapReading",
    "Parts",
    "ReaderClient",
    "ReaderLayout",
    "ReaderMap",
    "ReaderSnapshot",
    "in_one_state",
]
