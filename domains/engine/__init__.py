"""The acts of a domain and the dispatcher that runs them, one packet a step.

``domain.py`` dispatches. A write (``write.py``) and an update of a link go **down** by ``forward.py``; look-ups go
**up** by ``pulls.py``; what another domain must answer waits in ``upqueries.py``; ``links.py`` are the ends of what
comes and goes; ``eviction.py`` and ``memory.py`` let go; ``control.py`` changes the graph, with ``lifecycle/`` feeding
what is new. ``invariants.py`` checks the eight rules between steps.
"""
