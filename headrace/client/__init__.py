"""The Python client: the HTTP calls as typed methods, blocking or awaited.

What a call sends and how its answer is read is written once, as a value (``calls.py``); the two connections only differ
in how they carry it (``connection.py`` blocks, ``async_connection.py`` awaits). Look-ups of one request may
stand on one another's answers (``references.py``).

::

    db.view("V").lookup(id=7) ─► calls.lookup("V", {"id": 7}) ─► Call(method, path, …, read) ─► httpx ─► read(answer)
"""
