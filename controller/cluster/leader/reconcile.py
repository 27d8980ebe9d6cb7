"""The difference between the decided and the actual graph, as steps. Pure.

A *place* is a node in one domain. A lost domain loses all of its places. In the domains that survive:

* **Partial state** below it mends itself: ``PeerReset`` evicts what came from the lost domain and asks again. It serves
  meanwhile.
* **Full state** below it cannot be asked for key by key. It is *rebuilt*: removed, added anew and fed, together with
  everything below it, which was computed from it, and with the egresses that feed it, wherever they are, since each
  must send all its rows again. So every other ingress of such an egress would get them twice, and is rebuilt too.

``_rebuilt`` gives the least set of places of surviving domains that is closed under these rules. Nodes that no recipe
has (of a migration that was not committed) are removed; nodes of the recipe that are missing, or that a former leader
was still building, are rebuilt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from controller.cluster.state import ClusterState
from domains.language.types import TableSchema
from domains.plan.commands import (
    Activate,
    AddNodes,
    AlterTable,
    BuildIndex,
    CreateTable,
    DropTable,
    Feed,
    Relent,
    Route,
)
from domains.plan.graph import Columns, DomainIndex, Materialization, Node, NodeIndex
from domains.plan.packets import receiver_of, sender_of
from domains.plan.traits import is_base, is_ingress
from migrations.flow.dataflow import Dataflow
from migrations.flow.plan import SLICE_ROWS, PlanStep, State
from worker.protocol.messages import DomainReport, WorkerReport

Place = tuple[NodeIndex, DomainIndex]
Reports = Mapping[str, WorkerReport]
"""Keyed by worker that is there."""


@dataclass(frozen=True, slots=True)
class Repair:
    """The steps that bring the graph to the decided one, in their order."""

    fresh: tuple[PlanStep, ...]
    """Nodes of opened domains, before these are linked."""
    removals: dict[DomainIndex, tuple[NodeIndex, ...]]
    """In surviving domains; in one step with the resets."""
    again: tuple[PlanStep, ...]
    """Removed nodes that are built again, once no packet to the former ones is on its way."""
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
    """The domain's report, if the decided worker hosts the decided incarnation."""
    given = state.placement.get(domain)
    if given is None or given.worker not in reports:
        return None
    report = reports[given.worker].domains.get(domain)
    return report if report is not None and report.incarnation == given.incarnation else None


def homeless(state: ClusterState, reports: Reports) -> list[DomainIndex]:
    """The domains that must be opened anew, also those that were opened but never linked."""
    found: list[DomainIndex] = []
    for domain in state.domains:
        report = reported(state, reports, domain)
        if report is None or not report.linked:
            found.append(domain)
    return found


def loads(reports: Reports) -> dict[DomainIndex, float]:
    """The number of writes to each domain's tables: a stable measure of its weight."""
    return {d: float(sum(each.positions.values())) for report in reports.values() for d, each in report.domains.items()}


def superfluous(state: ClusterState, reports: Reports) -> list[tuple[str, DomainIndex]]:
    """Domains that are open at another worker than the decided one, or in another incarnation."""
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
    """Tables that were never in the recipe, whose names are ``known`` in lower case: the storage, or the recipe, is of
    another deployment."""
    tables = (schema for schema in report.tables if not schema.filling)
    return sorted(schema.name for schema in tables if schema.name.lower() not in known)


def table_steps(state: State, domain: DomainIndex, report: DomainReport) -> list[PlanStep]:
    """Steps for new and changed tables that were decided but not carried out everywhere. New ones come first: others
    may refer to them from now on."""
    there = {schema.name: schema for schema in report.tables}
    steps: list[PlanStep] = []
    altered: list[PlanStep] = []
    for name, schema in tables_of(state, domain).items():
        former = name in there and not there[name].is_the_table(schema)
        if former:
            steps.append(PlanStep(domain, DropTable(name), f"domain {domain}: drop the former table {name}"))
        if name not in there or former:
            steps.append(PlanStep(domain, CreateTable(schema), f"domain {domain}: create table {name}"))
        elif there[name] != schema:
            altered.append(PlanStep(domain, AlterTable(schema), f"domain {domain}: alter table {name}"))
        elif name in report.expected:  # What was decided is kept on to, without a step between.
            steps.append(PlanStep(domain, Relent(name), f"domain {domain}: leave table {name} as it is"))
    return steps + altered


def drop_steps(state: State, domain: DomainIndex, report: DomainReport) -> list[PlanStep]:
    """Steps for dropped tables, once the nodes that read them are gone."""
    gone = {schema.name for schema in report.tables} - tables_of(state, domain).keys()
    return [PlanStep(domain, DropTable(name), f"domain {domain}: drop table {name}") for name in sorted(gone)]


# --- nodes ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Graph:
    """A dataflow's places and what feeds what among them."""

    flow: Dataflow
    nodes: dict[DomainIndex, list[Node]] = field(default_factory=dict)
    """Keyed by domain, in topological order."""
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
    """The steps to take if ``survivors`` are linked and report as they do, and ``opened`` are empty."""
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
    """Nodes of a new domain that must not answer before all is built: full ones, which are backfilled, those that would
    ask egresses that are being rebuilt, and all below these. The others serve as soon as they are linked."""
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
    """Steps for the indexes of base tables, declared ones and those of nodes' look-ups. Complete indexes cost nothing;
    half-built ones are completed."""
    for domain in domains:
        wanted: dict[tuple[str, Columns], None] = {}
        for schema in tables_of(state, domain).values():
            wanted.update(((schema.name, columns), None) for columns in (*schema.unique, *schema.indexes))
        for node in graph.nodes.get(domain, ()):
            if is_base(node.operator):
                for columns in node.indexes:
                    wanted[node.operator.table, tuple(node.operator.columns[column] for column in columns)] = None
        for table, columns in wanted:
            command = BuildIndex(table, columns, SLICE_ROWS)
            yield PlanStep(domain, command, f"domain {domain}: index table {table}", sliced=True)
