"""What the leader is to those who decide beside its rounds: drains, rebuilds, archiving. Its steering is its own."""

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
        """What the migrator's state is of."""

    @property
    def closed(self) -> Mapping[DomainIndex, str]:
        """Domains that nobody hosts, and why, as of the last round."""

    @property
    def is_over(self) -> bool: ...

    @property
    def is_calm(self) -> bool: ...

    @property
    def trouble(self) -> str:
        """What keeps it from calm, if anything does."""

    def serving(self) -> Migrator:
        """Raises NoLeader before it has taken over."""

    def ready(self) -> None:
        """Raises NoLeader before its first round has begun."""

    def bases_of(self, domain: DomainIndex) -> list[str]:
        """The base shards that a domain is to have."""

    async def decide(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Have a change of the state written. Raises Unavailable while ZooKeeper is away."""

    async def until_calm(self) -> None:
        """Raises TimeoutError where that takes long."""

    def disturb(self, why: str) -> None:
        """End the time of calm: what is there is to be compared with what is decided."""

    def look_again(self) -> None:
        """Do not wait for the next round of recovery, if one is waited for."""

    def rebalance(self) -> None:
        """Domains may have to be moved for the load to be even: look at once."""
