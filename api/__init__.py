"""The outermost floor: HTTP in front of a deployment, and nothing that knows how answers come about.

Two doors lead to the same deployment (``controller/deployment.py``). Almost every request of a running application is
a read of a view whose answer is there already, as bytes, or a write of some rows, so those are *hot calls*, made by a
short plain-ASGI door, and by our own server before it even makes ASGI of them; everything else goes through FastAPI,
which checks and documents the calls.

::

    api/doors/wire_http.py ──────┐
    uvicorn ──► HotRoute ────────► HotCalls ──► Lookups ── hit ──► bytes, at once
                   │                  │            └────── miss, token ──► await, bytes
                   │                  └──► writes of rows ──► Deployment
                   └─ everything else ──► FastAPI ──► Gate ──► routes/*.py ──► Deployment

``Lookups`` answers what is asked of one view, ``many_lookups.py`` what one request asks of several, which may refer to
one another's answers (``references.py``); answers that were given are kept (``kept_answers.py``). How a query string or
a body says what is asked is in ``lookup_requests.py``; each view's look-up is prepared once (``prepared_views.py``).
``Gate`` is where a request is counted and where an unexpected exception ends: the answer bears an id, the log the
trace. ``statuses.py`` holds the one table from exception to HTTP status; both doors use it. ``tokens.py`` turns a clock
into the opaque text that a client carries from a write to a read; the Python client uses the same codec.
"""
