"""Python values as the server reads them, in JSON and in query strings."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from headrace_client.errors import BadRequest

NOT_FINITE = "a value cannot be sent: NaN and infinities are no SQL values"


def to_json(value: Any) -> bytes:
    """Bytes are named as such: base64 alone would be a text to a column of texts, and be stored or compared as that.

    :raises BadRequest: a value that JSON or SQL has not.
    """
    try:
        return _dumps(value).encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"a value cannot be sent: {error}", hint="a text has half of a surrogate pair") from error
    except ValueError as error:
        raise BadRequest(NOT_FINITE if "float" in str(error) else f"a value cannot be sent: {error}") from error
    except (TypeError, RecursionError) as error:
        raise BadRequest(f"a value cannot be sent: {error}") from error


def sql_value(value: Any) -> Any:
    """A value for a ``?`` in SQL, where no column says the type: a decimal is named, too."""
    if isinstance(value, list | tuple):
        return [sql_value(each) for each in value]
    return {"DECIMAL": _plain(value)} if isinstance(value, Decimal) else value


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


_dumps = json.JSONEncoder(default=_named, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
"""Without spaces: the server knows a look-up that was answered before by its text."""


def _plain(value: Any) -> str:
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise BadRequest(NOT_FINITE)
        return format(value, "f")
    if isinstance(value, datetime):
        return _in_utc(value).isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, UUID):
        return str(value)
    raise BadRequest(f"a {type(value).__name__} is not an SQL value")


def _in_utc(value: datetime) -> datetime:
    """DATETIME has no zone: a value that has one is taken to UTC, one without is sent as it is."""
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise BadRequest(f"{value!r} is outside of the years 1 to 9999 in UTC") from error
