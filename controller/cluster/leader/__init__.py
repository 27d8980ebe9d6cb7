"""The controller that leads: it decides which worker hosts what, writes that down, and carries it out, in rounds.

``candidate.py`` stands for election, ``leader.py`` leads, ``ledger.py`` writes decisions by compare-and-set,
``recovery.py`` brings the actual state to the decided one (``reconcile.py`` finds the difference), ``fleet.py`` watches
the workers, ``placing.py`` chooses a worker for each domain, ``performing.py`` carries migrations out. Operators'
decisions (``draining.py``, ``lost_shards/``) use the leader through ``port.py``.
"""
