"""Relational plans as values: a tree of operators that becomes nodes of the joint graph only when all of it is right.

The makers here keep plans in one shape, so that equal queries become equal nodes: filters sink to where their columns
come from and are merged, projections are merged and vanish where they change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domains.expressions import Call, Constant, Expression, Field
from domains.graph import (
    Aggregate,
    AggregateCall,
    Base,
    Columns,
    Filter,
    Join,
    JoinKind,
    NodeIndex,
    Operator,
    Project,
    TopK,
    Union,
)
from domains.types import BOOL, Column, TableSchema
from migrations.joint_graph import JointGraph
from migrations.query.terms import conjunction, equality, moved, over, positions


@dataclass(frozen=True, slots=True)
class Plan:
    """An operator over plans. ``columns`` are its output's."""

    operator: Operator
    parents: tuple[Plan, ...]
    columns: tuple[Column, ...]

    @property
    def width(self) -> int:
        return len(self.columns)

    def field(self, position: int) -> Field:
        return Field(position, self.columns[position].type)

    def fields(self) -> tuple[Field, ...]:
        return tuple(self.field(position) for position in range(self.width))


def base(schema: TableSchema) -> Plan:
    """The live columns of a base table."""
    live = schema.live()
    columns = tuple(Column(schema.columns[i].name, schema.columns[i].type) for i in live)
    key = tuple(live.index(i) for i in schema.primary_key)
    return Plan(Base(schema.name, live, key, schema.generation), (), columns)


def filtered(plan: Plan, predicates: Sequence[Expression]) -> Plan:
    """σ: each predicate as deep as its columns allow."""
    staying: list[Expression] = []
    for predicate in predicates:
        if is_true(predicate):
            continue
        sunk = _sunk(plan, predicate)
        if sunk is None:
            staying.append(predicate)
        else:
            plan = sunk
    if not staying:
        return plan
    if isinstance(plan.operator, Filter):
        merged = conjunction([plan.operator.predicate, *staying])
        return Plan(Filter(merged), plan.parents, plan.columns)
    return Plan(Filter(conjunction(staying)), (plan,), plan.columns)


def is_true(predicate: Expression) -> bool:
    return isinstance(predicate, Constant) and predicate.value is not None and predicate.value not in (0, "", b"")


def _sunk(plan: Plan, predicate: Expression) -> Plan | None:
    """The plan with the predicate below its top operator, or None where it cannot go there."""
    operator, reads = plan.operator, positions(predicate)
    match operator:
        case Project(expressions=expressions):
            return _over(plan, filtered(plan.parents[0], [over(predicate, expressions)]))
        case Filter():
            sunk = _sunk(plan.parents[0], predicate)
            return None if sunk is None else _over(plan, sunk)
        case Union():
            return Plan(operator, tuple(filtered(parent, [predicate]) for parent in plan.parents), plan.columns)
        case Join(kind=kind):
            return _sunk_into_join(plan, kind, predicate, reads)
        case Aggregate(group=group, scalar=False) if reads and all(p < len(group) for p in reads):
            return _over(plan, filtered(plan.parents[0], [moved(predicate, lambda p: group[p])]))
        case TopK(group=group) if reads and reads <= set(group):
            return _over(plan, filtered(plan.parents[0], [predicate]))
    return None


def _sunk_into_join(plan: Plan, kind: JoinKind, predicate: Expression, reads: frozenset[int]) -> Plan | None:
    left, right = plan.parents
    if all(position < left.width for position in reads):
        return Plan(plan.operator, (filtered(left, [predicate]), right), plan.columns)
    if kind is JoinKind.LEFT:
        return None
    if all(position >= left.width for position in reads):
        sunk = filtered(right, [moved(predicate, lambda p: p - left.width)])
        return Plan(plan.operator, (left, sunk), plan.columns)
    return _as_join_column(plan, predicate)


def _as_join_column(plan: Plan, predicate: Expression) -> Plan | None:
    """An inner join with one more equality, or None where the predicate is none of two like columns."""
    sides, (left, right) = equality(predicate), plan.parents
    if sides is None or not isinstance(sides[0], Field) or not isinstance(sides[1], Field):
        return None
    one, other = sorted((sides[0], sides[1]), key=lambda field: field.position)
    if (one.type.kind, one.type.scale) != (other.type.kind, other.type.scale):
        return None
    assert isinstance(plan.operator, Join)
    pairs = [*zip(plan.operator.left_on, plan.operator.right_on, strict=True)]
    pair = (one.position, other.position - left.width)
    if pair not in pairs:
        if any(pair[0] == a or pair[1] == b for a, b in pairs):
            return None  # An index has no column twice.
        pairs.append(pair)
    return joined(JoinKind.INNER, left, right, [a for a, _ in pairs], [b for _, b in pairs])


def _over(plan: Plan, parent: Plan) -> Plan:
    return Plan(plan.operator, (parent,), plan.columns)


def projected(plan: Plan, expressions: Sequence[Expression], names: Sequence[str]) -> Plan:
    """π, merged with a projection below, and nothing at all where it would change nothing."""
    if isinstance(plan.operator, Project) and _is_cheap(expressions, plan.operator.expressions):
        below = plan.operator.expressions
        return projected(plan.parents[0], [over(expression, below) for expression in expressions], names)
    columns = tuple(Column(name, e.type) for name, e in zip(names, expressions, strict=True))
    if tuple(expressions) == plan.fields():
        if columns == plan.columns:
            return plan
        return Plan(plan.operator, plan.parents, columns)
    return Plan(Project(tuple(expressions)), (plan,), columns)


def _is_cheap(expressions: Sequence[Expression], below: Sequence[Expression]) -> bool:
    """Whether merging computes nothing twice: a computed column below may be used once, or be a plain field."""
    uses: dict[int, int] = {}
    pending = list(expressions)
    while pending:
        part = pending.pop()
        if isinstance(part, Field):
            uses[part.position] = uses.get(part.position, 0) + 1
        elif isinstance(part, Call):
            pending.extend(part.arguments)
    return all(count == 1 or not isinstance(below[position], Call) for position, count in uses.items())


def extended(plan: Plan, expressions: Sequence[Expression], names: Sequence[str]) -> tuple[Plan, list[int]]:
    """The plan with columns appended for what is not a plain field, and where each expression now stands."""
    computed: list[Expression] = []
    places: list[int] = []
    titles: list[str] = []
    for expression, name in zip(expressions, names, strict=True):
        if isinstance(expression, Field):
            places.append(expression.position)
        elif expression in computed:
            places.append(plan.width + computed.index(expression))
        else:
            places.append(plan.width + len(computed))
            computed.append(expression)
            titles.append(name)
    if not computed:
        return plan, places
    everything = [*plan.fields(), *computed]
    return projected(plan, everything, [*(column.name for column in plan.columns), *titles]), places


def joined(
    kind: JoinKind,
    left: Plan,
    right: Plan,
    left_on: Sequence[int],
    right_on: Sequence[int],
    residual: Expression | None = None,
) -> Plan:
    """⋈ or ⟕; the residual is over the left row followed by the right one."""
    operator = Join(kind, tuple(left_on), tuple(right_on), residual)
    return Plan(operator, (left, right), left.columns + right.columns)


def aggregated(plan: Plan, group: Columns, calls: Sequence[tuple[AggregateCall, str]], *, scalar: bool) -> Plan:
    """γ: the group's columns, then one column a call."""
    columns = (*(plan.columns[i] for i in group), *(Column(name, call.type) for call, name in calls))
    return Plan(Aggregate(group, tuple(call for call, _ in calls), scalar), (plan,), columns)


def distinct(plan: Plan, group: Columns) -> Plan:
    """δ of some columns: a γ without functions."""
    if isinstance(plan.operator, Aggregate) and not plan.operator.calls and group == tuple(range(plan.width)):
        return plan
    return aggregated(plan, group, (), scalar=False)


def top(plan: Plan, operator: TopK) -> Plan:
    """τ; with a limit of 0 there is nothing to keep."""
    if operator.limit == 0:
        return filtered(plan, [Constant(0, BOOL)])
    return Plan(operator, (plan,), plan.columns)


def united(plans: Sequence[Plan]) -> Plan:
    """∪ of bags, flat."""
    parents: list[Plan] = []
    for plan in plans:
        parents.extend(plan.parents if isinstance(plan.operator, Union) else (plan,))
    return Plan(Union(), tuple(parents), plans[0].columns)


def emit(plan: Plan, graph: JointGraph) -> NodeIndex:
    """The plan as nodes of the graph, parents first; what the graph has already is shared."""
    done: dict[int, NodeIndex] = {}

    def visit(part: Plan) -> NodeIndex:
        known = done.get(id(part))
        if known is None:
            parents = tuple(visit(parent) for parent in part.parents)
            known = done[id(part)] = graph.add(part.operator, parents, part.columns)
        return known

    return visit(plan)
