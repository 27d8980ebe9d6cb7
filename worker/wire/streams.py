"""A stream: packets from one process of a worker to one process of another, each once and in order, whatever the
connections in between do. No socket and no clock: a simulator drives it as ``peers.py`` does.

A packet that is put is encoded at once into a numbered *item* (a long one into several), and kept until the other side
has said that it arrived. After a lost connection the other side says how far it had come, and the stream goes on behind
that. So these hold at any time, for any loss, delay, doubling and, between connections, reordering of frames
(``tests/worker/wire/test_streams.py`` checks them after every step):

1. What ``Inbound`` has handed out is a prefix of what was put into ``Outbound``.
2. ``acked <= received <= last``: what is forgotten by the sender has arrived.
3. ``Outbound`` holds the items ``acked + 1 … last`` without a gap, and ``waiting_bytes`` is the sum of their lengths.
4. If frames and acknowledgements get through from some time on, all that was put arrives, and ``waiting_bytes`` is 0.

A stream ends with either process: a new incarnation of either begins a new one. What the old one held is dropped, which
loses nothing, as its domains are begun anew too and void their links (``PeerReset``).
"""

from __future__ import annotations

from collections.abc import Iterator

from domains.plan.packets import LinkUpdate, Upquery
from worker.protocol.messages import StreamFrame
from worker.wire import codec
from worker.wire.errors import ProtocolError

LinkPacket = LinkUpdate | Upquery

ITEM_MAX = 1 << 20
"""Bytes of one item. A packet may be as long as a fill is; in pieces it does not hit the limit of a frame."""
FRAME_BYTES = 256 << 10
"""A frame takes items until it has this many bytes: a flush is one frame, and a long backlog does not wait in one."""
FRAME_ITEMS = 4096
"""… or this many items: decoding them takes the event loop some 10 ms, and others wait for that."""


class OutboundStream:
    """The sending end."""

    def __init__(self) -> None:
        self.last = 0
        """Number of the last item that was put; the first is 1."""
        self.acknowledged = 0
        """All items up to this have arrived."""
        self.waiting_bytes = 0
        """Of the items that have not, as far as is known. Admission goes by it (``worker/dataflow/thread.py``)."""
        self._items: dict[int, bytes] = {}
        self._continued: set[int] = set()

    def put(self, packet: LinkPacket) -> None:
        self.put_encoded(codec.encode(packet))

    def put_encoded(self, data: bytes) -> None:
        """A packet that ``codec.encode`` has encoded already."""
        self.waiting_bytes += len(data)
        if len(data) > ITEM_MAX:
            for at in range(0, len(data) - ITEM_MAX, ITEM_MAX):
                self.last += 1
                self._items[self.last] = data[at : at + ITEM_MAX]
                self._continued.add(self.last)
            data = data[(len(data) - 1) // ITEM_MAX * ITEM_MAX :]
        self.last += 1
        self._items[self.last] = data

    def frames_after(self, number: int) -> Iterator[StreamFrame]:
        """All items behind ``number``, which is not below ``acknowledged``."""
        assert self.acknowledged <= number, f"items up to {self.acknowledged} are forgotten"
        while number < self.last:
            first, size = number + 1, 0
            items: list[bytes] = []
            while number < self.last and size < FRAME_BYTES and len(items) < FRAME_ITEMS:
                number += 1
                items.append(self._items[number])
                size += len(items[-1])
            continued: tuple[int, ...] = ()
            if self._continued:
                continued = tuple(n - first for n in range(first, number + 1) if n in self._continued)
            yield StreamFrame(first, tuple(items), continued)

    def can_resume(self, received: int) -> bool:
        """Whether the other side, which has the items up to ``received``, can be given what follows."""
        return self.acknowledged <= received <= self.last

    def acked(self, number: int) -> int:
        """The items up to ``number`` have arrived; the bytes that this frees. An older number changes nothing.

        :raises ProtocolError: that number was not put yet.
        """
        if number > self.last:
            raise ProtocolError(f"item {number} of a stream is acknowledged, and {self.last} is the last")
        freed = 0
        for arrived in range(self.acknowledged + 1, number + 1):
            freed += len(self._items.pop(arrived))
            self._continued.discard(arrived)
        self.acknowledged = max(self.acknowledged, number)
        self.waiting_bytes -= freed
        return freed


class Inbound:
    """The receiving end."""

    def __init__(self) -> None:
        self.received = 0
        """All items up to this have arrived."""
        self.doubles = 0
        """Items that came again and were dropped."""
        self._pieces: list[bytes] = []

    def take(self, frame: StreamFrame) -> list[LinkPacket]:
        """The packets that a frame completes, in order. What has arrived before is dropped.

        :raises ProtocolError: items before it are missing, or one of its packets is none. Then it changes nothing.
        """
        if not 1 <= frame.number <= self.received + 1:
            raise ProtocolError(f"item {frame.number} of a stream follows item {self.received}")
        known = self.received + 1 - frame.number
        pieces = list(self._pieces)
        packets: list[LinkPacket] = []
        for place, item in enumerate(frame.items[known:], known):
            if place in frame.continued:
                pieces.append(item)
                continue
            if pieces:
                item = b"".join([*pieces, item])
                pieces = []
            packet = codec.decode(item)
            if not isinstance(packet, LinkUpdate | Upquery):
                raise ProtocolError(f'a "{type(packet).__name__}" does not go over a link')
            packets.append(packet)
        self.doubles += min(known, len(frame.items))
        self.received = max(self.received, frame.number + len(frame.items) - 1)
        self._pieces = pieces
        return packets
