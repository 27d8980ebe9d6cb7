"""The joint graph of all queries: one node for whatever two queries both compute, and what each node must keep.

``graph.py`` is the graph, ``materialize.py`` decides which nodes keep state, ``provenance.py`` follows a look-up to the
parents of a node.
"""
