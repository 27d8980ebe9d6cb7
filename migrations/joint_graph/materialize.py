"""Which nodes keep state, by which columns, and which of it must be full.

Needs flow from the readers up, children before parents:

* a reader is partial by those of its key columns that have a provenance; with none of them it is full;
* a partial state hands each of its look-ups on to its parents (that is how its holes are filled);
* what a recursion goes on by is complete: a hole met in one of its rounds would be met anew in the next;
* a join needs both inputs by the join columns, as *state*: filters and unions over state will do, a join will not
  (nor will a projection of a join, which then keeps its own, narrower rows), unless it rests on base tables alone;
* whatever a full state is computed from must be *complete*: no partial state above it, or it would miss updates;
* a look-up that has no provenance, or is by no columns at all, needs a full state.

Every full state gets a reason, which EXPLAIN shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from domains.errors import Unsupported
from domains.plan.graph import Columns, Node, NodeIndex, ParameterKind, Reader
from domains.plan.graph import Materialization as Kept
from domains.plan.questions import ForJoin
from domains.plan.sides import COMPUTED, LEFT, ranges_of
from domains.plan.traits import is_base, is_reader, traits_of
from migrations.joint_graph.provenance import NodeOf, driving_side, route

COUNTS = (ParameterKind.LIMIT, ParameterKind.OFFSET)
BELOW = " is full below it"
"""How a reason that comes from further down ends: it is handed up as it is, so that it names where it began."""


@dataclass(slots=True)
class Need:
    """What is asked of one node."""

    lookups: dict[Columns, None] = field(default_factory=dict)
    stateful: bool = False
    """A join consults it: it has to be state, or filters, projections and unions over state."""
    ranges: dict[int, None] = field(default_factory=dict)
    """Columns in whose order a base table is walked by a join without ``=``."""
    complete: str = ""
    """The reason why everything must come through; empty if it need not."""


class Needs:
    """The needs of all nodes of a plan, filled from the children up."""

    def __init__(self) -> None:
        self._of: dict[NodeIndex, Need] = {}

    def __getitem__(self, index: NodeIndex) -> Need:
        return self._of.setdefault(index, Need())

    def __contains__(self, index: NodeIndex) -> bool:
        return index in self._of

    def spread(self, node: Node, node_of: NodeOf, need: Need | None = None) -> None:
        """Hand a node's needs on to its parents. All its children have been spread before.

        ``need``: of a node that is no part of this plan, as a reader of the joint graph.
        """
        need = self[node.index] if need is None else need
        operator, traits = node.operator, traits_of(node.operator)
        if is_base(operator):
            if () in need.lookups:
                need.complete = need.complete or "it is looked up as a whole"
            return
        if is_reader(operator):
            need.complete = need.complete or ("" if operator.key else _reader_reason(operator))
            if operator.key:
                need.lookups[operator.key] = None
        for columns in need.lookups:
            if not columns:
                need.complete = need.complete or "it is looked up as a whole"
            elif route(node, columns, node_of) is None:
                need.complete = need.complete or _lost(node, columns, node_of)
        if need.complete and not traits.ends:
            raise Unsupported(
                f"a recursion that is kept whole and may come to no end ({need.complete})",
                hint="compare a column with ? that it hands on as it is, or in its first part; or ask it as a SELECT",
            )
        if need.complete:
            inherited = need.complete if need.complete.endswith(BELOW) else f"{_described(node)}{BELOW}"
            for parent in node.parents:
                self[parent].complete = self[parent].complete or inherited
        self.pass_on(node, need, need.lookups, node_of)
        if traits.matching is not None:
            ranges = ranges_of(traits.residual, len(node_of(node.parents[LEFT]).columns))
            for parent, on, range_ in zip(node.parents, traits.matching.on, ranges, strict=True):
                self[parent].lookups[on] = None
                self[parent].stateful = True
                if range_ is not None and not on:
                    self[parent].ranges[range_.column] = None
        elif need.stateful and not traits.own_state and not holds_for_join(node, node_of):
            for parent in node.parents:
                self[parent].stateful = True
        for at, columns in traits.goes_round:
            further = self[node.parents[at]]
            further.lookups[columns] = None
            further.stateful = True
            further.complete = further.complete or f"a recursion goes on by it{BELOW}"
        if need.complete and traits.refills:
            self[node.parents[0]].lookups.update(dict.fromkeys(traits.refills))

    def pass_on(self, node: Node, need: Need, lookups: Iterable[Columns], node_of: NodeOf) -> None:
        """Have the parents answer look-ups of a node that does not hold all rows itself."""
        if keeps(node, need, node_of) is Kept.FULL:
            return
        for columns in lookups:
            for step in route(node, columns, node_of) or ():
                self[node.parents[step.parent]].lookups[step.columns] = None
        if len(node.parents) == 1 and not traits_of(node.operator).own_state:
            for column in need.ranges:
                for step in route(node, (column,), node_of) or ():
                    self[node.parents[0]].ranges[step.columns[0]] = None


def holds_for_join(node: Node, node_of: NodeOf) -> bool:
    """Whether this is where state is kept for a join further down: at a join, or at what narrows a join's rows."""
    for_join = traits_of(node.operator).for_join
    if for_join is ForJoin.NARROWS:
        return _rests_on_join(node_of(node.parents[0]), node_of)
    return for_join is ForJoin.KEEPS


def _rests_on_join(node: Node, node_of: NodeOf) -> bool:
    """Seen through links too, so that a node is told the same of before it is placed and after."""
    for_join = traits_of(node.operator).for_join
    if for_join in (ForJoin.PASSES, ForJoin.NARROWS):
        return any(_rests_on_join(node_of(parent), node_of) for parent in node.parents)
    return for_join is ForJoin.KEEPS


def keeps(node: Node, need: Need, node_of: NodeOf) -> Kept:
    """What a new node with these needs keeps."""
    if is_base(node.operator):
        return Kept.NONE
    if traits_of(node.operator).own_state:
        return Kept.FULL if need.complete else Kept.PARTIAL
    lost = any(columns and route(node, columns, node_of) is None for columns in need.lookups)
    if lost or (need.stateful and holds_for_join(node, node_of)):
        return Kept.FULL if need.complete else Kept.PARTIAL
    return Kept.NONE


def rests_on_bases(ancestors: Iterable[Node]) -> bool:
    """Whether a node with these ancestors is computed from base tables by operators that keep nothing.

    Then a join needs no state of it: a look-up there is never a hole and is exact as of this step, and so is every
    delta that comes from it, so that what it was before the step is what it is now without them.
    """
    return all(not traits_of(each.operator).own_state and each.materialization is Kept.NONE for each in ancestors)


def indexes_of(node: Node, need: Need, kept: Kept) -> tuple[Columns, ...]:
    """The indexes of a node's state (of a base: what it must be looked up by)."""
    if is_base(node.operator):
        key = set(node.operator.primary_key)
        wanted = dict.fromkeys([*need.lookups, *((column,) for column in need.ranges)])
        return tuple(columns for columns in wanted if columns and not (key and key <= set(columns)))
    if kept is Kept.NONE:
        return ()
    if is_reader(node.operator):
        return (node.operator.key,)
    indexes: dict[Columns, None] = {}
    if kept is Kept.FULL:
        group = traits_of(node.operator).groups_by
        if group is not None:
            indexes[group] = None
        elif not need.lookups:
            indexes[()] = None
    indexes.update(dict.fromkeys(need.lookups))
    return tuple(indexes)


def drives_of(node: Node, need: Need, node_of: NodeOf) -> tuple[tuple[Columns, int], ...]:
    """The side of a join from which each look-up is pulled."""
    if traits_of(node.operator).matching is None:
        return ()
    return tuple((columns, driving_side(node, columns, node_of)) for columns in need.lookups)


def _reader_reason(reader: Reader) -> str:
    if any(parameter.column is not None for parameter in reader.parameters):
        return "none of its parameters can be followed up to a base table"
    if any(parameter.kind not in COUNTS for parameter in reader.parameters):
        return "none of its parameters is compared with a column, so that all are applied when it is read"
    return "it has no parameter to be partial by"


def _lost(node: Node, columns: Columns, node_of: NodeOf) -> str:
    """Why a look-up by these columns does not pass through a node."""
    traits = traits_of(node.operator)
    group = traits.groups_by
    (origins, *_) = traits.origins(columns, [len(node_of(parent).columns) for parent in node.parents])
    if group is None or traits.matching is not None or COMPUTED in origins:
        return f"its column {_names(node, columns)} is computed"
    by = f"all rows that agree on {_names(node, group)}" if group else "all rows"
    return f"it sees {by}, and is asked by {_names(node, columns)}"


def _names(node: Node, columns: Iterable[int]) -> str:
    return ", ".join(f'"{node.columns[column].name}"' for column in columns)


def _described(node: Node) -> str:
    if is_reader(node.operator):
        return f'the view "{node.operator.view}"'
    return f"node {node.index}"
