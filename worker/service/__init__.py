"""A worker as a process: its port, the shards that it opens, its report, and how it starts and stops.

``server.py`` handles each message of ``worker/protocol``, between the event loop and the dataflow thread. ``shards.py``
opens a shard of the base tables, which several workers may be able to reach.
"""
