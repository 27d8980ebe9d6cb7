"""The streams of packets to and from the other workers, for the links between their domains and those of this process.

::

    group commit ─────── send ───► Peers ──► Peer (stream) ══ TCP ══► Arrivals ── deliver ──► Dataflow's inbox
                  reconfigure ──►    │  one for each process that the placement names

Sending never blocks and is never refused: packets that cannot go out wait, and ``waiting_bytes`` counts them. The
dataflow then takes less from outside (never less from other workers: two that wait for each other would do so for
ever).

Figures on one core, both ends together: 8 µs a packet of one row in runs of 200, 11 µs in runs of 20, 40 to 60 µs for
one that goes alone, which is also how long it takes to arrive on the same host.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from domains.errors import HeadraceError
from domains.plan.graph import DomainIndex
from worker.protocol.messages import (
    ConnectionLost,
    Hello,
    Placed,
    ProtocolError,
    Role,
    StreamAck,
    StreamFrame,
    StreamOpen,
    Welcome,
)
from worker.wire import codec
from worker.wire.connection import Connection, connect
from worker.wire.server import Accepted
from worker.wire.streams import Inbound, LinkPacket, OutboundStream
from zookeeper.secret import Secret

BACK_OFF_FIRST = 0.02
"""Seconds before the second attempt to connect. Most interruptions are short, and views stand still meanwhile."""
BACK_OFF_MOST = 1.0
"""The pause between attempts doubles up to this, so that a peer that comes back is found within a second."""
RESUME_SECONDS = 5.0
"""Seconds for the other side to say which item it received last."""
WINDOW = 8 << 20
"""Bytes that may be sent and not acknowledged. At 10 Gbit/s that is 6 ms, more than a round trip. More would only wait
in another place, and be sent twice when the connection breaks."""


class Peer:
    """The stream to one process of another worker, and the connections that carry it one after the other.

    All but ``arrived`` and ``put_bytes`` is for the event loop's thread.
    """

    def __init__(self, hello: Hello, placed: Placed, stream: int, secret: Secret | None = None) -> None:
        self.name = placed.worker
        self.process = placed.process
        self.stream = stream
        self.address = (placed.host, placed.port)
        self.arrived: deque[bytes] = deque()
        """Encoded packets, from the sending thread to the event loop's."""
        self.put_bytes = 0
        self.freed_bytes = 0
        self.packets = 0
        self.frames = 0
        self.connections = 0
        self.bytes_before = 0
        """Sent over earlier connections."""
        self.trouble = ""
        """The reason why there is no connection."""
        self._hello = hello
        self._secret = secret
        self._outbound = OutboundStream()
        self._connection: Connection | None = None
        self._resumed = False
        self._sent = 0
        self._in_flight = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting_bytes(self) -> int:
        """Bytes of packets that are not acknowledged. From any thread."""
        return self.put_bytes - self.freed_bytes

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"headrace-peer-{self.name}")
            self._task.add_done_callback(self._ended)

    def stop(self) -> asyncio.Task[None] | None:
        """End the connection; packets that are not acknowledged are dropped."""
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
        """Take the packets from the sending thread, and send what the window allows."""
        arrived = self.arrived
        while arrived:
            self._outbound.put(arrived.popleft())
            self.packets += 1
        self._pump()

    def status(self) -> dict[str, Any]:
        sent = self.bytes_before + (self._connection.traffic["bytes_out"] if self._connection is not None else 0)
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
                self.bytes_before += connection.traffic["bytes_out"]
                self._connection = None
            self.trouble = str(connection.error)
            _log.info('the way to worker "%s" broke off: %s', self.name, self.trouble)
            await asyncio.sleep(back_off)

    async def _open(self) -> Connection:
        connection = await connect(*self.address, self._hello, handler=self._hear, secret=self._secret)
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
            # These packets are not for that process, even if the placement will name it later.
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


_log = logging.getLogger("headrace.wire")

Deliver = Callable[[list[LinkPacket], Callable[[], None], Callable[[ProtocolError], None]], None]
"""Takes packets for domains of this process, in order. It must take them all, and not block.

It calls its second argument, from any thread, when they are processed. Only then are they acknowledged, so a sender
that is faster than this process sees that in its own ``waiting_bytes``, and takes less from outside. The third one it
calls, from any thread, of each that fits no node there: it is named in the log, and counted.
"""


@dataclass(slots=True)
class Arriving:
    """The stream from one process of another worker."""

    stream: int
    inbound: Inbound = field(default_factory=Inbound)
    connection: Accepted | None = None
    packets: int = 0
    frames: int = 0
    unprocessed: int = 0
    """Deliveries that are being processed."""
    processed: int = 0
    """All items up to this have been processed."""
    owes_ack: bool = False


class Arrivals:
    """The receiving ends of other workers' streams, over connections that they open. For the event loop's thread.

    A stream is identified by the name and incarnation of the process that opened it and by its number there. None is
    forgotten (some hundred bytes for each start of another worker): a process that was thought dead and comes back must
    be able to go on, and must not be taken for the one that replaced it.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._known: dict[tuple[str, int], Arriving] = {}

    def take(self, connection: Accepted, message: StreamOpen | StreamFrame) -> StreamAck | None:
        """Handle a worker's message. Answers ``StreamOpen``; a ``StreamFrame`` is acknowledged later."""
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
            self._deliver(packets, self._processing(arriving), partial(self._refused, connection))
        elif not arriving.unprocessed:
            self._processed(arriving, arriving.inbound.received)  # Pieces of a packet, or items that came again.
        return None

    def _processing(self, arriving: Arriving) -> Callable[[], None]:
        number = arriving.inbound.received

        def done() -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(ended)

        def ended() -> None:
            arriving.unprocessed -= 1
            # Includes pieces of the next packet: their sender may need the acknowledgement to send the rest.
            self._processed(arriving, number if arriving.unprocessed else arriving.inbound.received)

        return done

    def _refused(self, connection: Accepted, error: ProtocolError) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(connection.tell_of, error)

    def _processed(self, arriving: Arriving, number: int) -> None:
        arriving.processed = number
        if not arriving.owes_ack:
            arriving.owes_ack = True
            # One acknowledgement for all deliveries that end in this turn of the loop.
            self._loop.call_soon(self._acknowledge, arriving)

    def status(self) -> dict[str, Any]:
        """The status by worker, of its process that was known last."""
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
            # It is half open, or has unread bytes: their items come again over the new one.
            arriving.connection.close()
        arriving.connection = connection
        return StreamAck(arriving.inbound.received)

    def _acknowledge(self, arriving: Arriving) -> None:
        arriving.owes_ack = False
        if arriving.connection is not None:
            arriving.connection.tell(StreamAck(arriving.processed))


class Peers:
    """Made in the event loop's thread. ``hello`` is this process's greeting, ``secret`` the deployment's."""

    def __init__(self, hello: Hello, deliver: Deliver, secret: Secret | None = None) -> None:
        self.unplaced = 0
        """Packets for domains that no worker hosts. They are dropped: such a domain begins anew wherever it opens."""
        self._hello = hello
        self._secret = secret
        self._arrivals = Arrivals(deliver)
        self._loop = asyncio.get_running_loop()
        self._lock = Lock()
        # Under the lock, since any thread may send and reconfigure:
        self._peers: dict[tuple[str, int], Peer] = {}
        self._host_of: dict[DomainIndex, Peer] = {}
        self._streams = 0
        self._woken = False
        self._closed = False

    # --- from any thread --------------------------------------------------------------------------------------

    def send(self, sends: Sequence[tuple[DomainIndex, LinkPacket]]) -> None:
        """Send packets to domains of other processes, in order. A call wakes the event loop at most once."""
        encoded = [(receiver, codec.encode(packet)) for receiver, packet in sends]
        with self._lock:
            for receiver, data in encoded:
                peer = self._host_of.get(receiver)
                if peer is None:
                    self.unplaced += 1
                else:
                    peer.put_bytes += len(data)
                    peer.arrived.append(data)
            self._wake()

    def reconfigure(self, placement: Mapping[DomainIndex, Placed]) -> None:
        """Set the hosts of all domains. Call it before the domains hear of it, so that their packets to a new
        incarnation go to the process that hosts it.

        Packets that wait for a process that hosts nothing any more are dropped.
        """
        own = (self._hello.name, self._hello.incarnation)
        with self._lock:
            before, self._peers, self._host_of = self._peers, {}, {}
            for domain, placed in placement.items():
                key = (placed.worker, placed.process)
                if key == own:
                    continue
                peer = self._peers.get(key)
                if peer is None:
                    peer = self._peers[key] = before.pop(key) if key in before else self._new(placed)
                peer.address = (placed.host, placed.port)
                self._host_of[domain] = peer
            gone = list(before.values())
            if not self._closed:
                self._loop.call_soon_threadsafe(self._follow, gone)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of packets that other processes have not acknowledged."""
        with self._lock:
            return sum(peer.waiting_bytes for peer in self._peers.values())

    def _new(self, placed: Placed) -> Peer:
        self._streams += 1
        return Peer(self._hello, placed, self._streams, self._secret)

    def _wake(self) -> None:
        if not self._woken and not self._closed:
            self._woken = True
            self._loop.call_soon_threadsafe(self._drain)

    # --- in the event loop ------------------------------------------------------------------------------------

    def take(self, connection: Accepted, message: StreamOpen | StreamFrame) -> StreamAck | None:
        """Handle another worker's message; the result is the answer."""
        return self._arrivals.take(connection, message)

    def status(self) -> dict[str, Any]:
        with self._lock:
            peers = list(self._peers.values())
        return {
            "out": {peer.name: peer.status() for peer in peers},
            "in": self._arrivals.status(),
            "unplaced": self.unplaced,
        }

    async def close(self) -> None:
        """End all connections to others. Packets that are not acknowledged are dropped."""
        with self._lock:
            self._closed = True
            peers, self._peers, self._host_of = list(self._peers.values()), {}, {}
        tasks = [task for peer in peers if (task := peer.stop()) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _follow(self, gone: Sequence[Peer]) -> None:
        for peer in gone:
            peer.stop()
        with self._lock:
            peers = [] if self._closed else list(self._peers.values())
        for peer in peers:
            peer.start()

    def _drain(self) -> None:
        with self._lock:
            self._woken = False
            peers = list(self._peers.values())
        for peer in peers:
            peer.drain()
