"""The load of a drill: reads, writes whose fate is noted in a ledger, and the judgement.

It runs in a process of its own (``python -m loadgen.drills.load``), which takes orders as lines of JSON, and knows
Headrace by HTTP only::

    program.py   tables, views, requests        ─┬─► load.py  an open loop: requests go out when they are due, however
    ledger.py    what was written, acknowledged ─┘     │      long the ones before them take; one record each
                                                       ▼
    judging.py   base rows against the ledger, views against the base rows; records go to analysis.py and timeline.py

Everything is judged at rest. Two things always hold and are judged while the load runs: a reader that shows its write's
token sees the write, and what any reader was shown is still there at the end.
"""
