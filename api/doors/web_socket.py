"""A WebSocket: uvicorn's protocol for it, on a connection that began as HTTP.

The connection stays what it was to the limits: ``HttpProtocol`` counts it until it ends, hears when its client reads
too little, and hangs up then. What has arrived of messages counts as bytes that are received and not answered.

Nothing is compressed, and a server masks nothing (RFC 6455, 5.3), so a message has the same bytes for all who are sent
it. An application that knows this gives them as they leave (:data:`FRAMES`), written once.
"""

from __future__ import annotations

import logging
from typing import Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.server import ServerProtocol

from api.limits import STRAIGHT, Admission
from api.statuses import CERTIFICATE
from controller.access.authentication import PeerCertificate

FRAMES = "headrace.frames"
"""The type of a message to a client that is one or several frames already, its ``bytes``."""
PING_SECONDS, PONG_SECONDS = 20.0, 20.0
"""A client that is gone without a word is found out so."""


def text_frame(text: bytes) -> bytes:
    """Not by the library, whose frames of any kind take three microseconds each, ten times as long."""
    size = len(text)
    if size < 126:
        return b"\x81%c%b" % (size, text)
    if size < 1 << 16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2, "big"), text)
    return b"\x81\x7f%b%b" % (size.to_bytes(8, "big"), text)


class WebSocketDoor(WebSocketsSansIOProtocol):
    """``http``: the ``HttpProtocol`` on which it was asked for."""

    def __init__(self, http: Any, certificate: PeerCertificate | None, admission: Admission) -> None:
        super().__init__(http.config, http.server_state, http.app_state)
        self._http = http
        self._certificate = certificate
        self._admission = admission
        self._charged = 0
        logger = logging.getLogger("headrace.api")
        self.conn = ServerProtocol(max_size=admission.limits.max_message_size, logger=logger)
        self.ping_interval, self.ping_timeout = PING_SECONDS, PONG_SECONDS

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if hasattr(self, "scope"):
            self.scope[STRAIGHT] = self  # type: ignore[literal-required]
            if self._certificate is not None:
                self.scope[CERTIFICATE] = self._certificate  # type: ignore[literal-required]

    # --- what arrives -----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        error = self._count()
        if error is not None and not self.close_sent and not self.transport.is_closing():
            self.conn.fail(1013, "too much has arrived that is not answered; try again later")
            self.handle_parser_exception()

    async def receive(self) -> Any:
        message = await super().receive()
        self._count()
        return message

    def _count(self) -> Any:
        """What is here of messages that nobody has taken. The error where all of it is too much by now."""
        held = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        waiting: Any = self.queue._queue  # type: ignore[attr-defined]  # Few: nothing is read while there is one.
        held += sum(len(each.get("text") or each.get("bytes") or b"") for each in waiting)
        more, self._charged = held - self._charged, held
        if more > 0:
            return self._admission.receive(more)
        self._admission.release(-more)
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._admission.release(self._charged)
        self._charged = 0
        self._http.connection_lost(exc)

    # --- what leaves ------------------------------------------------------------------------------------------------

    async def send(self, message: Any) -> None:
        if message["type"] != FRAMES:
            await super().send(message)
            # Of one that is refused uvicorn would log an error, and every stranger could write a line of it.
            self.handshake_complete |= message["type"] == "websocket.http.response.body"
            return
        await self.writable.wait()
        if not self.takes():
            raise ClientDisconnected
        self.put(message["bytes"])

    def takes(self) -> bool:
        """See :class:`api.limits.StraightWay`, which it implements for frames."""
        gone = self.disconnected or self.close_sent or self.transport.is_closing()
        return self.writable.is_set() and not gone

    def put(self, piece: bytes) -> None:
        self.transport.write(piece)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._http.pause_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._http.resume_writing()
