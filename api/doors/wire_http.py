"""HTTP for the hot calls, ahead of uvicorn's: a request that is there whole is answered where its bytes arrive.

Around each request uvicorn makes a parser's callbacks, a scope, an event, a task, and two messages that it checks
header by header: 25 µs, where a look-up that hits takes five. So the protocol looks at what arrives first::

    bytes ──► a whole request, of a hot call, with a head as most have? ──yes──► Call.begin ──► one write
                     └── no ──► uvicorn: parser, scope, task, ASGI                   └── to be awaited: a task

*As most have* is decided by uvicorn's own parser, once for each block of headers, and remembered: clients send the same
ones again and again. What it does not take, or what has a meaning beyond the body's length (a token, an origin,
``expect``, ``connection: close``), goes the long way, and so does a body that arrives in pieces. The answers are the
same byte for byte but for the order of what uvicorn adds.

Answers leave in the order of the requests: while uvicorn has one under way, all goes to it, and while one is awaited
here, what arrives meanwhile waits.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from api.doors.http_protocol import HttpProtocol
from api.endpoints import Answer, Endpoints

HEADS = 4096
"""Blocks of headers that are remembered, and request lines: a client has one for each length of a body. About 2 MB."""
HEAD_MAX = 2048
"""Bytes of a block that is remembered. Longer ones come of browsers, with cookies."""

_REQUEST_LINE = re.compile(
    rb"(GET|POST|PATCH|DELETE) (/v1/[^\x00-\x20\x7f-\xff%?#]*)(?:\?([^\x00-\x20\x7f-\xff#]*))? HTTP/1\.1"
)
_LONG_WAY = frozenset(
    (b"headrace-token", b"origin", b"expect", b"connection", b"transfer-encoding", b"upgrade", b"keep-alive")
)


@lru_cache(maxsize=HEADS)
def target_of(line: bytes) -> tuple[str, str, bytes] | None:
    """Method, path and query string of a request line that needs no decoding."""
    found = _REQUEST_LINE.fullmatch(line)
    return None if found is None else (found[1].decode(), found[2].decode(), found[3] or b"")


@lru_cache(maxsize=HEADS)
def body_length(block: bytes) -> int | None:
    """Of a request with these headers, which are between the request line and the empty line; None: the long way."""
    if len(block) > HEAD_MAX:
        return None
    head = _Head()
    parser = httptools.HttpRequestParser(head)
    try:
        parser.feed_data(b"POST / HTTP/1.1\r\n" + block + b"\r\n\r\n")
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return None
    if not head.complete or head.names & _LONG_WAY or len(head.lengths) > 1:
        return None
    return int(head.lengths[0]) if head.lengths else 0


class _Head:
    """What the parser says of a block."""

    def __init__(self) -> None:
        self.complete = False
        self.names: set[bytes] = set()
        self.lengths: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.names.add(name.lower())
        if name.lower() == b"content-length":
            self.lengths.append(value)

    def on_headers_complete(self) -> None:
        self.complete = True


class WireHttp(HttpProtocol):
    """The long way, with the short one before it where the application has one (``HotRoute.calls``)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls: Endpoints | None = getattr(self.app, "calls", None)
        self._awaited = False
        """An answer of ours is; ``_held`` has arrived meanwhile."""
        self._held = b""
        self._closing = False
        """The answer under way is the last one."""
        self._used = False
        """Since the timer for idle connections was set. It is not set anew with each request."""

    # --- what arrives ---------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if not self._awaited:
            self._take(data)
            return
        self._held += data
        if len(self._held) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def _take(self, data: bytes) -> None:
        while data:
            rest = self._answered(data) if self._is_idle() else None
            if rest is None:
                super().data_received(data)
                return
            if self._awaited:
                self._held = rest
                return
            data = rest

    def _is_idle(self) -> bool:
        """Whether uvicorn has nothing under way, so that an answer may leave now."""
        under_way = self.cycle is not None and not self.cycle.response_complete
        if self._calls is None:  # The connection is older than what is served.
            self._calls = getattr(self.app, "calls", None)
        return not (self._calls is None or self._inside or under_way or self.flow.write_paused)

    def _answered(self, data: bytes) -> bytes | None:
        """Answer the first request, or begin to, and give what follows it; None where it is for the long way."""
        line_end = data.find(b"\r\n")
        head_end = data.find(b"\r\n\r\n", line_end)
        target = target_of(data[:line_end]) if head_end > line_end > 0 else None
        length = None if target is None else body_length(data[line_end + 2 : head_end])
        if target is None or length is None or self._calls is None:
            return None
        body_end = head_end + 4 + length
        found = self._calls.find(target[0], target[1])
        if found is None or len(data) < body_end or length > self._calls.max_body or self.transport.is_closing():
            return None
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
