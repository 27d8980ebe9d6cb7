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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from domains.engine.domain import Domain
from domains.errors import BadRequest, HeadraceError, NotFound, TypeViolation
from domains.language.coercion import row_coercer
from domains.language.types import NULL, Row, TableSchema
from domains.plan.graph import DomainIndex, Materialization, Node, NodeIndex
from domains.plan.packets import Clock, Failed, Filled, Insert, TransactionAct, Upquery, receiver_of, sender_of
from domains.plan.traits import is_reader
from worker.dataflow.batch import Answerer, Batch, Drop, LinkPacket, Reveal
from worker.dataflow.link_checks import LinkChecks
from worker.protocol.messages import together, version_of
from worker.reader_map import ReaderLayout
from worker.reader_map.layout import reader_id


class Reception(Enum):
    """The fate of a packet that has come."""

    PROCESS = "process"
    STALE = "stale"
    HOLD = "hold"


@dataclass(slots=True)
class LinkCounters:
    """Counters of the links' packets; all of them only grow."""

    packets: int = 0
    """Sent by the domains here, to each other or to other workers."""
    beats: int = 0
    """The number of these that only tell a clock."""
    stale: int = 0
    """Dropped: of a link that has begun again."""
    held: int = 0
    """Packets of an incarnation that the domain had not heard of yet, or for a domain that was not linked."""
    unhosted: int = 0
    """Dropped: for a domain that is not here."""
    refused: int = 0
    """Dropped: no process of ours makes such a packet (``link_checks.py``)."""


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
    versions: dict[str, int] = field(default_factory=dict)
    """The versions of its tables' schemas, as far as writes have asked for them since a command last changed the
    domain."""
    _coercers: dict[str, tuple[TableSchema, Callable[[Sequence[object]], Row]]] = field(default_factory=dict)
    """Of its tables, as far as rows came from outside."""
    beaten: int = -1
    """The version of its clocks when they were last told to its links."""
    bytes: int = 0
    """The bytes accounted when it was last ``weighed``."""
    weighed: bool = False
    """Whether nothing has happened since."""
    checks: LinkChecks = field(init=False)
    """Of what other workers send it."""

    def __post_init__(self) -> None:
        self.checks = LinkChecks(self.domain)

    def forget(self) -> None:
        """A command changes the domain's graph or tables."""
        self.versions.clear()
        self.checks.clear()

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

    def version(self, tables: Sequence[str]) -> int | None:
        """That of the tables' schemas together; None where one is not here."""
        try:
            for each in tables:
                if each not in self.versions:
                    self.versions[each] = version_of(self.domain.store.table(each).schema)
        except NotFound:
            return None
        return together([self.versions[each] for each in tables])

    @staticmethod
    def waited_for(hosts: Mapping[DomainIndex, HostedDomain], id: str) -> frozenset[str]:
        """For whose locks a transaction waits, in all of these."""
        return frozenset().union(*(each.domain.transactions.locks.waited_for(id) for each in hosts.values()))

    def check_rows(self, operation: TransactionAct) -> None:
        """Rows that come over the wire are what coercion makes of values of their columns: a date is a day, a document
        is one. :raises BadRequest: some are not, and would break an operator in the middle of a step."""
        if not isinstance(operation, Insert):
            return
        schema = self.domain.store.table(operation.table).schema
        known = self._coercers.get(schema.name)
        if known is None or known[0] is not schema:
            types = [NULL if column.dropped else column.type for column in schema.columns]
            known = schema, row_coercer(types, [column.name for column in schema.columns])
            self._coercers[schema.name] = known
        coerced = known[1]
        try:
            for row in operation.rows:
                fit = coerced(row)
                if fit != row:
                    at = next(at for at, (had, given) in enumerate(zip(fit, row, strict=True)) if had != given)
                    name = schema.columns[at].name
                    raise BadRequest(f'table "{schema.name}": {row[at]!r:.80} is no value of column "{name}"')
        except TypeViolation as error:
            raise BadRequest(f'table "{schema.name}": {error.message}', hint=error.hint) from error

    def weigh(self) -> int:
        """Its accounted bytes. What is broken has none that eviction could count on."""
        if not self.weighed:
            self.bytes, self.weighed = 0 if self.is_broken else self.domain.accounted_bytes(), True
        return self.bytes

    def partial_bytes(self) -> int:
        """The bytes that eviction could free."""
        indexes = (index for vertex in self.domain.vertices.values() for index in vertex.indexes.values())
        return sum(index.bytes for index in indexes if index.partial)


def destination(packet: LinkPacket) -> DomainIndex:
    """Which domain a packet is for: an upquery goes against its link."""
    return sender_of(packet.link) if isinstance(packet, Upquery) else receiver_of(packet.link)


def source(packet: LinkPacket) -> DomainIndex:
    """Which domain has sent a packet."""
    return receiver_of(packet.link) if isinstance(packet, Upquery) else sender_of(packet.link)


class Incarnations(dict[DomainIndex, int]):
    """Of all domains, as far as a worker was told by a ``Reconfigure``."""

    def __init__(self) -> None:
        super().__init__()
        self._given_up: dict[DomainIndex, int] = {}
        """Domains of which nothing counts that was sent before these incarnations, until they are known."""

    def learn(self, incarnations: Mapping[DomainIndex, int]) -> None:
        for index, incarnation in incarnations.items():
            self[index] = max(incarnation, self.get(index, 0))

    def give_up(self, incarnations: Mapping[DomainIndex, int]) -> None:
        """Take nothing more that domains have sent before these incarnations, of which there is none yet. What stands
        on them stays as it is until they come again: only then is there something to put in its place."""
        for index, incarnation in incarnations.items():
            self._given_up[index] = max(incarnation, self._given_up.get(index, 0))

    def met(self) -> None:
        """All that is hosted has met what is known, so that what is older is stale."""
        self._given_up = {each: of for each, of in self._given_up.items() if self.get(each, 0) < of}

    def since(self, domain: DomainIndex) -> int:
        """What it has told before this incarnation may not hold."""
        return max(self.get(domain, 0), self._given_up.get(domain, 0))

    def is_void(self, packet: LinkPacket) -> bool:
        return bool(self._given_up) and packet.epoch < self._given_up.get(source(packet), 0)


# The readers of the domains of one worker: how each lies in the reader map, and which are not to be found yet.


class HostedReaders(dict[tuple[DomainIndex, NodeIndex], ReaderLayout]):
    """Layouts by domain and node. Other threads look up in it."""

    def add(self, host: HostedDomain, nodes: Sequence[Node]) -> None:
        """A full reader is concealed while it is built: its marker would say that it has no more than came so far."""
        domain = host.domain
        for node in nodes:
            if is_reader(node.operator):
                layout = ReaderLayout(reader_id(node.index, domain.shard), node.operator, node.columns)
                layout.concealed = node.materialization is Materialization.FULL
                if layout.concealed:
                    host.concealed.append(layout)
                self[domain.index, node.index] = layout

    def reveal(self, host: HostedDomain, batch: Batch) -> None:
        """The node that was built is complete."""
        batch.visible.extend(map(Reveal, host.concealed))
        host.concealed.clear()

    def remove(self, host: HostedDomain, nodes: Sequence[NodeIndex], batch: Batch) -> None:
        for node in nodes:
            layout = self.pop((host.domain.index, node), None)
            if layout is not None:
                batch.visible.append(Drop(layout))
                host.concealed = [other for other in host.concealed if other is not layout]

    def remove_all(self, index: DomainIndex, batch: Batch) -> None:
        """The domain leaves."""
        for key in [key for key in self if key[0] == index]:
            batch.visible.append(Drop(self.pop(key)))


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
        self.waiting: dict[DomainIndex, list[TokenWait]] = {}
        self._checked: dict[DomainIndex, int] = {}
        """The version of the clocks that a domain's waits were last held against."""

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))

    def add(self, domain: DomainIndex, wait: TokenWait) -> None:
        self.waiting.setdefault(domain, []).append(wait)
        self._checked.pop(domain, None)

    def recheck(self, domain: DomainIndex) -> None:
        """The domain's graph has changed."""
        self._checked.pop(domain, None)

    def check(self, hosts: Mapping[DomainIndex, HostedDomain], batch: Batch) -> None:
        """Answer, behind what the batch publishes, those whose reader has reached what they want."""
        for index in list(self.waiting):
            domain = hosts[index].domain
            if self._checked.get(index) != domain.clocks.version:
                self._checked[index] = domain.clocks.version
                left = [wait for wait in self.waiting[index] if not _is_over(hosts[index], wait, batch)]
                if left:
                    self.waiting[index] = left
                else:
                    del self.waiting[index]

    def fail(self, domain: DomainIndex, error: HeadraceError, batch: Batch) -> None:
        """The domain is not here any more."""
        for wait in self.waiting.pop(domain, ()):
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
