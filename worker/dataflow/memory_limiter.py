"""Obeying the memory limit: whose state is evicted, after each batch, until all of it is within the limit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from domains.plan.graph import DomainIndex
from worker.dataflow.hosted_domain import HostedDomain

TELL_SECONDS = 10.0
"""Between two lines of the log about evictions: under pressure they come with every batch."""
EVICTION_ROUNDS = 64
"""Evictions tried in one go. Accounted and true sizes differ somewhat; what is left over is for the next batch."""

LEAST_ROOM = 4
"""A share of the memory limit that is left to state, whatever others take: with less, each read would miss."""

_log = logging.getLogger("headrace.worker")


def room_of(limit: int, outside: int) -> int:
    """Bytes that state may take, where others in the process take ``outside``."""
    return max(limit - outside, limit // LEAST_ROOM)


def relieve(
    hosts: Mapping[DomainIndex, HostedDomain],
    limit: int,
    evict: Callable[[HostedDomain, int], None],
    *,
    reserve: int = 0,
) -> int:
    """Have the domain that holds most ``evict`` what is used least of it, as often as it takes; answers how many keys.

    ``limit`` is in accounted bytes of all domains together. ``reserve`` bytes of partial state are left in any case: an
    answer that is put together from several workers' parts needs all of them to be there at once, and where full state
    alone is over the limit, each part would go before the next one comes, for ever.
    """
    spent: set[DomainIndex] = set()
    evicted = 0
    for _ in range(EVICTION_ROUNDS):
        held = {index: host.weigh() for index, host in hosts.items()}
        excess = sum(held.values()) - limit
        if excess > 0 and reserve:
            excess = min(excess, sum(host.partial_bytes() for host in hosts.values()) - reserve)
        left = held.keys() - spent
        if excess <= 0 or not left:
            break
        index = max(left, key=lambda each: (held[each], -each))
        counters = hosts[index].domain.counters
        before = counters.evictions
        evict(hosts[index], excess)
        evicted += counters.evictions - before
        if counters.evictions == before:
            spent.add(index)  # What is left there is full state, which is not evicted.
    return evicted


class Pressure:
    """Logs that keys are evicted, a line every so many seconds at most."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._evicted = 0
        self._told = -TELL_SECONDS

    def add(self, evicted: int, limit: int) -> None:
        self._evicted += evicted
        now = self._now()
        if self._evicted and now - self._told >= TELL_SECONDS:
            _log.info("memory limit of %d bytes: %d keys were evicted since it was last told", limit, self._evicted)
            self._told, self._evicted = now, 0
