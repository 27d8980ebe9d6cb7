"""Targets: Headrace, and what one would use instead, behind one small protocol.

::

    a page ── look-ups, in one read; changes ─► Session ─┬─ headrace.py  HTTP: batched look-ups of named views
       (store.py: Query, Lookup, Insert, Update)         ├─ mysql.py     MariaDB or MySQL
                                                         ├─ postgres.py  PostgreSQL
                                                         └─ cached.py    Redis, in front of a database or by itself

Headrace is asked for all that a page reads in one request, whose look-ups refer to one another's answers; the others in
as many rounds of statements as it takes (``sql.py``).

Nothing here starts or installs a server. ``opening.py`` makes a target out of a URL. The drivers are an extra of the
project (``pip install 'headrace[peers]'``), and each is imported by the one module that speaks with its server.
"""
