"""How a SELECT becomes what is evaluated: the nodes that a view of it would have, which keep nothing here.

::

    SELECT ─► plan_view over a copy of the joint graph ─► the root's ancestors ─► EvaluationPlan
                                                          filters above base tables: the keys that they demand
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace

from domains.engine.evaluation import EvaluationPlan
from domains.language.expressions import Call, Constant, Field
from domains.language.rewriting import is_never
from domains.language.types import SqlType
from domains.plan.estimates import Estimated, Statistics
from domains.plan.graph import Materialization, Node, NodeIndex
from domains.plan.packets import Access
from domains.plan.sides import COMPUTED
from domains.plan.traits import is_base, traits_of
from migrations.catalog import Catalog, ViewDefinition
from migrations.flow.explain import explain_query
from migrations.flow.plan import State
from migrations.flow.table_walks import is_sought, table_walks
from migrations.joint_graph.graph import JointGraph
from migrations.query.expressions.terms import moved
from migrations.query.view import PlannedView, plan_view
from migrations.statements.dml import access


def plan_evaluation(
    state: State, definition: ViewDefinition, statistics: Statistics | None = None
) -> tuple[PlannedView, EvaluationPlan]:
    """``statistics`` decide the order of joins; without them it is that of a view.

    :raises SqlError, Unsupported: what planning a view of it raises.
    """
    joint = state.joint.copy()
    planned = plan_view(
        state.catalog,
        joint,
        definition.name,
        definition.relation,
        columns=definition.columns,
        statistics=statistics,
        drawn=True,
    )
    nodes = [joint.node(index) for index in joint.ancestors(planned.root)]
    ties = {node.index: tied for node in nodes if (tied := _ties(node, joint, state.catalog))}
    plan = EvaluationPlan(
        tuple(replace(node, materialization=Materialization.NONE, indexes=(), drives=()) for node in nodes),
        planned.reader,
        planned.parameters,
        tuple(state.catalog.tables[name.lower()] for name in sorted(planned.tables)),
        ties,
        any(traits_of(node.operator).goes_round or _grows(node.operator) for node in nodes),
        estimates_of(nodes, statistics) if statistics else {},
    )
    return planned, plan


def may_be_reordered(plan: EvaluationPlan) -> bool:
    """Whether statistics can tell another order of its joins: the sides of a single one are chosen when it is run, and
    those of an outer one are given."""
    matchings = (traits_of(node.operator).matching for node in plan.nodes)
    return sum(matching is not None and not matching.outer for matching in matchings) > 1


GROWING = frozenset(("repeat", "lpad", "rpad", "space", "replace", "regexp_replace"))
"""Functions whose value may be far longer than their arguments are."""
MANY_ARGUMENTS = 8
"""Arguments of CONCAT: more may make a text that is longer than a row is."""


_SMALL = (Field, Constant, SqlType, str, int, type(None))
"""What calls nothing."""


def _grows(part: object) -> bool:
    """Whether an operator, or an expression of it, calls one of them."""
    if isinstance(part, Call):
        joined = part.function in ("concat", "concat_ws") and len(part.arguments) > MANY_ARGUMENTS
        return joined or part.function in GROWING or _grows(part.arguments)
    if isinstance(part, tuple):
        return any(map(_grows, part))
    if isinstance(part, _SMALL):
        return False
    return is_dataclass(part) and any(_grows(getattr(part, each.name)) for each in fields(part))


def explained(plan: EvaluationPlan, done: Mapping[NodeIndex, str] | None = None) -> str:
    """The tree of what is evaluated, with about how many rows are expected at each node, and what was done there."""
    nodes, estimates = {node.index: node for node in plan.nodes}, dict(plan.estimates)
    names: dict[NodeIndex, str] = {}
    for walk in table_walks(plan):
        names[walk.base] = walk.text
        known = estimates.get(walk.base)
        if known is not None and walk.is_whole:
            above = estimates.get(walk.above, known) if walk.above is not None else known
            estimates[walk.base] = known.with_rows(above.rows if walk.count is None else min(known.rows, walk.count))
    return explain_query(nodes.__getitem__, plan.nodes[-1].index, estimates, done or {}, names)


def estimates_of(nodes: Sequence[Node], statistics: Statistics) -> dict[NodeIndex, Estimated]:
    known: dict[NodeIndex, Estimated] = {}
    for node in nodes:
        known[node.index] = traits_of(node.operator).estimate([known[parent] for parent in node.parents], statistics)
    return known


def scans_joins(plan: EvaluationPlan) -> bool:
    """Whether parameters choose among all rows of a join: no index of a base table has values of the reader's key. They
    are better conditions in the text then: these sink to the tables, and the order of joins knows of them."""
    sought = plan.reader.key or plan.reader.seek or plan.reader.ranges
    return len(plan.tables) > 1 and bool(sought) and not finds_by_index(plan)


def finds_by_index(plan: EvaluationPlan) -> bool:
    """Whether an index of a base table has values of the reader's key."""
    return bool(plan.reader.key) and is_sought(plan, plan.nodes[-1], plan.reader.key)


def is_unique(plan: EvaluationPlan) -> bool:
    """Whether it looks one row up by a unique key, and at most computes on it."""
    columns, root = plan.reader.key, plan.nodes[-1]
    nodes = {node.index: node for node in plan.nodes}
    while not is_base(root.operator):
        traits = traits_of(root.operator)
        if traits.own_state or traits.matching is not None or len(root.parents) != 1:
            return False
        root = nodes[root.parents[0]]
        (columns,) = traits.origins(columns, [len(root.columns)])
    (schema,) = plan.tables
    stored = {root.operator.columns[column] for column in columns if column != COMPUTED}
    return any(key and stored.issuperset(key) for key in (schema.primary_key, *schema.unique))


def _ties(node: Node, joint: JointGraph, catalog: Catalog) -> Access:
    """The keys that a filter demands of the base table below it, in its own columns."""
    predicate = traits_of(node.operator).demands
    base = joint.node(node.parents[0]).operator if predicate is not None else None
    if predicate is None or base is None or not is_base(base):
        return ()
    if is_never(predicate):
        return (((0,), ()),)
    columns = base.columns
    tied = access(moved(predicate, lambda position: columns[position]), catalog.tables[base.table.lower()])
    return tuple((tuple(columns.index(at) for at in stored), keys) for stored, keys in tied)
