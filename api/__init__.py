"""The outermost floor: HTTP in front of a deployment. Nothing here knows how answers are computed.

Two doors lead to the same deployment (``controller/deployment.py``). Almost every request of a running application
reads an answer that is there already, as bytes, or writes some rows. Those *hot calls* take a short way, before uvicorn
or as plain ASGI; everything else goes through FastAPI, which checks and documents the calls.

::

    api/doors/wire_http.py ──────┐
    uvicorn ──► HotRoute ────────► HotCalls ──► Lookups ── hit ──► bytes, at once
                   │                  │            └────── miss, token ──► await, bytes
                   │                  └──► writes of rows ──► Deployment
                   └─ everything else ──► FastAPI ──► Gate ──► routes/*.py ──► Deployment

``endpoints.py`` has the hot calls, ``lookups/`` reads requests for look-ups and answers them. ``Gate`` counts requests
and catches unexpected exceptions: the answer has an id, the log the trace. ``statuses.py`` has the one table from
exception to HTTP status, for both doors. ``headrace_client.tokens`` turns a clock into the opaque text that a client
carries from a write to a read.
"""
