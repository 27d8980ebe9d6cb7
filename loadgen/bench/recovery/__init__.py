"""How fast what is lost or new comes back: rows out of an archive, full state over them, and the shards of a disk.

``replay.py`` folds and builds in one process; ``rebuild.py`` takes a disk from a cluster that others read
(``rebuild_cluster.py``).
"""
