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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from domains.engine.domain import Domain
from domains.errors import HeadraceError
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock, Failed, Filled, Outcome, RequestId
from worker.dataflow.batch import Answerer, Batch, LinkPacket, Look
from worker.reader_map import ReaderLayout

# Requests that domains have yet to answer, and who waits for the answer.


@dataclass(frozen=True, slots=True)
class PendingRequest:
    domain: DomainIndex
    answer: Answerer
    look: Look | None


class PendingRequests:
    def __init__(self) -> None:
        self._last = 0
        self._pending: dict[RequestId, PendingRequest] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def new(self, domain: DomainIndex, answer: Answerer, look: Look | None = None) -> RequestId:
        """``look`` is taken where the answer stands among what is published."""
        self._last += 1
        request = RequestId(self._last)
        self._pending[request] = PendingRequest(domain, answer, look)
        return request

    def reply(self, request: RequestId, outcome: Outcome, batch: Batch) -> None:
        pending = self._pending.pop(request)
        if pending.look is not None:
            batch.visible.append(pending.look)
        batch.answers.append((pending.answer, outcome))

    def fail(self, domain: DomainIndex, error: HeadraceError, batch: Batch) -> None:
        """The domain is gone, and with it what it was asked."""
        for request, pending in list(self._pending.items()):
            if pending.domain == domain:
                del self._pending[request]
                batch.answers.append((pending.answer, Failed(error)))

    def fail_all(self, error: HeadraceError) -> None:
        """Nothing goes on."""
        for pending in self._pending.values():
            pending.answer(Failed(error))
        self._pending.clear()


class Reception(Enum):
    """The fate of a packet that has come."""

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
    """Packets to send once it is linked."""
    held: list[LinkPacket] = field(default_factory=list)
    """Packets that came too early, in the order in which they came."""
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


# Reads that carry a token wait here until their reader reflects it.


@dataclass(frozen=True, slots=True)
class TokenWait:
    reader: NodeIndex
    clock: Clock
    answer: Answerer
    abandoned: Callable[[], bool]
    """Whether nobody waits any longer."""


class TokenWaits:
    def __init__(self) -> None:
        self._waits: dict[DomainIndex, list[TokenWait]] = {}
        self._checked: dict[DomainIndex, int] = {}
        """The version of the clocks that a domain's waits were last held against."""

    def __len__(self) -> int:
        return sum(map(len, self._waits.values()))

    def add(self, domain: DomainIndex, wait: TokenWait) -> None:
        self._waits.setdefault(domain, []).append(wait)
        self._checked.pop(domain, None)

    def recheck(self, domain: DomainIndex) -> None:
        """The domain's graph has changed."""
        self._checked.pop(domain, None)

    def check(self, hosts: Mapping[DomainIndex, HostedDomain], batch: Batch) -> None:
        """Answer, behind what the batch publishes, those whose reader has reached what they want."""
        for index in list(self._waits):
            domain = hosts[index].domain
            if self._checked.get(index) != domain.clocks.version:
                self._checked[index] = domain.clocks.version
                left = [wait for wait in self._waits[index] if not _is_over(hosts[index], wait, batch)]
                if left:
                    self._waits[index] = left
                else:
                    del self._waits[index]

    def fail(self, domain: DomainIndex, error: HeadraceError, batch: Batch) -> None:
        """The domain is not here any more."""
        for wait in self._waits.pop(domain, ()):
            batch.answers.append((wait.answer, Failed(error)))


def _is_over(host: HostedDomain, wait: TokenWait, batch: Batch) -> bool:
    if wait.abandoned():
        return True
    vertices, clocks = host.domain.vertices, host.domain.clocks
    if wait.reader in vertices and not clocks.reflects(vertices[wait.reader], wait.clock):
        return False
    # Where the reader has gone, whoever asked finds that out by reading.
    batch.answers.append((wait.answer, Filled()))
    return True
