"""The example application: a real news site's schema, views, page queries and data, out of a seed.

Plain SQL text and plain rows, for whoever loads them. The room imports nothing of the others::

    words.py ─ names, titles, texts ──┬─► data.py ─ (table, rows) ─► headrace demo, load runs, tests
    margins.py ─ the small tables ────┘
    *.sql ─────────────────────────────► program.py ─ SQL text ────► headrace demo, load runs, tests

Rows have the published sizes and shapes of the real site: a few stories get most of the votes, and most get few.
"""
