"""A few workers' domains on one thread: the hosts are the production ones, all around them is dicts and queues.

Between any two sites runs a queue in order, as the wire gives it. What a site's batches order to be done outside waits
until ``flush``. Who moves a domain, or brings back what a site lost when it died, tells each site of it in its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from domains.engine.domain import Domain
from domains.engine.invariants import check_domain, check_links
from domains.language.types import Delta, Row
from domains.plan.commands import Activate, AddNodes, BuildIndex, ExtendNodes, Feed, Progress
from domains.plan.graph import Base, DomainIndex, NodeIndex
from domains.plan.sharding import physical
from domains.store.memory_store import MemoryStore
from migrations.change import change_of, entries_of
from migrations.flow.plan import PlanStep, State, plan_start
from migrations.recipe import RecipeEntry
from tests.kit.hosted_site import HostedSite, never_refused
from worker.dataflow.batch import Batch, LinkPacket
from worker.dataflow.domain_host import DomainHost

RESERVE = 20_000
"""Bytes; what is read in a test needs about half of it."""


class Site(HostedSite):
    """One worker: its domains, what waits to be flushed, and where it believes all domains to be."""

    def __init__(self, memory_limit: int) -> None:
        super().__init__(memory_limit=memory_limit, reserve=RESERVE)
        self.batches: deque[Batch] = deque()
        self.where: dict[DomainIndex, int] = {}
        """The sites of all domains, as this one was told last."""


class HostedCluster:
    def __init__(
        self, sites: int, groups: int, shards: int, sql: str, rng: Random, *, memory_limit: int = 2**40
    ) -> None:
        self.rng = rng
        self.shards = shards
        self._memory_limit = memory_limit
        self.state = State(shards=shards)
        placement: dict[NodeIndex, DomainIndex] = {}

        def place(node: Any) -> DomainIndex:
            group = 0 if isinstance(node.operator, Base) else rng.randrange(groups)
            return placement.setdefault(node.index, DomainIndex(group))

        for entry in entries_of(RecipeEntry((sql,))):
            self.state = change_of(self.state, entry, place).state
        self.stores = [MemoryStore() for _ in range(shards)]
        for shard, store in enumerate(self.stores):
            for schema in self.state.catalog.tables.values():
                if shard < (schema.shards or shards):
                    store.create_table(schema)
        self.incarnation = 1
        self.sites = [self._site() for _ in range(sites)]
        self.streams: dict[tuple[int, int], deque[LinkPacket]] = {}
        self.unbuilt: deque[tuple[PlanStep, int]] = deque()
        """What is to be done yet to domains that were opened, and in which incarnation."""
        self.untold: list[int] = []
        """Sites that have yet to hear of the last change."""
        self.domains = [physical(DomainIndex(g), s, shards) for g in range(groups) for s in range(shards)]
        self.hosts = {index: (rng.randrange(sites), 1) for index in self.domains}
        self.untold = list(range(sites))
        rng.shuffle(self.untold)

    def _site(self) -> Site:
        return Site(self._memory_limit)

    def start(self) -> None:
        """All domains at once; linked when their sites are told."""
        for index in self.domains:
            self._open(index)

    def start_slowly(self, between: Callable[[], None]) -> None:
        """Nodes come site by site, each command by itself, while what is linked already serves and sends. Full state is
        fed at the end."""
        plan = plan_start(self.state.flow).steps
        for index in self.domains:
            self._open(index)
        self.unbuilt.clear()
        for site in reversed(self.untold):
            for step in plan:
                if self.site_of(step.domain) == site and isinstance(step.command, AddNodes | ExtendNodes | BuildIndex):
                    between()
                    self._command(step)
            self.tell()
            between()
        self.settle()
        for step in plan:
            if isinstance(step.command, Feed | Activate):
                if isinstance(step.command, Activate):
                    self.settle()
                while not self._command(step).finished:
                    between()

    def _command(self, step: PlanStep) -> Progress:
        progress = self.act(
            self.site_of(step.domain), lambda hosted, batch: hosted.perform(step.domain, step.command, batch)
        )
        assert isinstance(progress, Progress)
        return progress

    # --- acts -----------------------------------------------------------------------------------------------------

    def act(self, site: int, do: Callable[[DomainHost, Batch], Any]) -> Any:
        batch = Batch()
        found = self.sites[site].begin(do, batch)
        self.sites[site].batches.append(batch)
        return found

    def flush(self, site: int) -> None:
        """Do outside what the site's oldest batch orders."""
        own = self.sites[site]
        for receiver, packet in own.flush(own.batches.popleft()):
            if receiver in own.where and own.where[receiver] != site:
                self.streams.setdefault((site, own.where[receiver]), deque()).append(packet)

    def deliver(self) -> bool:
        waiting = [key for key, queue in self.streams.items() if queue]
        if not waiting:
            return False
        key = self.rng.choice(waiting)
        queue = self.streams[key]
        packets = [queue.popleft() for _ in range(min(len(queue), self.rng.randrange(1, 4)))]
        self.act(key[1], lambda hosted, batch: hosted.receive(packets, batch, never_refused))
        return True

    # --- who hosts what -------------------------------------------------------------------------------------------

    def _open(self, index: DomainIndex) -> None:
        site, incarnation = self.hosts[index]
        store = self.stores[index] if index < self.shards else MemoryStore()

        def do(hosted: DomainHost, batch: Batch) -> None:
            hosted.open(index, store, incarnation=incarnation, shard=index % self.shards, shards=self.shards)

        self.act(site, do)
        steps = (step for step in plan_start(self.state.flow).steps if step.domain == index)
        self.unbuilt.extend((step, incarnation) for step in steps)

    def move(self, index: DomainIndex, to: int) -> None:
        """Close a domain and open it elsewhere (or at the same place)."""
        self.incarnation += 1
        self.act(self.hosts[index][0], lambda hosted, batch: hosted.close(index, batch))
        self.hosts[index] = (to, self.incarnation)
        self._open(index)
        self._untell()

    def crash(self, site: int) -> None:
        """All that a worker has in memory is gone, and what is on its way to it and from it."""
        self.incarnation += 1
        self.sites[site] = self._site()
        self.streams = {key: queue for key, queue in self.streams.items() if site not in key}
        for index, (where, _) in list(self.hosts.items()):
            if where == site:
                self.hosts[index] = (self.rng.randrange(len(self.sites)), self.incarnation)
                self._open(index)
        self._untell()

    def _untell(self) -> None:
        self.untold = list(range(len(self.sites)))
        self.rng.shuffle(self.untold)

    def go_on(self) -> bool:
        """The next command for what was opened; or else let one site know where everything is now."""
        while self.unbuilt:
            step, incarnation = self.unbuilt.popleft()
            if self.hosts[step.domain][1] == incarnation:
                self._command(step)
                return True
        if self.untold:
            self.tell()
            return True
        return False

    def tell(self) -> None:
        site = self.untold.pop()
        self.sites[site].where = {index: where for index, (where, _) in self.hosts.items()}
        incarnations = {index: incarnation for index, (_, incarnation) in self.hosts.items()}
        self.act(site, lambda hosted, batch: hosted.reconfigure(incarnations, {}, batch))

    # --- what is asked --------------------------------------------------------------------------------------------

    def site_of(self, index: DomainIndex) -> int:
        return self.hosts[index][0]

    def rows(self, index: DomainIndex, node: NodeIndex, key: Row) -> list[Delta] | None:
        """What the reader shows at a key; None for a hole."""
        return self.sites[self.site_of(index)].rows(index, node, key)

    def hosted_domains(self) -> list[Domain]:
        return [self.sites[site].hosted.hosts[index].domain for index, (site, _) in self.hosts.items()]

    def settle(self) -> None:
        """Tell, flush and deliver until nothing is on its way."""
        while True:
            if self.go_on():
                continue
            if any(site.batches for site in self.sites):
                self.flush(self.rng.choice([n for n, site in enumerate(self.sites) if site.batches]))
            elif not self.deliver():
                break
        for site in self.sites:
            for host in site.hosted.hosts.values():
                assert host.linked
                assert not host.held, "held for an incarnation that everybody has heard of"
                assert not host.outgoing

    def check(self) -> None:
        """At rest: every entry is what follows from the rows that are stored."""
        domains = self.hosted_domains()
        for domain in domains:
            check_domain(domain, lambda node, key, index=domain.index: self.rows(index, node, key))  # type: ignore[misc]
        check_links(domains)
