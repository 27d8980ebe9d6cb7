"""JSON in and out: orjson for its speed and strictness, with the two corners where it is not enough.

orjson refuses NaN, broken UTF-8 and half surrogate pairs, which the standard library lets through. But it reads an
integer beyond 64 bits as a float and cannot write one, and SUM over BIGINT and DECIMAL columns may well exceed 64 bits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, cast

import orjson

from domains.errors import BadRequest
from domains.language.coercion import named_value
from migrations.parse.measure import SqlLimits, check_length

ANY_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)
LONG_INTEGER = b"0" * 19
"""A body with so many digits in a row is parsed again by the standard library, whose integers are exact. Looked for in
a copy with all digits made 0: 7 µs for a thousand keys, where a regular expression takes 120, and parsing 50."""

NESTING_MAX = 32
"""Levels of lists and objects in a body. A look-up's deepest reference has seven; what is walked or quoted by recursion
meets Python's limit at some 300."""
NESTING_USUAL = 8
"""Levels that are looked for in the text, before a body is walked for the others."""
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

NUMBERS_HEAD, NUMBERS_BETWEEN, NUMBERS_TAIL = b'{"keys":[[', b"],[", b"]]}"
"""Around the keys of a look-up by one whole number, as clients write it."""


def parse_numbers(body: bytes) -> list[int] | None:
    """The numbers of ``{"keys":[[1],[2]]}``; None where the body is anything else. A thousand of them take half of the
    time that their lists take to be made and looked into."""
    if not (body.startswith(NUMBERS_HEAD) and body.endswith(NUMBERS_TAIL)):
        return None
    inner = body[len(NUMBERS_HEAD) : -len(NUMBERS_TAIL)]
    try:
        values = orjson.loads(b"[" + inner.replace(NUMBERS_BETWEEN, b",") + b"]")
    except ValueError:
        return None
    # No part is empty, since two commas in a row are no JSON: as many values as parts are one in each.
    alone = len(values) == inner.count(NUMBERS_BETWEEN) + 1
    return values if alone and set(map(type, values)) == {int} else None


def parse(body: bytes) -> Any:
    """The JSON value in a request's body; raises BadRequest."""
    if not body:
        raise BadRequest("the request has no body", hint="send a JSON object")
    try:
        value = loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request's body is not JSON: {error}") from error
    if _may_nest_deep(body) and _nests_deeper(value, NESTING_MAX):
        raise BadRequest(f"the request's body nests deeper than {NESTING_MAX} levels", hint="values are not lists")
    return value


def _may_nest_deep(body: bytes) -> bool:
    """Whether a body of JSON may have more than a few levels: pairs of brackets with nothing in them go, level by
    level. A tenth of what parsing takes, 0.2 µs for a look-up; a text with brackets in it may be taken for levels."""
    brackets = body.translate(None, NO_BRACKETS)
    if len(brackets) <= 2 * NESTING_MAX:
        return False
    for _ in range(NESTING_USUAL):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


def _nests_deeper(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        level = [
            each
            for group in level
            if type(group) in (list, dict)
            for each in (group if type(group) is list else group.values())
            if type(each) in (list, dict)
        ]
        if not level:
            return False
    return True


def loads(text: bytes) -> Any:
    """The value of a JSON text, integers of any length among it; raises ValueError, RecursionError."""
    value = orjson.loads(text)
    return json.loads(text) if LONG_INTEGER in text.translate(ANY_DIGIT) else value


LONG_BODY = 200_000
"""Bytes of a body that is not parsed on the event loop: it would take two milliseconds and more."""
ROWS_TOGETHER = 500
"""Number of rows of a long body, or of an answer, that are handled at once: a millisecond each, parsed or written."""


def in_parts(body: bytes, name: str, limits: SqlLimits | None = None) -> Iterator[bytes]:
    """A body without the list of this name, and then its items, some to a part; each part is JSON. Raises BadRequest,
    and LimitExceeded where its SQL is longer than ``limits``."""
    value = parse(body)
    rows = value.get(name, []) if isinstance(value, dict) else None
    if limits is not None and isinstance(value, dict) and isinstance(value.get("sql"), str):
        check_length(value["sql"], limits)
    if not isinstance(rows, list):
        yield body
        return
    yield serialize({**value, name: []} if name in value else value)
    for at in range(0, len(rows), ROWS_TOGETHER):
        yield serialize(rows[at : at + ROWS_TOGETHER])


def serialize(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        dumped = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_parsed)
        return dumped.encode()


def _parsed(value: Any) -> Any:
    """A part that is JSON already, for the standard library."""
    if isinstance(value, orjson.Fragment):
        return json.loads(orjson.dumps(value))
    raise TypeError(f"a {type(value).__name__} is no JSON")


def listed(pages: Sequence[bytes | None]) -> bytes:
    """``[[row, …], …]``: the rows of each key, none of which is missing."""
    return b"[[" + b"],[".join(cast(Sequence[bytes], pages)) + b"]]" if pages else b"[]"


def sql_value(value: Any) -> Any:
    """A value of ``params``. An object names a type that JSON has not: ``{"BLOB": "YWI="}``, ``{"DECIMAL": "0.10"}``.

    Without it the text would be taken for one: nothing in SQL says what type a ``?`` has.

    :raises BadRequest: another object.
    :raises TypeViolation: the text is no such value.
    """
    if type(value) is list:
        return [sql_value(each) for each in value]
    if type(value) is not dict:
        return value
    named = named_value(value)
    if named is not None:
        return named
    raise BadRequest(
        "an object among the parameters is not a value", hint='write {"BLOB": "YWI="} or {"DECIMAL": "0.10"}'
    )
