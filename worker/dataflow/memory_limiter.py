"""Obeying the memory limit: whose state is evicted, after each batch, until all of it is within the limit.

What is worth less than partial state goes first: automatic views, which their owner drops between later batches.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from domains.plan.graph import DomainIndex
from worker.dataflow.hosted_domain import HostedDomain

TELL_SECONDS = 10.0
"""Seconds between two lines of the log about evictions: under pressure they come with every batch."""
EVICTION_ROUNDS = 64
"""Evictions tried in one go. Accounted and true sizes differ somewhat; what is left over is for the next batch."""

LEAST_ROOM = 4
"""A share of the memory limit that is left to state, whatever others take: with less, each read would miss."""

SPARED_SHARE = 8
"""A share of the room that state may take beyond it while an automatic view goes: more is not waited for."""

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
    """What happens where memory is short: whether something else gives way, and a line of the log every so often."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.give_way: Callable[[], bool] = lambda: False
        """Called when state is over its room; whether something is going that is to go before partial state."""
        self._now = now
        self._evicted = 0
        self._told = -TELL_SECONDS

    def evicts(self, held: int, room: int) -> bool:
        """Whether state that takes ``held`` bytes, of which there is ``room`` for fewer, is evicted now."""
        return not self.give_way() or held > room + room // SPARED_SHARE

    def add(self, evicted: int, limit: int) -> None:
        self._evicted += evicted
        now = self._now()
        if self._evicted and now - self._told >= TELL_SECONDS:
            _log.info("memory limit of %d bytes: %d keys were evicted since it was last told", limit, self._evicted)
            self._told, self._evicted = now, 0
