"""How a migration's new nodes become the stages of a bulk job. Pure.

A row that crosses links does so on lanes 0, 1, 2 … (``domains/plan/packets.py``), so what a domain sends on lane k
depends on its tables and on what came over lanes below k. Stage k is therefore: every domain that sends on lane k, or
has a new full state that depends on lanes below k and on no other::

    stage 0   domain 0: votes@0 ─► γ ─► egress       domain 1: votes@1 ─► γ ─► egress          (lane 0)
    stage 1   domain 0: ingress ─► γ ─► reader       domain 1: ingress ─► γ ─► reader

A task has the nodes of its domain that what it is to give is computed from: the new ones, and the running ones without
state on which they stand. Where they stand on state that runs already, that is *empty* in a task: what is loaded then
is what they come to without it, and it is fed whole when the replay begins (``domains/engine/lifecycle/replay.py``). A
recovery builds so, since parts of a view may have survived. A migration does not, and :func:`obstacle` says so: it
mostly stands on little else, and is fed from it in slices.

What is built is told by places, not by nodes: a recovery builds a node again only where it was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from domains.language.types import Delta, TableSchema
from domains.plan.commands import AddNodes, Route
from domains.plan.deltas import Entry, add_row
from domains.plan.graph import (
    Columns,
    DomainIndex,
    Ingress,
    Materialization,
    Node,
    NodeIndex,
)
from domains.plan.graph import Materialization as Kept
from domains.plan.packets import lane_of, receiver_of, sender_of
from domains.plan.sharding import base_shard
from domains.plan.traits import is_base, is_egress, is_ingress, is_reader, traits_of
from migrations.backfill.job import Flow, JobStage, StageSink, Task, TaskTable
from migrations.flow.dataflow import Dataflow
from migrations.flow.plan import MigrationPlan

# Column pruning: of its base tables a task reads the columns that something of it depends on, and no others. Pure.
#
# ::
#
#     votes (user, story) ─► ⋈ story = id ─► π author        of votes: story
#                               ▲
#     stories (id, author, title, text) ─┘                   of stories: id, author
#
# What a task comes to is a function of the bag of rows with these columns, so rows that differ in others only may
# come as one, their weights summed. That is most of a bulk job's speed where a large table is aggregated: of 47
# million votes for 2.5 million stories as many rows are left, before any code of ours sees them.


def columns_read(nodes: Sequence[Node]) -> dict[str, frozenset[int]]:
    """The stored positions of each base table's columns that the nodes, in topological order, depend on.

    Every column counts of a node that keeps state, or below which nothing is.
    """
    widths = {node.index: len(node.columns) for node in nodes}
    wanted: dict[NodeIndex, set[int]] = {index: set() for index in widths}
    ends = widths.keys() - {parent for node in nodes for parent in node.parents}
    read: dict[str, set[int]] = {}
    for node in reversed(nodes):
        of_node = wanted[node.index]
        if node.materialization is not Materialization.NONE or node.index in ends:
            of_node.update(range(widths[node.index]))
        if is_base(node.operator):
            stored = node.operator.columns
            read.setdefault(node.operator.table, set()).update(stored[column] for column in of_node)
        elif not is_ingress(node.operator):
            parents = traits_of(node.operator).reads(of_node, [widths[parent] for parent in node.parents])
            for parent, columns in zip(node.parents, parents, strict=True):
                wanted[parent].update(columns)
    return {table: frozenset(columns) for table, columns in read.items()}


def pruned(rows: Iterable[Delta], columns: Columns, width: int) -> list[Delta]:
    """Rows with None in all other columns than these, equal ones as one."""
    if len(columns) == width:
        return list(rows)
    wanted, entry = set(columns), Entry()
    for row, weight in rows:
        add_row(entry, tuple(value if place in wanted else None for place, value in enumerate(row)), weight)
    return list(entry.items())


Place = tuple[NodeIndex, DomainIndex]
"""A node in one physical domain."""


def new_places(plan: MigrationPlan) -> set[Place]:
    added = ((step.domain, step.command) for step in plan.steps if isinstance(step.command, AddNodes))
    return {(node.index, domain) for domain, command in added for node in command.nodes}


def obstacle(flow: Dataflow, plan: MigrationPlan) -> str:
    """Why a migration's full part is not computed in bulk; "" where it can be (or there is none: ``bases_fed``)."""
    last = next(reversed(_Graph(flow, new_places(plan)).standing), None)
    return "" if last is None else f"it reads node {last[0]}, which has state already and is fed from that"


def bases_fed(flow: Dataflow, plan: MigrationPlan) -> dict[str, DomainIndex]:
    """The base shards that a plan's full part is fed from, each with the domain that has it."""
    return _bases(_Graph(flow, new_places(plan)))


def bases_below(flow: Dataflow, plan: MigrationPlan) -> dict[str, DomainIndex]:
    """The base tables of a plan, and those that the running state below it is computed from."""
    return _bases(_Graph(flow, new_places(plan), cut=False))


def _bases(graph: _Graph) -> dict[str, DomainIndex]:
    flow = graph.flow
    return {
        base_shard(operator.table, operator.generation, domain % flow.shards, flow.shards): domain
        for index, domain in graph.needed
        if is_base(operator := flow.nodes[index].operator)
    }


def bulk_domains(flow: Dataflow, plan: MigrationPlan) -> list[DomainIndex]:
    """The physical domains that have part of it, in order."""
    return sorted({domain for _, domain in _Graph(flow, new_places(plan)).building})


def stages_of(
    flow: Dataflow, plan: MigrationPlan, schemas: Mapping[str, TableSchema], rows: Mapping[str, int]
) -> tuple[JobStage, ...]:
    """The stages of a plan, over the dataflow as it is to be.

    ``schemas`` by table name as the bases have it; ``rows`` are about how many each base shard has.
    """
    graph = _Graph(flow, new_places(plan))
    wanted: dict[int, dict[DomainIndex, list[NodeIndex]]] = {}
    for index, domain in graph.building:
        if graph.gives(index):
            wanted.setdefault(graph.levels[index], {}).setdefault(domain, []).append(index)
    return tuple(
        JobStage(number, tuple(_Tasks(graph, number, d, schemas, rows).task(w) for d, w in sorted(of_stage.items())))
        for number, of_stage in sorted(wanted.items())
    )


@dataclass(slots=True)
class _Graph:
    """What is built of a dataflow, and what that is computed from."""

    flow: Dataflow
    added: set[Place]
    cut: bool = True
    """Whether state that runs already is where it ends."""
    building: dict[Place, None] = field(default_factory=dict)
    """New places with full state, and new ones that lead to such; in topological order, as are the next two."""
    needed: dict[Place, None] = field(default_factory=dict)
    """The new nodes, and what they stand on up to base tables, or up to state that runs."""
    standing: dict[Place, None] = field(default_factory=dict)
    """The state that runs and on which they stand."""
    levels: dict[NodeIndex, int] = field(default_factory=dict)
    """In which stage a needed node is complete."""

    def __post_init__(self) -> None:
        needed, standing = self._reached()
        for node in self.flow.nodes.values():
            for domain in self.flow.places(node.index):
                place = (node.index, domain)
                if place in standing:
                    self.standing[place] = None
                elif place in needed:
                    self.needed[place] = None
                    if place in self.added and not is_base(node.operator):
                        self.building[place] = None
                    self.levels[node.index] = self._level(node)

    def _reached(self) -> tuple[set[Place], set[Place]]:
        needed: set[Place] = set()
        standing: set[Place] = set()
        pending = [place for place in self.added if self.gives(place[0])]
        while pending:
            place = pending.pop()
            if place in needed or place in standing:
                continue
            node = self.flow.nodes[place[0]]
            held = node.materialization is not Kept.NONE and not is_egress(node.operator)
            if held and place not in self.added and self.cut:
                standing.add(place)
                continue
            needed.add(place)
            pending.extend(self._above(node, place[1]))
        return needed, standing

    def _above(self, node: Node, domain: DomainIndex) -> list[Place]:
        if not is_ingress(node.operator):
            return [(parent, domain) for parent in node.parents]
        routes = self.flow.routes[node.index]
        return [(route.egress, sender_of(route.link)) for route in routes if receiver_of(route.link) == domain]

    def _level(self, node: Node) -> int:
        if is_ingress(node.operator):
            return lane_of(self.flow.routes[node.index][0].link) + 1
        return max((self.levels.get(parent, 0) for parent in node.parents), default=0)

    def gives(self, index: NodeIndex) -> bool:
        """Whether something of the node comes out of a task: its state, or rows for another."""
        return self.flow.nodes[index].materialization is Kept.FULL

    def within(self, indices: Iterable[NodeIndex], domain: DomainIndex) -> list[Node]:
        """The nodes and what they are computed from in the same domain, in topological order."""
        reached: set[NodeIndex] = set()
        pending = list(indices)
        while pending:
            index = pending.pop()
            if index not in reached:
                reached.add(index)
                if (index, domain) not in self.standing and not is_ingress(self.flow.nodes[index].operator):
                    pending.extend(self.flow.nodes[index].parents)
        return [
            _empty(node) if (node.index, domain) in self.standing else node
            for node in self.flow.nodes.values()
            if node.index in reached
        ]


def _empty(node: Node) -> Node:
    """State that runs, as a task has it: nothing ever comes to it."""
    return replace(node, operator=Ingress(node.index), parents=(), drives=())


class _Tasks:
    """Makes the task of one domain in one stage."""

    def __init__(
        self,
        graph: _Graph,
        stage: int,
        domain: DomainIndex,
        schemas: Mapping[str, TableSchema],
        rows: Mapping[str, int],
    ) -> None:
        self._graph, self._flow = graph, graph.flow
        self._stage, self._domain = stage, domain
        self._shard = domain % graph.flow.shards
        self._schemas, self._rows = schemas, rows

    def task(self, wanted: list[NodeIndex]) -> Task:
        flow = self._flow
        sinks = [
            self._sink(index)
            for index in wanted
            if (is_egress(flow.nodes[index].operator) or is_reader(flow.nodes[index].operator))
        ]
        gone = {sink.node for sink in sinks if sink.from_state}
        nodes = tuple(node for node in self._graph.within(wanted, self._domain) if node.index not in gone)
        incoming = tuple(
            route
            for node in nodes
            if (node.index, self._domain) not in self._graph.standing
            for route in flow.routes.get(node.index, ())
            if receiver_of(route.link) == self._domain
        )
        out_of = {sink.node for sink in sinks}
        return Task(
            self._stage,
            self._domain,
            self._shard,
            flow.shards,
            nodes,
            incoming,
            tuple(self._tables(nodes)),
            tuple(Flow(route.link, route.ingress) for route in incoming),
            tuple(index for index in wanted if index not in out_of),
            tuple(sinks),
            tuple(Flow(route.link, route.ingress) for sink in sinks for route in sink.routes),
        )

    def _sink(self, index: NodeIndex) -> StageSink:
        node = self._flow.nodes[index]
        (parent,) = node.parents
        above = self._flow.nodes[parent]
        inside = self._graph.within([index], self._domain)
        return StageSink(
            index,
            parent,
            self._routes(index) if is_egress(node.operator) else (),
            from_state=above.materialization is Kept.FULL,
            grows=all(traits_of(each.operator).grows for each in inside),
        )

    def _routes(self, egress: NodeIndex) -> tuple[Route, ...]:
        return tuple(
            route
            for routes in self._flow.routes.values()
            for route in routes
            if route.egress == egress and sender_of(route.link) == self._domain
        )

    def _tables(self, nodes: Iterable[Node]) -> Iterable[TaskTable]:
        """In the order of feeding, small ones first: of the last one the fewest look-ups are left that need it."""
        nodes = list(nodes)
        tables = dict.fromkeys(node.operator.table for node in nodes if is_base(node.operator))
        generations = {table: self._schemas[table].generation for table in tables}
        base_of = {table: base_shard(table, generations[table], self._shard, self._flow.shards) for table in tables}
        order = sorted(tables, key=lambda table: (self._rows.get(base_of[table], 0), table))
        read = columns_read(nodes)
        for at, table in enumerate(order):
            schema, kept = self._schemas[table], _looked_up(nodes, table, set(order[at:]))
            # What is kept is kept by its primary key.
            columns = read[table].union(schema.primary_key if kept else ())
            yield TaskTable(base_of[table], schema, kept, tuple(sorted(columns)))


def _looked_up(nodes: list[Node], table: str, later: set[str]) -> bool:
    """Whether rows of a table are looked up while it, or one of those ``later`` (itself among them), is being fed.

    A join looks at one side when the other changes, and a left join at its right side always; a recursion looks at what
    it goes on by, whatever changes; a TopK looks at its parent when rows are taken back.
    """
    inside = {node.index: node for node in nodes}
    seen: dict[NodeIndex, set[str]] = {}
    """Keyed by node, the tables that a look-up of it comes down to."""
    fed: dict[NodeIndex, set[str]] = {}
    """Keyed by node, the tables whose rows reach it."""
    grows: dict[NodeIndex, bool] = {}
    for index, node in inside.items():
        traits = traits_of(node.operator)
        above = [parent for parent in node.parents if parent in inside]
        own = {node.operator.table} if is_base(node.operator) else set()
        fed[index] = own.union(*(fed[parent] for parent in above))
        held = node.materialization is not Kept.NONE
        seen[index] = set() if held else own.union(*(seen[parent] for parent in above))
        grows[index] = traits.grows and all(grows[parent] for parent in above)
        if traits.matching is not None:
            left, right = node.parents
            if table in seen[left] and not later.isdisjoint(fed[right]):
                return True
            if table in seen[right] and (traits.matching.outer or not later.isdisjoint(fed[left])):
                return True
        if any(table in seen.get(node.parents[at], ()) for at, _ in traits.goes_round):
            return True
        if traits.refills and table in seen[above[0]] and not grows[above[0]]:
            return True
    return False
