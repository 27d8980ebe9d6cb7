"""A simulation in which domain 0 stands several times, each with a part of the base rows, and may start anew.

The planner does not shard yet, but a domain never assumes that it is the only one: an ingress here has a link from
every shard, and an entry of it is whole only once all of them have answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from domains.commands import AddNodes, BuildIndex, Command, ExtendNodes, Route
from domains.control import perform
from domains.domain import Domain
from domains.graph import DomainIndex, Materialization, NodeIndex, Reader
from domains.packets import Insert, Operation, PeerReset, Write, Written, lane_of, link_between, receiver_of, sender_of
from domains.types import Row
from tests.simulation.simulation import Simulation


class ShardedSimulation(Simulation):
    """``by`` names, for each table, the column whose value decides the shard (the first one where it is not named)."""

    def __init__(self, domains: int, shards: int, by: Mapping[str, int], *, check: bool = True) -> None:
        super().__init__(domains + shards - 1, check=check)
        self.shards: tuple[int, ...] = (0, *range(domains, domains + shards - 1))
        self._by = by
        self._history: dict[int, list[Command]] = {shard: [] for shard in self.shards}

    # --- control --------------------------------------------------------------------------------------------------

    def command(self, domain: int, command: Command) -> bool:
        if domain == 0:
            finished = [self._at_shard(shard, command) for shard in self.shards]
            return all(finished)
        if isinstance(command, AddNodes):
            incoming = tuple(route for given in command.incoming for route in self._from_every_shard(given))
            command = replace(command, incoming=incoming)
        return super().command(domain, command)

    def _at_shard(self, shard: int, command: Command) -> bool:
        if isinstance(command, AddNodes):
            assert len(self.shards) == 1 or not command.incoming, "a shard has bases and no ingress"
            command = replace(command, outgoing=tuple(_of_shard(route, shard) for route in command.outgoing))
        if isinstance(command, AddNodes | ExtendNodes):
            self._history[shard].append(command)
        if isinstance(command, BuildIndex):
            while not super().command(shard, command):
                pass
            return True
        return super().command(shard, command)

    def _from_every_shard(self, route: Route) -> list[Route]:
        if sender_of(route.link) != 0:
            return [route]
        return [_of_shard(route, shard) for shard in self.shards]

    # --- writes ---------------------------------------------------------------------------------------------------

    def shard_column(self, table: str) -> int:
        return self._by.get(table, 0)

    def shard_of(self, table: str, row: Row) -> int:
        value = row[self.shard_column(table)]
        return self.shards[hash(value) % len(self.shards) if value is not None else 0]

    def write(self, operation: Operation) -> int:
        """Rows affected. Inserted rows go to their shards, an UPDATE or DELETE to all of them."""
        parts: list[tuple[int, Operation]] = [(shard, operation) for shard in self.shards]
        if isinstance(operation, Insert):
            rows: dict[int, list[Row]] = {}
            for row in operation.rows:
                rows.setdefault(self.shard_of(operation.table, row), []).append(row)
            parts = [(shard, replace(operation, rows=tuple(of_shard))) for shard, of_shard in rows.items()]
        affected = 0
        for shard, part in parts:
            request = self.request()
            self.send(shard, Write(request, part))
            outcome = self.outcomes.pop(request)
            assert isinstance(outcome, Written), outcome
            affected += outcome.rows_affected
        return affected

    # --- restarts -------------------------------------------------------------------------------------------------

    def may_restart(self) -> bool:
        """What a shard feeds must be partial, and nothing may feed it: the rest is a migration run again."""
        ingresses = [vertex for domain in self.domains for vertex in domain.ingresses.sources]
        full = any(vertex.node.materialization is Materialization.FULL for vertex in ingresses)
        own = any(vertex.node.materialization is Materialization.FULL for vertex in self.domains[0].vertices)
        return not full and not own and not self.domains[0].ingresses.sources

    def restart(self, shard: int) -> None:
        """The domain loses all but its store; what is on its links is lost, and its receivers are told."""
        for (link, _), queue in self.links.items():
            if shard in (sender_of(link), receiver_of(link)):
                queue.clear()
        old, store = self.domains[shard], self.stores[shard]
        for vertex in old.vertices:
            if isinstance(vertex.node.operator, Reader):
                self.readers.pop(NodeIndex(vertex.index), None)
        domain = self.domains[shard] = Domain(DomainIndex(shard), store, epoch=old.epoch + 1)
        for schema in store.tables():
            domain.clocks.local[schema.name] = store.position(schema.name)
        first = [effect for command in self._history[shard] for effect in perform(domain, command)[1]]
        for other in self.domains:
            if other is not domain:
                domain.handle(PeerReset(other.index, other.epoch))
                self.send(other.index, PeerReset(domain.index, domain.epoch))
        self._perform(first)


def _of_shard(route: Route, shard: int) -> Route:
    return replace(route, link=link_between(DomainIndex(shard), receiver_of(route.link), lane_of(route.link)))
