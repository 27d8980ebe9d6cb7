"""The errors that a caller of ``headrace`` may meet; the tree is drawn in ``headrace_client/errors.py``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace_client.errors import (
    BY_CODE,
    AlreadyExists,
    ArchiveAhead,
    ArchiveError,
    ArchiveFenced,
    ArchiveGap,
    ArchiveUnreachable,
    ArchiveUnusable,
    BadRequest,
    Cancelled,
    Conflict,
    ConnectionFailed,
    ConstraintViolation,
    Forbidden,
    HeadraceError,
    HostNotAllowed,
    LeaderLost,
    LimitExceeded,
    ManifestDamaged,
    NoLeader,
    NotArchivedYet,
    NotFound,
    NotServed,
    OffsetGone,
    OtherTable,
    OutcomeUnknown,
    OutOfOrder,
    Overloaded,
    ReadTimeout,
    RowsChanged,
    RowsRefused,
    SegmentCorrupt,
    SegmentMissing,
    SegmentTruncated,
    ServerFault,
    SnapshotGone,
    SqlError,
    SqlSyntaxError,
    StillInUse,
    StorageFailure,
    TransactionEnded,
    TypeViolation,
    Unauthenticated,
    Unavailable,
    UnknownName,
    Unsupported,
    rebuild,
)

__all__ = [
    "BY_CODE",
    "AlreadyExists",
    "ArchiveAhead",
    "ArchiveError",
    "ArchiveFenced",
    "ArchiveGap",
    "ArchiveUnreachable",
    "ArchiveUnusable",
    "BadRequest",
    "Cancelled",
    "Conflict",
    "ConnectionFailed",
    "ConstraintViolation",
    "Forbidden",
    "HeadraceError",
    "HostNotAllowed",
    "LeaderLost",
    "LimitExceeded",
    "ManifestDamaged",
    "NoLeader",
    "NotArchivedYet",
    "NotFound",
    "NotServed",
    "OffsetGone",
    "OtherTable",
    "OutOfOrder",
    "OutcomeUnknown",
    "Overloaded",
    "ReadTimeout",
    "RowsChanged",
    "RowsRefused",
    "SegmentCorrupt",
    "SegmentMissing",
    "SegmentTruncated",
    "ServerFault",
    "SnapshotGone",
    "SqlError",
    "SqlSyntaxError",
    "StillInUse",
    "StorageFailure",
    "TransactionEnded",
    "TypeViolation",
    "Unauthenticated",
    "Unavailable",
    "UnknownName",
    "Unsupported",
    "rebuild",
]


# Which extra of the distribution a package that is not installed comes with.

EXTRAS = {
    "kazoo": "cluster",
    "pyspark": "spark",
    "pyarrow": "spark",
    "pymysql": "upstream",
    "pymysqlreplication": "upstream",
    "loadgen": "bench",
    "matplotlib": "bench",
    "numpy": "bench",
    "hdrh": "bench",
    "duckdb": "bench",
    "asyncmy": "peers",
    "asyncpg": "peers",
    "redis": "peers",
}


@contextmanager
def named() -> Iterator[None]:
    """Raises Unavailable where a package of an extra is missing, with the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = EXTRAS.get(package)
        if extra is None:
            raise
        message = f'this needs "{package}", which is not installed'
        raise Unavailable(message, hint=f"pip install 'headrace[{extra}]'") from error
