"""TLS below the doors: bytes are decrypted before a door sees them, and encrypted when they leave.

::

    socket ◄──► TlsConnection: an SSLObject between two buffers ◄──► WireHttp, whose transport it is
                      └── handshake: on a thread, one at a time

asyncio and uvloop have TLS transports of their own. They do handshakes on the event loop, where each takes up to a
millisecond of signing, so that a few hundred a second hold up every read. And a door hears of a connection when its
handshake is over: one that never ends would count nowhere. Here a connection counts from the moment at which it is
accepted, and a handshake takes no time of the loop. A connection that is established costs the same as theirs.

Everything that the long and the short way do with a plain connection works: half-closed connections (``write_eof``
sends close_notify), answers that are not read, connections too many, which read why. Long answers are encrypted as
their client takes them.

Only certificates that the client's CA has signed come further than the handshake; whose account one is, is decided by
``controller/access/authentication.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ssl import MemoryBIO, SSLContext, SSLError, SSLObject, SSLWantReadError, SSLZeroReturnError
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from api.doors.http_protocol import LINGER_SECONDS, HttpProtocol
from api.limits import Admission
from api.statuses import error_body
from controller.access.authentication import PeerCertificate
from domains.errors import BadRequest

HANDSHAKE_SECONDS = 10.0
"""A handshake takes two round trips. ``request_timeout`` counts where it is shorter."""
HELD_MAX = 65_536
"""Bytes that are read of a client while a thread is at its handshake. They may be the first request."""
HANDSHAKE_RECORD = 22
"""The first byte of every TLS connection. No HTTP request begins with it."""
RECORD = 16_384
"""Bytes of a TLS record."""
SLICE = 16 * RECORD
"""Bytes of an answer that are encrypted at a time: 0.1 ms."""
FAILED = "tls_handshake"
"""What failed handshakes are counted as."""

_log = logging.getLogger("headrace.tls")


class Tls:
    """What all TLS connections of a port share. ``context`` is for those to come, and may be replaced."""

    def __init__(self, context: SSLContext, admission: Admission) -> None:
        self.context = context
        self.admission = admission
        # One: a flood of handshakes takes one core, and the event loop has the others.
        self.thread = ThreadPoolExecutor(1, "tls")

    def close(self) -> None:
        self.thread.shutdown(wait=False, cancel_futures=True)


class TlsConnection(asyncio.Protocol):
    """One connection: the protocol of its socket, and the transport of its door."""

    def __init__(self, tls: Tls, door: Callable[..., HttpProtocol], **given: Any) -> None:
        """``given``: what uvicorn makes a door with."""
        self._tls = tls
        self._door = door(**given)
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport
        self._in, self._out = MemoryBIO(), MemoryBIO()
        self._ssl: SSLObject
        """From the first bytes on: who only connects costs no more than plainly."""
        self._began = False
        self._established = False
        self._step: asyncio.Future[bool] | None = None
        """The thread has the SSL object and its buffers, which are for one thread at a time."""
        self._arrived = b""
        """Meanwhile."""
        self._timer: asyncio.TimerHandle | None = None
        self._unsent: deque[memoryview] = deque()
        """What the door has written and is not encrypted: before the handshake, or while the socket is full."""
        self._unsent_size = 0
        self._full = False
        """The socket takes no more for now."""
        self._door_waits = False
        """It was told so."""
        self._closing = False
        self._ends = False
        """The door has written all that it will."""
        self._ended = False
        """The client has."""

    # --- the handshake --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._socket = transport
        seconds = min(HANDSHAKE_SECONDS, self._tls.admission.limits.request_timeout)
        self._timer = self._loop.call_later(seconds, self._fail, "it took too long")
        self._door.connection_made(self)  # It counts from now on.

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._established:
            self._in.write(data)
            self._decrypt()
            return
        if not self._began:
            if data[0] != HANDSHAKE_RECORD:
                self._say_plainly()
                return
            self._began = True
            self._ssl = self._tls.context.wrap_bio(self._in, self._out, server_side=True)
        self._arrived += data
        if self._step is None:
            self._go_on()
        elif len(self._arrived) > HELD_MAX:
            self._socket.pause_reading()

    def _go_on(self) -> None:
        self._take_held()
        self._step = self._loop.run_in_executor(self._tls.thread, _handshake, self._ssl)
        self._step.add_done_callback(self._has_gone_on)

    def _has_gone_on(self, step: asyncio.Future[bool]) -> None:
        self._step = None
        if step.cancelled():  # The client has gone, or the server is going.
            return
        error = step.exception()
        if self._socket.is_closing():
            return
        self._send()  # With an error, the alert that says why.
        if error is not None:
            self._fail(str(error))
        elif step.result():
            self._establish()
        elif self._arrived:
            self._go_on()

    def _take_held(self) -> None:
        self._in.write(self._arrived)
        if len(self._arrived) > HELD_MAX:
            self._socket.resume_reading()
        self._arrived = b""

    def _establish(self) -> None:
        self._established = True
        self._stop_timer()
        try:
            given = self._ssl.getpeercert()
        except ValueError as error:  # A name that is no text.
            self._fail(str(error))
            return
        if given:
            self._door.certificate = PeerCertificate.of(given)
        self._take_held()
        self._flush()
        if not self._closing:
            self._decrypt()  # The first request may have come with the handshake's end.

    def _fail(self, why: str) -> None:
        """The connection ends. What a client makes of it is its log's: there is no answer without TLS."""
        _log.debug("TLS with %s: %s", self._socket.get_extra_info("peername"), why)
        if not self._established:
            self._tls.admission.count(FAILED)
        self._closing = True
        self._stop_timer()
        if self._step is not None or not self._began:
            self._socket.abort()
        else:
            self._socket.close()

    def _say_plainly(self) -> None:
        """To a client that does not speak TLS, in its own language if it is HTTP."""
        said = BadRequest("this port speaks TLS, and the request came without", hint="write the URL with https://")
        body = error_body(said.code, said.message, said.hint)
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self._tls.admission.count(FAILED)
        self._closing = True
        self._stop_timer()
        self._socket.write(STATUS_LINE[400] + head + body)
        self._socket.write_eof()
        self._loop.call_later(LINGER_SECONDS, self._socket.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what arrives -----------------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """All records of a read together: the short way wants a request as a whole."""
        pieces: list[bytes] = []
        ended, broken = False, ""
        try:
            while True:
                piece = self._ssl.read(RECORD)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
                if not self._in.pending and not self._ssl.pending():  # It would say so by an exception: 1 µs.
                    break
        except SSLWantReadError:
            pass
        except SSLZeroReturnError:
            ended = True
        except SSLError as error:
            broken = str(error)
        self._send()
        if broken:
            self._fail(broken)
            return
        if pieces:
            self._door.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if ended and not self._closing and not self._told_end():
            self.close()

    def eof_received(self) -> bool:
        """The client has closed its half of the TCP connection. Whether ours stays open."""
        if not self._established:
            return False
        return self._closing or self._ended or self._told_end()

    def _told_end(self) -> bool:
        """Whether the door still has something to say, now that the client has not."""
        self._ended = True
        return self._door.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._stop_timer()
        if self._step is not None:
            self._step.cancel()  # It is not computed any more, if it has not begun.
        self._unsent.clear()
        self._unsent_size = 0
        self._door.connection_lost(exc)

    # --- what leaves ----------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not data or self._closing or self._ends:
            return
        if self._established and not self._unsent and not self._full and len(data) <= SLICE:
            self._ssl.write(data)
            self._socket.write(self._out.read())
            return
        self._unsent.append(memoryview(data))
        self._unsent_size += len(data)
        if self._established:
            self._flush()

    def _flush(self) -> None:
        """Encrypt what waits, as far as the socket takes it."""
        while self._unsent and not self._full:
            piece = self._unsent.popleft()
            if len(piece) > SLICE:
                self._unsent.appendleft(piece[SLICE:])
                piece = piece[:SLICE]
            self._unsent_size -= len(piece)
            self._ssl.write(piece)
            self._send()
        if not self._unsent:
            if self._closing:
                self._close()
            elif self._ends:
                self._say_end()
                self._socket.write_eof()

    def _send(self) -> None:
        if self._out.pending:
            self._socket.write(self._out.read())

    def _say_end(self) -> None:
        """close_notify: the client knows that nothing was cut off."""
        with suppress(SSLError):  # It waits for the client's, which may never come.
            self._ssl.unwrap()
        self._send()

    def pause_writing(self) -> None:
        self._full = True
        if self._established and not self._door_waits:
            self._door_waits = True
            self._door.pause_writing()

    def resume_writing(self) -> None:
        self._full = False
        if not self._established or self._socket.is_closing():
            return
        self._flush()
        if not self._full and self._door_waits:
            self._door_waits = False
            self._door.resume_writing()

    # --- as a transport -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """What was written leaves first."""
        if self._closing:
            return
        self._closing = True
        if not self._unsent:
            self._close()

    def _close(self) -> None:
        if self._established:
            self._say_end()
        self._socket.close()

    def abort(self) -> None:
        self._closing = True
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._closing or self._socket.is_closing()

    def write_eof(self) -> None:
        self._ends = True
        if self._established:
            self._flush()

    def set_protocol(self, door: Any) -> None:
        """A WebSocket takes the connection over."""
        self._door = door

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size() + self._unsent_size

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._tls.context
        return self._socket.get_extra_info(name, default)


def _handshake(connection: SSLObject) -> bool:
    """On the thread: whether it is over. Raises SSLError."""
    try:
        connection.do_handshake()
    except SSLWantReadError:
        return False
    return True
