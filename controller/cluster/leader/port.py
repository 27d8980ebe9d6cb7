"""The part of the leader that operators' decisions use: drains, rebuilds, archiving."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from controller.cluster.leader.fleet import Fleet
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.leader.placing import PlacementPolicy
from controller.cluster.state import ClusterState
from controller.migrating.migrator import Migrator
from domains.plan.graph import DomainIndex
from migrations.recipe import Recipe


class LeaderPort(Protocol):
    """One term of office; ``leader.py`` implements it."""

    @property
    def fleet(self) -> Fleet: ...

    @property
    def ledger(self) -> StateLedger: ...

    @property
    def taking(self) -> PlacementPolicy: ...

    @property
    def epoch(self) -> int: ...

    @property
    def recipe(self) -> Recipe | None:
        """The recipe of the migrator's state."""

    @property
    def closed(self) -> Mapping[DomainIndex, str]:
        """The domains that nobody hosts, and why, as of the last round."""

    @property
    def is_over(self) -> bool: ...

    @property
    def is_calm(self) -> bool: ...

    @property
    def trouble(self) -> str:
        """Why there is no calm; empty if there is."""

    def serving(self) -> Migrator:
        """Raises NoLeader before it has taken over."""

    def ready(self) -> None:
        """Raises NoLeader before its first round has begun."""

    def bases_of(self, domain: DomainIndex) -> list[str]:
        """The base shards of a domain, as decided."""

    async def decide(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Write a change of the state. Raises Unavailable while ZooKeeper is away."""

    async def until_calm(self) -> None:
        """Raises TimeoutError if that takes long."""

    def disturb(self, why: str) -> None:
        """End the calm: begin a recovery."""

    def look_again(self) -> None:
        """Begin the next round of a recovery at once, if one is waiting."""

    def rebalance(self) -> None:
        """Look at once whether domains should be moved to balance the load."""
