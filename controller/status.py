"""What a deployment tells of itself: status and graph, as JSON-ready values."""

from __future__ import annotations

from typing import Any

import psutil

from domains.graph import Egress, Ingress, Reader
from migrations.dataflow import Dataflow as Flow
from migrations.explain import operator_text, state_text
from migrations.plan import State
from worker.dataflow import Dataflow


def status_of(dataflow: Dataflow, state: State, uptime: float, hits: int, misses: int) -> dict[str, Any]:
    """Sizes in bytes, times in seconds; ``counters`` only grow."""
    failed = dataflow.failed or dataflow.flusher.failed
    domains = []
    counters = {"hits": hits, "misses": misses, "syncs": dataflow.flusher.syncs}
    for domain in dataflow.domains:
        own = domain.counters
        for name in ("steps", "writes", "upqueries", "fills", "evictions", "published_deltas"):
            counters[name] = counters.get(name, 0) + getattr(own, name)
        domains.append(
            {
                "domain": domain.index,
                "nodes": len(domain.vertices),
                "bytes": domain.accounted_bytes(),
                "parked": len(domain.parked),
                "pending": len(domain.ingresses.pending),
            }
        )
    return {
        "health": "ok" if failed is None else failed.message,
        "uptime": round(uptime, 3),
        "memory": {
            "accounted": sum(each["bytes"] for each in domains),
            "limit": dataflow.memory_limit,
            "resident": psutil.Process().memory_info().rss,
            "reader_map_file": dataflow.reader_map.file_bytes(),
        },
        "counters": counters,
        "tables": {
            schema.name: {
                "rows": dataflow.store.table(schema.name).row_count,
                "position": dataflow.published.get(schema.name, 0),
            }
            for schema in dataflow.store.tables()
        },
        "views": {
            name: {
                "materialization": state.flow.node(index).materialization.value,
                "keys": sum(
                    len(index) for index in dataflow.domains[node.domain].vertices[node.index].indexes.values()
                ),
                "bytes": dataflow.reader_map.bytes_of(node.index),
            }
            for name, index in state.flow.readers.items()
            if (node := state.flow.node(index)).index in dataflow.domains[node.domain].vertices
        },
        "domains": domains,
    }


def graph_of(flow: Flow, dataflow: Dataflow) -> dict[str, Any]:
    """Nodes with what they keep and how many keys and bytes that is now, edges, and the links between domains."""
    indexes = {vertex.index: vertex.indexes for domain in dataflow.domains for vertex in domain.vertices}
    nodes = [
        {
            "node": node.index,
            "domain": node.domain,
            "operator": type(node.operator).__name__.lower(),
            "text": operator_text(flow, node),
            "view": node.operator.view if isinstance(node.operator, Reader) else None,
            "columns": [{"name": column.name, "type": column.type.name} for column in node.columns],
            "materialization": node.materialization.value if not isinstance(node.operator, Egress) else "none",
            "state": state_text(node).strip(),
            "reason": node.reason or None,
            "keys": sum(len(index) for index in indexes.get(node.index, {}).values()),
            "bytes": sum(index.bytes for index in indexes.get(node.index, {}).values()),
        }
        for node in flow.nodes.values()
    ]
    edges = [
        {"from": parent, "to": node.index, "link": isinstance(node.operator, Ingress)}
        for node in flow.nodes.values()
        for parent in node.parents
    ]
    links = [
        {"link": route.link, "from": flow.node(route.egress).domain, "to": flow.node(route.ingress).domain}
        for route in flow.routes.values()
    ]
    unique = {link["link"]: link for link in links}
    domains = sorted({node.domain for node in flow.nodes.values()})
    return {"domains": domains, "nodes": nodes, "edges": edges, "links": list(unique.values())}
