"""How a recipe becomes a plan: what a migration does, as ordered and printable steps.

::

    views ─► plan_view ─► joint graph ─► split_key ─► Extension ─► MigrationPlan
             (query/)     (shared)      (provenance)  (placed,     (commands by domain; all but the last
                                                      state)       are undone by removing what was added)

``State`` is what the plans of all migrations so far come to. It is a function of the recipe: whoever plays the recipe
again has the same nodes under the same numbers.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from domains.plan.commands import Activate, AddNodes, BuildIndex, Command, ExtendNodes, Feed, RemoveNodes, Route
from domains.plan.graph import DomainIndex, Node, NodeIndex, Reader
from domains.plan.graph import Materialization as Kept
from domains.plan.packets import receiver_of, sender_of
from domains.plan.traits import is_base
from migrations.catalog import Catalog, ViewDefinition
from migrations.flow.dataflow import Dataflow, Placement
from migrations.flow.extension import Extension
from migrations.joint_graph.graph import JointGraph
from migrations.joint_graph.provenance import traced
from migrations.query.relation import Relation
from migrations.query.view import PlannedView, plan_view

SLICE_ROWS = 2_000
"""Base rows a slice of a backfill, at most: how many it are is a question of time (``worker/dataflow/pacing.py``)."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One command for one domain. A sliced one is repeated until it reports that it is finished."""

    domain: DomainIndex
    command: Command
    text: str
    sliced: bool = False


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    steps: tuple[PlanStep, ...]
    undo: tuple[PlanStep, ...]
    """What takes the migration back, as long as ``Activate`` has not been reached."""

    def __str__(self) -> str:
        return "\n".join(f"{number}. {step.text}" for number, step in enumerate(self.steps, 1))


@dataclass(slots=True)
class State:
    """Catalog, joint graph and dataflow after some migrations."""

    catalog: Catalog = field(default_factory=Catalog)
    joint: JointGraph = field(default_factory=JointGraph)
    flow: Dataflow = field(default_factory=Dataflow)
    planned: dict[str, PlannedView] = field(default_factory=dict)
    """Keyed by view, lower case: columns and parameters, and the reader where there is one."""
    partial: bool = True
    """False: every view is full, whatever its parameters. To compare with, and for data that is small anyway."""
    shards: int = 1
    """The deployment's factor: it never changes."""

    def __post_init__(self) -> None:
        self.flow.shards = self.shards
        if self.catalog.shards != self.shards:
            self.catalog = replace(self.catalog, shards=self.shards)

    def copy(self) -> State:
        return State(self.catalog, self.joint.copy(), self.flow.copy(), dict(self.planned), self.partial, self.shards)


def one_domain(_: Node) -> DomainIndex:
    """Everything in domain 0: no copies, no links."""
    return DomainIndex(0)


def spread_over(domains: int) -> Placement:
    """Bases in domain 0, the nodes of successive views in the others by turns, told by their numbers."""

    def place(node: Node) -> DomainIndex:
        if domains == 1 or is_base(node.operator):
            return DomainIndex(0)
        return DomainIndex(1 + (node.index // NODES_TOGETHER) % (domains - 1))

    return place


NODES_TOGETHER = 4
"""How many successive nodes stay together when a graph is spread: a view has some four to ten."""


def understand(state: State, definition: ViewDefinition, meaning: Relation | None = None) -> PlannedView:
    """Plan a view without keeping the nodes: its columns and parameters, or what is wrong with it."""
    return _planned(state, state.joint.copy(), definition, meaning)


def _planned(state: State, joint: JointGraph, definition: ViewDefinition, meaning: Relation | None) -> PlannedView:
    name, columns = definition.name, definition.columns
    return plan_view(state.catalog, joint, name, definition.relation, columns=columns, meaning=meaning)


def plan_readers(
    state: State,
    definitions: Sequence[ViewDefinition],
    placement: Placement,
    meanings: Mapping[str, Relation] = MappingProxyType({}),
) -> tuple[State, MigrationPlan]:
    """Plan readers for views that the catalog knows. The state given is left as it is.

    ``meanings`` are what views, by lower-case name, come to in the state's catalog, as far as that is known already.

    :raises SqlError, Unsupported: what planning can tell; nothing has changed then.
    """
    after = state.copy()
    readers: list[tuple[Node, NodeIndex]] = []
    for number, definition in enumerate(definitions):
        planned = _planned(after, after.joint, definition, meanings.get(definition.name.lower()))
        reader = split_key(planned, after.joint, partial=state.partial)
        # A shared node has the names that it was first given; the view has its own.
        columns = (*planned.columns, *after.joint.node(planned.root).columns[reader.visible :])
        if planned.finish is not None:
            columns = planned.finish.stored
        readers.append((Node(NodeIndex(-1 - number), reader, (planned.root,), columns), planned.root))
        after.planned[definition.name.lower()] = replace(planned, reader=reader)
    extension = Extension(after.flow, after.joint, placement, after.catalog.tables)
    extension.add_readers(readers)
    flow = after.flow = extension.flow
    added = [node for node in flow.nodes.values() if node.index in extension.added]
    extended = [node for node in flow.nodes.values() if node.index in extension.extended]
    return after, plan_addition(flow, added, extended)


def plan_start(flow: Dataflow, without: Container[NodeIndex] = ()) -> MigrationPlan:
    """All of a dataflow but for some nodes and what is below them, for domains that are empty."""
    return plan_addition(flow, [node for node in flow.nodes.values() if node.index not in without], [])


def plan_removal(state: State, views: Iterable[str]) -> tuple[State, MigrationPlan]:
    """Drop readers, and every node that nothing else needs."""
    after = state.copy()
    for view in views:
        after.planned.pop(view.lower(), None)
        after.flow.readers.pop(view.lower(), None)
    kept: set[NodeIndex] = set()
    for index in after.flow.readers.values():
        kept |= after.flow.ancestors(index)
    doomed = set(after.flow.nodes) - kept
    steps = _removal_steps(after.flow, doomed)
    after.flow.remove(doomed)
    return after, MigrationPlan(steps, ())


def split_key(planned: PlannedView, joint: JointGraph, *, partial: bool = True) -> Reader:
    """Keep as key what has a provenance; look the rest up by walking the reader (``seek``)."""
    reader = planned.reader
    key = tuple(column for column in reader.key if partial and traced(planned.root, column, joint.node))
    rest = tuple(column for column in reader.key if column not in key)
    return replace(reader, key=key, seek=(*rest, *reader.seek))


def plan_addition(flow: Dataflow, added: Sequence[Node], extended: Sequence[Node]) -> MigrationPlan:
    """The steps that bring nodes into domains: further indexes of running ones, new nodes, backfills."""
    here, further = _by_domain(flow, added), _by_domain(flow, extended)
    routes = [route for node in added for route in flow.routes.get(node.index, ())]
    outgoing: dict[DomainIndex, list[Route]] = {}
    incoming: dict[DomainIndex, list[Route]] = {}
    for route in routes:
        outgoing.setdefault(sender_of(route.link), []).append(route)
        incoming.setdefault(receiver_of(route.link), []).append(route)
    domains = sorted({*here, *further})
    if flow.shards > 1:
        domains = _senders_first(domains, routes)
    steps: list[PlanStep] = []
    for domain in domains:
        if domain in further:
            nodes = tuple(further[domain])
            steps.append(PlanStep(domain, ExtendNodes(nodes), f"domain {domain}: index {_numbers(nodes)} further"))
    for domain in domains:
        nodes = tuple(here.get(domain, ()))
        if nodes or domain in outgoing:
            command = AddNodes(nodes, tuple(outgoing.get(domain, ())), tuple(incoming.get(domain, ())))
            steps.append(PlanStep(domain, command, f"domain {domain}: add {_numbers(nodes)}"))
    steps.extend(_index_steps(flow, [*added, *extended]))
    full = {domain: some for domain in domains if (some := [n for n in here.get(domain, ()) if _is_full(n)])}
    steps.extend(
        PlanStep(domain, Feed(SLICE_ROWS), f"domain {domain}: backfill {_numbers(nodes)}", sliced=True)
        for domain, nodes in full.items()
    )
    steps.extend(PlanStep(domain, Activate(), f"domain {domain}: activate") for domain in full)
    return MigrationPlan(tuple(steps), _removal_steps(flow, [node.index for node in added]))


def _is_full(node: Node) -> bool:
    return node.materialization is Kept.FULL


def _by_domain(flow: Dataflow, nodes: Iterable[Node]) -> dict[DomainIndex, list[Node]]:
    """The nodes of each domain; a node is in all of its shards."""
    found: dict[DomainIndex, list[Node]] = {}
    for node in nodes:
        for domain in flow.places(node.index):
            found.setdefault(domain, []).append(node)
    return found


def _senders_first(domains: Iterable[DomainIndex], routes: Iterable[Route]) -> list[DomainIndex]:
    """Senders before receivers; those that send to each other in a circle in the order of their numbers."""
    left = sorted(domains)
    above: dict[DomainIndex, set[DomainIndex]] = {domain: set() for domain in left}
    for route in routes:
        sender, receiver = sender_of(route.link), receiver_of(route.link)
        if sender != receiver:
            above[receiver].add(sender)
    ordered: list[DomainIndex] = []
    while left:
        first = next((domain for domain in left if above[domain].isdisjoint(left)), left[0])
        left.remove(first)
        ordered.append(first)
    return ordered


def _index_steps(flow: Dataflow, nodes: Iterable[Node]) -> Iterable[PlanStep]:
    for node in nodes:
        if is_base(node.operator):
            for columns in node.indexes:
                stored = tuple(node.operator.columns[column] for column in columns)
                names = ", ".join(node.columns[column].name for column in columns)
                command = BuildIndex(node.operator.table, stored, SLICE_ROWS)
                for domain in flow.places(node.index):
                    text = f"domain {domain}: index table {node.operator.table} by {names}"
                    yield PlanStep(domain, command, text, sliced=True)


def _removal_steps(flow: Dataflow, doomed: Iterable[NodeIndex]) -> tuple[PlanStep, ...]:
    by_domain = _by_domain(flow, (flow.nodes[index] for index in sorted(doomed)))
    return tuple(
        PlanStep(domain, RemoveNodes(tuple(n.index for n in here)), f"domain {domain}: remove {_numbers(here)}")
        for domain, here in sorted(by_domain.items())
    )


def _numbers(nodes: Sequence[Node]) -> str:
    if not nodes:
        return "no nodes"
    word = "node" if len(nodes) == 1 else "nodes"
    return f"{word} {', '.join(str(node.index) for node in nodes)}"
