"""A stream under cuts, doubles and delays, step by step from a seed; its invariants after every step."""

from __future__ import annotations

from random import Random

import pytest
from wire_objects import update

from domains.plan.packets import EvictMemory, Upquery
from worker.protocol.messages import ProtocolError, StreamFrame
from worker.wire import streams
from worker.wire.codec import encode
from worker.wire.streams import Inbound, LinkPacket, OutboundStream


class Line:
    """Two ends and the frames and acknowledgements between them, in order within a connection."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.outbound, self.inbound = OutboundStream(), Inbound()
        self.put: list[LinkPacket] = []
        self.taken: list[LinkPacket] = []
        self.frames: list[StreamFrame] | None = None
        """On their way; None: there is no connection."""
        self.late: list[StreamFrame] = []
        """Of earlier connections, in the order of each: they may still be read."""
        self.acks: list[int] = []
        self.late_acks: list[int] = []
        self.sent = 0

    def step(self) -> None:
        random = self.random
        act = random.choices(
            (self.say, self.flush, self.hear, self.heard, self.cut, self.join, self.hear_late, self.heard_late),
            (8, 4, 6, 4, 1, 2, 1, 1),
        )[0]
        act()
        self.check()

    def say(self) -> None:
        number = len(self.put) + 1
        packet: LinkPacket = update(number, "x" * self.random.choice((0, 3, 30, 200)))
        if self.random.random() < 0.2:
            packet = Upquery(packet.link, number, 4, (0,), ((number,),))  # type: ignore[arg-type]
        self.put.append(packet)
        self.outbound.put(encode(packet))

    def flush(self) -> None:
        if self.frames is None:
            return
        for frame in self.outbound.frames_after(self.sent):
            self.frames.append(frame)
            self.sent += len(frame.items)
            if self.random.random() < 0.3:
                break

    def hear(self) -> None:
        if self.frames:
            frame = self.frames.pop(0)
            self.taken += self.inbound.take(frame)
            self.acks.append(self.inbound.received)
            if self.random.random() < 0.1:
                assert self.inbound.take(frame) == []

    def heard(self) -> None:
        if self.acks:
            self.outbound.acked(self.acks.pop(0))

    def cut(self) -> None:
        """What is on its way is lost, or comes late."""
        if self.frames is not None:
            self.late = [*self.frames, *self.late] if self.random.random() < 0.5 else []
            self.late_acks += self.acks
            self.frames, self.acks = None, []

    def join(self) -> None:
        if self.frames is None:
            received = self.inbound.received
            assert self.outbound.can_resume(received)
            self.outbound.acked(received)
            self.frames, self.sent = [], received

    def hear_late(self) -> None:
        """Frames of a connection that is gone: doubles, or a gap, which is refused and changes nothing."""
        if self.late:
            frame = self.late.pop(0)
            before = self.inbound.received
            try:
                self.taken += self.inbound.take(frame)
            except ProtocolError:
                assert frame.number > before + 1
                assert self.inbound.received == before

    def heard_late(self) -> None:
        if self.late_acks:
            self.outbound.acked(self.late_acks.pop(0))

    def check(self) -> None:
        outbound, inbound = self.outbound, self.inbound
        assert self.taken == self.put[: len(self.taken)]
        assert outbound.acknowledged <= inbound.received <= outbound.last
        numbers = list(range(outbound.acknowledged + 1, outbound.last + 1))
        assert list(outbound._items) == numbers
        assert outbound.waiting_bytes == sum(map(len, outbound._items.values()))
        assert outbound._continued <= set(numbers)

    def quiet(self) -> None:
        self.cut()
        self.join()
        while self.frames or self.sent < self.outbound.last:
            self.flush()
            self.hear()
        self.outbound.acked(self.inbound.received)
        self.check()
        assert self.taken == self.put
        assert self.outbound.waiting_bytes == 0


@pytest.mark.parametrize("lengths", ["as they are", "short"])
def test_all_arrives_once_and_in_order(monkeypatch: pytest.MonkeyPatch, lengths: str) -> None:
    if lengths == "short":  # Packets are cut into pieces, and frames are small.
        monkeypatch.setattr(streams, "ITEM_MAX", 50)
        monkeypatch.setattr(streams, "FRAME_BYTES", 150)
        monkeypatch.setattr(streams, "FRAME_ITEMS", 5)
    doubles = pieces = 0
    for seed in range(150):
        line = Line(Random(seed))
        try:
            for _ in range(250):
                line.step()
            line.quiet()
        except BaseException:
            print("seed", seed)
            raise
        doubles += line.inbound.doubles
        pieces += line.outbound.last - len(line.put)
    assert doubles > 1000
    assert (pieces > 1000) == (lengths == "short")


def test_frames_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "ITEM_MAX", 50)
    monkeypatch.setattr(streams, "FRAME_BYTES", 150)
    monkeypatch.setattr(streams, "FRAME_ITEMS", 4)
    outbound = OutboundStream()
    for number in range(1, 40):
        outbound.put(encode(update(number, "x" * (number * 7 % 130))))
    for frame in outbound.frames_after(0):
        assert max(map(len, frame.items)) <= 50
        assert min(map(len, frame.items)) > 0
        assert len(frame.items) <= 4
        assert sum(map(len, frame.items[:-1])) < 150


@pytest.mark.parametrize("length", [99, 100, 101, 200, 201])
def test_pieces_of_any_length_make_the_packet(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    empty = len(encode(update(1, "x" * 40)))
    packet = update(1, "x" * (40 + length - empty))
    assert len(encode(packet)) == length
    monkeypatch.setattr(streams, "ITEM_MAX", 100)
    outbound, inbound = OutboundStream(), Inbound()
    outbound.put(encode(packet))
    (frame,) = outbound.frames_after(0)
    assert len(frame.items) == -(-length // 100)
    assert b"".join(frame.items) == encode(packet)
    assert inbound.take(frame) == [packet]


def test_what_no_sender_says_is_refused_and_changes_nothing() -> None:
    outbound, inbound = OutboundStream(), Inbound()
    outbound.put(encode(update(1)))
    (frame,) = outbound.frames_after(0)
    for wrong in (
        StreamFrame(2, frame.items),
        StreamFrame(0, frame.items),
        StreamFrame(-5, frame.items),
        StreamFrame(1, (*frame.items, b"garbage")),
        StreamFrame(1, (encode(EvictMemory(1)),)),
    ):
        with pytest.raises(ProtocolError):
            inbound.take(wrong)
        assert inbound.received == 0
    assert inbound.take(frame) == [update(1)]
    with pytest.raises(ProtocolError):
        outbound.acked(2)
    assert not outbound.can_resume(2)
    outbound.acked(1)
    assert not outbound.can_resume(0)
