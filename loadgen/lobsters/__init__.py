"""The Lobsters workload: a real news site's schema, views, page queries and data.

``schema.sql``, ``natural_views.sql`` and ``page_queries.sql`` are the program (``program.py`` reads them),
``data.py`` generates rows in the published sizes and shapes. Everything here is plain text and plain rows: whoever
loads them (the demo, a load run, a test) talks to Headrace by its public faces.

::

    shape.py ─ how many, how unequal ─┐
    words.py ─ names, titles, texts ──┼─► data.py ─ (table, rows) ─► demo, load, tests
    margins.py ─ the small tables ────┘
    *.sql ─────────────────────────────► program.py ─ SQL text ────► demo, load, tests
"""
