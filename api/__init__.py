"""The outermost floor: HTTP in front of a deployment. Nothing here knows how answers are computed.

Almost every request of a running application reads an answer that is there already, as bytes, or writes some rows.
``endpoints.py`` has these calls, each written once, and every door enters them; FastAPI checks and answers the rest.

::

    api/doors/wire_http.py ── usual request ──────────► Endpoints ──► LookupCalls ── hit ──► bytes, at once
            │                                             ▲    │          └── miss, token ──► await, bytes
            └─ uvicorn ──► AsgiDoor ──────────────────────┤    └──► SQL, writes of rows ──► Deployment
                               └─ the rest ──► Gate ──► FastAPI ──► routes/*.py ──► Deployment

``lookups/`` reads requests for look-ups and answers them. The routes document the endpoints and delegate to them.
``Gate`` counts requests and catches unexpected exceptions: the answer has an id, the log the trace. ``statuses.py`` has
the one table from exception to HTTP status. ``headrace_client.tokens`` turns a clock into the opaque text that a client
carries from a write to a read.
"""
