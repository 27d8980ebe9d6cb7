"""The dataflow as it stands on domains: from the joint graph's nodes to placed nodes with state, ingresses and
egresses.

A node of the joint graph may stand here more than once: when a view needs *complete* rows of something that runs
partially, it gets a twin of its own, and the running one is left alone. ``Dataflow`` is a value that a migration copies
and extends; the same recipe gives the same dataflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from domains.commands import Route
from domains.graph import (
    Base,
    Columns,
    DomainIndex,
    Egress,
    Ingress,
    Node,
    NodeIndex,
    Reader,
)
from domains.graph import Materialization as Kept
from domains.packets import lane_of, link_between
from migrations.joint_graph import JointGraph
from migrations.materialize import Need, Needs, drives_of, indexes_of, keeps

Placement = Callable[[Node], DomainIndex]
"""In which domain a new node stands. Bases are always in domain 0."""


@dataclass(slots=True)
class Dataflow:
    """All placed nodes in topological order."""

    nodes: dict[NodeIndex, Node] = field(default_factory=dict)
    variants: dict[NodeIndex, tuple[NodeIndex, ...]] = field(default_factory=dict)
    """Joint-graph node → where it stands: more than once where views need more of it than a running one has."""
    complete: set[NodeIndex] = field(default_factory=set)
    """Nodes with no partial state at or above them."""
    crossings: dict[tuple[NodeIndex, DomainIndex, bool], NodeIndex] = field(default_factory=dict)
    """(source, receiving domain, complete) → ingress."""
    routes: dict[NodeIndex, Route] = field(default_factory=dict)
    """By ingress."""
    readers: dict[str, NodeIndex] = field(default_factory=dict)
    """By view, lower case."""
    next_index: int = 0

    def copy(self) -> Dataflow:
        return Dataflow(
            dict(self.nodes),
            dict(self.variants),
            set(self.complete),
            dict(self.crossings),
            dict(self.routes),
            dict(self.readers),
            self.next_index,
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

    def bases_of(self, index: NodeIndex) -> frozenset[str]:
        """The base tables that a node is computed from."""
        operators = (self.nodes[i].operator for i in self.ancestors(index))
        return frozenset(operator.table for operator in operators if isinstance(operator, Base))

    def remove(self, doomed: set[NodeIndex]) -> None:
        for index in doomed:
            del self.nodes[index]
        left = {key: tuple(i for i in standing if i not in doomed) for key, standing in self.variants.items()}
        self.variants = {key: standing for key, standing in left.items() if standing}
        self.crossings = {
            key: index for key, index in self.crossings.items() if index not in doomed and key[0] not in doomed
        }
        self.routes = {index: route for index, route in self.routes.items() if index not in doomed}
        self.readers = {view: index for view, index in self.readers.items() if index not in doomed}
        self.complete -= doomed


class Extension:
    """The work of one migration: places what is new of the joint graph into a copy of the running dataflow."""

    def __init__(self, running: Dataflow, joint: JointGraph, placement: Placement) -> None:
        self.flow = running.copy()
        self._joint = joint
        self._placement = placement
        self._needs = Needs()
        self._resolved: dict[NodeIndex, NodeIndex] = {}
        self.added: dict[NodeIndex, None] = {}
        self.extended: dict[NodeIndex, None] = {}

    def add_readers(self, readers: Iterable[tuple[Node, NodeIndex]]) -> None:
        """Place readers (nodes not in the joint graph) over their joint-graph roots, and all that they need."""
        readers = list(readers)
        for reader, root in readers:
            self._needs[root]  # the root is needed even if nothing looks it up
            need = Need()
            needs = Needs()
            needs._of = {reader.index: need, root: self._needs[root]}
            needs.spread(replace(reader, parents=(root,)), self._joint.node)
        wanted = {ancestor for _, root in readers for ancestor in self._joint.ancestors(root)}
        for index in sorted(wanted, reverse=True):
            self._needs.spread(self._joint.node(index), self._joint.node)
        placed = []
        for reader, root in readers:
            domain = self._placement(reader)
            parent = self._here(self._resolve(root), domain, self._parent_complete(root))
            placed.append(self._put(replace(reader, parents=(parent,)), domain))
        for index, (reader, _) in zip(placed, readers, strict=True):
            assert isinstance(reader.operator, Reader)
            self.flow.readers[reader.operator.view.lower()] = index
        self._materialize()

    def _parent_complete(self, logical: NodeIndex) -> bool:
        return bool(self._needs[logical].complete)

    def _resolve(self, logical: NodeIndex) -> NodeIndex:
        """Where a joint-graph node stands: a running variant that serves, or a new one."""
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
            if self.flow.nodes[index].materialization is Kept.FULL or isinstance(self.flow.nodes[index].operator, Base):
                return index
        for index in variants:
            running = self.flow.nodes[index]
            if need.complete and index not in self.flow.complete:
                continue
            if kept is not Kept.NONE and running.materialization is Kept.NONE:
                continue
            resolved = [self._resolve(parent) for parent in self._joint.node(logical).parents]
            if all(
                self._sees(at, source, running.domain) for at, source in zip(running.parents, resolved, strict=True)
            ):
                return index
        return None

    def _sees(self, parent: NodeIndex, source: NodeIndex, domain: DomainIndex) -> bool:
        """Whether ``parent``, a running node's parent in ``domain``, is ``source`` or an ingress of it."""
        return parent == source or any(
            self.flow.crossings.get((source, domain, whole)) == parent for whole in (True, False)
        )

    def _add_variant(self, logical: NodeIndex, node: Node, need: Need, kept: Kept) -> NodeIndex:
        domain = DomainIndex(0) if isinstance(node.operator, Base) else self._placement(node)
        parents = tuple(self._here(self._resolve(p), domain, self._parent_complete(p)) for p in node.parents)
        index = self._put(replace(node, parents=parents), domain)
        if self._is_complete(index, node, need, kept):
            self.flow.complete.add(index)
        self.flow.variants[logical] = (*self.flow.variants.get(logical, ()), index)
        return index

    def _is_complete(self, index: NodeIndex, node: Node, need: Need, kept: Kept) -> bool:
        if need.complete or isinstance(node.operator, Base):
            return True
        return kept is not Kept.PARTIAL and all(p in self.flow.complete for p in self.flow.nodes[index].parents)

    def _put(self, node: Node, domain: DomainIndex) -> NodeIndex:
        index = NodeIndex(self.flow.next_index)
        self.flow.next_index += 1
        self.flow.nodes[index] = replace(node, index=index, domain=domain)
        self.added[index] = None
        return index

    def _here(self, source: NodeIndex, domain: DomainIndex, complete: bool) -> NodeIndex:
        """``source`` as seen in ``domain``: itself, or an ingress that a link feeds."""
        at = self.flow.nodes[source]
        if at.domain == domain:
            return source
        for whole in (True,) if complete else (True, False):
            known = self.flow.crossings.get((source, domain, whole))
            if known is not None:
                return known
        kept = Kept.FULL if complete else Kept.NONE
        egress = self._put(Node(source, Egress(), (source,), at.columns, kept), at.domain)
        ingress = self._put(Node(source, Ingress(source), (egress,), at.columns), domain)
        self.flow.crossings[source, domain, complete] = ingress
        crossed = (lane_of(self.flow.routes[i].link) + 1 for i in self.flow.ancestors(source) if i in self.flow.routes)
        link = link_between(at.domain, domain, max(crossed, default=0))
        self.flow.routes[ingress] = Route(egress, link, ingress, self.flow.bases_of(source))
        if complete:
            self.flow.complete.update((egress, ingress))
        return ingress

    def _materialize(self) -> None:
        """Give every new node its state, and running ones what further indexes they need, from the readers up."""
        needs = Needs()
        order = self._topological()
        for index in reversed(order):
            node = self.flow.nodes[index]
            if index in self.added:
                if isinstance(node.operator, Ingress) and (index in self.flow.complete):
                    needs[index].complete = needs[index].complete or "what it feeds is full"
                needs.spread(node, self.flow.node)
                self._settle(node, needs[index])
            elif index in needs:
                self._extend(node, needs[index], needs)

    def _settle(self, node: Node, need: Need) -> None:
        if isinstance(node.operator, Egress):
            return
        kept = keeps(node, need, self.flow.node)
        if isinstance(node.operator, Ingress):
            fed = self.flow.nodes[node.parents[0]].materialization
            assert (kept is Kept.FULL) == (fed is Kept.FULL), f"{node} is {kept}, and its egress is {fed}"
        self.flow.nodes[node.index] = replace(
            node,
            materialization=kept,
            indexes=indexes_of(node, need, kept),
            reason=need.complete if kept is Kept.FULL else "",
            drives=drives_of(node, need, self.flow.node),
        )

    def _extend(self, node: Node, need: Need, needs: Needs) -> None:
        """A running node keeps its materialization; look-ups that are new to it get an index, or pass on."""
        assert not need.complete or node.index in self.flow.complete, f"{node} runs partially and must be complete"
        drives = dict(node.drives)
        fresh: dict[Columns, None] = {}
        for columns in need.lookups:
            known = columns in drives or columns in node.indexes
            if not known or node.materialization is Kept.NONE:
                fresh[columns] = None
        if not fresh:
            return
        asked = Need(fresh, stateful=False)
        indexes = node.indexes
        if isinstance(node.operator, Base) or node.materialization is not Kept.NONE:
            indexes = tuple(dict.fromkeys((*indexes, *indexes_of(node, asked, node.materialization))))
        drives.update(drives_of(node, asked, self.flow.node))
        changed = replace(node, indexes=indexes, drives=tuple(drives.items()))
        if changed != node:
            self.flow.nodes[node.index] = changed
            self.extended[node.index] = None
        if node.materialization is not Kept.FULL:
            for columns in fresh:
                needs._pass_on(node, columns, self.flow.node)

    def _topological(self) -> list[NodeIndex]:
        """Parents before children: running nodes first, then the new ones in order of making."""
        return list(self.flow.nodes)
