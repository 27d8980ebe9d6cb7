"""Obeying the memory limit: whose state is evicted, after each batch, until all of it is within the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from domains.graph import DomainIndex
from worker.hosted_domain import HostedDomain

EVICTION_ROUNDS = 64
"""Evictions tried in one go. Accounted and true sizes differ somewhat; what is left over is for the next batch."""


def relieve(hosts: Mapping[DomainIndex, HostedDomain], limit: int, evict: Callable[[HostedDomain, int], None]) -> None:
    """Have the domain that holds most ``evict`` what is used least of it, as often as it takes.

    ``limit`` is in accounted bytes of all domains together.
    """
    spent: set[DomainIndex] = set()
    for _ in range(EVICTION_ROUNDS):
        held = {index: host.weigh() for index, host in hosts.items()}
        excess = sum(held.values()) - limit
        left = held.keys() - spent
        if excess <= 0 or not left:
            return
        index = max(left, key=lambda each: (held[each], -each))
        counters = hosts[index].domain.counters
        before = counters.evictions
        evict(hosts[index], excess)
        if counters.evictions == before:
            spent.add(index)  # What is left there is full state, which is not evicted.
