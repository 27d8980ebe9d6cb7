"""A worker as a process: its port, the shards that it opens, what it tells of itself, and how it starts and stops.

``server.py`` does what each message of ``worker/protocol`` asks; it stands between the event loop and the dataflow
thread. ``shards.py`` opens a shard of the base tables, of which several workers can reach the same one.
"""
