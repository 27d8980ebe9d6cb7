"""Which worker hosts which domain. Pure: the same facts give the same placement, whoever leads.

A domain stays where it is for as long as its worker is there; what is lost goes where there is least. A worker that
joins is given domains by moving as few as possible, since each that moves loses its partial state, and of those that
will do the one that was opened last: it has lost its state already. So after a loss what was lost moves on to
who comes back, and views that did not notice the loss do not notice the return either. How many domains a worker has
decides; how much they weigh decides between equals (weights change from hour to hour, and a placement that followed
them would never rest).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from controller.cluster.state import Assignment
from domains.graph import DomainIndex

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
