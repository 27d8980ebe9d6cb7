"""HTTP/1.1 on the connection: an endpoint's request that has arrived whole is answered where its bytes arrive.

Around each request uvicorn makes a parser's callbacks, a scope, an event, a task, and two messages that it checks
header by header: 25 µs, where a look-up that hits takes five. So ``WireHttp`` looks at the bytes first::

    bytes ──► a whole request to an endpoint, with usual headers? ──yes──► EndpointCall.begin ──► one write
                     └── no ──► HttpProtocol: parser, scope, task, ASGI          └── has to wait: a task

uvicorn's own parser decides once for each block of headers whether they are usual, and the answer is remembered:
clients send the same headers again and again. A header that means more than the body's length or the connection's end
(a token, an origin, ``expect``) takes the long way, and so does a body that arrives in pieces. Both ways give the same
answers byte for byte, but for the order of what uvicorn adds.

Answers leave in the order of the requests: while uvicorn has a request under way, all bytes go to uvicorn, and while an
answer of the short way is awaited, the bytes that arrive wait.

``HttpProtocol`` is the long way: uvicorn's protocol with four rules of our own.

* Bytes that are no HTTP get an error of the usual shape **in their turn**, after the answers to the requests before.
  uvicorn would write its 400 at once, and a client that sent a write and something unreadable behind it would take
  that for the write's answer.
* An offer of another protocol (``upgrade: h2c``, which Java's client makes with each request) is ignored, as RFC 9110
  (7.8) allows. The parser would accept it and take the body for the other protocol.
* A connection on which nothing arrives is closed after the keep-alive time, before its first request and within one
  too. uvicorn's timer runs between requests only, and half a request would hold a file descriptor for ever.
* A client that closes its half of the connection behind a request (``nc -N``) is answered, even if that takes a while.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any, NamedTuple

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from api.endpoints import Answer, Endpoints
from api.statuses import STATUSES, error_body
from domains.errors import BadRequest

_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
UNREADABLE = BadRequest("the bytes are not an HTTP request", hint="see /docs for all calls")
HEADS = 4096
"""Blocks of headers that are remembered, and request lines: a client has one for each length of a body. About 2 MB."""
HEAD_MAX = 2048
"""Bytes of a block that is remembered. Longer ones come of browsers, with cookies."""

_REQUEST_LINE = re.compile(
    rb"(GET|POST|PATCH|DELETE) (/v1/[^\x00-\x20\x7f-\xff%?#]*)(?:\?([^\x00-\x20\x7f-\xff#]*))? HTTP/1\.1"
)
_LONG_WAY = frozenset((b"headrace-token", b"origin", b"expect", b"transfer-encoding", b"upgrade", b"keep-alive"))


@lru_cache(maxsize=HEADS)
def target_of(line: bytes) -> tuple[str, str, bytes] | None:
    """Method, path and query string of a request line that needs no decoding."""
    found = _REQUEST_LINE.fullmatch(line)
    return None if found is None else (found[1].decode(), found[2].decode(), found[3] or b"")


class Head(NamedTuple):
    """What the headers of a request say that may go the short way."""

    length: int
    """Of the body."""
    is_last: bool
    """The connection is to end with the answer."""


@lru_cache(maxsize=HEADS)
def head_of(block: bytes) -> Head | None:
    """Of the headers between the request line and the empty line. None: the request takes the long way."""
    if len(block) > HEAD_MAX:
        return None
    headers = _Headers()
    parser = httptools.HttpRequestParser(headers)
    try:
        parser.feed_data(b"POST / HTTP/1.1\r\n" + block + b"\r\n\r\n")
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    lengths, connection = headers.values(b"content-length"), headers.values(b"connection")
    usual = connection in ([], [b"close"], [b"keep-alive"]) and len(lengths) <= 1
    if not headers.complete or not usual or any(name in _LONG_WAY for name, _ in headers.found):
        return None
    return Head(int(lengths[0]) if lengths else 0, connection == [b"close"])


class _Headers:
    """What the parser finds in a block."""

    def __init__(self) -> None:
        self.complete = False
        self.found: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.found.append((name.lower(), value.lower()))

    def on_headers_complete(self) -> None:
        self.complete = True

    def values(self, name: bytes) -> list[bytes]:
        return [value for each, value in self.found if each == name]


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, with these rules."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    """The newest request with its answer; None before the first."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._inside = False
        """The parser is within a request."""
        self._unreadable = False
        """The bytes are not HTTP, and nothing after them will be; the error is sent after all earlier answers."""
        self._refused = False
        """The error was sent. The client should close the connection; what it sends meanwhile is dropped."""
        self._ended = False
        """The client has said all that it will."""
        self._added: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")
        """The headers that uvicorn adds to each answer, as it has them and as bytes; it has new ones each second."""

    # --- offers ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._unreadable:
            return
        self.app = self.config.loaded_app  # Another one, once the deployment is open.
        super().data_received(data if self._inside else _without_offers(data))
        self._expect_more()

    # --- the unreadable -------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._inside = True
        super().on_message_begin()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._inside = False

    def send_400_response(self, msg: str) -> None:
        """Of uvicorn, when its parser gives up; from then on, it only repeats that."""
        self._unreadable = True
        cycle = self.cycle
        if cycle is not None and self._inside and cycle.scope is self.scope:  # Its body is what cannot be read.
            if self.pipeline:
                self.pipeline.popleft()  # It has not begun; others have.
            elif cycle.response_started:
                self.transport.close()
            else:
                cycle.disconnected = True
                self._refuse()
        elif cycle is None or cycle.response_complete:
            self._refuse()

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if self._unreadable and is_last and not self.transport.is_closing():
            self._refuse()
        elif self._inside:
            self._expect_more()

    def _refuse(self) -> None:
        if self.transport.is_closing():  # uvloop refuses to write to it, and there is no client left to answer.
            return
        body = error_body(UNREADABLE.code, UNREADABLE.message, UNREADABLE.hint)
        self._write_json(STATUSES[BadRequest], body, is_last=True)
        self._refused = True
        if self._ended:
            self.transport.close()
        else:  # Closed for reading, too, while more arrives, it would be reset, and the answer lost on its way.
            self.transport.write_eof()
            self._expect_more()

    def _write_json(self, status: int, body: bytes, types: bytes = b"", *, is_last: bool) -> None:
        """A whole answer of our own, with the headers of uvicorn's."""
        headers = self.server_state.default_headers
        if headers is not self._added[0]:
            self._added = (headers, b"".join([b"%b: %b\r\n" % header for header in headers]))
        closing = b"connection: close\r\n" if is_last else b""
        if types:
            closing += b"headrace-types: %b\r\n" % types
        head = b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n"
        self.transport.write(head % (STATUS_LINE[status], self._added[1], len(body), closing) + body)

    # --- the silent -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: object) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._expect_more()

    def _expect_more(self) -> None:
        """Within the keep-alive time. uvicorn ends the timer when something arrives."""
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection, unless an answer is still to leave, whose request was there whole."""
        self.timeout_keep_alive_task = None
        if not self._refused and (self.pipeline or self._answers()):
            self._expect_more()
        else:
            super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        if self._refused:
            self.transport.close()
        else:
            super().shutdown()

    def eof_received(self) -> bool:  # type: ignore[override]
        """What the client has asked for still leaves, where that was there whole. Whether there is such."""
        self._ended = True
        if self._unreadable:
            return not self._refused
        if self.cycle is None or not self._answers():
            return False
        self.cycle.keep_alive = False
        return True

    def _answers(self) -> bool:
        """Whether an answer is to leave to the newest request, which is there whole."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body


def _without_offers(data: bytes) -> bytes:
    """What begins a request, as if no other protocol had been offered in its head.

    Only of the first request in it: who offers one waits for the answer.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(b"", head) + end + rest if end and b"upgrade" in head.lower() else data


class WireHttp(HttpProtocol):
    """The long way, with the short one before it where the application has ``endpoints``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaited = False
        """An answer of ours is; ``_held`` has arrived meanwhile."""
        self._held = b""
        self._closing = False
        """The answer under way is the last one."""
        self._used = False
        """Since the timer for idle connections was set. It is not set anew with each request."""

    # --- what arrives ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        endpoints: Endpoints | None = getattr(self.config.loaded_app, "endpoints", None)
        while data:
            if self._awaited:
                self._held += data
                if len(self._held) > HIGH_WATER_LIMIT:
                    self.flow.pause_reading()
                return
            rest = None if endpoints is None else self._answered(data, endpoints)
            if rest is None:
                super().data_received(data)
                return
            data = b"" if self._closing else rest

    def _answered(self, data: bytes, endpoints: Endpoints) -> bytes | None:
        """Answer the first request, or begin to, and give what follows it; None where it takes the long way."""
        under_way = self._inside or (self.cycle is not None and not self.cycle.response_complete)
        if under_way or self.flow.write_paused or self.transport.is_closing():
            return None
        line_end = data.find(b"\r\n")
        head_end = data.find(b"\r\n\r\n", line_end)
        target = target_of(data[:line_end]) if head_end > line_end > 0 else None
        head = None if target is None else head_of(data[line_end + 2 : head_end])
        if target is None or head is None:
            return None
        body_end = head_end + 4 + head.length
        found = endpoints.find(target[0], target[1])
        if found is None or len(data) < body_end or head.length > endpoints.max_body:
            return None
        self._closing = head.is_last
        call, name = found
        begun = call.begin(name, target[2], data[head_end + 4 : body_end], None)
        if isinstance(begun, tuple):
            self._answer(*begun)
        else:
            self._awaited = True
            task = self.loop.create_task(self._finish(begun))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        return data[body_end:]

    async def _finish(self, coming: Coroutine[Any, Any, Answer]) -> None:
        answer = await coming
        self._awaited = False
        if self.transport.is_closing():
            return
        self._answer(*answer)
        held, self._held = self._held, b""
        if held and not self._closing:
            self.flow.resume_reading()
            self.data_received(held)
        if self._ended and not self._awaited and not self.eof_received():
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
        return self._awaited or super().eof_received()

    def shutdown(self) -> None:
        if self._awaited:
            self._closing = True
        else:
            super().shutdown()
