"""Which worker hosts which domain. The same facts give the same placement, whoever leads.

A domain stays while its worker is there; a lost domain goes to the worker with the fewest. For a worker that joins as
few domains as possible are moved, since each loses its partial state, and preferably those that were opened last, which
have lost theirs already. So after a loss the lost domains move on to the worker that comes back, and views that did not
notice the loss do not notice the return either. The number of a worker's domains decides; their weight decides only
between equals, since weights change from hour to hour, and a placement that followed them would never settle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from math import inf
from types import MappingProxyType

from controller.cluster.leader.fleet import Fleet
from controller.cluster.leader.ledger import StateLedger
from controller.cluster.state import Assignment
from domains.plan.graph import DomainIndex

Load = Mapping[DomainIndex, float]
NEVER = float("-inf")
NO_LOAD: Load = MappingProxyType({})
Refusals = Mapping[tuple[str, DomainIndex], float]
"""(worker, domain) → when the worker could not open the domain."""
NONE_REFUSED: Refusals = MappingProxyType({})
NO_WORKERS: Mapping[str, str] = MappingProxyType({})


def place(
    homeless: Iterable[DomainIndex],
    workers: Mapping[str, str],
    placement: Mapping[DomainIndex, Assignment],
    *,
    load: Load = NO_LOAD,
    refused: Refusals = NONE_REFUSED,
    last: Mapping[str, str] = NO_WORKERS,
) -> dict[DomainIndex, str]:
    """A worker for each of the domains; a domain that no worker can take is left out.

    ``workers`` may be given domains, and come with their data directories: a domain that has been open goes only to its
    directory. A worker that has refused a domain is tried last, the oldest refusal first. ``last`` are workers, such as
    drained ones, for domains that none of the others can take.
    """
    wanted = sorted(homeless)
    hosts = {domain: given.worker for domain, given in placement.items() if domain not in wanted}
    found: dict[DomainIndex, str] = {}
    for domain in wanted:
        able = _able(domain, workers, placement) or _able(domain, last, placement)
        if not able:
            continue
        before = placement[domain].worker if domain in placement else ""
        hosts[domain] = found[domain] = min(
            able,
            # Between equals the old worker, whose files are cached.
            key=lambda name: (refused.get((name, domain), NEVER), *_burden(name, hosts, load), name != before, name),
        )
    return found


def rebalance(
    workers: Mapping[str, str], placement: Mapping[DomainIndex, Assignment], *, load: Load = NO_LOAD
) -> dict[DomainIndex, str]:
    """The fewest moves after which no worker has two domains more than another.

    Only domains of ``workers`` are moved: those of others are to be lost or drained, not balanced.
    """
    hosts = {domain: given.worker for domain, given in placement.items()}
    moves: dict[DomainIndex, str] = {}
    while True:
        move = _next_move(workers, placement, hosts, load)
        if move is None:
            return moves
        domain, name = move
        hosts[domain] = moves[domain] = name


def _next_move(
    workers: Mapping[str, str],
    placement: Mapping[DomainIndex, Assignment],
    hosts: Mapping[DomainIndex, str],
    load: Load,
) -> tuple[DomainIndex, str] | None:
    def rank(domain: DomainIndex) -> tuple[float, ...]:
        """First those of the worker with the most, then those opened last, then the lightest."""
        count, weight = _burden(hosts[domain], hosts, load)
        return -count, -placement[domain].incarnation, -weight, load.get(domain, 0.0), -domain

    for domain in sorted((domain for domain, host in hosts.items() if host in workers), key=rank):
        able = _able(domain, workers, placement)
        if not able:
            continue
        taker = min(able, key=lambda name: (*_burden(name, hosts, load), name))
        if _count(hosts[domain], hosts) - _count(taker, hosts) > 1:
            return domain, taker
    return None


def _able(
    domain: DomainIndex, workers: Mapping[str, str], placement: Mapping[DomainIndex, Assignment]
) -> dict[str, None]:
    data = placement[domain].data if domain in placement else ""
    return {name: None for name in sorted(workers) if not data or workers[name] == data}


def _count(worker: str, hosts: Mapping[DomainIndex, str]) -> int:
    return sum(1 for host in hosts.values() if host == worker)


def _burden(worker: str, hosts: Mapping[DomainIndex, str], load: Load) -> tuple[int, float]:
    return _count(worker, hosts), sum(load.get(domain, 0.0) for domain, host in hosts.items() if host == worker)


REFUSED_SECONDS = 60.0
"""Seconds for which a worker that could not open a domain is tried last. Many reasons pass: a lock that a dying
process still holds, a full disk. Much longer than the pause between two rounds, so that every worker is tried."""


class PlacementPolicy:
    """Decides which worker may have which domains, by what a leader knows beside its decisions: who is drained, was
    lost lately, or has refused what. It lasts for the leader's term. Workers come with their data directories."""

    def __init__(self, fleet: Fleet, ledger: StateLedger, trust_after: float) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._trust_after = trust_after
        self._trusted_at: dict[str, float] = {}
        """When a worker that was lost is trusted again; infinite while it is not back."""
        self._refused: dict[tuple[str, DomainIndex], float] = {}
        self._unopened: set[tuple[DomainIndex, int]] = set()
        self._shut: set[DomainIndex] = set()

    # --- workers --------------------------------------------------------------------------------------------------

    def takers(self, workers: Iterable[str]) -> dict[str, str]:
        """The workers that may be given domains: those that are there and not drained."""
        draining, members = self._ledger.decided.draining, self._fleet.members
        there = self._there(workers)
        return {n: data for n, data in there.items() if draining.get(n) != members[n].descriptor.incarnation}

    def _there(self, workers: Iterable[str]) -> dict[str, str]:
        members = self._fleet.members
        return {name: members[name].descriptor.data for name in workers if name in members}

    def trusted(self, workers: Iterable[str]) -> dict[str, str]:
        """The takers that healthy domains may be moved to: those that were not lost lately, or all if all were."""
        now = asyncio.get_running_loop().time()
        self._trusted_at = {name: at for name, at in self._trusted_at.items() if at > now}
        takers = self.takers(workers)
        return {name: data for name, data in takers.items() if name not in self._trusted_at} or takers

    def next_trusted(self) -> float | None:
        """When the next worker that came back is trusted."""
        return min((at for at in self._trusted_at.values() if at < inf), default=None)

    def lost(self, worker: str) -> None:
        """A worker with domains is gone."""
        self._trusted_at[worker] = inf

    def left(self, worker: str) -> None:
        """A worker without domains is gone. If it was lost before, it is not trusted yet."""
        if worker in self._trusted_at:
            self._trusted_at[worker] = inf

    def joined(self, worker: str) -> None:
        if worker in self._trusted_at:
            self._trusted_at[worker] = asyncio.get_running_loop().time() + self._trust_after

    # --- domains --------------------------------------------------------------------------------------------------

    def homes(self, lost: Iterable[DomainIndex], workers: Iterable[str], load: Load) -> dict[DomainIndex, str]:
        """A worker for each lost domain that one of these can take."""
        names = list(workers)
        takers, placement = self.takers(names), self._placement
        return place(lost, takers, placement, load=load, refused=self._refusals(), last=self._there(names))

    def moving(self, moves: Mapping[DomainIndex, str]) -> dict[DomainIndex, str]:
        """The moves that are possible now: those of ``moves``, and of domains on draining workers."""
        takers, placement = self.takers(self._fleet.names()), self._placement
        wanted = {d: worker for d, worker in moves.items() if worker in takers and placement[d].worker != worker}
        return {**self.drained(), **wanted}

    def drained(self) -> dict[DomainIndex, str]:
        """Domains on draining workers, with workers that can take them now."""
        placement, there = self._placement, self._fleet.names()
        takers = self.takers(there)
        left = [d for d, given in placement.items() if given.worker in there and given.worker not in takers]
        return place(left, takers, placement, refused=self._refusals())

    def may_be_open(self, domain: DomainIndex) -> bool:
        """Whether a worker that is not heard may still host the decided incarnation."""
        given = self._placement.get(domain)
        return given is not None and (domain, given.incarnation) not in self._unopened

    @property
    def _placement(self) -> Mapping[DomainIndex, Assignment]:
        return self._ledger.decided.placement

    # --- what came of it ------------------------------------------------------------------------------------------

    def left_out(self, domains: Iterable[DomainIndex], incarnation: int) -> None:
        """Nobody was told to open this incarnation of the domains."""
        self._unopened.update((domain, incarnation) for domain in domains)

    def refused(self, worker: str, domain: DomainIndex) -> None:
        """The worker could not open the domain: others are tried first for a while."""
        self._shut.add(domain)
        self._refused[worker, domain] = asyncio.get_running_loop().time()

    def opened(self, worker: str, domain: DomainIndex) -> None:
        self._refused.pop((worker, domain), None)
        self._shut.discard(domain)

    def is_shut(self, domain: DomainIndex) -> bool:
        """Whether the last attempt to open it failed."""
        return domain in self._shut

    def _refusals(self) -> Refusals:
        now = asyncio.get_running_loop().time()
        return {pair: when for pair, when in self._refused.items() if now - when < REFUSED_SECONDS}
