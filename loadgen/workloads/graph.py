"""The graph workload: the interactive queries of K-Pg's section 5.3 over a graph that changes under them.

Half of the requests ask (a node, its successors, those in two hops, the shortest way of at most four hops between two
nodes, in equal shares), and half lead an edge to another node::

    natural     a way of four is two ways of two that meet: a join of joins, partial by both ends
    recursive   WITH RECURSIVE from one end, as it is written for MySQL
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from importlib.resources import files
from itertools import accumulate
from random import Random
from typing import Any

from loadgen.pace.loop import Arrival, Workload
from loadgen.peers.store import Lookup, PeerSession, Program, Rows, UpdateRow, parse_queries

NODES, EDGES = 100_000, 640_000
"""At a data scale of 1."""
VARIANTS = ("natural", "recursive")
DISTRIBUTIONS = ("uniform", "zipf")
"""Of the nodes that edges lead from and to."""
ZIPF = 0.8
"""Nodes have edges by rank⁻⁰·⁸: the first of 100,000 some 14,000 of 640,000."""
ASKED = ("node_by_id", "one_hop", "two_hops", "path")
_ROWS = 1000


def program(variant: str) -> Program:
    text = files("loadgen.workloads").joinpath("graph.sql").read_text(encoding="utf-8")
    tables, rest = text.split("CREATE VIEW", 1)
    views, queries = rest.split("CREATE EXT VIEW", 1)
    query_text = "CREATE EXT VIEW" + queries
    if variant == "recursive":
        again = files("loadgen.workloads").joinpath("graph_recursive.sql").read_text(encoding="utf-8")
        query_text = query_text[: query_text.index("CREATE EXT VIEW path")] + again
    return Program(
        "graph",
        variant,
        tables,
        "CREATE VIEW" + views,
        parse_queries(query_text),
        query_text,
        tables=("node", "edge"),
    )


async def _ask(lookup: Lookup, session: PeerSession) -> None:
    await session.read([lookup])


async def _lead(change: UpdateRow, session: PeerSession) -> None:
    await session.write([change])  # Where it leads there already, a database may say that nothing has changed.


class GraphWorkload(Workload):
    name = "graph"

    def __init__(
        self,
        *,
        variant: str = "natural",
        data_scale: float = 1.0,
        data_seed: int = 1,
        seed: int = 1,
        distribution: str = "uniform",
    ) -> None:
        self.program = program(variant)
        self._nodes = max(50, round(NODES * data_scale))
        self._edges = max(320, round(EDGES * data_scale))
        self._data_seed = data_seed
        self._random = Random(seed)
        self._order = list(range(1, self._nodes + 1))
        self._sums = None
        if distribution == "zipf":
            Random(0).shuffle(self._order)  # Which nodes have many edges does not depend on a seed.
            self._sums = list(accumulate(rank**-ZIPF for rank in range(1, self._nodes + 1)))

    def draw(self, at: float) -> Arrival:
        random = self._random
        if random.random() < 0.5:
            edge, (node,) = 1 + random.randrange(self._edges), self._drawn(random, 1)
            return Arrival("change", partial(_lead, UpdateRow("edge", {"id": edge}, {"dst": node})))
        name = random.choice(ASKED)
        return Arrival(name, self._question(name))

    def _question(self, name: str) -> Callable[[PeerSession], Awaitable[None]]:
        random = self._random
        nodes = tuple(1 + random.randrange(self._nodes) for _ in range(2 if name == "path" else 1))
        return partial(_ask, Lookup(self.program.queries[name], nodes))

    def probe(self) -> Lookup:
        return Lookup(self.program.queries["node_by_id"], (self._nodes,))

    def rows(self) -> tuple[Rows, int]:
        return self._rows(), self._nodes + self._edges

    def _rows(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for first in range(1, self._nodes + 1, _ROWS):
            nodes = range(first, min(first + _ROWS, self._nodes + 1))
            yield "node", [{"id": node, "label": f"Node {node}"} for node in nodes]
        random = Random(self._data_seed)
        for first in range(1, self._edges + 1, _ROWS):
            edges = range(first, min(first + _ROWS, self._edges + 1))
            ends = zip(self._drawn(random, len(edges)), self._drawn(random, len(edges)), strict=True)
            yield "edge", [{"id": id, "src": src, "dst": dst} for id, (src, dst) in zip(edges, ends, strict=True)]

    def _drawn(self, random: Random, number: int) -> list[int]:
        return random.choices(self._order, cum_weights=self._sums, k=number)
