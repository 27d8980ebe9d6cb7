"""Which type comes out of two types that meet: in arithmetic, in a comparison, in the branches of a CASE.

``INTEGER < DECIMAL < DOUBLE``; a bare NULL is neutral everywhere. Text in arithmetic is DOUBLE, a date is the INTEGER
``20260131``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from domains.language.exact import MAX_SCALE
from domains.language.functions.conversion import refuse_day_of_time
from domains.language.types import (
    BIGINT,
    BLOB,
    DATE,
    DATETIME,
    DOUBLE,
    JSON,
    NULL,
    TEXT,
    TIME,
    Kind,
    SqlType,
    decimal_type,
)

UNSIGNED = SqlType(Kind.INTEGER, "BIGINT UNSIGNED", low=0, high=2**64 - 1)

_TEMPORAL = frozenset({Kind.DATE, Kind.DATETIME})
_NUMERIC = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE})


def common_type(types: Iterable[SqlType]) -> SqlType:
    """The type of CASE, COALESCE, UNION: one that every branch converts to.

    Numbers widen (DECIMAL takes the greatest scale), DATE with DATETIME is DATETIME, BLOB absorbs everything, and what
    else is mixed becomes TEXT. Only NULLs: NULL.

    Raises Unsupported for TIME with DATE or DATETIME, whose day would be the current one.
    """
    plain = dict.fromkeys(replace(TEXT, collation=t.collation) if t.members else t for t in types)
    present = [t for t in plain if t.kind is not Kind.NULL]
    if not present:
        return NULL
    if len(present) == 1:
        return present[0]
    kinds = {t.kind for t in present}
    if Kind.BLOB in kinds:
        return BLOB
    if kinds <= _NUMERIC:
        return _common_number(present, kinds)
    if kinds <= _TEMPORAL:
        return DATETIME if Kind.DATETIME in kinds else DATE
    if Kind.TIME in kinds and kinds & _TEMPORAL:
        refuse_day_of_time(TIME, DATETIME)
    if kinds == {Kind.TEXT}:
        # Which collation prevails depends on more than types: ``coercibility.py``.
        longest = max(present, key=lambda t: t.length or 0) if all(t.length is not None for t in present) else TEXT
        one = present[0].collation
        return replace(longest, collation=one if all(t.collation is one for t in present) else None)
    return TEXT


def _common_number(types: list[SqlType], kinds: set[Kind]) -> SqlType:
    if Kind.DOUBLE in kinds:
        return DOUBLE
    if Kind.DECIMAL in kinds:
        return decimal_type(max(t.scale for t in types))
    return UNSIGNED if all(t.low == 0 for t in types) else BIGINT


def numeric_type(type: SqlType) -> SqlType:
    """The type by which a value takes part in arithmetic. NULL stays NULL."""
    if type.members:
        return UNSIGNED
    if type.kind in (Kind.TEXT, Kind.BLOB, Kind.JSON):
        return DOUBLE
    return BIGINT if type.kind in _TEMPORAL or type.kind is Kind.TIME else type


def comparison_type(left: SqlType, right: SqlType) -> SqlType:
    """The type by which two values are compared; both are converted to it.

    JSON with anything: as JSON. Text with text: by code point. Numbers: exactly, with a DOUBLE as DOUBLE. Text with an
    exact number: as DECIMAL. A date with text: as DATETIME (text that names no date is NULL), a TIME as TIME. Where no
    one type does (a text of more digits than DECIMAL has, a date and a number) ``comparands.py`` says what happens.
    """
    kinds = {left.kind, right.kind}
    if Kind.JSON in kinds:
        return JSON
    if Kind.NULL in kinds:
        return right if left.kind is Kind.NULL else left
    if kinds <= _TEMPORAL or len(kinds) == 1:
        return common_type((left, right))
    if kinds & _TEMPORAL and kinds & {Kind.TEXT, Kind.BLOB}:
        return DATETIME
    if Kind.TIME in kinds and kinds & {Kind.TEXT, Kind.BLOB}:
        return TIME
    if Kind.TIME in kinds and kinds & _TEMPORAL:
        refuse_day_of_time(TIME, DATETIME)
    if kinds == {Kind.TEXT, Kind.BLOB}:
        return BLOB
    if kinds & {Kind.TEXT, Kind.BLOB} and kinds & {Kind.INTEGER, Kind.DECIMAL}:
        return decimal_type(MAX_SCALE)
    return common_type((numeric_type(left), numeric_type(right)))


def quotient_scale(dividend: int, divisor: int) -> int:
    """How many digits MySQL goes on computing with behind ``/``, of which four more than the dividend's are shown.

    It keeps decimals in words of nine digits: those that both numbers take, and words for the four where they miss.
    """
    words, more = -(-dividend // 9) + -(-divisor // 9), 4 - -dividend % 9 - -divisor % 9
    return min(9 * (words + (more > 0)), MAX_SCALE)


def capped_decimal(scale: int) -> SqlType:
    return decimal_type(min(scale, MAX_SCALE))
