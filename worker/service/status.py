"""A worker's report, JSON-ready: sizes in bytes, times in seconds; counters only grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from domains.engine.clock import latest
from domains.engine.domain import Domain
from domains.errors import NotFound
from domains.language.types import TableSchema
from domains.operators.edges import ReaderOperator
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Clock, LinkId
from domains.plan.traits import is_reader
from worker.dataflow.domain_host import DomainHost
from worker.dataflow.hosted_domain import HostedDomain
from worker.protocol.messages import (
    DomainReport,
    KeptSnapshots,
    KnownTransaction,
    LinkPositions,
    NotHere,
    RowCounts,
    Streams,
    WorkerReport,
)
from worker.reader_map import ReaderMap
from worker.service.system import resident_bytes

# The actual state of a worker's domains, for a leader that takes over, and the positions of its links, for a barrier.
#
# Both are taken between two steps, and answered without waiting for a sync. Packets that a barrier finds received
# become visible before the effects of later commands, since the group commit keeps the order (``Activate`` reveals a
# reader with all that has come before).


def worker_report(hosted: DomainHost, worker: str) -> WorkerReport:
    positions = link_positions(hosted)
    return WorkerReport(
        worker,
        hosted.epoch,
        {index: _domain_report(host) for index, host in hosted.hosts.items()},
        dict(hosted.known),
        positions.sent,
        positions.received,
    )


def link_positions(hosted: DomainHost) -> LinkPositions:
    """Link → (epoch, sequence) of the last packets that a domain here has sent, and has processed."""
    sent: dict[LinkId, tuple[int, int]] = {}
    received: dict[LinkId, tuple[int, int]] = {}
    for host in hosted.hosts.values():
        domain = host.domain
        for link, out in domain.links.outgoing.items():
            sent[link] = (domain.link_epoch(link), out.sequence)
        for link, into in domain.links.incoming.items():
            received[link] = (domain.link_epoch(link), into.sequence)
    return LinkPositions(sent, received)


def heard_positions(hosted: DomainHost) -> Clock:
    """The greatest position of each base shard that any domain here has heard of, by links or as its own.

    A link that has begun again keeps the positions of the lost one until its sender says others.
    """
    all_clocks = [host.domain.clocks for host in hosted.hosts.values()]
    return latest(clock for clocks in all_clocks for clock in (clocks.local, *clocks.links.values()))


def heard_at_last(hosted: DomainHost, given_up: Mapping[DomainIndex, int]) -> Clock:
    """``heard_positions``; from now on nothing is heard of given-up domains before these incarnations."""
    hosted.known.give_up(given_up)
    return heard_positions(hosted)


def streams_of(hosted: DomainHost, domain: DomainIndex, table: str) -> Streams:
    """The numbered streams of writes that a domain's shard of a table remembers.

    :raises NotHere: the domain, or (yet) the table, is not here.
    """
    host = _host(hosted, domain)
    try:
        return Streams(dict(host.domain.store.table(table).streams()))
    except NotFound as error:
        raise NotHere(f"{error.message} in domain {domain}", epoch=hosted.epoch) from error


def known_transactions(hosted: DomainHost, domain: DomainIndex) -> tuple[KnownTransaction, ...]:
    """The transactions over several shards that a domain has a part in, and that are not over.

    :raises NotHere: the domain is not here."""
    host = _host(hosted, domain)
    transactions = host.domain.transactions
    found = [KnownTransaction(id, record.decider, record.others) for id, record in transactions.decided.items()]
    for id, own in transactions.prepared.items():
        assert own.prepared is not None
        found.append(KnownTransaction(id, own.prepared.decider, (), own.prepared.since, tuple(transactions.held(id))))
    others = [id for id in transactions.open if id not in transactions.prepared]
    return (*found, *(KnownTransaction(id, domain, (), is_open=True) for id in others))


def prepared_since(domain: Domain) -> dict[str, float]:
    """When each transaction that is in doubt in this domain was prepared. Any thread."""
    prepared = [(id, own.prepared) for id, own in list(domain.transactions.prepared.items())]
    return {id: record.since for id, record in prepared if record is not None}


def kept_snapshots(hosted: DomainHost, domain: DomainIndex, of: str = "") -> KeptSnapshots:
    """:raises NotHere: the domain is not here. :raises SnapshotGone: it does not keep the one that is named."""
    asked = _host(hosted, domain).domain
    kept, tables = asked.store.snapshots().values(), list[tuple[str, int, TableSchema]]()
    if of:
        shown = asked.store.snapshot(of)
        tables += [(asked.base_name(each), shown.position(each.name), each) for each in shown.schemas()]
    return KeptSnapshots(tuple(kept), asked.transactions.snapshots.still, tuple(tables))


def row_counts(hosted: DomainHost, domain: DomainIndex) -> RowCounts:
    """:raises NotHere: the domain is not here."""
    store = _host(hosted, domain, linked=False).domain.store
    return RowCounts({schema.name: store.table(schema.name).row_count for schema in store.tables()})


def _host(hosted: DomainHost, domain: DomainIndex, *, linked: bool = True) -> HostedDomain:
    host = hosted.hosts.get(domain)
    if host is None or (linked and not host.linked):
        raise NotHere(f"domain {domain} is not hosted here", epoch=hosted.epoch)
    return host


def _domain_report(host: HostedDomain) -> DomainReport:
    domain = host.domain
    building = {vertex.index for vertex in domain.vertices.values() if vertex.building}
    return DomainReport(
        incarnation=domain.incarnation,
        linked=host.linked,
        nodes=frozenset(vertex.index for vertex in domain.vertices.values()),
        building=frozenset(building | domain.held),
        tables=tuple(domain.store.tables()),
        positions=host.domain.clocks.local.copy(),
        expected=frozenset(domain.expected),
    )


def hosted_status(hosted: DomainHost, reader_map: ReaderMap, nodes: frozenset[NodeIndex] | None) -> dict[str, Any]:
    """Taken between two steps. ``nodes``: those whose state is told, where it is not all."""
    domains = [_domain(host, reader_map, hosted, nodes) for host in hosted.hosts.values()]
    full = sum(host.domain.vertices.full_bytes() for host in hosted.hosts.values())
    return {
        "epoch": hosted.epoch,
        "memory": {
            **memory_of(sum(each["bytes"] for each in domains), full, hosted.memory_limit, workers=True),
            "resident": resident_bytes(),
            "reader_map_file": reader_map.file_bytes(),
        },
        "waiting": {"requests": len(hosted.requests), "tokens": len(hosted.waits)},
        "links": asdict(hosted.counters),
        "domains": domains,
    }


def memory_of(accounted: int, full: int, limit: int, *, workers: bool = False) -> dict[str, Any]:
    """Memory in use and its limit. Full state is never evicted; if it alone is over the limit, an alarm says so.

    ``workers``: this process is one worker of a cluster.
    """
    shown: dict[str, Any] = {"accounted": accounted, "full": full, "limit": limit}
    if full <= limit:
        return shown
    told = (
        f"full state takes {full:,} bytes, memory_limit is {limit:,}, and eviction cannot help: it frees none of that, "
        "and takes what partial views hold as soon as it is read. Raise memory_limit, "
        f"{'add workers, ' if workers else ''}or drop views that are full (headrace explain says why one is)"
    )
    return {**shown, "alarm": told}


def _domain(
    host: HostedDomain, reader_map: ReaderMap, hosted: DomainHost, nodes: frozenset[NodeIndex] | None
) -> dict[str, Any]:
    domain = host.domain
    vertices = [vertex for vertex in domain.vertices.values() if nodes is None or vertex.index in nodes]
    return {
        "domain": domain.index,
        "incarnation": domain.incarnation,
        "shard": domain.shard,
        "linked": host.linked,
        "nodes": len(domain.vertices),
        "bytes": host.weigh(),
        "parked": len(domain.parked) + len(domain.awaiting),
        "pending": len(domain.ingresses.pending),
        "held": len(host.held),
        "in_doubt": prepared_since(domain),
        "counters": asdict(domain.counters),
        "tables": {
            schema.title: {
                "rows": domain.store.table(schema.name).row_count,
                "position": domain.store.position(schema.name),
                "base": domain.base_name(schema),
            }
            for schema in domain.store.tables()
        },
        "state": {
            str(vertex.index): {
                "keys": sum(map(len, vertex.indexes.values())),
                "bytes": sum(index.bytes for index in vertex.indexes.values()),
                "deltas": vertex.emitted,
            }
            for vertex in vertices
        },
        "readers": {
            vertex.node.operator.view: {
                "node": vertex.index,
                "materialization": vertex.node.materialization.value,
                "keys": len(vertex.operator.filled),
                "bytes": reader_map.bytes_of(hosted.layouts[domain.index, vertex.index].reader_id),
                "clock": dict(hosted.clock_of(domain.index, vertex.index)),
            }
            for vertex in vertices
            if is_reader(vertex.node.operator) and isinstance(vertex.operator, ReaderOperator)
        },
    }
