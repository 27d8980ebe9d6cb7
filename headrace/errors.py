"""The errors that a caller of ``headrace`` may meet: the engine's own tree, and two that only a client knows.

::

    HeadraceError               all of domains/errors.py, rebuilt from the answer's code
    ├── ConnectionFailed        the server cannot be reached, or the connection broke
    └── ServerFault             the server met an error that it did not expect; the message has the id of its log entry
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from domains.archive import ArchiveError
from domains.errors import (
    AlreadyExists,
    BadRequest,
    Cancelled,
    ConstraintViolation,
    HeadraceError,
    LeaderLost,
    LimitExceeded,
    NoLeader,
    NotFound,
    NotServed,
    OutcomeUnknown,
    OutOfOrder,
    ReadTimeout,
    RowsRefused,
    SqlError,
    SqlSyntaxError,
    StillInUse,
    StorageFailure,
    TypeViolation,
    Unavailable,
    UnknownName,
    Unsupported,
)

__all__ = [
    "AlreadyExists",
    "ArchiveError",
    "BadRequest",
    "Cancelled",
    "ConnectionFailed",
    "ConstraintViolation",
    "HeadraceError",
    "LeaderLost",
    "LimitExceeded",
    "NoLeader",
    "NotFound",
    "NotServed",
    "OutOfOrder",
    "OutcomeUnknown",
    "ReadTimeout",
    "RowsRefused",
    "ServerFault",
    "SqlError",
    "SqlSyntaxError",
    "StillInUse",
    "StorageFailure",
    "TypeViolation",
    "Unavailable",
    "UnknownName",
    "Unsupported",
    "rebuild",
]


class ConnectionFailed(HeadraceError):
    code = "connection_failed"


class ServerFault(HeadraceError):
    code = "internal_error"


POSITION = re.compile(r" at line (\d+), column (\d+)$")
"""How ``SqlError`` ends its message; it is taken off and put on again, so that ``line`` and ``column`` are set."""


def _below(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)


BY_CODE = {kind.code: kind for kind in _below(HeadraceError)}


def rebuild(code: str, message: str, hint: str | None = None, rows: Sequence[Mapping[str, Any]] = ()) -> HeadraceError:
    """The error that the server raised; a ``ServerFault`` for a code that this client does not know."""
    kind = BY_CODE.get(code, ServerFault)
    if issubclass(kind, SqlError) and (position := POSITION.search(message)):
        line, column = int(position[1]), int(position[2])
        return kind(message[: position.start()], hint=hint, line=line, column=column)
    error = kind(message, hint=hint)
    if isinstance(error, RowsRefused):
        error.rows = tuple((each["row"], each["reason"]) for each in rows)
    return error
