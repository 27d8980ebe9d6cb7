"""Values in one form, whoever they come from: of a row that Spark has computed, and of one that a reader holds as JSON.

Both become the engine's own values first (``domains/types.py``), then texts that are equal where the values are. A
DOUBLE counts to ten digits: sums come out in another order on each side, and differ in the last of their sixteen. Two
that lie on both sides of a rounding are told apart by their texts and compared again, as numbers, by whoever reports
them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from domains.encoding import encode_key
from domains.functions.exact import rounded
from domains.types import Kind, Row, SqlType, Value

TOLERANCE = 1e-9
"""Relative, of two DOUBLEs that count as equal. A sum of a million terms loses four of sixteen digits at worst."""

DOUBLE_MARK = "~"


def of_spark(value: Any, type: SqlType) -> Value:
    """What Spark gives for a value of ``type``, as the engine has it."""
    if value is None:
        return None
    match type.kind:
        case Kind.INTEGER | Kind.NULL:
            return int(value)
        case Kind.DECIMAL:
            return rounded(value if isinstance(value, Decimal) else Decimal(value), type.scale)
        case Kind.DOUBLE:
            return float(value) + 0.0
        case Kind.TEXT:
            return str(value)
        case Kind.BLOB:
            return bytes(value)
        case Kind.DATE:
            return str(value.date() if isinstance(value, datetime) else value)
        case Kind.DATETIME:
            return str(value if isinstance(value, datetime) else datetime(value.year, value.month, value.day))


def of_json(value: Any, type: SqlType) -> Value:
    """What a reader's JSON has for a value of ``type``."""
    if value is None:
        return None
    if type.kind is Kind.DECIMAL:
        return rounded(Decimal(value), type.scale)
    if type.kind is Kind.BLOB:
        return b64decode(value)
    if type.kind is Kind.DOUBLE:
        return float(value) + 0.0
    return int(value) if type.kind in (Kind.INTEGER, Kind.NULL) else str(value)


def text_of_row(values: Row) -> str:
    """A JSON list that is equal for equal rows."""
    return json.dumps([_plain(value) for value in values], ensure_ascii=False, separators=(",", ":"))


def text_of_key(values: Row, limit: int) -> str:
    """The same of a key; a digest where a reader keeps no more of it."""
    encoded = encode_key(values)
    if len(encoded) > limit:
        return digest_text(blake2b(encoded, digest_size=32).hexdigest())
    return text_of_row(values)


def digest_text(digest: str) -> str:
    return f"#{digest}"


def _plain(value: Value) -> Any:
    if isinstance(value, float):
        return f"{DOUBLE_MARK}{value:.9e}"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return value


def nearly_equal(one: str, other: str) -> bool:
    """Whether two rows' texts differ only by DOUBLEs that are nearly equal."""
    ours, theirs = json.loads(one), json.loads(other)
    return len(ours) == len(theirs) and all(_near(a, b) for a, b in zip(ours, theirs, strict=True))


def _near(one: Any, other: Any) -> bool:
    if one == other:
        return True
    both = isinstance(one, str) and isinstance(other, str)
    if not both or not one.startswith(DOUBLE_MARK) or not other.startswith(DOUBLE_MARK):
        return False
    try:
        a, b = float(one[1:]), float(other[1:])
    except ValueError:
        return False
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) * 2


def matched(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those of either side that have no nearly equal partner on the other."""
    left = list(theirs)
    alone = []
    for text in ours:
        partner = next((each for each in left if nearly_equal(text, each)), None)
        if partner is None:
            alone.append(text)
        else:
            left.remove(partner)
    return alone, left
