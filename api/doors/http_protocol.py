"""The long way: uvicorn's protocol with rules and limits of our own.

* Bytes that are no HTTP get an error of the usual shape **in their turn**, after the answers to the requests before.
  uvicorn would write its 400 at once, and a client that sent a write and something unreadable behind it would take
  that for the write's answer.
* An offer of another protocol (``upgrade: h2c``, which Java's client makes with each request) is ignored, as RFC 9110
  (7.8) allows. The parser would accept it and take the body for the other protocol. A WebSocket is none of these: it
  begins once all requests before it are answered, and the connection goes on being counted here (``web_socket.py``).
* A connection on which nothing arrives is closed after the idle timeout, before its first request and within one
  too. uvicorn's timer runs between requests only, and half a request would hold a file descriptor for ever.
* A client that closes its half of the connection behind a request (``nc -N``) is answered, even if that takes a while.
* What passes a limit is refused as the unreadable is, in its turn: headers, requests that wait behind one another,
  bodies of all connections together, a request that is not there whole in time. A client that does not read its
  answers is hung up on, and nothing more is read of it meanwhile (``api/limits.py``).
"""

from __future__ import annotations

import asyncio
import re
from asyncio import Task
from collections import deque

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from api.doors.web_socket import WebSocketDoor
from api.limits import HEADER_OVERHEAD, LASTS, STRAIGHT, Admission, Limits
from api.statuses import CERTIFICATE, error_body, status_of
from controller.access.authentication import PeerCertificate
from domains.errors import BadRequest, HeadraceError

_UPGRADE = re.compile(rb"\r\nupgrade:(?![ \t]*websocket[ \t]*\r)[^\r\n]*", re.IGNORECASE)
UNREADABLE = BadRequest("the bytes are not an HTTP request", hint="see /docs for all calls")
HEAD_END = b"\r\n\r\n"
UNCOUNTED = Admission(Limits())
"""The admission of an application that has none of its own: a controller's control interface."""
LINGER_SECONDS = 1.0
"""Seconds for a connection too many: time to read why. What it sends would otherwise reset it, and the error be lost.
"""
LINGERING_MAX = 100
"""Number of such connections; further ones are reset."""
DROP_SECONDS = 0.02
"""Seconds between two reads of what a refused client still sends: as fast as they could, 60 with bodies of 31 MB kept
the loop for 0.2 s."""
READ_MIN = 65_536
"""Bytes of its answers that a client reads within the request timeout, at least."""


class RequestRefused(Exception):
    """Raised within the parser, to end it."""


class ChunkedWay:
    """See :class:`api.limits.StraightWay`, which it implements."""

    __slots__ = ("_flow", "_transport")

    def __init__(self, flow: FlowControl, transport: asyncio.Transport) -> None:
        self._flow = flow
        self._transport = transport

    def takes(self) -> bool:
        return not (self._flow.write_paused or self._transport.is_closing())

    def put(self, piece: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, with these rules."""

    _answering: Task[tuple[int, bytes, bytes]] | None = None
    """The task whose answer is awaited on the short way."""

    certificate: PeerCertificate | None = None
    """The client's, where the connection has one (``api/doors/tls.py``)."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    """The newest request with its answer; None before the first."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._is_socket = False
        """What arrives goes to a WebSocket."""
        self._inside = False
        """The parser is within a request."""
        self._unreadable = False
        """The bytes are not HTTP, and nothing after them will be; the error is sent after all earlier answers."""
        self._refusal: HeadraceError = UNREADABLE
        """What is said of them; also where they are refused for a limit."""
        self._refused = False
        """The error was sent. The client should close the connection; what it sends meanwhile is dropped."""
        self._ended = False
        """The client has said all that it will."""
        self._admission: Admission = getattr(self.config.loaded_app, "admission", UNCOUNTED)
        self._address = ""
        self._sizes: deque[int] = deque()
        """Bytes of each request that is not answered."""
        self._held = b""
        """What has arrived and is not looked at yet."""
        self._charged = 0
        """Bytes that are counted as received beside the sizes: those held, and of a request whose answer is awaited."""
        self._in_head = False
        self._head = 0
        """Bytes of the head so far; counted only where it comes in several reads."""
        self._deadline: asyncio.TimerHandle | None = None
        """Until a request that has begun is there whole."""
        self._reading: asyncio.TimerHandle | None = None
        """Until the client has read of its answers."""
        self._added: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")
        """The headers that uvicorn adds to each answer, as it has them and as bytes; it has new ones each second."""

    # --- offers ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._unreadable:
            self._drop()
            return
        self.app = self.config.loaded_app  # Another one, once the deployment is open.
        super().data_received(data if self._inside else _without_offers(data))
        if self._is_socket:
            return
        if self._in_head:
            self._head += len(data) - (data.rfind(HEAD_END) + len(HEAD_END) if HEAD_END in data else 0)
            if self._head > self._admission.limits.max_header_size:
                self._refuse_for(self._admission.headers_too_large(len(self.url)))
        self._expect_more()
        idle = self.cycle is None or self.cycle.response_complete
        if (self._inside or idle) and self._deadline is None and not self._unreadable:
            self._deadline = self.loop.call_later(self._admission.limits.request_timeout, self._is_too_slow)

    # --- WebSockets -----------------------------------------------------------------------------------------------

    def _should_upgrade_to_ws(self) -> bool:
        return True

    def handle_websocket_upgrade(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._refuse_for(BadRequest("a WebSocket was asked for before earlier requests were answered"))
            return
        self._is_socket = True
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        socket = WebSocketDoor(self, self.certificate, self._admission)
        socket.connection_made(self.transport)
        head = b"".join([b"%b: %b\r\n" % header for header in self.headers])
        socket.data_received(b"%b %b HTTP/1.1\r\n%b\r\n" % (self.scope["method"].encode(), self.url, head))
        self.transport.set_protocol(socket)

    # --- the unreadable -------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._inside = self._in_head = True
        self._head = 0
        super().on_message_begin()
        self.scope[STRAIGHT] = self._straight  # type: ignore[literal-required]
        if self.certificate is not None:
            self.scope[CERTIFICATE] = self.certificate  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._in_head = False
        size = len(self.url) + sum([len(name) + len(value) + HEADER_OVERHEAD for name, value in self.headers])
        limits = self._admission.limits
        if size > limits.max_header_size:
            self._end_parsing(self._admission.headers_too_large(len(self.url)))
        if len(self.pipeline) >= limits.max_pipelined:
            self._end_parsing(self._admission.too_many_pipelined())
        super().on_headers_complete()
        self._sizes.append(0)
        self._take(size)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if self.cycle is not None and not self.cycle.response_complete:
            self._take(len(body))

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._inside = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _take(self, size: int) -> None:
        self._sizes[-1] += size
        error = self._admission.receive(size)
        if error is not None:
            self._end_parsing(error)

    def _end_parsing(self, error: HeadraceError) -> None:
        """Within the parser, which gives up and has ``send_400_response`` called."""
        self._refusal = error
        raise RequestRefused(error.message)

    def _refuse_for(self, error: HeadraceError) -> None:
        """Outside of the parser."""
        self._refusal = error
        self.send_400_response(error.message)

    def _is_too_slow(self) -> None:
        self._deadline = None
        if self._unreadable or self.transport.is_closing():
            return
        if self._inside:
            self._refuse_for(self._admission.too_slow())
        else:  # Nothing but empty lines.
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this when its parser gives up, and from then on for all that arrives."""
        if self._unreadable:
            return
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
        if self._sizes:
            self._admission.release(self._sizes.popleft())
        super().on_response_complete()
        if self.pipeline:  # uvicorn would read more for each that is answered.
            self.flow.pause_reading()
        if self._unreadable and is_last and not self.transport.is_closing():
            self._refuse()
        elif self._inside:
            self._expect_more()

    def _refuse(self) -> None:
        if self.transport.is_closing():  # uvloop refuses to write to it, and there is no client left to answer.
            return
        said = self._refusal
        audit = getattr(getattr(self.config.loaded_app, "endpoints", None), "audit", None)
        if audit is not None and status_of(said) == 429:
            audit.turned_away(self._address, said)
        self._write_json(status_of(said), error_body(said.code, said.message, said.hint), is_last=True)
        self._refused = True
        if self._ended:
            self.transport.close()
        else:  # Closed for reading, too, while more arrives, it would be reset, and the answer lost on its way.
            self.transport.write_eof()
            self.flow.resume_reading()
            self._expect_more()

    def _drop(self) -> None:
        """What has arrived goes, and what follows it is read in a while."""
        self.flow.pause_reading()
        self.loop.call_later(DROP_SECONDS, self._read_on)

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.flow.resume_reading()

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
        self._straight = ChunkedWay(self.flow, self.transport)
        self._address = self.client[0] if self.client else ""
        self._expect_more()
        error = self._admission.enter(self._address)
        if error is not None:
            self._turn_away(error)

    def _turn_away(self, error: HeadraceError) -> None:
        if self._admission.connections > self._admission.limits.max_connections + LINGERING_MAX:
            self.transport.abort()
            return
        self._refuse_for(error)
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._admission.leave(self, self._address, sum(self._sizes) + self._charged)
        self._sizes.clear()
        self._held, self._charged = b"", 0
        self.pipeline.clear()
        self._unset_keepalive_if_required()  # uvicorn does so only where the connection has not failed.
        if self._answering is not None:
            self._answering.cancel()  # Nobody wants the answer: what is evaluated for it ends. A write goes on.
        for timer in (self._deadline, self._reading):
            if timer is not None:
                timer.cancel()
        self._deadline = self._reading = None

    # --- those who do not read --------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """More is written than the socket takes."""
        super().pause_writing()
        self._admission.leave_unread(self, self.transport.get_write_buffer_size())
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._admission.has_read(self)
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _expect_reading(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(self._admission.limits.request_timeout, self._has_not_read, left)

    def _has_not_read(self, before: int) -> None:
        self._reading = None
        if self.transport.is_closing() and not self.flow.write_paused:
            return
        if before - self.transport.get_write_buffer_size() < READ_MIN:
            self._admission.count("request_timeout")
            self.give_up()
        else:
            self._expect_reading()

    def give_up(self) -> None:
        """See :class:`api.limits.Unread`."""
        self.transport.abort()

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
        if self.cycle is None or not self._answers() or LASTS in self.cycle.scope:
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
