"""A stream: packets from one process of a worker to one process of another, each once and in order, whatever the
connections in between do. No socket and no clock: a simulator drives it as ``peers.py`` does.

An encoded packet becomes a numbered *item* (a long one several), which is kept until the other side acknowledges it.
After a lost connection the other side says which item it received last, and the stream goes on behind that. So these
hold at any time, for any loss, delay, doubling and, between connections, reordering of frames
(``tests/worker/wire/test_streams.py`` checks them after every step):

1. The packets out of ``Inbound`` are a prefix of those that were put into ``OutboundStream``.
2. ``acknowledged <= received <= last``: the sender forgets only items that have arrived.
3. ``OutboundStream`` holds the items ``acknowledged + 1 … last``, and ``waiting_bytes`` is the sum of their lengths.
4. Once frames and acknowledgements get through, all packets arrive, and ``waiting_bytes`` becomes 0.

A stream ends with either process: a new incarnation of either begins a new one. The items of the old one are dropped,
which loses nothing, since the domains of a new process are begun anew and void their links (``PeerReset``).
"""

from __future__ import annotations

from collections.abc import Iterator

from domains.plan.packets import LinkUpdate, Upquery
from worker.protocol.messages import ProtocolError, StreamFrame
from worker.wire import codec

LinkPacket = LinkUpdate | Upquery

ITEM_MAX = 1 << 20
"""Bytes of one item. A packet with a large fill is cut into pieces, so that none is over the limit of a frame."""
FRAME_BYTES = 256 << 10
"""A frame takes items until it has this many bytes: enough for one flush, and a long backlog becomes several frames."""
FRAME_ITEMS = 4096
"""… or this many items: decoding them takes the event loop some 10 ms, and other requests wait meanwhile."""


class OutboundStream:
    """The sending end."""

    def __init__(self) -> None:
        self.last = 0
        """Number of the last item that was put; the first is 1."""
        self.acknowledged = 0
        """All items up to this have arrived."""
        self.waiting_bytes = 0
        """Bytes of the other items. Admission goes by it (``worker/dataflow/thread.py``)."""
        self._items: dict[int, bytes] = {}
        self._continued: set[int] = set()

    def put(self, data: bytes) -> None:
        """Take a packet as ``codec.encode`` has encoded it."""
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
        """All items after ``number``, which is not below ``acknowledged``."""
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
        """Whether the items after ``received``, the other side's last, are still here."""
        return self.acknowledged <= received <= self.last

    def acked(self, number: int) -> int:
        """Forget the items up to ``number``; answers how many bytes that frees.

        :raises ProtocolError: there is no item of that number yet.
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
        """The packets that a frame completes, in order. Items that came before are dropped.

        :raises ProtocolError: items before it are missing, or it has something else than packets. Then nothing changes.
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
