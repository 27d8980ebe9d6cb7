"""``headrace bench tpch``: the 22 queries of TPC-H kept up to date, beside DuckDB computing them anew.

::

    tpchgen-cli ─► parquet ─► DuckDB in memory ──── its rows ───► our base tables, once
                                   │                                  │ a copy for each query
                    a refresh: the same new and old orders in both    ▼
                                   ▼                        CREATE VIEW, in a process of its own
                             SELECT, anew      ══ equal? ══  a read with the token of the refresh

A view stands for a query in its standard text, with the parameters of the validation run. A *refresh* of n is n new
orders with their lineitems (RF1), and n old ones that go with theirs (RF2). *Fresh* is the time from sending it to the
answer that reflects all of it. Each query is measured with no other view beside it; with ``--together`` all of them
stand in one process instead, of which the memory is told.

``data.py`` generates and judges (DuckDB), ``refresh.py`` makes the refreshes, ``kept.py`` is the process that keeps a
view, ``measuring.py`` measures and prints.
"""
