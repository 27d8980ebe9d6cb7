"""The errors that a caller of ``headrace`` may meet: the engine's own tree, and two that only a client knows.

::

    HeadraceError               all of domains/errors.py, rebuilt from the answer's code
    ├── ConnectionFailed        the server cannot be reached, or the connection broke
    └── ServerFault             the server met an error that it did not expect; the message has the id of its log entry
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from domains.archive import (
    ArchiveAhead,
    ArchiveError,
    ArchiveFenced,
    ArchiveGap,
    ArchiveUnreachable,
    ArchiveUnusable,
    ManifestDamaged,
    NotArchivedYet,
    OtherTable,
    SegmentCorrupt,
    SegmentMissing,
    SegmentTruncated,
)
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
    Overloaded,
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
    "Overloaded",
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


BY_CODE: dict[str, type[HeadraceError]] = {
    kind.code: kind
    for kind in (
        *(HeadraceError, SqlError, SqlSyntaxError, UnknownName, Unsupported, TypeViolation),
        *(ConstraintViolation, RowsRefused, OutOfOrder, AlreadyExists, StillInUse, NotFound, BadRequest),
        *(ReadTimeout, LimitExceeded, Overloaded, Cancelled, StorageFailure, Unavailable, OutcomeUnknown),
        *(NotServed, NoLeader, LeaderLost, ConnectionFailed, ServerFault),
        *(ArchiveError, ArchiveAhead, ArchiveFenced, ArchiveGap, ArchiveUnreachable, ArchiveUnusable),
        *(ManifestDamaged, NotArchivedYet, OtherTable, SegmentCorrupt, SegmentMissing, SegmentTruncated),
    )
}
"""What is rebuilt as its own class: a list, as a walk through subclasses finds only what has been imported by then."""

INSIDE: dict[str, type[HeadraceError]] = {
    "bulk_failed": Unavailable,
    "connection_lost": Unavailable,
    "deposed": ServerFault,
    "not_here": Unavailable,
    "not_leading": Unavailable,
    "protocol_error": ServerFault,
    "remote_fault": ServerFault,
    "spark_failed": Unavailable,
    "spark_unavailable": Unavailable,
    "stale_epoch": Unavailable,
    "state_damaged": StorageFailure,
    "wrong_deployment": ServerFault,
}
"""Errors of the rooms within, whose classes no client has: the nearest class to catch, with their own code."""

_BY_STATUS: dict[int, type[HeadraceError]] = {
    400: BadRequest,
    404: NotFound,
    409: StillInUse,
    413: LimitExceeded,
    422: Unsupported,
    503: Unavailable,
    504: ReadTimeout,
}
"""The nearest class to a code of a later version."""


def rebuild(
    code: str, message: str, hint: str | None = None, rows: Sequence[Mapping[str, Any]] = (), *, status: int = 500
) -> HeadraceError:
    """The error that the server raised, with its code; of a code that is not known here, the nearest by ``status``."""
    kind = BY_CODE.get(code) or INSIDE.get(code) or _BY_STATUS.get(status, ServerFault)
    if issubclass(kind, SqlError) and (position := POSITION.search(message)):
        line, column = int(position[1]), int(position[2])
        return kind(message[: position.start()], hint=hint, line=line, column=column)
    error = kind(message, hint=hint)
    error.code = code
    if isinstance(error, RowsRefused):
        error.rows = tuple((each["row"], each["reason"]) for each in rows)
    return error
