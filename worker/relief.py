"""Obeying the memory limit: whose state is evicted, after each batch, until all of it is within the limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from domains.graph import DomainIndex
from worker.hosted_domain import HostedDomain

EVICTION_ROUNDS = 64
"""Evictions tried in one go. Accounted and true sizes differ somewhat; what is left over is for the next batch."""


def relieve(
    hosts: Mapping[DomainIndex, HostedDomain],
    limit: int,
    evict: Callable[[HostedDomain, int], None],
    *,
    reserve: int = 0,
) -> None:
    """Have the domain that holds most ``evict`` what is used least of it, as often as it takes.

    ``limit`` is in accounted bytes of all domains together. ``reserve`` bytes of partial state are left in any case: an
    answer that is put together from several workers' parts needs all of them to be there at once, and where full state
    alone is over the limit, each part would go before the next one comes, for ever.
    """
    spent: set[DomainIndex] = set()
    for _ in range(EVICTION_ROUNDS):
        held = {index: host.weigh() for index, host in hosts.items()}
        excess = sum(held.values()) - limit
        if excess > 0 and reserve:
            excess = min(excess, sum(host.partial_bytes() for host in hosts.values()) - reserve)
        left = held.keys() - spent
        if excess <= 0 or not left:
            return
        index = max(left, key=lambda each: (held[each], -each))
        counters = hosts[index].domain.counters
        before = counters.evictions
        evict(hosts[index], excess)
        if counters.evictions == before:
            spent.add(index)  # What is left there is full state, which is not evicted.
