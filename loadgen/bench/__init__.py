"""The comparison: ``make bench-peers`` starts each server on loopback, puts the same load on it, and writes the table.

::

    install.py  MariaDB, PostgreSQL and Redis from Debian's packages, where they are missing
    servers.py  each of them, and Headrace, on a port and a data directory of its own; ended when it is done
    rounds.py   what is measured: which target, which variant, which settings ─► one JSON a round
                the JSONs ─► docs/benchmarks.md, pictures in docs/img/

Only here is anything started. What somebody else has started is measured by ``headrace loadgen`` in the same way.
"""
