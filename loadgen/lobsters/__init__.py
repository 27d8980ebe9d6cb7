"""The Lobsters workload: a real news site's schema, views, page queries, data, and pages that visitors ask for.

``schema.sql``, ``natural_views.sql`` and ``page_queries.sql`` are the program (``program.py`` reads them),
``data.py`` generates rows in the published sizes and shapes: plain text and plain rows, for whoever loads them (the
demo, a load run, a test). Pages are asked of a target of ``loadgen.peers``, be it Headrace or another system.

::

    words.py ─ names, titles, texts ──┬─► data.py ─ (table, rows) ─► demo, load, tests
    margins.py ─ the small tables ────┘
    *.sql ─────────────────────────────► program.py ─ SQL text ────► demo, load, tests

    visits.py ─ who asks for what, by the published mix ─► pages.py, or counters.py: what a page reads and writes
        ─► workload.py ─ a stream of jobs ─► load
"""
