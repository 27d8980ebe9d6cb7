"""A domain's orders: the graph as data, packets (data plane), commands (control plane), deltas and shards.

``graph.py`` has the operators; ``traits.py`` is the one table of what the planner and the engine know of each of them.
"""
