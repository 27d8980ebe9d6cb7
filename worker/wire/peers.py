"""The other workers: what this process's domains send, to whichever process hosts the receiver, and what comes back.

::

    Dataflow's flusher ── send ──► Peers ──► Peer (stream) ══ TCP ══► Arrivals ── deliver ──► Dataflow's inbox
                  reconfigure ──►    │  one for each process that the placement names

Who sends is never blocked and never refused: what cannot go out waits, and ``waiting_bytes`` says how much that is.
It is the dataflow's business to take less from outside then (never less from other workers: two that wait for each
other would do so for ever).

Figures on one core, both ends together: 8 µs a packet of one row in runs of 200, 11 µs in runs of 20, 40 to 60 µs for
one that goes alone, which is also how long it takes to arrive on the same host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from domains.graph import DomainIndex
from worker.messages import Hello, Placed, StreamAck, StreamFrame, StreamOpen
from worker.wire import codec
from worker.wire.arrivals import Arrivals, Deliver
from worker.wire.peer import Peer
from worker.wire.server import Accepted
from worker.wire.streams import LinkPacket


class Peers:
    """Made in the event loop's thread. ``hello`` says who this process is."""

    def __init__(self, hello: Hello, deliver: Deliver) -> None:
        self.unplaced = 0
        """Packets for domains that no placement names: they are nowhere, and begin anew wherever they open."""
        self._hello = hello
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
        """Packets for domains that other processes host, in order. One call is at most one wake of the event loop."""
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
        """Who hosts what from now on. Call it before the domains hear of it: what they send to a new incarnation is
        then for the process that hosts it.

        Processes that host nothing any more are forgotten with all that waits for them.
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
        """Sent, and not yet arrived in other processes."""
        with self._lock:
            return sum(peer.waiting_bytes for peer in self._peers.values())

    def _new(self, placed: Placed) -> Peer:
        self._streams += 1
        return Peer(self._hello, placed, self._streams)

    def _wake(self) -> None:
        if not self._woken and not self._closed:
            self._woken = True
            self._loop.call_soon_threadsafe(self._drain)

    # --- in the event loop ------------------------------------------------------------------------------------

    def take(self, connection: Accepted, message: StreamOpen | StreamFrame) -> StreamAck | None:
        """What another worker's connection says (``Handler`` of the server): answer what this answers."""
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
        """End all connections to others. What they have not acknowledged is dropped."""
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
