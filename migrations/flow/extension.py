"""One migration's part of the dataflow: new nodes of the joint graph placed beside those that run.

From the readers up, each node is resolved to a running one that serves, or to a new one over its resolved parents.
Where a parent stands in another group, or otherwise than the node wants it (``sharding.py``), an egress and an ingress
come between. When all nodes are placed, needs go up once more, and decide what each keeps (``materialize.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from domains.language.types import TableSchema
from domains.plan.commands import Part, Route
from domains.plan.graph import Base, Columns, DomainIndex, Egress, Ingress, Node, NodeIndex, Sharding
from domains.plan.graph import Materialization as Kept
from domains.plan.packets import lane_of, link_between
from domains.plan.traits import is_base, is_egress, is_ingress, is_reader, traits_of
from migrations.flow.dataflow import Dataflow, Placement
from migrations.flow.sharding import of_base, standing
from migrations.joint_graph.graph import JointGraph
from migrations.joint_graph.materialize import Need, Needs, drives_of, indexes_of, keeps, rests_on_bases


class Extension:
    """The work of one migration: places what is new of the joint graph into a copy of the running dataflow."""

    def __init__(
        self,
        running: Dataflow,
        joint: JointGraph,
        placement: Placement,
        tables: Mapping[str, TableSchema] = MappingProxyType({}),
    ) -> None:
        """``tables``: by lower-case name; by them the bases of a deployment of several shards stand."""
        self.flow = running.copy()
        self._joint = joint
        self._placement = placement
        self._tables = tables
        self._needs = Needs()
        self._resolved: dict[NodeIndex, NodeIndex] = {}
        self.added: dict[NodeIndex, None] = {}
        self.extended: dict[NodeIndex, None] = {}

    def add_readers(self, readers: Iterable[tuple[Node, NodeIndex]]) -> None:
        """Place readers (nodes not in the joint graph) over their joint-graph roots, and all that they need."""
        readers = list(readers)
        for reader, root in readers:
            self._needs[root]  # the root is needed even if nothing looks it up
            self._needs.spread(replace(reader, parents=(root,)), self._joint.node, Need())
        wanted = {ancestor for _, root in readers for ancestor in self._joint.ancestors(root)}
        for index in sorted(wanted, reverse=True):
            self._needs.spread(self._joint.node(index), self._joint.node)
        placed = []
        for reader, root in readers:
            domain = self._placement(reader)
            node, sharding = self._above(replace(reader, parents=(root,)), domain, Need())
            placed.append(self._put(node, domain, sharding))
        for index, (reader, _) in zip(placed, readers, strict=True):
            assert is_reader(reader.operator)
            self.flow.readers[reader.operator.view.lower()] = index
        self._materialize()

    def _parent_complete(self, logical: NodeIndex) -> bool:
        return bool(self._needs[logical].complete)

    def _resolve(self, logical: NodeIndex) -> NodeIndex:
        """The node that a joint-graph node is placed as: a running variant that serves, or a new one."""
        if logical in self._resolved:
            return self._resolved[logical]
        node = self._joint.node(logical)
        need = self._needs[logical]
        kept = keeps(node, need, self._joint.node)
        known = self._running(logical, need, kept)
        if known is None:
            known = self._add_variant(logical, node, need, kept)
        self._resolved[logical] = known
        return known

    def _running(self, logical: NodeIndex, need: Need, kept: Kept) -> NodeIndex | None:
        """A variant that has all rows if that is needed, and state if that is, over parents that serve as well.

        What has full state answers every look-up itself, so its parents do not matter.
        """
        variants = self.flow.variants.get(logical, ())
        for index in variants:
            if self.flow.nodes[index].materialization is Kept.FULL or is_base(self.flow.nodes[index].operator):
                return index
        for index in variants:
            running = self.flow.nodes[index]
            if need.complete and index not in self.flow.complete:
                continue
            if (
                kept is not Kept.NONE
                and running.materialization is Kept.NONE
                and not self._settles_for_none(index, kept)
            ):
                continue
            resolved = [self._resolve(parent) for parent in self._joint.node(logical).parents]
            if all(self._sees(at, source) for at, source in zip(running.parents, resolved, strict=True)):
                return index
        return None

    def _sees(self, parent: NodeIndex, source: NodeIndex) -> bool:
        """Whether ``parent``, a running node's parent, is ``source`` or an ingress of it."""
        operator = self.flow.nodes[parent].operator
        return parent == source or (is_ingress(operator) and operator.source == source)

    def _add_variant(self, logical: NodeIndex, node: Node, need: Need, kept: Kept) -> NodeIndex:
        if is_base(node.operator):
            index = self._put(node, DomainIndex(0), self._of_base(node.operator))
        else:
            domain = self._placement(node)
            placed, sharding = self._above(node, domain, need)
            index = self._put(placed, domain, sharding)
        if self._is_complete(index, node, need, kept):
            self.flow.complete.add(index)
        self.flow.variants[logical] = (*self.flow.variants.get(logical, ()), index)
        return index

    def _is_complete(self, index: NodeIndex, node: Node, need: Need, kept: Kept) -> bool:
        if need.complete or is_base(node.operator):
            return True
        return kept is not Kept.PARTIAL and all(p in self.flow.complete for p in self.flow.nodes[index].parents)

    def _of_base(self, base: Base) -> Sharding:
        return (
            Sharding() if self.flow.shards == 1 else of_base(base, self._tables[base.table.lower()], self.flow.shards)
        )

    def _above(self, node: Node, domain: DomainIndex, need: Need) -> tuple[Node, Sharding]:
        """The node over its parents as it sees them in ``domain``, and how it then stands."""
        flow = self.flow
        if flow.shards == 1:
            seen = (self._here(self._resolve(p), domain, self._parent_complete(p), Sharding()) for p in node.parents)
            return replace(node, parents=tuple(seen)), Sharding()
        sources = [self._resolve(parent) for parent in node.parents]
        stand = [flow.sharding[source] for source in sources]
        widths = [len(flow.nodes[source].columns) for source in sources]
        stands = standing(node, stand, widths, need.lookups, lambda: self._gather_in(sources[0]))
        complete = [self._parent_complete(parent) for parent in node.parents]
        phases = traits_of(node.operator).phases if stand[0].shards > 1 and complete[0] else None
        if phases is not None:
            each = Node(node.index, phases.each, (sources[0],), node.columns)
            sources = [self._put(each, flow.nodes[sources[0]].domain, replace(stand[0], columns=frozenset()))]
            flow.complete.add(sources[0])
            node = replace(node, operator=phases.merged)
        above = map(self._here, sources, [domain] * len(sources), complete, stands.parents)
        return replace(node, parents=tuple(above)), stands.own

    def _gather_in(self, source: NodeIndex) -> int:
        """The shard in which the node is gathered already, else the one that has the least: so that not all of it is in
        one."""
        if self.flow.gathers:
            chosen, *rest = self.flow.gathers
            self.flow.gathers = tuple(rest)
        else:
            chosen = self._least_held(source)
        self.flow.gathered += (chosen,)
        return chosen

    def _least_held(self, source: NodeIndex) -> int:
        held = [0] * self.flow.shards
        for known, _, stands, _ in self.flow.crossings:
            if stands.shards == 1:
                if known == source:
                    return stands.first
                held[stands.first] += 1
        return held.index(min(held))

    def _put(self, node: Node, domain: DomainIndex, sharding: Sharding) -> NodeIndex:
        index = NodeIndex(self.flow.next_index)
        self.flow.next_index += 1
        self.flow.nodes[index] = replace(node, index=index, domain=domain)
        self.flow.sharding[index] = sharding
        self.added[index] = None
        return index

    def _here(self, source: NodeIndex, domain: DomainIndex, complete: bool, wanted: Sharding) -> NodeIndex:
        """``source`` as seen in ``domain`` when it is to stand as ``wanted``: itself, or an ingress that links feed."""
        flow = self.flow
        at, stands = flow.nodes[source], flow.sharding[source]
        if at.domain == domain and stands == wanted:
            return source
        for whole in (True,) if complete else (True, False):
            known = flow.crossings.get((source, domain, wanted, whole))
            if known is not None:
                return known
        kept = Kept.FULL if complete else Kept.NONE
        egress = self._put(Node(source, Egress(), (source,), at.columns, kept), at.domain, stands)
        by = None if stands == wanted else min(stands.columns, default=None)
        ingress = self._put(Node(source, Ingress(source, by), (egress,), at.columns), domain, wanted)
        flow.crossings[source, domain, wanted, complete] = ingress
        flow.routes[ingress] = tuple(self._routes(egress, ingress))
        if complete:
            flow.complete.update((egress, ingress))
        return ingress

    def _routes(self, egress: NodeIndex, ingress: NodeIndex) -> Iterator[Route]:
        """The routes from each shard of the one to each of the other; where both stand alike, only to its own
        number."""
        flow = self.flow
        source = flow.nodes[egress].parents[0]
        sent, wanted = flow.sharding[egress], flow.sharding[ingress]
        before = [lane_of(routes[0].link) for i in flow.ancestors(source) if (routes := flow.routes.get(i))]
        lane = max(before, default=-1) + 1
        column = min(wanted.columns) if wanted.shards > 1 and sent != wanted else None
        collation = None if column is None else flow.nodes[source].columns[column].type.equality
        bases = {number: flow.bases_of(source, number) for number in sent.numbers}
        for receiver, to in zip(wanted.numbers, flow.places(ingress), strict=True):
            part = None if column is None else Part(column, wanted.shards, receiver - wanted.first, collation)
            for sender, at in zip(sent.numbers, flow.places(egress), strict=True):
                if sent != wanted or sender == receiver:
                    yield Route(egress, link_between(at, to, lane), ingress, bases[sender], part)

    def _materialize(self) -> None:
        """Give every new node its state, and running ones what further indexes they need, from the readers up."""
        needs = Needs()
        order = self._topological()
        for index in reversed(order):
            node = self.flow.nodes[index]
            if index in self.added:
                if is_ingress(node.operator) and (index in self.flow.complete):
                    needs[index].complete = needs[index].complete or "what it feeds is full"
                needs.spread(node, self.flow.node)
                self._settle(node, needs[index])
            elif index in needs:
                self._extend(node, needs[index], needs)

    def _settle(self, node: Node, need: Need) -> None:
        if is_egress(node.operator):
            return
        kept = keeps(node, need, self.flow.node)
        if self._settles_for_none(node.index, kept):
            kept = Kept.NONE
        if is_ingress(node.operator):
            fed = self.flow.nodes[node.parents[0]].materialization
            assert (kept is Kept.FULL) == (fed is Kept.FULL), f"{node} is {kept}, and its egress is {fed}"
        self.flow.nodes[node.index] = replace(
            node,
            materialization=kept,
            indexes=indexes_of(node, need, kept),
            reason=need.complete if kept is Kept.FULL else "",
            drives=drives_of(node, need, self.flow.node),
        )

    def _settles_for_none(self, index: NodeIndex, kept: Kept) -> bool:
        """Whether the partial state of a placed node is not needed. This is not known before a node is placed: a link
        above it may part it from its base tables."""
        above = self.flow.ancestors(index) - {index}
        stateful = traits_of(self.flow.node(index).operator).own_state
        return kept is Kept.PARTIAL and not stateful and rests_on_bases(map(self.flow.node, above))

    def _extend(self, node: Node, need: Need, needs: Needs) -> None:
        """A running node keeps its materialization; look-ups that are new to it get an index, or pass on."""
        assert not need.complete or node.index in self.flow.complete, f"{node} runs partially and must be complete"
        drives = dict(node.drives)
        fresh: dict[Columns, None] = {}
        for columns in need.lookups:
            known = columns in drives or columns in node.indexes
            if not known or node.materialization is Kept.NONE:
                fresh[columns] = None
        if not fresh and not need.ranges:
            return
        asked = Need(fresh, ranges=need.ranges)
        indexes = node.indexes
        if is_base(node.operator) or node.materialization is not Kept.NONE:
            indexes = tuple(dict.fromkeys((*indexes, *indexes_of(node, asked, node.materialization))))
        drives.update(drives_of(node, asked, self.flow.node))
        changed = replace(node, indexes=indexes, drives=tuple(drives.items()))
        if changed != node:
            self.flow.nodes[node.index] = changed
            self.extended[node.index] = None
        if node.materialization is not Kept.FULL:
            needs.pass_on(node, need, fresh, self.flow.node)

    def _topological(self) -> list[NodeIndex]:
        """Parents before children: running nodes first, then the new ones in order of making."""
        return list(self.flow.nodes)
