"""One domain as its worker has it: whether it is linked, and what waits because it is not, or is of another time.

A domain that is opened anew is another *incarnation*, and its links begin again. Every packet carries the epoch of its
link, that of the younger end. So a packet that comes may be

* of the link as the domain knows it: it is processed;
* older: its sender had not heard yet that the domain began anew. It is dropped, for nothing depends on it: the sender
  will be told, and begins the link again;
* newer: its sender is another incarnation than the domain knows. It is *held* until ``PeerReset`` has told the domain,
  since before that it would meet the state that the one before has filled.

Until a domain is *linked* (its nodes are there, and its peers know it) everything that comes is held, and so is all
that it sends: whoever was to take it may be unknown here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from domains.domain import Domain
from domains.packets import Clock
from worker.batch import LinkPacket
from worker.reader_map import ReaderLayout


class Reception(Enum):
    """What becomes of a packet that has come."""

    PROCESS = "process"
    STALE = "stale"
    HOLD = "hold"


@dataclass(slots=True)
class HostedDomain:
    domain: Domain
    linked: bool
    sync: Callable[[], None] | None = None
    """Makes what was committed to its store durable; any thread may call it."""
    close: Callable[[], None] | None = None
    """Closes its store."""
    outgoing: list[LinkPacket] = field(default_factory=list)
    """What it wants to send while it is not linked."""
    held: list[LinkPacket] = field(default_factory=list)
    """What has come too early, in the order in which it came."""
    concealed: list[ReaderLayout] = field(default_factory=list)
    """Full readers that are being built."""
    beaten: int = -1
    """The version of its clocks when they were last told to its links."""
    bytes: int = 0
    """As accounted when it was last ``weighed``."""
    weighed: bool = False
    """Whether nothing has happened since."""

    @property
    def is_broken(self) -> bool:
        """Whether a step was broken off in the middle: it serves nothing, and its next incarnation does."""
        return self.domain.broken is not None

    def reception(self, packet: LinkPacket) -> Reception:
        epoch = self.domain.link_epoch(packet.link)
        if packet.epoch < epoch or self.is_broken:
            return Reception.STALE
        if packet.epoch > epoch or not self.linked:
            return Reception.HOLD
        return Reception.PROCESS

    def weigh(self) -> int:
        """Its accounted bytes. What is broken has none that eviction could count on."""
        if not self.weighed:
            self.bytes, self.weighed = 0 if self.is_broken else self.domain.accounted_bytes(), True
        return self.bytes

    def partial_bytes(self) -> int:
        """Those that eviction could free."""
        indexes = (index for vertex in self.domain.vertices for index in vertex.indexes.values())
        return sum(index.bytes for index in indexes if index.partial)

    def positions(self) -> Clock:
        """Of its base shards."""
        return dict(self.domain.clocks.local)
