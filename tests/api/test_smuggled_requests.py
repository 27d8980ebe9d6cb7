"""Requests whose end two readers could see in different places: a proxy in front, and this server.

Whatever it is that a proxy lets through, no request of the server's begins within what the proxy took for a body. So
each is refused, or read as RFC 9112 has it; on both ways into the application alike.
"""

from __future__ import annotations

from typing import Any

import pytest
from served_bytes import asked, served
from test_http_protocol import all_said

from api.doors.wire_http import HttpProtocol, WireHttp

HIDDEN = asked("POST /v1/tables/stories/rows", b'{"rows": [{"id": 66, "author": 1, "title": "smuggled"}]}')
SIZE = len(HIDDEN)
HEAD = b"POST /v1/sql HTTP/1.1\r\nhost: x\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
ENDED = b"0\r\n\r\n" + HIDDEN


def length(value: object) -> bytes:
    return b"content-length: %b\r\n" % str(value).encode()


REFUSED = [
    HEAD + length(SIZE + 5) + CHUNKED + b"\r\n" + ENDED,
    HEAD + CHUNKED + length(SIZE + 5) + b"\r\n" + ENDED,
    HEAD + length(0) + length(SIZE) + b"\r\n" + HIDDEN,
    HEAD + length(SIZE) + length(0) + b"\r\n" + HIDDEN,
    HEAD + length(f"0, {SIZE}") + b"\r\n" + HIDDEN,
    HEAD + length("+0") + b"\r\n" + HIDDEN,
    HEAD + length("0x0") + b"\r\n" + HIDDEN,
    HEAD + length("0 0") + b"\r\n" + HIDDEN,
    HEAD + length("-1") + b"\r\n" + HIDDEN,
    HEAD + length(2**64) + b"\r\n" + HIDDEN,
    HEAD + b"content-length : 0\r\n\r\n" + HIDDEN,
    HEAD + b"transfer-encoding : chunked\r\n\r\n" + ENDED,
    HEAD + b"transfer-encoding: chunked, identity\r\n\r\n" + ENDED,
    HEAD + b"transfer-encoding: xchunked\r\n\r\n" + ENDED,
    HEAD + b"transfer-encoding:\x0bchunked\r\n\r\n" + ENDED,
    HEAD + b"transfer-encoding: identity\r\n" + length(0) + b"\r\n" + HIDDEN,
    HEAD + CHUNKED + CHUNKED + length(5) + b"\r\n" + ENDED,
    HEAD + CHUNKED + b"\r\nffffffffffffffff1\r\n" + HIDDEN,
    HEAD + CHUNKED + b"\r\n-5\r\n" + HIDDEN,
    HEAD + CHUNKED + b"\r\n5 \r\nabcde" + HIDDEN,
    HEAD + b"x: a\rb\r\n" + length(0) + b"\r\n" + HIDDEN,
    HEAD + b"x: a\x00b\r\n" + length(0) + b"\r\n" + HIDDEN,
    HEAD + b" content-length: 0\r\n\r\n" + HIDDEN,
    HEAD + b"\x00content-length: 0\r\n\r\n" + HIDDEN,
    b"POST /v1/sql HTTP/1.1\r\n\x20host: x\r\n" + length(0) + b"\r\n" + HIDDEN,
    b"POST /v1/sql HTTP/1.1 HTTP/1.1\r\nhost: x\r\n" + length(0) + b"\r\n" + HIDDEN,
    b"POST /v1/sql HTTP/9.1\r\nhost: x\r\n" + length(0) + b"\r\n" + HIDDEN,
]
"""Nothing behind these is read: what would be a request of its own is not done."""
WHOLE = [
    HEAD + length(SIZE) + b"\r\n" + HIDDEN,
    b"GET /v1/views HTTP/1.1\r\nhost: x\r\n" + length(SIZE) + b"\r\n" + HIDDEN,
    b"GET /v1/views/ById?id=1 HTTP/1.1\r\nhost: x\r\n" + length(SIZE) + b"\r\n" + HIDDEN,
    b"GET /v1/views/ById?id=1 HTTP/1.1\r\nhost: x\r\n" + CHUNKED + b"\r\n%x\r\n" % SIZE + HIDDEN + b"\r\n0\r\n\r\n",
    b"HEAD /v1/views HTTP/1.1\r\nhost: x\r\n" + length(SIZE) + b"\r\n" + HIDDEN,
    HEAD + CHUNKED + b'\r\n%x;a="\r\n' % SIZE + HIDDEN + b"\r\n0\r\n\r\n",
]
"""It is the body."""


@pytest.fixture(params=[HttpProtocol, WireHttp])
def protocol(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_nothing_begins_where_a_proxy_sees_no_request(protocol: Any) -> None:
    async with served(protocol) as site:
        for request in (*REFUSED, *WHOLE):
            for parts in ((request,), (request[:40], request[40:]), (request[:-SIZE], request[-SIZE:])):
                answers = await all_said(site, *parts, ends=True)
                assert len(answers) <= 1, (request, answers)
                if request in REFUSED:
                    assert all(b" 400 " in each or b" 413 " in each or b" 431 " in each for each in answers), (
                        request,
                        answers,
                    )
                assert b"smuggled" not in b"".join(answers), request
        rows = await site.deployment.execute("SELECT id FROM stories")
        assert not rows[0][-1].rows
