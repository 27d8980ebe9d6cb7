"""Clients that ask for too much, each beside one that polls a view: ``make hostile``.

A *line* (``lines.py``) is such a client. ``run.py`` starts a server, lets each line run for a while beside the poller,
which is a process of its own, and prints the poller's latency and the server's size before, at most, and after. All
traffic is to 127.0.0.1.
"""
