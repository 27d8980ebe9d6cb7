"""The difference between the decided and the actual graph, as steps. Pure.

A *place* is a node in one domain. What was lost is a domain with all of its places. Around it:

* **Partial state** below it, in a domain that survived, is void by itself: ``PeerReset`` evicts what had come from the
  lost domain, and asks again. It serves on in the meantime.
* **Full state** cannot be asked again key by key; it is *rebuilt*: removed, added anew and fed. With it goes everything
  below it, since that was computed from it. And with it go the egresses that feed it, wherever they are, since each
  has to send all its rows again; so every other ingress of such an egress would have them twice, and is rebuilt too.

``rebuilt`` is the least set of places of surviving domains that is closed under these rules. What no recipe knows (an
earlier leader's migration that was not committed) is removed; what the recipe knows and is missing, or is still being
built by a leader that is gone, is rebuilt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.cluster.state import ClusterState
from domains.language.types import TableSchema
from domains.plan.commands import Activate, AddNodes, AlterTable, BuildIndex, CreateTable, DropTable, Feed, Route
from domains.plan.graph import Columns, DomainIndex, Materialization, Node, NodeIndex
from domains.plan.packets import receiver_of, sender_of
from domains.plan.traits import is_base, is_ingress
from migrations.flow.dataflow import Dataflow
from migrations.flow.plan import SLICE_ROWS, PlanStep, State
from worker.protocol.messages import DomainReport, WorkerReport

Place = tuple[NodeIndex, DomainIndex]
Reports = Mapping[str, WorkerReport]
"""By worker; of those that are there."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The steps that bring the graph to what is decided, in the order in which they are to be taken."""

    fresh: tuple[PlanStep, ...]
    """Nodes of domains that were opened; before these are linked."""
    removals: dict[DomainIndex, tuple[NodeIndex, ...]]
    """In domains that survived; in one step with the resets."""
    again: tuple[PlanStep, ...]
    """Nodes that were removed and are built again, once nothing that was sent to them before is on its way."""
    indexes: tuple[PlanStep, ...]
    feeds: tuple[PlanStep, ...]
    activations: tuple[PlanStep, ...]

    @property
    def rebuilds(self) -> bool:
        return bool(self.removals or self.feeds or self.activations)


def by_domain(steps: Iterable[PlanStep]) -> list[list[PlanStep]]:
    """Each domain's steps, in order."""
    found: dict[DomainIndex, list[PlanStep]] = {}
    for step in steps:
        found.setdefault(step.domain, []).append(step)
    return list(found.values())


# --- domains --------------------------------------------------------------------------------------------------------


def reported(state: ClusterState, reports: Reports, domain: DomainIndex) -> DomainReport | None:
    """The domain as it is at the worker that is to have it, in the incarnation that it is to have."""
    given = state.placement.get(domain)
    if given is None or given.worker not in reports:
        return None
    report = reports[given.worker].domains.get(domain)
    return report if report is not None and report.incarnation == given.incarnation else None


def homeless(state: ClusterState, reports: Reports) -> list[DomainIndex]:
    """The domains that are to be opened anew. One that was never linked has never served, and is begun again."""
    found: list[DomainIndex] = []
    for domain in state.domains:
        report = reported(state, reports, domain)
        if report is None or not report.linked:
            found.append(domain)
    return found


def loads(reports: Reports) -> dict[DomainIndex, float]:
    """How much has been written to each domain's tables: a measure of its weight that does not jump about."""
    return {d: float(sum(each.positions.values())) for report in reports.values() for d, each in report.domains.items()}


def superfluous(state: ClusterState, reports: Reports) -> list[tuple[str, DomainIndex]]:
    """Domains that are open at a worker that is not to have them, or not in this incarnation."""
    return [
        (worker, domain)
        for worker, report in sorted(reports.items())
        for domain in sorted(report.domains)
        if reported(state, {worker: report}, domain) is None
    ]


# --- tables ---------------------------------------------------------------------------------------------------------


def tables_of(state: State, domain: DomainIndex) -> dict[str, TableSchema]:
    """The base tables of which a domain has a shard, by name."""
    shards = state.flow.shards
    return {
        schema.name: schema
        for schema in state.catalog.tables.values()
        if domain < shards and domain < (schema.shards or shards)
    }


def strange_tables(known: Collection[str], report: DomainReport) -> list[str]:
    """Tables that no entry of the recipe ever had: the storage is not this deployment's, or the recipe is not."""
    return sorted(schema.name for schema in report.tables if schema.name not in known)


def table_steps(state: State, domain: DomainIndex, report: DomainReport) -> list[PlanStep]:
    """Tables that are new or changed: what a leader had decided and was not carried out everywhere."""
    there = {schema.name: schema for schema in report.tables}
    steps: list[PlanStep] = []
    for name, schema in tables_of(state, domain).items():
        former = name in there and not there[name].is_the_table(schema)
        if former:
            steps.append(PlanStep(domain, DropTable(name), f"domain {domain}: drop the former table {name}"))
        if name not in there or former:
            steps.append(PlanStep(domain, CreateTable(schema), f"domain {domain}: create table {name}"))
        elif there[name] != schema:
            steps.append(PlanStep(domain, AlterTable(schema), f"domain {domain}: alter table {name}"))
    return steps


def drop_steps(state: State, domain: DomainIndex, report: DomainReport) -> list[PlanStep]:
    """Tables that were dropped; once the nodes that read them are gone."""
    gone = {schema.name for schema in report.tables} - tables_of(state, domain).keys()
    return [PlanStep(domain, DropTable(name), f"domain {domain}: drop table {name}") for name in sorted(gone)]


# --- nodes ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Graph:
    """A dataflow's places and what feeds what among them."""

    flow: Dataflow
    nodes: dict[DomainIndex, list[Node]] = field(default_factory=dict)
    """By domain, in topological order."""
    children: dict[Place, list[Place]] = field(default_factory=dict)
    """Within a domain."""
    fed: dict[Place, list[Place]] = field(default_factory=dict)
    """Egress → the ingresses that it feeds."""
    feeding: dict[Place, list[Place]] = field(default_factory=dict)
    """Ingress → the egresses that feed it."""

    def __post_init__(self) -> None:
        for node in self.flow.nodes.values():
            for domain in self.flow.places(node.index):
                self.nodes.setdefault(domain, []).append(node)
                if not is_ingress(node.operator):
                    for parent in dict.fromkeys(node.parents):
                        self.children.setdefault((parent, domain), []).append((node.index, domain))
        for route in self.routes():
            egress, ingress = (route.egress, sender_of(route.link)), (route.ingress, receiver_of(route.link))
            self.fed.setdefault(egress, []).append(ingress)
            self.feeding.setdefault(ingress, []).append(egress)

    def routes(self) -> Iterator[Route]:
        for routes in self.flow.routes.values():
            yield from routes

    def is_full(self, place: Place) -> bool:
        node = self.flow.nodes[place[0]]
        return node.materialization is Materialization.FULL and not is_base(node.operator)


def repair(state: State, survivors: Mapping[DomainIndex, DomainReport], opened: Collection[DomainIndex]) -> Repair:
    """The steps to take where ``survivors`` are open, linked, and report as they do, and ``opened`` are empty."""
    graph = _Graph(state.flow)
    void = _rebuilt(graph, survivors, opened)
    removals: dict[DomainIndex, tuple[NodeIndex, ...]] = {}
    for domain, report in sorted(survivors.items()):
        wanted = {node.index for node in graph.nodes.get(domain, ())}
        gone = tuple(sorted(n for n in report.nodes if n not in wanted or (n, domain) in void))
        if gone:
            removals[domain] = gone
    fresh: list[PlanStep] = []
    building: set[DomainIndex] = set()
    for domain in sorted(opened):
        held = _held(graph, domain, void)
        fresh += _addition(graph, domain, graph.nodes.get(domain, []), held)
        if held:
            building.add(domain)
    again: list[PlanStep] = []
    for domain in sorted(survivors):
        nodes = [node for node in graph.nodes.get(domain, ()) if (node.index, domain) in void]
        again += _addition(graph, domain, nodes, frozenset(node.index for node in nodes))
        if nodes:
            building.add(domain)
    activated = building | removals.keys() | {d for d, report in survivors.items() if report.building}
    return Repair(
        tuple(fresh),
        removals,
        tuple(again),
        tuple(_indexes(state, graph, sorted({*opened, *survivors}))),
        tuple(PlanStep(d, Feed(SLICE_ROWS), f"domain {d}: backfill", sliced=True) for d in sorted(building)),
        tuple(PlanStep(d, Activate(), f"domain {d}: activate") for d in sorted(activated)),
    )


def _rebuilt(
    graph: _Graph, survivors: Mapping[DomainIndex, DomainReport], opened: Collection[DomainIndex]
) -> set[Place]:
    """The least set of survivors' places that is closed under the rules above."""
    void: set[Place] = set()
    pending: list[Place] = []

    def add(places: Iterable[Place]) -> None:
        new = [place for place in places if place[1] in survivors and place not in void]
        void.update(new)
        pending.extend(new)

    for domain, report in survivors.items():
        for node in graph.nodes.get(domain, ()):
            if node.index not in report.nodes or node.index in report.building:
                add([(node.index, domain)])
    for place, sources in graph.feeding.items():
        if graph.is_full(place):
            if place[1] in opened:
                add(sources)
            elif any(domain in opened for _, domain in sources):
                add([place])
    while pending:
        place = pending.pop()
        add(graph.children.get(place, ()))
        add(graph.fed.get(place, ()))
        if graph.is_full(place):
            add(graph.feeding.get(place, ()))
    return void


def _held(graph: _Graph, domain: DomainIndex, void: set[Place]) -> frozenset[NodeIndex]:
    """What must not answer in a new domain before all is built: what is full and is backfilled, what would ask egresses
    that are away until they are built again, and all that is below these. The rest serves as soon as it is linked."""
    held: set[NodeIndex] = set()
    for node in graph.nodes.get(domain, ()):
        place = (node.index, domain)
        above = () if is_ingress(node.operator) else node.parents
        away = not void.isdisjoint(graph.feeding.get(place, ()))
        if graph.is_full(place) or away or not held.isdisjoint(above):
            held.add(node.index)
    return frozenset(held)


def _addition(graph: _Graph, domain: DomainIndex, nodes: list[Node], held: frozenset[NodeIndex]) -> list[PlanStep]:
    if not nodes:
        return []
    added = {node.index for node in nodes}
    routes = [route for route in graph.routes() if route.egress in added or route.ingress in added]
    outgoing = tuple(r for r in routes if r.egress in added and sender_of(r.link) == domain)
    incoming = tuple(r for r in routes if r.ingress in added and receiver_of(r.link) == domain)
    text = f"domain {domain}: add nodes {', '.join(str(node.index) for node in nodes)}"
    return [PlanStep(domain, AddNodes(tuple(nodes), outgoing, incoming, held), text)]


def _indexes(state: State, graph: _Graph, domains: Iterable[DomainIndex]) -> Iterator[PlanStep]:
    """Indexes of base tables: those that are declared and those that nodes look up by. What is complete costs nothing,
    and what a crash, or a leader that is gone, left half built is built now."""
    for domain in domains:
        wanted: dict[tuple[str, Columns], None] = {}
        for schema in tables_of(state, domain).values():
            wanted.update(((schema.name, columns), None) for columns in schema.indexes)
        for node in graph.nodes.get(domain, ()):
            if is_base(node.operator):
                for columns in node.indexes:
                    wanted[node.operator.table, tuple(node.operator.columns[column] for column in columns)] = None
        for table, columns in wanted:
            command = BuildIndex(table, columns, SLICE_ROWS)
            yield PlanStep(domain, command, f"domain {domain}: index table {table}", sliced=True)
