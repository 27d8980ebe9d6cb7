"""The receiving ends of the streams of other workers, over the connections that they open to this one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from worker.messages import Role, StreamAck, StreamFrame, StreamOpen
from worker.wire.errors import ProtocolError
from worker.wire.server import Accepted
from worker.wire.streams import Inbound, LinkPacket

_log = logging.getLogger("headrace.wire")

Deliver = Callable[[list[LinkPacket], Callable[[], None]], None]
"""Takes packets for domains of this process, in order. It must take them all, and not block.

It calls what it is given beside them, from any thread, when they are processed. Only then are they acknowledged: so who
sends faster than this process follows has it in its own ``waiting_bytes``, and takes less from outside.
"""


@dataclass(slots=True)
class Arriving:
    """One process of one other worker."""

    stream: int
    inbound: Inbound = field(default_factory=Inbound)
    connection: Accepted | None = None
    packets: int = 0
    frames: int = 0
    unprocessed: int = 0
    """Deliveries that are not processed yet."""
    processed: int = 0
    """All items up to this have been processed."""
    owes_ack: bool = False


class Arrivals:
    """All of it is for the event loop's thread.

    A stream is known by the name and incarnation of the process that opened it and by its number there. All of them are
    remembered (some hundred bytes for each start of another worker): were a process that is thought dead forgotten and
    came back, it could not go on, and were it taken for the one that has replaced it, the two would mix.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._known: dict[tuple[str, int], Arriving] = {}

    def take(self, connection: Accepted, message: StreamOpen | StreamFrame) -> StreamAck | None:
        """What a worker's connection says: the answer to ``StreamOpen``; a ``StreamFrame`` is acknowledged later."""
        hello = connection.hello
        if hello.role is not Role.WORKER:
            raise ProtocolError(f'a stream is for workers, not for the {hello.role} "{hello.name}"')
        key = (hello.name, hello.incarnation)
        if isinstance(message, StreamOpen):
            return self._open(key, connection, message.stream)
        arriving = self._known.get(key)
        if arriving is None or arriving.connection is not connection:
            raise ProtocolError("a frame of a stream that was not opened on this connection")
        packets = arriving.inbound.take(message)
        arriving.packets += len(packets)
        arriving.frames += 1
        if packets:
            arriving.unprocessed += 1
            self._deliver(packets, self._processing(arriving))
        elif not arriving.unprocessed:
            self._processed(arriving, arriving.inbound.received)  # Pieces, or what came before.
        return None

    def _processing(self, arriving: Arriving) -> Callable[[], None]:
        number = arriving.inbound.received

        def done() -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(ended)

        def ended() -> None:
            arriving.unprocessed -= 1
            # Pieces that came behind would wait for the rest of them, and their sender for an acknowledgement.
            self._processed(arriving, number if arriving.unprocessed else arriving.inbound.received)

        return done

    def _processed(self, arriving: Arriving, number: int) -> None:
        arriving.processed = number
        if not arriving.owes_ack:
            arriving.owes_ack = True
            # One for all that ends in this turn of the loop.
            self._loop.call_soon(self._acknowledge, arriving)

    def status(self) -> dict[str, Any]:
        """By worker, of its process that is connected or was last known."""
        return {
            name: {
                "process": process,
                "connected": arriving.connection is not None and arriving.connection.is_open(),
                "packets": arriving.packets,
                "frames": arriving.frames,
                "unprocessed": arriving.unprocessed,
                "doubles": arriving.inbound.doubles,
            }
            for (name, process), arriving in self._known.items()
        }

    def _open(self, key: tuple[str, int], connection: Accepted, stream: int) -> StreamAck:
        arriving = self._known.get(key)
        if arriving is not None and stream < arriving.stream:
            raise ProtocolError(f"stream {stream} has ended, stream {arriving.stream} came after it")
        if arriving is None or stream > arriving.stream:
            before = None if arriving is None else arriving.connection
            arriving = self._known[key] = Arriving(stream, connection=before)
        if arriving.connection is not None and arriving.connection is not connection:
            # Half open, or its last bytes were not read yet: they come again over the new one.
            arriving.connection.close()
        arriving.connection = connection
        return StreamAck(arriving.inbound.received)

    def _acknowledge(self, arriving: Arriving) -> None:
        arriving.owes_ack = False
        if arriving.connection is not None:
            arriving.connection.tell(StreamAck(arriving.processed))
