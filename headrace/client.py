"""The Python client, as ``headrace_client`` has it: for who has the server installed and need not name two packages."""

from __future__ import annotations

from headrace_client import (
    AsyncConnection,
    Change,
    Column,
    Connection,
    LiveRows,
    Progress,
    Record,
    Result,
    Token,
    Written,
    all_of,
    connect,
    connect_async,
    each,
    first,
)

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
    "first",
]
