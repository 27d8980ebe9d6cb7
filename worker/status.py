"""What a worker tells of itself, JSON-ready: sizes in bytes, times in seconds; what counts only grows."""

from __future__ import annotations

import resource
from dataclasses import asdict
from pathlib import Path
from typing import Any

from domains.graph import Reader
from domains.operators.edges import Reader as ReaderOperator
from worker.hosted import Hosted
from worker.hosted_domain import HostedDomain
from worker.reader_map import ReaderMap


def hosted_status(hosted: Hosted, reader_map: ReaderMap) -> dict[str, Any]:
    """Taken between two steps."""
    domains = [_domain(host, reader_map, hosted) for host in hosted.hosts.values()]
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
    """What is held and what may be. Full state is never evicted: where it alone is over the limit, an alarm says so.

    ``workers``: there can be others beside this process, in a cluster.
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


def _domain(host: HostedDomain, reader_map: ReaderMap, hosted: Hosted) -> dict[str, Any]:
    domain = host.domain
    return {
        "domain": domain.index,
        "incarnation": domain.epoch,
        "shard": domain.shard,
        "linked": host.linked,
        "nodes": len(domain.vertices),
        "bytes": host.weigh(),
        "parked": len(domain.parked) + len(domain.awaiting),
        "pending": len(domain.ingresses.pending),
        "held": len(host.held),
        "counters": asdict(domain.counters),
        "tables": {
            schema.name: {
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
            }
            for vertex in domain.vertices
        },
        "readers": {
            vertex.node.operator.view: {
                "node": vertex.index,
                "materialization": vertex.node.materialization.value,
                "keys": len(vertex.operator.filled),
                "bytes": reader_map.bytes_of(hosted.layouts[domain.index, vertex.index].reader_id),
                "clock": dict(hosted.clock_of(domain.index, vertex.index)),
            }
            for vertex in domain.vertices
            if isinstance(vertex.node.operator, Reader) and isinstance(vertex.operator, ReaderOperator)
        },
    }


def resident_bytes() -> int:
    """Of this process, now; where the system does not say, the most that it ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()
