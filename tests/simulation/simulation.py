"""The simulator: domains on one thread, links as queues, and readers as dicts."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable

from domains.commands import Command
from domains.control import perform
from domains.domain import Domain
from domains.graph import DomainIndex, NodeIndex
from domains.invariants import check_domain, check_links
from domains.memory_store import MemoryStore
from domains.packets import (
    Effect,
    LinkId,
    LinkUpdate,
    Outcome,
    Packet,
    Publish,
    Reply,
    RequestId,
    Send,
    Upquery,
    receiver_of,
    sender_of,
)
from domains.types import Delta, Row
from migrations.plan import MigrationPlan

BEATS = 0.1
"""How often clocks are told before a packet is delivered; they always are when nothing else waits."""


class Simulation:
    """Domain 0 has the base tables. Packets wait in their links until ``deliver`` takes one."""

    def __init__(self, domains: int = 1, *, check: bool = True) -> None:
        self.stores = [MemoryStore() for _ in range(domains)]
        self.domains = [Domain(DomainIndex(i), store) for i, store in enumerate(self.stores)]
        self.links: dict[tuple[LinkId, bool], deque[LinkUpdate | Upquery]] = {}
        self.readers: dict[NodeIndex, dict[Row, Counter[Row]]] = {}
        self.outcomes: dict[RequestId, Outcome] = {}
        self.checking = check
        self._requests = 0

    def adopt(self, base: MemoryStore) -> None:
        """Begin anew on base tables that survived a crash."""
        self.stores[0] = base
        self.domains[0] = Domain(DomainIndex(0), base)
        for schema in base.tables():
            self.domains[0].clocks.local[schema.name] = base.position(schema.name)

    def request(self) -> RequestId:
        self._requests += 1
        return RequestId(self._requests)

    def send(self, domain: int, packet: Packet) -> None:
        """Hand a packet to a domain and perform its effects."""
        self._perform(self.domains[domain].handle(packet))

    def command(self, domain: int, command: Command) -> bool:
        """Perform a command; True when it is finished."""
        progress, effects = perform(self.domains[domain], command)
        self._perform(effects)
        return progress.finished

    def migrate(self, plan: MigrationPlan, between: Callable[[], None] = lambda: None) -> None:
        """Run a plan; ``between`` is called between slices (writes go on while a view is backfilled)."""
        for step in plan.steps:
            if "activate" in step.text:
                self.settle()
            while not self.command(step.domain, step.command) and step.sliced:
                between()

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(link=link, packet=packet):
                    self.links.setdefault((link, isinstance(packet, Upquery)), deque()).append(packet)
                case Publish():
                    self._publish(effect)
                case Reply(request=request, outcome=outcome):
                    self.outcomes[request] = outcome
        if self.checking:
            self.check()

    def _publish(self, publish: Publish) -> None:
        reader = self.readers.setdefault(publish.reader, {})
        for key in publish.evicted:
            del reader[key]
        for key, rows in publish.filled:
            assert key not in reader, f"reader {publish.reader}: {key} was filled twice"
            reader[key] = Counter()
            self._apply(reader[key], rows)
        for key, delta in publish.deltas:
            self._apply(reader[key], [delta])
            assert reader[key][delta[0]] >= 0, f"reader {publish.reader}: {key} has a negative row {delta[0]}"

    @staticmethod
    def _apply(rows: Counter[Row], deltas: list[Delta]) -> None:
        for row, weight in deltas:
            rows[row] += weight
            if not rows[row]:
                del rows[row]

    def waiting(self) -> list[tuple[LinkId, bool]]:
        return [key for key, queue in self.links.items() if queue]

    def deliver(self, rng: random.Random) -> bool:
        """Deliver the first packet of a link of the generator's choice; False where nothing waits."""
        waiting = self.waiting()
        if not waiting or rng.random() < BEATS:
            for domain in self.domains:
                self._perform(domain.beat())
            waiting = self.waiting()
        if not waiting:
            return False
        link, backward = rng.choice(waiting)
        packet = self.links[link, backward].popleft()
        receiver = sender_of(link) if backward else receiver_of(link)
        self.send(receiver, packet)
        return True

    def settle(self, rng: random.Random | None = None) -> None:
        """Deliver everything, until nothing is on its way."""
        rng = rng or random.Random(0)
        while self.deliver(rng):
            pass
        if self.checking:
            check_links(self.domains)

    def check(self) -> None:
        for domain in self.domains:
            check_domain(domain, self._rows)

    def _rows(self, reader: NodeIndex, key: Row) -> list[Delta] | None:
        rows = self.readers.get(reader, {}).get(key)
        return None if rows is None else list(rows.items())
