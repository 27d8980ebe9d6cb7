"""The way to one process of another worker: a stream, and the connections that carry it one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from domains.errors import HeadraceError
from worker.protocol.messages import Hello, Placed, StreamAck, StreamOpen, Welcome
from worker.wire.connection import Connection, connect
from worker.wire.errors import ConnectionLost, ProtocolError
from worker.wire.streams import OutboundStream

BACK_OFF_FIRST = 0.02
"""Seconds before the second attempt. A blip is over at once, and views stand still meanwhile."""
BACK_OFF_MOST = 1.0
"""Attempts are doubled in distance up to this, so that a peer that comes back is found within a second."""
RESUME_SECONDS = 5.0
"""For the other side to say how far it has come."""
WINDOW = 8 << 20
"""Bytes on their way without an acknowledgement. On a line of 10 Gbit/s that is 6 ms, more than a round trip takes.
With more, the rest would only wait in another place, and be sent twice when the connection breaks."""

_log = logging.getLogger("headrace.wire")


class Peer:
    """All but ``arrived`` and ``put_bytes`` belongs to the event loop's thread."""

    def __init__(self, hello: Hello, placed: Placed, stream: int) -> None:
        self.name = placed.worker
        self.process = placed.process
        self.stream = stream
        self.address = (placed.host, placed.port)
        self.arrived: deque[bytes] = deque()
        """Encoded packets on their way from the thread that sends to the one of the event loop."""
        self.put_bytes = 0
        self.freed_bytes = 0
        self.packets = 0
        self.frames = 0
        self.connections = 0
        self.bytes_before = 0
        """Sent over connections that are gone."""
        self.trouble = ""
        """Why there is no connection."""
        self._hello = hello
        self._outbound = OutboundStream()
        self._connection: Connection | None = None
        self._resumed = False
        self._sent = 0
        self._in_flight = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting_bytes(self) -> int:
        """Put and not acknowledged. From any thread."""
        return self.put_bytes - self.freed_bytes

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"headrace-peer-{self.name}")
            self._task.add_done_callback(self._ended)

    def stop(self) -> asyncio.Task[None] | None:
        """End the connection; what was not acknowledged is dropped."""
        if self._connection is not None:
            self._connection.abort(ConnectionLost("the peer is no longer asked for"))
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.trouble = f"internal error: {task.exception()}"
            _log.error('nothing goes to worker "%s" any more', self.name, exc_info=task.exception())

    def drain(self) -> None:
        """Take over what has arrived, and send what may be sent."""
        arrived = self.arrived
        while arrived:
            self._outbound.put_encoded(arrived.popleft())
            self.packets += 1
        self._pump()

    def status(self) -> dict[str, Any]:
        sent = self.bytes_before + (self._connection.bytes_out if self._connection is not None else 0)
        return {
            "process": self.process,
            "address": f"{self.address[0]}:{self.address[1]}",
            "connected": self._resumed,
            "reconnects": max(0, self.connections - 1),
            "packets": self.packets,
            "frames": self.frames,
            "bytes": sent,
            "waiting_bytes": self.waiting_bytes,
            "trouble": self.trouble,
        }

    # --- connections ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        back_off = BACK_OFF_FIRST
        while True:
            try:
                connection = await self._open()
            except HeadraceError as error:
                if str(error) != self.trouble:
                    _log.warning('no way to worker "%s": %s', self.name, error)
                self.trouble = str(error)
                await asyncio.sleep(back_off)
                back_off = min(BACK_OFF_MOST, 2 * back_off)
                continue
            self.connections += 1
            self.trouble = ""
            back_off = BACK_OFF_FIRST
            try:
                await connection.closed.wait()
            finally:
                self._resumed = False
                self.bytes_before += connection.bytes_out
                self._connection = None
            self.trouble = str(connection.error)
            _log.info('the way to worker "%s" broke off: %s', self.name, self.trouble)
            await asyncio.sleep(back_off)

    async def _open(self) -> Connection:
        connection = await connect(*self.address, self._hello, handler=self._hear)
        try:
            await self._resume(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _resume(self, connection: Connection) -> None:
        welcome = connection.peer
        assert isinstance(welcome, Welcome)
        if (welcome.name, welcome.incarnation) != (self.name, self.process):
            # Perhaps the placement will name that process too. Nothing that was put here is meant for it.
            raise ConnectionLost(
                f'process {self.process} of worker "{self.name}" is not there: '
                f'process {welcome.incarnation} of "{welcome.name}" answers'
            )
        try:
            async with asyncio.timeout(RESUME_SECONDS):
                answer = await connection.ask(StreamOpen(self.stream))
        except TimeoutError:
            raise ConnectionLost(f'worker "{self.name}" did not open the stream within {RESUME_SECONDS:g} s') from None
        if not isinstance(answer, StreamAck) or not self._outbound.can_resume(answer.number):
            raise ProtocolError(f'worker "{self.name}" cannot go on with the stream, it answers {answer}')
        self._free(answer.number)
        self._connection, self._resumed = connection, True
        self._sent, self._in_flight = answer.number, 0
        connection.on_drained = self._pump
        self._pump()

    def _hear(self, connection: Connection, message: Any) -> None:
        if not isinstance(message, StreamAck):
            raise ProtocolError(f'"{type(message).__name__}" is not asked for here')
        if connection is self._connection:
            self._in_flight -= self._free(message.number)
            self._pump()

    def _free(self, number: int) -> int:
        freed = self._outbound.acked(number)
        self.freed_bytes += freed
        return freed

    def _pump(self) -> None:
        connection = self._connection
        if connection is None or connection.full or self._in_flight >= WINDOW:
            return
        for frame in self._outbound.frames_after(self._sent):
            connection.tell(frame)
            self.frames += 1
            self._sent += len(frame.items)
            self._in_flight += sum(map(len, frame.items))
            if self._in_flight >= WINDOW:
                return
