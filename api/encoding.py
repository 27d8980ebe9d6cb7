"""JSON in and out: orjson for its speed and strictness, with the two corners where it is not enough.

orjson refuses NaN, broken UTF-8 and half surrogate pairs, which the standard library lets through. But it reads an
integer beyond 64 bits as a float and cannot write one, and SUM over BIGINT and DECIMAL columns may well exceed 64 bits.
"""

from __future__ import annotations

import base64
import json
import re
from decimal import Decimal
from typing import Any

import orjson

from domains.errors import BadRequest

LONG_INTEGER = re.compile(rb"\d{19}")
"""A body with so many digits in a row is parsed again by the standard library, whose integers are exact."""


def parse(body: bytes) -> Any:
    """The JSON value in a request's body; raises BadRequest."""
    if not body:
        raise BadRequest("the request has no body", hint="send a JSON object")
    try:
        value = orjson.loads(body)
        return json.loads(body) if LONG_INTEGER.search(body) else value
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request's body is not JSON: {error}") from error


def serialize(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def plain(value: Any) -> Any:
    """A SQL value as its JSON value (DECIMAL and BLOB become strings)."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value
