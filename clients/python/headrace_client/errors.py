"""The error tree: everything that can go wrong for a user, once.

::

    HeadraceError
    ├── SqlError                   400  the text is wrong
    │   ├── SqlSyntaxError         400  with line and column
    │   └── UnknownName            400  with the nearest known name
    ├── Unsupported                422  right SQL that Headrace does not do; names the construct
    ├── TypeViolation              422  a value does not fit its column (row, column)
    ├── ConstraintViolation        409  NOT NULL, PRIMARY KEY, UNIQUE (row, column)
    │   └── RowsRefused            409  the same of a numbered insert; has all rows that are refused
    ├── Conflict                   409  a transaction has read what others have changed since: begin it again
    ├── TransactionEnded           410  the transaction is not open (any more)
    ├── SnapshotGone               410  the snapshot, or the table in it, is not kept (any more)
    ├── OutOfOrder                 409  a numbered write that skips one
    ├── AlreadyExists              409  a table or view of that name is there
    ├── StillInUse                 409  something else reads what is to be dropped
    ├── Unauthenticated            401  no key or password, or one that is not valid (any more)
    ├── Forbidden                  403  the account has no right to it
    ├── NotFound                   404  no such view, table, migration
    ├── OffsetGone                 410  a place in a live view that is not known any more
    ├── BadRequest                 400  the request's shape is wrong (keys, tokens, JSON)
    │   └── HostNotAllowed         421  its header Host is no name of the server
    ├── ReadTimeout                504  the answer or the token's position was not reached in time
    ├── LimitExceeded              413  a named limit was passed
    │   ├── UrlTooLong             414  of a request's first line
    │   ├── HeadersTooLarge        431  of a request's headers
    │   └── RequestTooSlow         408  the request was not there whole in time
    ├── Overloaded                 503  too many requests wait already; nothing was done
    │   └── TooManyRequests        429  the same of one client: its connections, or requests of one connection
    ├── Cancelled                  409  the migration was cancelled
    ├── StorageFailure             503  the disk refused (full, corrupt, locked by another process)
    ├── ConnectionFailed            -  of a client: the server cannot be reached, or the connection broke
    ├── ServerFault            500  the server met an error that it did not expect; the message has its log entry's id
    └── Unavailable            503  stopping, or not started yet
        ├── OutcomeUnknown         503  a write was sent, and its worker or its disk was lost before it answered
        ├── Locked                 503  what a transaction holds was not free in time
        │   └── LockNotFree        503  the same of a statement with NOWAIT, which does not wait
        ├── NotServed              503  in a cluster: nobody hosts what was asked for; nothing was done
        ├── RowsChanged            503  rows that a write had chosen were changed before it was done; nothing was done
        ├── NoLeader               503  in a cluster: nobody takes changes of the graph; nothing was changed
        └── LeaderLost             503  in a cluster: the leader was lost after it was asked for one

The tree stands with the client, since who calls catches these and needs nothing of the server for it. The server raises
the same classes: ``domains/errors.py`` has them for the engine and all above it, so that an error is the same one where
it is raised, over HTTP, and out of an embedded database. What cannot happen is an ``AssertionError``, never one of
these. The statuses live in the server's ``api/statuses.py``.

Messages are lower case, identifiers are in double quotes, and ``hint`` says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any


class HeadraceError(Exception):
    """Base of all of Headrace's own errors."""

    code = "error"
    ends_transaction = False
    """Of a transaction that meets it nothing is left: it was rolled back."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class SqlError(HeadraceError):
    code = "sql_error"

    def __init__(
        self, message: str, *, hint: str | None = None, line: int | None = None, column: int | None = None
    ) -> None:
        if line is not None:
            message = f"{message} at line {line}, column {column}"
        super().__init__(message, hint=hint)
        self.line = line
        self.column = column


class SqlSyntaxError(SqlError):
    code = "syntax_error"


class UnknownName(SqlError):
    code = "unknown_name"
    what = ""
    """What there is none of under this name: ``table``, ``table or view``, ``database``, ``column`` …"""


class Unsupported(HeadraceError):
    code = "unsupported"


class TypeViolation(HeadraceError):
    code = "type_violation"


class ConstraintViolation(HeadraceError):
    code = "constraint_violation"


class RowsRefused(ConstraintViolation):
    """A numbered insert changed nothing. ``rows``: which of its rows (from 1) are refused, and why each."""

    code = "rows_refused"
    rows: tuple[tuple[int, str], ...] = ()

    @classmethod
    def of(cls, rows: tuple[tuple[int, str], ...]) -> RowsRefused:
        error = cls(
            f"{len(rows)} rows are refused; row {rows[0][0]}: {rows[0][1]}",
            hint="nothing was changed; send the others under the same number",
        )
        error.rows = rows
        return error


class Conflict(HeadraceError):
    """A transaction has read what another has changed since, and was rolled back: it can be done again from its
    beginning."""

    code = "conflict"
    ends_transaction = True


class TransactionEnded(HeadraceError):
    """The transaction is not open: it was committed or rolled back, was idle for too long, or its server began anew."""

    code = "transaction_ended"
    ends_transaction = True


class SnapshotGone(HeadraceError):
    """The snapshot is not kept (any more), or has not the table as it is now.

    It was dropped or collected; a server or worker that kept a part of it began anew, or its shard moved; or the table
    was made or altered since."""

    code = "snapshot_gone"


class OutOfOrder(HeadraceError):
    code = "out_of_order"


class AlreadyExists(HeadraceError):
    code = "already_exists"


class StillInUse(HeadraceError):
    code = "still_in_use"


class NotFound(HeadraceError):
    code = "not_found"


class OffsetGone(HeadraceError):
    """The place in a live view is not known any more: begin again with the whole answer."""

    code = "offset_gone"


class Unauthenticated(HeadraceError):
    """Who asks is not known: no key or password was sent, or one that is not valid here (any more)."""

    code = "unauthenticated"


class Forbidden(HeadraceError):
    """Who asks is known, and has no right to it."""

    code = "forbidden"


class BadRequest(HeadraceError):
    code = "bad_request"


class HostNotAllowed(BadRequest):
    """The server does not answer to this name: a page may have a browser ask it by a name of its own."""

    code = "host_not_allowed"


class ReadTimeout(HeadraceError):
    code = "read_timeout"


class LimitExceeded(HeadraceError):
    code = "limit_exceeded"


class UrlTooLong(LimitExceeded):
    code = "url_too_long"


class HeadersTooLarge(LimitExceeded):
    code = "headers_too_large"


class RequestTooSlow(LimitExceeded):
    code = "request_too_slow"


class Overloaded(HeadraceError):
    """The server has too much to do. Not an Unavailable: a client should wait, and
    not ask at once elsewhere or again."""

    code = "overloaded"


class TooManyRequests(Overloaded):
    code = "too_many_requests"


class Cancelled(HeadraceError):
    code = "cancelled"


class StorageFailure(HeadraceError):
    code = "storage_failure"


class Unavailable(HeadraceError):
    code = "unavailable"


class OutcomeUnknown(Unavailable):
    """A write was done or not. It is never repeated by itself."""

    code = "outcome_unknown"


class Locked(Unavailable):
    """A transaction over several shards is being committed, or was in doubt for long, and holds what this needs."""

    code = "locked"


class LockNotFree(Locked):
    """A SELECT with NOWAIT has met what others hold. The transaction is open, as it was."""

    code = "lock_not_free"


class NotServed(Unavailable):
    code = "not_served"


class RowsChanged(Unavailable):
    """A write with a join or a subquery chose its rows, and others wrote to these before it did."""

    code = "rows_changed"


class NoLeader(Unavailable):
    code = "no_leader"


class LeaderLost(Unavailable):
    """The change is made by the next leader, or was never begun."""

    code = "leader_lost"


class ArchiveError(StorageFailure):
    """Something is wrong with the archive. The message names the file or the table's shard."""

    code = "archive_error"


class ArchiveGap(ArchiveError):
    """Log entries that a fold needs are in no segment."""

    code = "archive_gap"


class NotArchivedYet(ArchiveError):
    """The position is beyond the last one that is archived."""

    code = "not_archived_yet"


class ArchiveUnreachable(ArchiveError):
    """The directory or the server behind the URL does not do what it was asked: no access, disk full, not there."""

    code = "archive_unreachable"


class ArchiveUnusable(ArchiveUnreachable):
    """No file system here is for such a URL, or its library is missing. That does not pass by itself."""

    code = "archive_unusable"


class ArchiveAhead(ArchiveError):
    """It has more of the table than the table itself: the data directory is an older copy."""

    code = "archive_ahead"


class SegmentMissing(ArchiveError):
    code = "segment_missing"


class SegmentTruncated(ArchiveError):
    code = "segment_truncated"


class SegmentCorrupt(ArchiveError):
    code = "segment_corrupt"


class ManifestDamaged(ArchiveError):
    code = "manifest_damaged"


class OtherTable(ArchiveError):
    """It belongs to a table of the same name that was dropped, or to other shards."""

    code = "other_table"


class ArchiveFenced(ArchiveError):
    """A later epoch has taken the shard's archive over."""

    code = "archive_fenced"


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
        *(ConstraintViolation, RowsRefused, OutOfOrder, AlreadyExists, StillInUse, NotFound, OffsetGone, BadRequest),
        *(Conflict, TransactionEnded, SnapshotGone),
        *(ReadTimeout, LimitExceeded, Overloaded, Cancelled, StorageFailure, Unavailable, OutcomeUnknown),
        *(UrlTooLong, HeadersTooLarge, RequestTooSlow, TooManyRequests, Unauthenticated, Forbidden),
        *(Locked, LockNotFree, NotServed, NoLeader, LeaderLost, RowsChanged),
        *(ConnectionFailed, ServerFault, HostNotAllowed),
        *(ArchiveError, ArchiveAhead, ArchiveFenced, ArchiveGap, ArchiveUnreachable, ArchiveUnusable),
        *(ManifestDamaged, NotArchivedYet, OtherTable, SegmentCorrupt, SegmentMissing, SegmentTruncated),
    )
}
"""Errors that are rebuilt as their own class: a list, as a walk through subclasses finds only what has been imported by
then."""

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
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    410: OffsetGone,
    409: StillInUse,
    408: RequestTooSlow,
    413: LimitExceeded,
    414: UrlTooLong,
    421: HostNotAllowed,
    422: Unsupported,
    429: TooManyRequests,
    431: HeadersTooLarge,
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
