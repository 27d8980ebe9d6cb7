"""The graph workload's answers, after each change, beside a search of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.embedding import Embedded, embedded
from loadgen.peers.store import Change, Lookup, RowsAnswer, UpdateRow
from loadgen.workloads.graph import DISTRIBUTIONS, VARIANTS, GraphWorkload

REQUESTS = 160


class Judge:
    """A session of a target, which knows the graph."""

    def __init__(self, db: Embedded, rows: list[tuple[str, list[dict[str, Any]]]], target: str) -> None:
        self.db = db
        self.names = {"node_by_id": ("id",), "one_hop": ("src",), "two_hops": ("src",), "path": ("src", target)}
        self.labels = {row["id"]: row["label"] for table, some in rows if table == "node" for row in some}
        self.edges = {row["id"]: (row["src"], row["dst"]) for table, some in rows if table == "edge" for row in some}
        self.asked: dict[str, int] = defaultdict(int)

    async def write(self, changes: Sequence[Change]) -> int:
        for change in changes:
            assert isinstance(change, UpdateRow)
            (edge,), (node,) = change.key.values(), change.set.values()
            self.db.execute(f"UPDATE edge SET dst = {node} WHERE id = {edge}")
            self.edges[edge] = self.edges[edge][0], node
            self.asked["change"] += 1
        return len(changes)

    async def read(self, lookups: Sequence[Lookup]) -> list[RowsAnswer]:
        for query, values in lookups:
            rows = self.db.view(query.name).lookup(dict(zip(self.names[query.name], values, strict=True)))
            found = sorted(tuple(row.values()) for row in rows)
            assert found == sorted(self.expected(query.name, *values)), (query.name, values)
            self.asked[query.name] += 1
        return []

    def expected(self, query: str, start: int, target: int = 0) -> list[tuple[Any, ...]]:
        hops = self.distances(start)
        match query:
            case "node_by_id":
                return [(start, self.labels[start])]
            case "one_hop":
                return [(dst,) for src, dst in self.edges.values() if src == start]
            case "two_hops":
                return [(node,) for node in self.after({node for node, n in hops.items() if n == 1})]
            case "path":
                return [(hops.get(target),)]
        raise ValueError(query)

    def after(self, nodes: set[int]) -> set[int]:
        return {dst for src, dst in self.edges.values() if src in nodes}

    def distances(self, start: int) -> dict[int, int]:
        """Of what at most four edges lead to."""
        found: dict[int, int] = {}
        here = {start}
        for n in range(1, 5):
            here = self.after(here) - found.keys()
            found.update(dict.fromkeys(here, n))
        return found


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("variant", VARIANTS)
async def test_the_answers_are_those_of_a_search(variant: str, distribution: str, tmp_path: Path) -> None:
    workload = GraphWorkload(variant=variant, data_scale=0.0005, distribution=distribution)
    rows = list(workload.rows()[0])
    with embedded(tmp_path, read_your_writes=True) as db:
        db.execute(workload.program.schema)
        for table, some in rows:
            db.table(table).insert(some)
        db.execute(workload.program.views + workload.program.query_text)
        judge = Judge(db, rows, "dst" if variant == "natural" else "node")
        for _ in range(REQUESTS):
            await workload.draw(0.0).act(judge)  # type: ignore[arg-type]
    assert all(judge.asked[name] > 10 for name in ("change", "node_by_id", "one_hop", "two_hops", "path"))
