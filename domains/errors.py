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
    ├── OutOfOrder                 409  a numbered write that skips one
    ├── AlreadyExists              409  a table or view of that name is there
    ├── StillInUse                 409  something else reads what is to be dropped
    ├── NotFound                   404  no such view, table, migration
    ├── BadRequest                 400  the request's shape is wrong (keys, tokens, JSON)
    ├── ReadTimeout                504  the answer or the token's position was not reached in time
    ├── LimitExceeded              413  a named limit was passed
    ├── Overloaded                 503  too many requests wait already; nothing was done
    ├── Cancelled                  409  the migration was cancelled
    ├── StorageFailure             503  the disk refused (full, corrupt, locked by another process)
    └── Unavailable                503  stopping, or not started yet
        ├── OutcomeUnknown         503  in a cluster: a write was sent, and no answer came
        ├── NotServed              503  in a cluster: nobody hosts what was asked for; nothing was done
        ├── NoLeader               503  in a cluster: nobody takes changes of the graph; nothing was changed
        └── LeaderLost             503  in a cluster: the leader was lost after it was asked for one

What cannot happen is an ``AssertionError``, never one of these. The statuses live in ``api/statuses.py``.
Messages are lower case, identifiers are in double quotes, and ``hint`` says what to do.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of all of Headrace's own errors."""

    code = "error"

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


class OutOfOrder(HeadraceError):
    code = "out_of_order"


class AlreadyExists(HeadraceError):
    code = "already_exists"


class StillInUse(HeadraceError):
    code = "still_in_use"


class NotFound(HeadraceError):
    code = "not_found"


class BadRequest(HeadraceError):
    code = "bad_request"


class ReadTimeout(HeadraceError):
    code = "read_timeout"


class LimitExceeded(HeadraceError):
    code = "limit_exceeded"


class Overloaded(HeadraceError):
    """Not Unavailable: who meets it is to wait, and not to ask at once elsewhere or again."""

    code = "overloaded"


class Cancelled(HeadraceError):
    code = "cancelled"


class StorageFailure(HeadraceError):
    code = "storage_failure"


class Unavailable(HeadraceError):
    code = "unavailable"


class OutcomeUnknown(Unavailable):
    """A write was done or not. It is never repeated by itself."""

    code = "outcome_unknown"


class NotServed(Unavailable):
    code = "not_served"


class NoLeader(Unavailable):
    code = "no_leader"


class LeaderLost(Unavailable):
    """The change is made by the next leader, or was never begun."""

    code = "leader_lost"
