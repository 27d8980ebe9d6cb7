"""Which worker hosts which domain. Pure: the same facts give the same placement, whoever leads.

A domain stays where it is for as long as its worker is there; what is lost goes where there is least. A worker that
joins is given domains by moving as few as possible, since each that moves loses its partial state, and of those that
will do the one that was opened last: it has lost its state already. So after a loss what was lost moves on to
who comes back, and views that did not notice the loss do not notice the return either. How many domains a worker has
decides; how much they weigh decides between equals (weights change from hour to hour, and a placement that followed
them would never rest).
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
    """A worker for each of the domains; one that no worker can take is left out.

    ``workers`` are those that may be given domains, with their data directories: a domain that has been open goes only
    where its directory is. Whoever has refused a domain is asked last, and of several the one whose refusal is oldest.
    ``last`` are given what none of these can take: a worker that is drained serves it, rather than nobody.
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
            # At its old worker only its files are warm; where it is one of equals, that decides.
            key=lambda name: (refused.get((name, domain), NEVER), *_burden(name, hosts, load), name != before, name),
        )
    return found


def rebalance(
    workers: Mapping[str, str], placement: Mapping[DomainIndex, Assignment], *, load: Load = NO_LOAD
) -> dict[DomainIndex, str]:
    """The fewest moves after which no worker has two domains more than another; {} where that is so already.

    Domains of workers that are not among ``workers`` are not moved: they are to be lost or drained, not balanced.
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
        """From who has most, what was opened last, and the lightest: what is missed least."""
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


# Who may be given which domains, out of what is known beside what is decided: who drains, who was lost lately, and
# who has refused what.
#
# It outlives the rounds of a recovery: what a worker has refused, and which incarnations were decided and given to
# nobody, are facts of the whole term of a leader.

REFUSED_SECONDS = 60.0
"""For how long a worker that could not open a domain is asked last. Many reasons pass: a lock that a dying process
still holds, a disk that was full. Much longer than the pause between two rounds, so that all have their turn."""


class PlacementPolicy:
    """Of one leader. Workers are given with their data directories: a shard goes only where its directory is."""

    def __init__(self, fleet: Fleet, ledger: StateLedger, trust_after: float) -> None:
        self._fleet = fleet
        self._ledger = ledger
        self._trust_after = trust_after
        self._trusted_at: dict[str, float] = {}
        """Of workers that were lost; for ever away, for those that are not back."""
        self._refused: dict[tuple[str, DomainIndex], float] = {}
        self._unopened: set[tuple[DomainIndex, int]] = set()
        self._shut: set[DomainIndex] = set()

    # --- workers --------------------------------------------------------------------------------------------------

    def takers(self, workers: Iterable[str]) -> dict[str, str]:
        """Those of the workers that may be given domains."""
        draining, members = self._ledger.decided.draining, self._fleet.members
        there = self._there(workers)
        return {n: data for n, data in there.items() if draining.get(n) != members[n].descriptor.incarnation}

    def _there(self, workers: Iterable[str]) -> dict[str, str]:
        members = self._fleet.members
        return {name: members[name].descriptor.data for name in workers if name in members}

    def trusted(self, workers: Iterable[str]) -> dict[str, str]:
        """Those of the takers that others' domains may be moved to, though nothing is wrong with these. Where all have
        come back lately there is no better one than any of them."""
        now = asyncio.get_running_loop().time()
        self._trusted_at = {name: at for name, at in self._trusted_at.items() if at > now}
        takers = self.takers(workers)
        return {name: data for name, data in takers.items() if name not in self._trusted_at} or takers

    def next_trusted(self) -> float | None:
        """When the next of the workers that are back is trusted."""
        return min((at for at in self._trusted_at.values() if at < inf), default=None)

    def lost(self, worker: str) -> None:
        """It had domains, and is away."""
        self._trusted_at[worker] = inf

    def left(self, worker: str) -> None:
        """It had none. One that was lost before, and has not been given any since, is no more to be trusted now."""
        if worker in self._trusted_at:
            self._trusted_at[worker] = inf

    def joined(self, worker: str) -> None:
        if worker in self._trusted_at:
            self._trusted_at[worker] = asyncio.get_running_loop().time() + self._trust_after

    # --- domains --------------------------------------------------------------------------------------------------

    def homes(self, lost: Iterable[DomainIndex], workers: Iterable[str], load: Load) -> dict[DomainIndex, str]:
        """A worker for each of the lost domains that any of these can take."""
        names = list(workers)
        takers, placement = self.takers(names), self._placement
        return place(lost, takers, placement, load=load, refused=self._refusals(), last=self._there(names))

    def moving(self, moves: Mapping[DomainIndex, str]) -> dict[DomainIndex, str]:
        """Of the wanted moves and of what is on draining workers: what another worker can take now."""
        takers, placement = self.takers(self._fleet.names()), self._placement
        wanted = {d: worker for d, worker in moves.items() if worker in takers and placement[d].worker != worker}
        return {**self.drained(), **wanted}

    def drained(self) -> dict[DomainIndex, str]:
        """Domains on draining workers, and the workers that can take them now."""
        placement, there = self._placement, self._fleet.names()
        takers = self.takers(there)
        left = [d for d, given in placement.items() if given.worker in there and given.worker not in takers]
        return place(left, takers, placement, refused=self._refusals())

    def may_be_open(self, domain: DomainIndex) -> bool:
        """Whether a worker that cannot be heard may still host the incarnation that is decided."""
        given = self._placement.get(domain)
        return given is not None and (domain, given.incarnation) not in self._unopened

    @property
    def _placement(self) -> Mapping[DomainIndex, Assignment]:
        return self._ledger.decided.placement

    # --- what came of it ------------------------------------------------------------------------------------------

    def left_out(self, domains: Iterable[DomainIndex], incarnation: int) -> None:
        """They have this incarnation now, and nobody was told to open it."""
        self._unopened.update((domain, incarnation) for domain in domains)

    def refused(self, worker: str, domain: DomainIndex) -> None:
        """The worker could not open the domain: others are asked first for a while."""
        self._shut.add(domain)
        self._refused[worker, domain] = asyncio.get_running_loop().time()

    def opened(self, worker: str, domain: DomainIndex) -> None:
        self._refused.pop((worker, domain), None)
        self._shut.discard(domain)

    def is_shut(self, domain: DomainIndex) -> bool:
        """Whether who was asked last to open it could not."""
        return domain in self._shut

    def _refusals(self) -> Refusals:
        now = asyncio.get_running_loop().time()
        return {pair: when for pair, when in self._refused.items() if now - when < REFUSED_SECONDS}
