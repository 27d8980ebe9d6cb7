"""HTTP as uvicorn reads it, but for what it leaves open: the unreadable, offers of other protocols, and the silent.

* What is no HTTP gets an error of the shape that all have, **in its turn**: after the answers to the requests before.
  uvicorn would write its 400 at once, and who sent a write and something unreadable behind it would take that for the
  write's answer.
* An offer to go on in another protocol (``upgrade: h2c``, which Java's client makes with each request) is not heard,
  as RFC 9110 (7.8) allows. The parser would hear it and take the body for that other protocol.
* A connection on which nothing arrives is closed after the keep-alive time, whether that is before its first request or
  within one. uvicorn's timer runs between requests only, and half a request would hold a file descriptor for ever.
* Who closes its half of the connection behind a request (``nc -N``) is answered, even if that takes a while.
"""

from __future__ import annotations

import re

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from api.statuses import STATUSES, error_body
from domains.errors import BadRequest

_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
UNREADABLE = BadRequest("what arrived is no HTTP request", hint="see /docs for all calls")


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's, with these rules."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]
    """The newest request with its answer; None before the first."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._inside = False
        """The parser is within a request."""
        self._unreadable = False
        """What arrived is no HTTP, and nothing after it will be; that is said when all before it is answered."""
        self._refused = False
        """It is said. The client is to close the connection; what it sends meanwhile is dropped."""
        self._ended = False
        """The client has said all that it will."""
        self._added: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")
        """The headers that uvicorn adds to each answer, as it has them and as bytes; it has new ones each second."""

    # --- offers ---------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._unreadable:
            return
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
        if self.transport.is_closing():  # uvloop refuses to write to it, and nobody is there to be told.
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
