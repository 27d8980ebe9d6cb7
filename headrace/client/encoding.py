"""Python values as the server reads them, in JSON and in query strings."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import orjson

from headrace.errors import BadRequest


def to_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError as error:
        if "64-bit" not in str(error):
            raise BadRequest(f"a value cannot be sent: {error}") from error
        return json.dumps(value, default=_plain).encode()


def to_text(value: Any) -> str:
    """A value in a query string."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    return str(_plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise BadRequest(f"{value!r} has a time zone, DATETIME has none", hint="convert it first, say to UTC")
        return value.isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise BadRequest(f"a {type(value).__name__} is no SQL value")
