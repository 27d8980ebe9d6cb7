"""The Python client of Headrace: its HTTP calls as typed methods, blocking or awaited.

It stands alone: it needs httpx and nothing of the server, so that an application installs it beside whatever else it
has. What a call sends and how its answer is read is written once, as a value (``calls.py``); the two connections only
differ in how they carry it (``connection.py`` blocks, ``async_connection.py`` awaits). Look-ups of one request may
refer to one another's answers, and values have Python's types (both in ``encoding.py``). What goes wrong is raised as
one of ``errors.py``, the tree that the server raises, too; what both call a token is in ``tokens.py``.

::

    db.view("V").lookup(id=7) ─► calls.lookup("V", {"id": 7}) ─► Call(method, path, …, read) ─► httpx ─► read(answer)

The connections are loaded where they are asked for: the server's engine has its errors from here, and no use for httpx.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace_client import errors
    from headrace_client.async_connection import AsyncConnection
    from headrace_client.connection import Connection
    from headrace_client.encoding import all_of, each, first
    from headrace_client.live import Change, LiveRows
    from headrace_client.results import Column, Progress, Record, Result, Written
    from headrace_client.session import FileName
    from headrace_client.tokens import Token

__all__ = [
    "AsyncConnection",
    "Change",
    "Column",
    "Connection",
    "LiveRows",
    "Progress",
    "Record",
    "Result",
    "Token",
    "Written",
    "all_of",
    "connect",
    "connect_async",
    "each",
    "errors",
    "first",
]
__version__ = "0.1.0"

_HOMES = {
    "AsyncConnection": "async_connection",
    "Connection": "connection",
    **dict.fromkeys(("all_of", "each", "first"), "encoding"),
    **dict.fromkeys(("Column", "Progress", "Record", "Result", "Written"), "results"),
    **dict.fromkeys(("Change", "LiveRows"), "live"),
    "Token": "tokens",
}


def connect(
    url: str,
    *,
    read_your_writes: bool = False,
    timeout: float = 60.0,
    raw: bool = False,
    key: str | None = None,
    login: tuple[str, str] | None = None,
    tls_ca: FileName = None,
    tls_cert: FileName = None,
    tls_key: FileName = None,
) -> Connection:
    """A blocking client of the server at ``url``. Nothing is sent before the first call.

    ``raw``: DECIMAL, DATE, DATETIME and BLOB are read as the strings that they are in JSON. ``key``: an API key, where
    the server has accounts; ``login``: name and password instead. ``tls_ca``: a file of certificates to trust in place
    of the usual ones (or the variable ``SSL_CERT_FILE``); ``tls_cert``, ``tls_key``: files of the certificate that
    proves who asks, and of its key."""
    from headrace_client.connection import Connection

    return Connection(
        url,
        read_your_writes=read_your_writes,
        timeout=timeout,
        raw=raw,
        key=key,
        login=login,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )


def connect_async(
    url: str,
    *,
    read_your_writes: bool = False,
    timeout: float = 60.0,
    raw: bool = False,
    key: str | None = None,
    login: tuple[str, str] | None = None,
    tls_ca: FileName = None,
    tls_cert: FileName = None,
    tls_key: FileName = None,
) -> AsyncConnection:
    """The same to be awaited: ``async with connect_async(url) as db: await db.view("V").lookup(id=7)``."""
    from headrace_client.async_connection import AsyncConnection

    return AsyncConnection(
        url,
        read_your_writes=read_your_writes,
        timeout=timeout,
        raw=raw,
        key=key,
        login=login,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name == "errors":
        return import_module(f"{__name__}.errors")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
