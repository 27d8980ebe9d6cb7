"""The dataflow for people: all of it with a box for each view, and what one view costs.

A picture of thousands of nodes helps nobody, so that a reader begins with tables and views, and opens one view at a
time, whose nodes the deployment tells (``controller/status.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Document = dict[str, Any]


def collapsed(graph: Document) -> Document:
    """A box for each base table that a view reads and for each view that has a reader. ``shared`` of its ``nodes``
    other views use too."""
    nodes = {node["node"]: node for node in graph["nodes"]}
    above = _parents(graph)
    parts = {index: _ancestors(index, above) for index, node in nodes.items() if node["view"]}
    users: dict[int, int] = {}
    for part in parts.values():
        for index in part:
            users[index] = users.get(index, 0) + 1
    views, edges = [], []
    for reader, part in parts.items():
        own = [nodes[index] for index in sorted(part) if nodes[index]["table"] is None]
        views.append(
            {
                "view": nodes[reader]["view"],
                "materialization": nodes[reader]["materialization"],
                "reasons": list(dict.fromkeys(node["reason"] for node in own if node["reason"])),
                "nodes": len(own),
                "shared": sum(users[node["node"]] > 1 for node in own),
                **{size: sum(node[size] for node in own) for size in ("keys", "bytes")},
                "deltas": nodes[reader]["deltas"],
            }
        )
        read = dict.fromkeys(table for index in sorted(part) if (table := nodes[index]["table"]) is not None)
        edges += [{"table": table, "view": nodes[reader]["view"]} for table in read]
    tables: dict[str, int] = {}
    for node in nodes.values():
        if node["table"] is not None:
            tables[node["table"]] = max(tables.get(node["table"], 0), node["deltas"])
    return {
        "tables": [{"table": table, "deltas": deltas} for table, deltas in tables.items()],
        "views": views,
        "edges": edges,
    }


def stats_of(view: str, part: Document) -> Document:
    """What reads of a view have found, what it holds, and what a miss and a write cost on average; None where there was
    none yet. ``part``: the nodes that it stands on."""
    told: Mapping[str, Any] = part.get("reader") or {}
    nodes = part["nodes"]
    hits, misses = told.get("hits", 0), told.get("misses", 0)
    own = [node for node in nodes if node["table"] is None]
    written = sum(node["deltas"] for node in nodes if node["table"] is not None)
    return {
        "view": view,
        "materialization": told.get("materialization", "none"),
        "hits": hits,
        "misses": misses,
        "hit_rate": _share(hits, hits + misses),
        "miss_milliseconds": _share(1000 * told.get("seconds", 0.0), misses),
        "keys": told.get("keys", 0),
        "bytes": told.get("bytes", 0),
        "lag": told.get("lag"),
        "nodes": len(own),
        "shared_nodes": sum(node["shared"] for node in own),
        "state_bytes": sum(node["bytes"] for node in own),
        "deltas": sum(node["deltas"] for node in own if node["view"]),
        "deltas_per_write": _share(sum(node["deltas"] for node in own), written),
        "reasons": list(dict.fromkeys(node["reason"] for node in own if node["reason"])),
    }


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole else None


def _parents(graph: Document) -> dict[int, list[int]]:
    above: dict[int, list[int]] = {}
    for edge in graph["edges"]:
        above.setdefault(edge["to"], []).append(edge["from"])
    return above


def _ancestors(index: int, above: Mapping[int, Iterable[int]]) -> set[int]:
    """The node and all that it is computed from."""
    reached, pending = {index}, [index]
    while pending:
        for parent in above.get(pending.pop(), ()):
            if parent not in reached:
                reached.add(parent)
                pending.append(parent)
    return reached
