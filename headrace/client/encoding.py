"""Python values as the server reads them, in JSON and in query strings."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson

from headrace.errors import BadRequest

NOT_FINITE = "a value cannot be sent: NaN and infinities are no SQL values"


def to_json(value: Any) -> bytes:
    """Bytes are named as such: base64 alone would be a text to a column of texts, and be stored or compared as that.

    :raises BadRequest: a value that JSON or SQL has not.
    """
    try:
        text = orjson.dumps(value, default=_named, option=orjson.OPT_PASSTHROUGH_DATETIME)
        if b"null" in text:  # So orjson writes NaN and infinities, too.
            _slowly(value, lambda _: None)
        return text
    except TypeError as error:
        if "64-bit" not in str(error):
            told = error.__cause__ if isinstance(error.__cause__, BadRequest) else None
            raise told or BadRequest(f"a value cannot be sent: {error}") from error
        return _slowly(value, _named)


def sql_value(value: Any) -> Any:
    """A value for a ``?`` in SQL, where no column says the type: a decimal is named, too."""
    if isinstance(value, list | tuple):
        return [sql_value(each) for each in value]
    return {"DECIMAL": _plain(value)} if isinstance(value, Decimal) else value


def _slowly(value: Any, default: Callable[[Any], Any]) -> bytes:
    """Where orjson is not enough."""
    try:
        return json.dumps(value, default=default, allow_nan=False).encode()
    except ValueError as error:
        raise BadRequest(NOT_FINITE) from error


def to_text(value: Any) -> str:
    """A value in a query string."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return repr(value)
    return str(_plain(value))


def _named(value: Any) -> Any:
    return {"BLOB": _plain(value)} if isinstance(value, bytes) else _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise BadRequest(NOT_FINITE)
        return format(value, "f")
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise BadRequest(f"{value!r} has a time zone, DATETIME has none", hint="convert it first, say to UTC")
        return value.isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, UUID):
        return str(value)
    raise BadRequest(f"a {type(value).__name__} is no SQL value")
