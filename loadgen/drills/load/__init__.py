"""The load of a drill: writes that are accounted for, reads of which it is known whom they need, and the judgement.

It runs in a process of its own (``python -m loadgen.drills.load``), which takes orders as lines of JSON, and knows
Headrace by HTTP only::

    program.py   tables, views, requests             ┐
    http.py      connections                         ├─► load.py  an open loop: requests go out when they are due,
    ledger.py    what was written, acknowledged, …   ┘      │     however long the ones before them take
                                                            ├─► records.py  when, how long, what came of it
    checking.py  base rows against the ledger, ◄────────────┘                    │
                 views against the base rows                                     ▼
                                                    analysis.py  outage, errors, p99 before and during
                                                    timeline.py  the picture

``ledger.py``, ``checking.py`` and ``analysis.py`` are pure: values in, values out. Judged is only at rest, but two
things always hold and are judged while the load runs: a reader that shows its write's token sees the write, and what
any reader was shown is still there at the end.
"""
