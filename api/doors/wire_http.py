"""HTTP/1.1 on the connection: an endpoint's request that has arrived whole is answered where its bytes arrive.

Around each request uvicorn makes a parser's callbacks, a scope, an event, a task, and two messages that it checks
header by header: 25 µs, where a look-up that hits takes five. So ``WireHttp`` looks at the bytes first::

    bytes ──► a whole request to an endpoint, with usual headers? ──yes──► EndpointCall.begin ──► one write
                     └── no ──► HttpProtocol: parser, scope, task, ASGI          └── has to wait: a task

uvicorn's own parser decides once for each block of headers whether they are usual, and the answer is remembered:
clients send the same headers again and again. Who asks has to be known, too, and by which name: what is not verified
yet takes the long way. A header that means more than the body's length or the connection's end
(a token, a transaction, an origin, ``expect``) takes the long way, and so does a body that arrives in pieces. Both ways
give the same answers byte for byte, but for the order of what uvicorn adds.

Answers leave in the order of the requests: while uvicorn has a request under way, all bytes go to uvicorn, and while an
answer of the short way is awaited, the bytes that arrive wait.

The long way is ``HttpProtocol`` (``http_protocol.py``). The limits of ``api/limits.py`` hold on both.
"""

from __future__ import annotations

import re
from asyncio import Task
from functools import lru_cache
from typing import NamedTuple

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from api.doors.http_protocol import HEAD_END, HttpProtocol
from api.endpoints import CLAIMS, SESSION_NAME, SNAPSHOT, TRANSACTION, Answer, Endpoints
from domains.errors import HeadraceError

REQUEST_LINE_END = b" HTTP/1.1\r\n"
"""The end of a request line. It stands once in each request, and nowhere in JSON."""
HEADS = 4096
"""Blocks of headers that are remembered: a client has one for each length of a body. About 2 MB. Without them a
hit takes a sixth longer. To remember request lines, too, brought nothing that could be measured."""
HEAD_MAX = 2048
"""Bytes of a block that is remembered, and of a request line. Longer ones come of browsers, with cookies."""

_REQUEST_LINE = re.compile(
    rb"(GET|POST|PATCH|DELETE) (/v1/[^\x00-\x20\x7f-\xff%?#]*)(?:\?([^\x00-\x20\x7f-\xff#]*))? HTTP/1\.1"
)
_LONG_WAY = frozenset(
    (
        b"headrace-token",
        TRANSACTION,
        SESSION_NAME,
        SNAPSHOT,
        b"origin",
        b"expect",
        b"transfer-encoding",
        b"upgrade",
        b"keep-alive",
    )
)


def target_of(line: bytes) -> tuple[str, str, bytes] | None:
    """Method, path and query string of a request line that needs no decoding."""
    found = _REQUEST_LINE.fullmatch(line)
    return None if found is None else (found[1].decode(), found[2].decode(), found[3] or b"")


class Head(NamedTuple):
    """What the headers of a request say that may go the short way."""

    length: int
    """Bytes of the body."""
    is_last: bool
    """The connection is to end with the answer."""
    authorization: bytes | None
    """Who asks."""
    host: bytes | None
    """By which name, in small letters."""
    forwarded: bool = False
    """A proxy says where it comes from."""
    claims: bytes | None = None
    """For whom."""


@lru_cache(maxsize=HEADS)
def head_of(block: bytes) -> Head | None:
    """What the headers say that stand between the request line and the empty line. None: the request takes the long
    way."""
    if len(block) > HEAD_MAX:
        return None
    headers = _Headers()
    parser = httptools.HttpRequestParser(headers)
    try:
        parser.feed_data(b"POST / HTTP/1.1\r\n" + block + b"\r\n\r\n")
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    lengths, connection = headers.values(b"content-length"), headers.values(b"connection")
    asks, hosts, claims = headers.authorization, headers.values(b"host"), headers.claims
    usual = connection in ([], [b"close"], [b"keep-alive"])
    usual = usual and all(len(each) <= 1 for each in (lengths, asks, hosts, claims))
    if not headers.complete or not usual or any(name in _LONG_WAY for name, _ in headers.found):
        return None
    return Head(
        int(lengths[0]) if lengths else 0,
        connection == [b"close"],
        asks[0] if asks else None,
        hosts[0] if hosts else None,
        bool(headers.values(b"x-forwarded-for")),
        claims[0] if claims else None,
    )


class _Headers:
    """What the parser finds in a block."""

    def __init__(self) -> None:
        self.complete = False
        self.found: list[tuple[bytes, bytes]] = []
        self.authorization: list[bytes] = []
        """Its values, in which capitals and small letters differ."""
        self.claims: list[bytes] = []
        """The same of ``Headrace-Claims``."""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"authorization":
            self.authorization.append(value)
        elif name.lower() == CLAIMS:
            self.claims.append(value)
        self.found.append((name.lower(), value.lower()))

    def on_headers_complete(self) -> None:
        self.complete = True

    def values(self, name: bytes) -> list[bytes]:
        return [value for each, value in self.found if each == name]


def _before(data: bytes, requests: int) -> bytes:
    """The bytes of so many requests, and of the next one what stands before its line's end."""
    at = -1
    for _ in range(requests + 1):
        at = data.find(REQUEST_LINE_END, at + 1)
    return data[:at]


GONE_SECONDS = 1.0
"""Seconds between two looks at whether a client that has closed its half is there: most answers are given before the
first."""


class WireHttp(HttpProtocol):
    """The long way, with the short one before it where the application has ``endpoints``."""

    _awaited = False
    """An answer of ours is; ``_held`` has arrived meanwhile."""
    _behind = 0
    """Requests among these."""
    _overrun: HeadraceError | None = None
    """What came after these passed a limit, and so does what still comes."""
    _closing = False
    """The answer under way is the last one."""
    _used = False
    """Since the timer for idle connections was set. It is not set anew with each request."""

    # --- what arrives ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._unreadable:
            self._drop()
            return
        if self._overrun is not None:
            return
        endpoints: Endpoints | None = getattr(self.config.loaded_app, "endpoints", None)
        while data:
            if self._awaited or (self.flow.write_paused and not self._is_under_way()):
                self._hold(data)
                return
            rest = None if endpoints is None else self._answered(data, endpoints)
            if rest is None:
                super().data_received(data)
                return
            data = b"" if self._closing else rest

    def _is_under_way(self) -> bool:
        """A request that took the long way."""
        return self._inside or (self.cycle is not None and not self.cycle.response_complete)

    def _hold(self, data: bytes) -> None:
        """Keep what arrives while an answer is awaited, or is not read. Nothing more is read of the socket then."""
        self._charged += len(data)
        error = self._admission.receive(len(data))
        if self._awaited:
            limit = self._admission.limits.max_pipelined
            room = limit - self._behind
            self._behind += data.count(REQUEST_LINE_END)
            if self._behind > limit:
                error = self._admission.too_many_pipelined()
                data = _before(data, room)
        self._held += data
        self._overrun = error
        if len(self._held) > HIGH_WATER_LIMIT or self.flow.write_paused:
            self.flow.pause_reading()

    def _go_on(self) -> None:
        """Serve the requests that were held. One beyond the limit is refused after the answers to the others."""
        held, self._held, self._behind = self._held, b"", 0
        self._admission.release(self._charged)
        self._charged = 0
        error, self._overrun = self._overrun, None
        if not self._closing:
            self.flow.resume_reading()
            self.data_received(held)
            if error is not None:
                self._overrun = error
            if self._overrun is not None and not self._held and not self._awaited:
                self._refuse_for(self._overrun)

    def _answered(self, data: bytes, endpoints: Endpoints) -> bytes | None:
        """Answer the first request, or begin to, and give what follows it; None where it takes the long way."""
        if self._is_under_way() or self.transport.is_closing():
            return None
        line_end = data.find(b"\r\n")
        head_end = data.find(HEAD_END, line_end)
        target = target_of(data[:line_end]) if 0 < line_end < head_end and line_end <= HEAD_MAX else None
        head = None if target is None else head_of(data[line_end + 2 : head_end])
        if target is None or head is None or (head.forwarded and endpoints.asks_origin):
            return None
        if endpoints.admitted is not None and head.host not in endpoints.admitted:
            return None
        body_end = head_end + 4 + head.length
        session = endpoints.known(head.authorization or self.certificate)
        if session is None:
            return None
        if head.claims is not None:
            claimed = endpoints.claimed(session, head.claims)
            if claimed is None:
                return None
            session = claimed
        found = endpoints.find(target[0], target[1])
        if found is None or len(data) < body_end or head.length > endpoints.max_body:
            return None
        self._closing = head.is_last
        call, name = found
        begun = call.begin(name, target[2], data[head_end + 4 : body_end], None, session, self._address)
        if isinstance(begun, tuple):
            self._answer(*begun)
        else:
            self._awaited = True
            if head.length:
                self._charged += head.length
                self._admission.received += head.length  # It is here already: what follows it is refused.
            task = self._answering = self.loop.create_task(begun)
            self.tasks.add(task)  # type: ignore[arg-type]
            task.add_done_callback(self._finish)
        return data[body_end:]

    def _finish(self, done: Task[Answer]) -> None:
        self.tasks.discard(done)
        self._answering = None
        self._awaited = False
        if self.transport.is_closing() or done.cancelled():
            return
        self._answer(*done.result())
        if self._held or self._overrun is not None:
            self._go_on()
        elif self._charged:
            self._admission.received -= self._charged
            self._charged = 0
        if self._ended and not self._awaited and not self._held and not self.eof_received():
            self.transport.close()

    # --- what leaves ----------------------------------------------------------------------------------------------

    def _answer(self, status: int, body: bytes, types: bytes) -> None:
        self._write_json(status, body, types, is_last=self._closing)
        self.server_state.total_requests += 1
        if self._closing:
            self.transport.close()
        elif self.timeout_keep_alive_task is None:
            self._expect_more()
        else:
            self._used = True

    # --- the long way's own ---------------------------------------------------------------------------------------

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that was idle since the timer was set, after once to twice the time."""
        if self._used or self._awaited:
            self._used = False
            self.timeout_keep_alive_task = None
            self._expect_more()
        else:
            super().timeout_keep_alive_handler()

    def eof_received(self) -> bool:  # type: ignore[override]
        self._ended = True
        if self._awaited:
            self.loop.call_later(GONE_SECONDS, self._find_out_whether_gone)
        return self._awaited or bool(self._held) or super().eof_received()

    def _find_out_whether_gone(self) -> None:
        """A client that has closed its half waits for its answer, or is gone, and only a write that fails can tell. A
        client reads over this one (RFC 9110, 15.2.1), and what is done for one that is gone ends."""
        if self._awaited and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.loop.call_later(GONE_SECONDS, self._find_out_whether_gone)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._held and not self._awaited:
            self._go_on()

    def shutdown(self) -> None:
        if self._awaited:
            self._closing = True
        else:
            super().shutdown()
