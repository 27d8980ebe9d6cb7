"""The public face of Headrace: the Python client, the embedded database, the command line and the settings.

::

    from headrace import connect

    with connect("http://127.0.0.1:8080") as db:
        db.execute("CREATE VIEW ByTitle AS SELECT id FROM stories WHERE title = ?")
        written = db.table("stories").insert({"id": 1, "title": "one"})
        db.view("ByTitle").lookup(title="one", token=written.token)

``connect_async`` has the same surface with ``await``. ``embedded(path)`` runs the whole system in this process and
gives the same surface as ``connect``. What goes wrong is raised as one of ``headrace.errors``.

This room composes the others: ``client/`` speaks HTTP, ``server.py`` and ``embedding.py`` put a deployment behind it,
``cli/`` is the terminal's door to both, ``settings.py`` is read by all. Each is loaded only where it is asked for: a
client starts without the engine, and a part of a cluster without the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace import errors
    from headrace.client.async_connection import AsyncConnection
    from headrace.client.connection import Connection
    from headrace.embedding import Embedded, embedded

__all__ = ["AsyncConnection", "Connection", "Embedded", "connect", "connect_async", "embedded", "errors"]
__version__ = "0.1.0"

_HOMES = {
    "AsyncConnection": "headrace.client.async_connection",
    "Connection": "headrace.client.connection",
    "Embedded": "headrace.embedding",
    "embedded": "headrace.embedding",
}


def connect(url: str, *, read_your_writes: bool = False, timeout: float = 60.0) -> Connection:
    """A blocking client of the server at ``url``. Nothing is sent before the first call."""
    from headrace.client.connection import Connection

    return Connection(url, read_your_writes=read_your_writes, timeout=timeout)


def connect_async(url: str, *, read_your_writes: bool = False, timeout: float = 60.0) -> AsyncConnection:
    """The same to be awaited: ``async with connect_async(url) as db: await db.view("V").lookup(id=7)``."""
    from headrace.client.async_connection import AsyncConnection

    return AsyncConnection(url, read_your_writes=read_your_writes, timeout=timeout)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "errors":
        return import_module("headrace.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
