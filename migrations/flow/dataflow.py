"""The dataflow as it stands on domains: from the joint graph's nodes to placed nodes with state, ingresses and
egresses.

A node of the joint graph may stand here more than once: when a view needs *complete* rows of something that runs
partially, it gets a twin of its own, and the running one is left alone. ``Dataflow`` is a value that a migration copies
and extends; the same recipe gives the same dataflow.

In a deployment of several shards a node stands, under its one number, in some of the shards of its group
(``sharding.py``), and ``Node.domain`` is the group. A *crossing* is an egress and an ingress: where a node is seen from
another group, or where rows have to stand otherwise than they do (a shuffle, also within a group).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from domains.plan.commands import Route
from domains.plan.graph import DomainIndex, Materialization, Node, NodeIndex, Sharding
from domains.plan.packets import receiver_of
from domains.plan.sharding import base_shard, physical
from domains.plan.traits import is_base, is_ingress
from migrations.catalog import Catalog

Placement = Callable[[Node], DomainIndex]
"""In which group of nodes a new node stands (with one shard, a domain). Bases are always in group 0."""

Crossing = tuple[NodeIndex, DomainIndex, Sharding, bool]
"""(source, receiving group, how it stands there, complete)."""


@dataclass(slots=True)
class Dataflow:
    """All placed nodes in topological order."""

    nodes: dict[NodeIndex, Node] = field(default_factory=dict)
    sharding: dict[NodeIndex, Sharding] = field(default_factory=dict)
    variants: dict[NodeIndex, tuple[NodeIndex, ...]] = field(default_factory=dict)
    """Joint-graph node → where it stands: more than once where views need more of it than a running one has."""
    complete: set[NodeIndex] = field(default_factory=set)
    """Nodes with no partial state at or above them."""
    crossings: dict[Crossing, NodeIndex] = field(default_factory=dict)
    """→ ingress."""
    routes: dict[NodeIndex, tuple[Route, ...]] = field(default_factory=dict)
    """Keyed by ingress: those into its first shard, in the order of the shards that send, then those into its second.
    """
    readers: dict[str, NodeIndex] = field(default_factory=dict)
    """Keyed by view, lower case."""
    next_index: int = 0
    shards: int = 1
    """The deployment's factor."""
    gathers: tuple[int, ...] = field(default=(), compare=False)
    """The shards in which the present change gathers rows, in turn, as it was decided once; else it decides."""
    gathered: tuple[int, ...] = field(default=(), compare=False)
    """The shards in which it does."""

    def copy(self) -> Dataflow:
        return Dataflow(
            dict(self.nodes),
            dict(self.sharding),
            dict(self.variants),
            set(self.complete),
            dict(self.crossings),
            dict(self.routes),
            dict(self.readers),
            self.next_index,
            self.shards,
            self.gathers,
            self.gathered,
        )

    def node(self, index: NodeIndex) -> Node:
        return self.nodes[index]

    def children(self, index: NodeIndex) -> list[NodeIndex]:
        return [node.index for node in self.nodes.values() if index in node.parents]

    def ancestors(self, index: NodeIndex) -> set[NodeIndex]:
        """The node and all that it is computed from."""
        reached: set[NodeIndex] = set()
        pending = [index]
        while pending:
            at = pending.pop()
            if at not in reached:
                reached.add(at)
                pending.extend(self.nodes[at].parents)
        return reached

    def above_reader(self, view: str) -> set[NodeIndex]:
        """All that a view's answers are computed by; nothing while it has no reader."""
        reader = self.readers.get(view.lower())
        return set() if reader is None else self.ancestors(reader)

    def places(self, index: NodeIndex) -> list[DomainIndex]:
        """The domains in which a node stands, one a shard."""
        group = self.nodes[index].domain
        return [physical(group, number, self.shards) for number in self.sharding[index].numbers]

    def bases_of(self, index: NodeIndex, shard: int) -> frozenset[str]:
        """The base shards of which a node has rows in one of its shards. Across a shuffle those are all of them."""
        found: set[str] = set()
        pending, reached = [index], {index}
        while pending:
            node = self.nodes[pending.pop()]
            if is_base(node.operator):
                found.add(base_shard(node.operator.table, node.operator.generation, shard, self.shards))
            elif is_ingress(node.operator):
                here = physical(node.domain, shard, self.shards)
                for route in self.routes[node.index]:
                    if receiver_of(route.link) == here:
                        found |= route.bases
            else:
                pending.extend(parent for parent in node.parents if parent not in reached)
                reached.update(node.parents)
        return frozenset(found)

    def remove(self, doomed: set[NodeIndex]) -> None:
        for index in doomed:
            del self.nodes[index], self.sharding[index]
        left = {key: tuple(i for i in standing if i not in doomed) for key, standing in self.variants.items()}
        self.variants = {key: standing for key, standing in left.items() if standing}
        self.crossings = {
            key: index for key, index in self.crossings.items() if index not in doomed and key[0] not in doomed
        }
        self.routes = {index: routes for index, routes in self.routes.items() if index not in doomed}
        self.readers = {view: index for view, index in self.readers.items() if index not in doomed}
        self.complete -= doomed


# What of a dataflow is ready as soon as its nodes are there, and what has to be fed first: how a start is divided.
#
# A node is *late* if it has full state, or stands below such a node. All others answer from the base tables and from
# holes, so they serve at once. Late nodes come in *parts*, each by a migration of its own::
#
#     stories ──► γ full ──► reader TopAuthors        a part: fed with all rows of ``stories``
#        │          └──────► reader Best              the same part, since it stands on the same state
#        └──────► reader ByAuthor                     ready at once
#
# Parts share no late node, so that each is built without any other, in any order. To build all of them in one go
# would have every base row meet every view in one step: with 500 full views such a step takes 25 ms, and 5,500 rows
# took 139 s where one view after the other takes 18.


@dataclass(frozen=True, slots=True)
class LatePart:
    """Nodes in order of making; ``views`` by lower-case name."""

    nodes: tuple[NodeIndex, ...]
    views: tuple[str, ...]


def late_parts(flow: Dataflow, catalog: Catalog, rows: Mapping[str, int]) -> list[LatePart]:
    """Named views before those of ad-hoc SELECTs, and among them what reads the fewest base rows first.

    ``rows``: how many each base table has, by name.
    """
    part_of: dict[NodeIndex, list[NodeIndex]] = {}
    for index, node in flow.nodes.items():
        above = list({id(part): part for parent in node.parents if (part := part_of.get(parent))}.values())
        full = node.materialization is Materialization.FULL and not is_base(node.operator)
        if above or full:
            whole = [*(each for part in above for each in part), index]
            part_of.update(dict.fromkeys(whole, whole))
    views: dict[int, list[str]] = {}
    for view, reader in flow.readers.items():
        if reader in part_of:
            views.setdefault(id(part_of[reader]), []).append(view)
    parts = {id(part): part for part in part_of.values()}
    found = [LatePart(tuple(sorted(part)), tuple(views.get(key, ()))) for key, part in parts.items()]
    return sorted(found, key=lambda part: (_ad_hoc(part, catalog), _rows_below(part, flow, rows), part.nodes))


def _ad_hoc(part: LatePart, catalog: Catalog) -> bool:
    return all(catalog.views[view].ad_hoc for view in part.views)


def _rows_below(part: LatePart, flow: Dataflow, rows: Mapping[str, int]) -> int:
    above = set().union(*(flow.ancestors(index) for index in part.nodes))
    bases = {operator.table for index in above if is_base(operator := flow.nodes[index].operator)}
    return sum(rows.get(table, 0) for table in bases)
