"""The simulator: domains on one thread, links as queues, and readers as dicts."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from domains.engine.control import perform
from domains.engine.domain import Domain
from domains.engine.invariants import check_domain, check_links
from domains.errors import StorageFailure
from domains.language.types import Delta, Row
from domains.plan.commands import Activate, Command, RemoveNodes
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import (
    Effect,
    LinkId,
    LinkUpdate,
    Outcome,
    Packet,
    PeerReset,
    Publish,
    Reply,
    RequestId,
    Send,
    Upquery,
    receiver_of,
    sender_of,
)
from domains.store.memory_store import MemoryStore
from migrations.flow.plan import MigrationPlan
from tests.failing_store import FailingStore, Fuse
from worker.dataflow.link_checks import LinkChecks

_Reset = tuple[RemoveNodes | None, list[PeerReset]]
BEATS = 0.1
"""How often clocks are told before a packet is delivered; they always are when nothing else waits."""


class Simulation:
    """Groups of nodes, each in so many shards: a domain for each pair, those of group 0 with the base tables.

    Packets wait in their links until ``deliver`` takes one. A domain that is lost begins again as a new incarnation;
    the others learn of it by a ``PeerReset``, which takes its time as packets do. What was sent to or by an incarnation
    that is no more is dropped, what comes of one that is not known yet is held: so a host does it.
    """

    def __init__(self, groups: int = 1, shards: int = 1, *, check: bool = True, fuse: Fuse | None = None) -> None:
        self.shards = shards
        self.fuse = fuse or Fuse()
        """Of the stores, where one was given."""
        self.broken: set[DomainIndex] = set()
        """Domains that could not end a step. They take nothing, and are to be lost."""
        self.stores = [MemoryStore() if fuse is None else FailingStore(fuse) for _ in range(groups * shards)]
        self.domains = [self._domain(i, 1) for i in range(len(self.stores))]
        self.links: dict[tuple[LinkId, bool], deque[LinkUpdate | Upquery]] = {}
        self.resets: dict[DomainIndex, deque[_Reset]] = {}
        """By domain, what it has yet to learn of the others' incarnations."""
        self.unlinked: set[DomainIndex] = set()
        """Domains that take nothing yet: they are being brought back."""
        self.readers: dict[tuple[DomainIndex, NodeIndex], dict[Row, Counter[Row]]] = {}
        """By domain and node: the rows of each filled key."""
        self.outcomes: dict[RequestId, Outcome] = {}
        self.checking = check
        self._requests = 0
        self._incarnations = 1

    def _domain(self, index: int, incarnation: int) -> Domain:
        store = self.stores[index]
        domain = Domain(
            DomainIndex(index), store, incarnation=incarnation, shard=index % self.shards, shards=self.shards
        )
        for schema in store.tables():
            domain.clocks.write(domain.base_name(schema), store.position(schema.name))
        return domain

    def adopt(self, stores: Sequence[MemoryStore]) -> None:
        """Begin anew on base tables that survived a crash."""
        self.stores = list(stores)
        self.domains = [self._domain(i, 1) for i in range(len(stores))]

    def request(self) -> RequestId:
        self._requests += 1
        return RequestId(self._requests)

    def send(self, domain: int, packet: Packet) -> None:
        """Hand a packet to a domain and perform its effects; none where it could not end the step."""
        if domain in self.broken:
            return
        try:
            with self.fuse.live():
                effects = self.domains[domain].handle(packet)
        except StorageFailure:
            self.broken.add(DomainIndex(domain))
            return
        self.perform(domain, effects)
        store = self.stores[domain]
        if isinstance(store, FailingStore) and store.lost is not None:
            self.broken.add(DomainIndex(domain))

    def command(self, domain: int, command: Command) -> bool:
        """Perform a command; True when it is finished."""
        progress, effects = perform(self.domains[domain], command)
        self.perform(domain, effects)
        return progress.finished

    def migrate(
        self, plan: MigrationPlan, between: Callable[[], None] = lambda: None, rng: random.Random | None = None
    ) -> None:
        """Run a plan; ``between`` is called between slices (writes go on while a view is backfilled)."""
        for step in plan.steps:
            if isinstance(step.command, Activate):
                self.settle(rng)
            while not self.command(step.domain, step.command) and step.sliced:
                between()

    def perform(self, domain: int, effects: list[Effect]) -> None:
        """What a step of a domain has led to. Checked is that domain: no step changes what another one holds."""
        for effect in effects:
            match effect:
                case Send(link=link, packet=packet):
                    self.links.setdefault((link, isinstance(packet, Upquery)), deque()).append(packet)
                case Publish():
                    self._publish(effect)
                case Reply(request=request, outcome=outcome):
                    self.outcomes[request] = outcome
        if self.checking:
            self._check(self.domains[domain])

    def _publish(self, publish: Publish) -> None:
        name = f"reader {publish.reader} in domain {publish.domain}"
        reader = self.readers.setdefault((publish.domain, publish.reader), {})
        for key in publish.evicted:
            del reader[key]
        for key, rows in publish.filled:
            assert key not in reader, f"{name}: {key} was filled twice"
            reader[key] = Counter()
            self._apply(reader[key], rows)
        for key, delta in publish.deltas:
            self._apply(reader[key], [delta])
            assert reader[key][delta[0]] >= 0, f"{name}: {key} has a negative row {delta[0]}"

    @staticmethod
    def _apply(rows: Counter[Row], deltas: list[Delta]) -> None:
        for row, weight in deltas:
            rows[row] += weight
            if not rows[row]:
                del rows[row]

    def waiting(self) -> list[tuple[LinkId, bool]]:
        """Links whose first packet can be delivered, or dropped."""
        return [key for key, queue in self.links.items() if queue and not self._is_early(*key, queue[0])]

    def _receiver(self, link: LinkId, backward: bool) -> Domain:
        return self.domains[sender_of(link) if backward else receiver_of(link)]

    def _is_early(self, link: LinkId, backward: bool, packet: LinkUpdate | Upquery) -> bool:
        receiver = self._receiver(link, backward)
        return receiver.index in self.unlinked or packet.epoch > receiver.link_epoch(link)

    def deliver(self, rng: random.Random) -> bool:
        """Deliver the first packet of a link of the generator's choice; False where nothing waits."""
        waiting = self.waiting()
        if not waiting or rng.random() < BEATS:
            for domain in self.domains:
                if domain.index not in self.broken:  # Its worker has died.
                    self.perform(domain.index, domain.beat())
            waiting = self.waiting()
        unaware = self.unaware()
        if not waiting and not unaware:
            held = any(self.links.values()) and not self.unlinked
            assert not held, "packets are held for an incarnation that nobody announces"
            return False
        number = rng.randrange(len(waiting) + len(unaware))
        if number >= len(waiting):
            self._reset(unaware[number - len(waiting)])
            return True
        link, backward = waiting[number]
        packet = self.links[link, backward].popleft()
        receiver = self._receiver(link, backward)
        if packet.epoch == receiver.link_epoch(link):
            if receiver.broken is None:
                refusal = LinkChecks(receiver).refusal(packet)  # As a worker looks at another's.
                assert refusal is None, refusal
            self.send(receiver.index, packet)
        return True

    def unaware(self) -> list[DomainIndex]:
        """The domains that have yet to learn of another's new incarnation."""
        return [domain for domain, resets in self.resets.items() if resets]

    def _reset(self, index: DomainIndex) -> None:
        """What a host does in one step: nodes that are to be built again go, then the links begin again."""
        removal, resets = self.resets[index].popleft()
        if removal is not None:
            for node in removal.nodes:
                self.readers.pop((index, node), None)
            self.command(index, removal)
        for reset in resets:
            self.send(index, reset)

    def lose(self, lost: Collection[DomainIndex], removals: Mapping[DomainIndex, RemoveNodes]) -> None:
        """Domains lose all but their stores. They take nothing before they are *linked*, when the others know of them.

        ``removals`` are what the others then give up.
        """
        self._incarnations += 1
        self.broken.difference_update(lost)
        for index in lost:
            self.domains[index] = self._domain(index, self._incarnations)
            self.unlinked.add(index)
            self.resets[index] = deque()
        self.readers = {key: rows for key, rows in self.readers.items() if key[0] not in lost}
        for domain in self.domains:
            resets = [PeerReset(index, self._incarnations) for index in lost if index != domain.index]
            if domain.index in lost:
                resets = [PeerReset(other.index, other.incarnation) for other in self.domains if other is not domain]
            self.resets.setdefault(domain.index, deque()).append((removals.get(domain.index), resets))

    def settle(self, rng: random.Random | None = None) -> None:
        """Deliver everything, until nothing is on its way."""
        rng = rng or random.Random(0)
        while self.deliver(rng):
            pass
        if self.checking:
            for index in self.broken:  # Others were checked with the beat after which nothing was on its way.
                self._check(self.domains[index])
            check_links(self.domains)

    def check(self) -> None:
        for domain in self.domains:
            self._check(domain)

    def _check(self, domain: Domain) -> None:
        check_domain(domain, partial(self._rows, domain.index))

    def _rows(self, domain: DomainIndex, reader: NodeIndex, key: Row) -> list[Delta] | None:
        rows = self.readers.get((domain, reader), {}).get(key)
        return None if rows is None else list(rows.items())
