"""MySQL's numbers and SQLSTATEs for our errors: one table by class, and by words where a class has several."""

from __future__ import annotations

import re

from domains import errors
from domains.errors import HeadraceError
from migrations.parse.temporary import plainly

NumberState = tuple[int, str]

GENERAL: NumberState = (1105, "HY000")
"""ER_UNKNOWN_ERROR"""

NUMBERS: dict[type[HeadraceError], NumberState] = {
    errors.SqlSyntaxError: (1064, "42000"),
    errors.SqlError: (1064, "42000"),
    errors.UnknownName: (1054, "42S22"),
    errors.Unsupported: (1235, "42000"),
    errors.TypeViolation: (1366, "HY000"),
    errors.ConstraintViolation: (1062, "23000"),
    errors.Conflict: (1213, "40001"),
    errors.TransactionEnded: (1213, "40001"),
    errors.RowsChanged: (1205, "HY000"),
    errors.Locked: (1205, "HY000"),
    errors.LockNotFree: (3572, "HY000"),
    errors.AlreadyExists: (1050, "42S01"),
    errors.StillInUse: (3730, "HY000"),
    errors.Unauthenticated: (1045, "28000"),
    errors.Forbidden: (1142, "42000"),
    errors.NotFound: (1146, "42S02"),
    errors.BadRequest: (1210, "HY000"),
    errors.ReadTimeout: (3024, "HY000"),
    errors.LimitExceeded: (1153, "08S01"),
    errors.Overloaded: (1040, "08004"),
    errors.TooManyRequests: (1129, "HY000"),
    errors.Cancelled: (1317, "70100"),
    errors.StorageFailure: (1030, "HY000"),
    errors.Unavailable: (1053, "08S01"),
}
"""What is not listed has the number of the nearest class above it."""

_WORDS: tuple[tuple[type[HeadraceError], str, NumberState], ...] = (
    (errors.ConstraintViolation, r'(?:column )?"[^"]*" of table "[^"]*" must not be NULL', (1048, "23000")),
    (errors.ConstraintViolation, r'column "[^"]*" must not be NULL', (1048, "23000")),
    (errors.ConstraintViolation, r'column "[^"]*" has no value', (1364, "HY000")),
    (errors.ConstraintViolation, r'check "[^"]*" of table "[^"]*" does not hold', (3819, "HY000")),
    (errors.ConstraintViolation, r'foreign key "[^"]*" of table "[^"]*" names no row', (1452, "23000")),
    (errors.ConstraintViolation, r'a row of table "[^"]*" cannot go, or change its key', (1451, "23000")),
    (errors.UnknownName, r"unknown (?:table|view) to drop", (1051, "42S02")),
    (errors.UnknownName, r"unknown (?:table|view)", (1146, "42S02")),
    (errors.NotFound, r"(?:no statement \d+ runs|connection \d+ is not)", (1094, "HY000")),
    (errors.NotFound, r"prepared statement", (1243, "HY000")),
    (errors.NotFound, r"savepoint", (1305, "42000")),
    (errors.BadRequest, r"the transaction is READ ONLY", (1792, "25006")),
    (errors.BadRequest, r"a transaction is open, whose", (1568, "25001")),
    (errors.LimitExceeded, r"the comment of column", (1629, "HY000")),
    (errors.LimitExceeded, r"the comment of table", (1628, "HY000")),
    (errors.TypeViolation, r"it is out of range", (1264, "22003")),
    (errors.TypeViolation, r"it has \d+ (?:characters|bytes)", (1406, "22001")),
    (errors.Unsupported, r"^a view of a temporary table", (1352, "HY000")),
    (errors.Unsupported, r"^the character set", (1115, "42000")),
    (errors.Unsupported, r"^SET \w+: it is read-only", (1238, "HY000")),
    (errors.UnknownName, r"unknown system variable", (1193, "HY000")),
    (errors.UnknownName, r"unknown (?:database|schema)", (1049, "42000")),
    (errors.AlreadyExists, r"database ", (1007, "HY000")),
    (errors.Unsupported, r"^(?:SET |the SQL mode|another isolation level)", (1231, "42000")),
)
"""The class, what its message begins with (behind the row or the statement that it is about), and the number."""
_KNOWN = tuple((kind, re.compile(words, re.IGNORECASE), number) for kind, words, number in _WORDS)
_WHERE = re.compile(r"^(?:statements? \d+(?: to \d+)? of \d+: )?(?:row \d+: )?")


def number_of(error: HeadraceError) -> NumberState:
    said = _WHERE.sub("", error.message)
    for kind, words, number in _KNOWN:
        if isinstance(error, kind) and words.search(said) is not None:
            return number
    return next((NUMBERS[kind] for kind in type(error).__mro__ if kind in NUMBERS), GENERAL)


def message_of(error: HeadraceError) -> str:
    return plainly(str(error))
