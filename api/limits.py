"""Limits on what one request may bring. Each has a name, which the error that it raises says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from domains.errors import BadRequest, LimitExceeded

MAX_BODY_BYTES = 32_000_000
"""Not more, because a body stands in memory several times (bytes, parsed, coerced) while its one step runs; not less,
so that a bulk load may send tens of thousands of rows at once."""

Receive = Callable[[], Awaitable[Any]]


def body_too_large(limit: int) -> LimitExceeded:
    return LimitExceeded(
        f'the request\'s body exceeds "max_body_size", {limit} bytes',
        hint="send the rows in several requests, or start the server with a greater max_body_size",
    )


async def read_body(headers: list[tuple[bytes, bytes]], receive: Receive, limit: int) -> bytes:
    """All of a request's body; raises LimitExceeded before more than ``limit`` bytes were kept."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise body_too_large(limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > limit:
            raise body_too_large(limit)
        return body
    pieces, size = [body], len(body)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the connection closed before the request's body was complete")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit:
            raise body_too_large(limit)
    return b"".join(pieces)


def check_browser(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raises BadRequest for a browser's request that is not declared as JSON: a page of any origin could otherwise
    post to a server on its reader's own machine without asking. Others may declare anything, as ``curl -d`` does."""
    given = dict(headers)
    sent_as = given.get(b"content-type", b"").decode("latin-1")
    if b"origin" in given and not sent_as.startswith("application/json"):
        raise BadRequest(f'a browser sent "{sent_as}"', hint="send content-type: application/json")
