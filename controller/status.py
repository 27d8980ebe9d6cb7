"""A deployment's report: status and graph, as JSON-ready values."""

from __future__ import annotations

from collections.abc import Container, Iterator, Set
from typing import Any

import psutil

from domains.language.types import TableSchema
from domains.plan.graph import DomainIndex, Node, NodeIndex
from domains.plan.packets import receiver_of, sender_of
from domains.plan.traits import is_base, is_egress, is_ingress, is_reader
from migrations.flow.dataflow import Dataflow as Flow
from migrations.flow.explain import operator_text, sharding_text, state_text
from migrations.flow.plan import State
from migrations.parse.temporary import is_hidden
from worker.dataflow.thread import DataflowThread
from worker.service.status import memory_of
from worker.service.system import explained_bytes

Held = dict[NodeIndex, tuple[int, int, int]]
"""The number of keys and bytes of a node's state, in all its shards, and of the deltas that it has emitted."""
UNHELD = (0, 0, 0)


LOGGED_CHARACTERS = 200
"""The most of a user's text in a line of the log: enough to recognise the statement."""


def one_line(text: str) -> str:
    """A user's text for the log: on one line, without control characters, and not long."""
    shown = "".join(char if char.isprintable() else " " for char in text[: 2 * LOGGED_CHARACTERS])
    shown = " ".join(shown.split())
    return shown if len(shown) <= LOGGED_CHARACTERS else f"{shown[:LOGGED_CHARACTERS]}…"


def status_of(dataflow: DataflowThread, state: State, uptime: float, hits: int, misses: int) -> dict[str, Any]:
    """Sizes in bytes, times in seconds; ``counters`` only grow."""
    domains: list[dict[str, Any]] = []
    full = 0
    counters = {"hits": hits, "misses": misses, "syncs": dataflow.flusher.syncs}
    for domain in dataflow.domains.values():
        own = domain.counters
        for name in ("steps", "writes", "upqueries", "fills", "evictions", "published_deltas"):
            counters[name] = counters.get(name, 0) + getattr(own, name)
        full += domain.vertices.full_bytes()
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
        "health": dataflow.health,
        "storage_alarms": dataflow.alarms(),
        "uptime": round(uptime, 3),
        "memory": {
            **memory_of(sum(each["bytes"] for each in domains), full, dataflow.memory_limit),
            "outside": dataflow.hosted.outside,
            **resident_of(psutil.Process().memory_info().rss, dataflow.memory_limit),
            "reader_map_file": dataflow.reader_map.file_bytes(),
        },
        "counters": counters,
        "tables": {
            schema.name if is_hidden(schema.title) else schema.title: _table(dataflow, schema)
            for schema in state.catalog.tables.values()
        },
        "views": {name: reader_status(dataflow, state.flow, node) for name, node in readers_of(state.flow)},
        "domains": domains,
        "links": _links(dataflow),
    }


def resident_of(resident: int, limit: int) -> dict[str, Any]:
    """The process's size, and an alarm if the memory limit does not explain it."""
    expected = explained_bytes(limit)
    if resident <= expected:
        return {"resident": resident}
    told = (
        f"the process takes {resident:,} bytes, where memory_limit explains {expected:,}: full views, rows on their "
        "way, or answers (see http and full here); lower memory_limit, or max_in_flight and max_connections"
    )
    return {"resident": resident, "resident_alarm": told}


def readers_of(flow: Flow, view: str | None = None) -> Iterator[tuple[str, Node]]:
    """The readers of all views, each with its view's name as the user wrote it; or that of one, if it has one."""
    for lower, index in flow.readers.items():
        if view is not None and lower != view.lower():
            continue
        node = flow.node(index)
        assert is_reader(node.operator)
        yield node.operator.view, node


def reader_status(dataflow: DataflowThread, flow: Flow, node: Node) -> dict[str, Any]:
    places = flow.places(node.index)
    return {
        "materialization": node.materialization.value,
        "keys": sum(_keys(dataflow, place, node.index) for place in places),
        "bytes": sum(_bytes(dataflow, place, node.index) for place in places),
    }


def _links(dataflow: DataflowThread) -> list[dict[str, int]]:
    """The number of packets, and of those still on their way, by sender and receiver, over all lanes."""
    sent: dict[tuple[DomainIndex, DomainIndex], int] = {}
    lags: dict[tuple[DomainIndex, DomainIndex], int] = {}
    # On copies, since the dataflow thread goes on meanwhile; receivers first, so that no lag is negative.
    ends_here = [item for domain in dataflow.domains.values() for item in list(domain.links.incoming.items())]
    arrived = {link: end.sequence for link, end in ends_here}
    for domain in dataflow.domains.values():
        for link, end in list(domain.links.outgoing.items()):
            ends = sender_of(link), receiver_of(link)
            sent[ends] = sent.get(ends, 0) + end.sequence
            lags[ends] = lags.get(ends, 0) + end.sequence - arrived.get(link, 0)
    return [{"from": ends[0], "to": ends[1], "packets": sent[ends], "lag": lags[ends]} for ends in sorted(sent)]


def _table(dataflow: DataflowThread, schema: TableSchema) -> dict[str, int]:
    """Sums over all shards of the table; the position counts the writes to all of them."""
    rows = position = 0
    for index, domain in dataflow.domains.items():
        if any(stored.name == schema.name for stored in domain.store.tables()):
            rows += domain.store.table(schema.name).row_count
            position += dataflow.published.get(index, {}).get(domain.base_name(schema), 0)
    return {"rows": rows, "position": position}


def _keys(dataflow: DataflowThread, place: DomainIndex, reader: NodeIndex) -> int:
    vertices = dataflow.domains[place].vertices
    return sum(map(len, vertices[reader].indexes.values())) if reader in vertices else 0


def _bytes(dataflow: DataflowThread, place: DomainIndex, reader: NodeIndex) -> int:
    layout = dataflow.layouts.get((place, reader))
    return 0 if layout is None else dataflow.reader_map.bytes_of(layout.reader_id)


def held_by(dataflow: DataflowThread, wanted: Container[NodeIndex] | None = None) -> Held:
    """``wanted``: only of these nodes."""
    held: Held = {}
    for domain in dataflow.domains.values():
        for vertex in domain.vertices.values():
            if wanted is not None and vertex.index not in wanted:
                continue
            keys, size, deltas = held.get(vertex.index, UNHELD)
            own = vertex.indexes.values()
            size += sum(index.bytes for index in own)
            held[vertex.index] = (keys + sum(map(len, own)), size, deltas + vertex.emitted)
    return held


def graph_of(flow: Flow, held: Held, wanted: Set[NodeIndex] | None = None) -> dict[str, Any]:
    """Nodes with the size of their state, edges, and the links between domains. ``wanted``: only these nodes, with all
    that they are computed from, each with whether other views stand on it, too."""
    chosen = [node for node in flow.nodes.values() if wanted is None or node.index in wanted]
    shared = set() if wanted is None else _below_others(flow, wanted)
    nodes = [
        {
            "node": node.index,
            "domain": node.domain,
            "stands_in": flow.places(node.index),
            "operator": type(node.operator).__name__.lower(),
            "text": operator_text(flow, node),
            "view": node.operator.view if is_reader(node.operator) else None,
            "table": node.operator.table if is_base(node.operator) else None,
            "columns": [{"name": column.name, "type": column.type.name} for column in node.columns],
            "materialization": node.materialization.value if not is_egress(node.operator) else "none",
            "state": state_text(node).strip(),
            "sharding": sharding_text(flow, node.index) or None,
            "reason": node.reason or None,
            **dict(zip(("keys", "bytes", "deltas"), held.get(node.index, UNHELD), strict=True)),
            **({} if wanted is None else {"shared": node.index in shared}),
        }
        for node in chosen
    ]
    edges = [
        {"from": parent, "to": node.index, "link": is_ingress(node.operator)}
        for node in chosen
        for parent in node.parents
    ]
    links = [
        {"link": route.link, "from": sender_of(route.link), "to": receiver_of(route.link)}
        for node in chosen
        for route in flow.routes.get(node.index, ())
    ]
    unique = {link["link"]: link for link in links}
    domains = sorted({place for node in chosen for place in flow.places(node.index)})
    return {"domains": domains, "nodes": nodes, "edges": edges, "links": list(unique.values())}


def _below_others(flow: Flow, wanted: Set[NodeIndex]) -> set[NodeIndex]:
    """The nodes that views stand on whose readers are not wanted: from the readers up, against the nodes' order."""
    found: set[NodeIndex] = set()
    for node in reversed(flow.nodes.values()):
        if node.index in found or (is_reader(node.operator) and node.index not in wanted):
            found.update(node.parents)
    return found
