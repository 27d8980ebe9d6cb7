"""The public face of Headrace: the Python client, the embedded database, the command line and the settings.

::

    from headrace import connect

    with connect("http://127.0.0.1:8080") as db:
        db.execute("CREATE VIEW ByTitle AS SELECT id FROM stories WHERE title = ?")
        written = db.table("stories").insert({"id": 1, "title": "one"})
        db.view("ByTitle").lookup(title="one", token=written.token)

``connect_async`` has the same surface with ``await``. ``embedded(path)`` runs the whole system in this process and
gives the same surface as ``connect``. What goes wrong is raised as one of ``headrace.errors``.

The client is a distribution of its own (``headrace_client``), which an application installs without all that is here;
``headrace.client`` is the same. This room composes the others: ``server.py`` and ``embedding.py`` put a deployment
behind HTTP, ``cli/`` is the terminal's door to it, ``settings.py`` is read by all. Each is loaded only where it is
asked for: a client starts without the engine, and a part of a cluster without the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace_client import connect, connect_async

if TYPE_CHECKING:
    from headrace_client import AsyncConnection, Connection

    from headrace import client, errors
    from headrace.embedding import Embedded, embedded

__all__ = ["AsyncConnection", "Connection", "Embedded", "client", "connect", "connect_async", "embedded", "errors"]
__version__ = "0.1.0"

_HOMES = {
    "AsyncConnection": "headrace_client",
    "Connection": "headrace_client",
    "Embedded": "headrace.embedding",
    "embedded": "headrace.embedding",
}


def __getattr__(name: str) -> Any:
    if name in ("Embedded", "embedded"):
        import_module("headrace.shadowed").check_packages()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in ("client", "errors"):
        return import_module(f"headrace.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
