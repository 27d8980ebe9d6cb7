"""What a worker's domains really are, for a leader that takes over, and how far its links have come, for a barrier.

Both are taken between two steps, and answered without waiting for what these publish: no sync is waited for at each
look of a barrier. What it finds received is visible before anything that the domain is told to do afterwards is: the
flusher keeps the order (``Activate`` reveals a reader with all that has come before).
"""

from __future__ import annotations

from collections.abc import Mapping

from domains.clock import latest
from domains.errors import NotFound
from domains.graph import DomainIndex
from domains.packets import Clock, LinkId
from worker.hosted import Hosted
from worker.hosted_domain import HostedDomain
from worker.messages import DomainReport, LinkPositions, NotHere, Streams, WorkerReport


def worker_report(hosted: Hosted, worker: str) -> WorkerReport:
    positions = link_positions(hosted)
    return WorkerReport(
        worker,
        hosted.epoch,
        {index: _domain_report(host) for index, host in hosted.hosts.items()},
        dict(hosted.known),
        positions.sent,
        positions.received,
    )


def link_positions(hosted: Hosted) -> LinkPositions:
    """Link → (epoch, sequence): the last packet that a domain here has sent, and has processed."""
    sent: dict[LinkId, tuple[int, int]] = {}
    received: dict[LinkId, tuple[int, int]] = {}
    for host in hosted.hosts.values():
        domain = host.domain
        for link, out in domain.links.outgoing.items():
            sent[link] = (domain.link_epoch(link), out.sequence)
        for link, into in domain.links.incoming.items():
            received[link] = (domain.link_epoch(link), into.sequence)
    return LinkPositions(sent, received)


def heard_positions(hosted: Hosted) -> Clock:
    """The greatest position of each base shard that any domain here has heard of, by its own links or as its own.

    A link that has begun again says nothing until its sender does: until then it has what the lost one had said last.
    """
    all_clocks = [host.domain.clocks for host in hosted.hosts.values()]
    return latest(clock for clocks in all_clocks for clock in (clocks.local, *clocks.links.values()))


def heard_at_last(hosted: Hosted, given_up: Mapping[DomainIndex, int]) -> Clock:
    """As ``heard_positions``, and nothing more of what is given up will be heard of before these incarnations."""
    hosted.give_up(given_up)
    return heard_positions(hosted)


def streams_of(hosted: Hosted, domain: DomainIndex, table: str) -> Streams:
    """The numbered streams of writes that a domain's shard of a table remembers.

    :raises NotHere: the domain, or the table as yet, is not here.
    """
    host = hosted.hosts.get(domain)
    if host is None or not host.linked:
        raise NotHere(f"domain {domain} is not hosted here", epoch=hosted.epoch)
    try:
        return Streams(dict(host.domain.store.table(table).streams()))
    except NotFound as error:
        raise NotHere(f"{error.message} in domain {domain}", epoch=hosted.epoch) from error


def _domain_report(host: HostedDomain) -> DomainReport:
    domain = host.domain
    building = {vertex.index for vertex in domain.vertices if vertex.building}
    return DomainReport(
        incarnation=domain.epoch,
        linked=host.linked,
        nodes=frozenset(vertex.index for vertex in domain.vertices),
        building=frozenset(building | domain.held),
        tables=tuple(domain.store.tables()),
        positions=host.positions(),
    )
