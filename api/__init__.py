"""The outermost floor: HTTP in front of a deployment, and nothing that knows how answers come about.

Two doors lead to the same deployment (``controller/deployment.py``). Almost every request of a running application is
a read of a view whose answer is there already, as bytes, so those go through a short plain-ASGI door; everything else
goes through FastAPI, which checks and documents the calls.

::

    uvicorn ──► HotRoute ── GET /v1/views/{view}, POST …/lookup ──► Lookups ── try_page: hit ──► bytes
                   │                                                   └────── page: miss, token ─► await, bytes
                   └─ everything else ──► FastAPI ──► Gate ──► routes/*.py ──► Deployment

``Lookups`` knows how a query string becomes a look-up and keeps one prepared look-up per view. ``Gate`` is
where a request is counted and where an unexpected exception ends: the answer bears an id, the log the trace.
``statuses.py`` holds the one table from exception to HTTP status; both doors use it. ``tokens.py`` turns a clock into
the opaque text that a client carries from a write to a read; the Python client uses the same codec.
"""
