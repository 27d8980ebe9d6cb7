"""Relational plans as values: a tree of operators that becomes nodes of the joint graph only when all of it is right.

The makers here keep plans in one shape, so that equal queries become equal nodes: filters sink to where their columns
come from and are merged, projections are merged and vanish where they change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from domains.language.collating.coercibility import is_congruent
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions.json.table import JsonLevel
from domains.language.rewriting import is_never
from domains.language.types import BOOL, Column, TableSchema
from domains.plan.estimates import Estimated, Statistics
from domains.plan.graph import (
    Aggregate,
    AggregateCall,
    Base,
    BoundKind,
    Columns,
    Egress,
    Filter,
    FixedPoint,
    Ingress,
    Join,
    JoinKind,
    NodeIndex,
    Operator,
    Over,
    Project,
    Reader,
    TopK,
    Union,
    Unnest,
    WindowCall,
    WindowFunction,
)
from domains.plan.sides import COMPUTED
from domains.plan.traits import is_base, traits_of
from migrations.joint_graph.graph import JointGraph
from migrations.query.expressions.terms import conjunction, equality, moved, over, positions

NEVER = Constant(0, BOOL)


@dataclass(frozen=True, slots=True)
class RelationalPlan:
    """An operator over plans. ``columns`` are its output's."""

    operator: Operator
    parents: tuple[RelationalPlan, ...]
    columns: tuple[Column, ...]

    @property
    def width(self) -> int:
        return len(self.columns)

    def field(self, position: int) -> Field:
        return Field(position, self.columns[position].type)

    def fields(self) -> tuple[Field, ...]:
        return tuple(self.field(position) for position in range(self.width))


def base(schema: TableSchema) -> RelationalPlan:
    """The live columns of a base table."""
    live = schema.live()
    columns = tuple(Column(schema.columns[i].name, schema.columns[i].type) for i in live)
    key = tuple(live.index(i) for i in schema.primary_key)
    return RelationalPlan(Base(schema.name, live, key, schema.generation), (), columns)


def filtered(plan: RelationalPlan, predicates: Sequence[Expression]) -> RelationalPlan:
    """σ: each predicate as deep as its columns allow."""
    staying: list[Expression] = []
    for predicate in predicates:
        if is_true(predicate):
            continue
        sunk = _sunk(plan, predicate) or _cut(plan, predicate)
        if sunk is None:
            staying.append(predicate)
        else:
            plan = sunk
    if not staying:
        return plan
    if isinstance(plan.operator, Filter):
        merged = conjunction([plan.operator.predicate, *staying])
        return RelationalPlan(Filter(merged), plan.parents, plan.columns)
    return RelationalPlan(Filter(conjunction(staying)), (plan,), plan.columns)


def is_true(predicate: Expression) -> bool:
    return isinstance(predicate, Constant) and predicate.value is not None and predicate.value not in (0, "", b"")


def _sunk(plan: RelationalPlan, predicate: Expression) -> RelationalPlan | None:
    """The plan with the predicate below its top operator, or None where it cannot go there."""
    operator, reads = plan.operator, positions(predicate)
    if traits_of(operator).groups_by is not None and not is_congruent(predicate):
        return None
    match operator:
        case Project(expressions=expressions):
            return _over(plan, filtered(plan.parents[0], [over(predicate, expressions)]))
        case Filter():
            sunk = _sunk(plan.parents[0], predicate)
            return None if sunk is None else _over(plan, sunk)
        case Union():
            return RelationalPlan(
                operator, tuple(filtered(parent, [predicate]) for parent in plan.parents), plan.columns
            )
        case Join(kind=kind):
            return _sunk_into_join(plan, kind, predicate, reads)
        case Aggregate(group=group, scalar=scalar):
            if scalar or not reads or any(p >= len(group) for p in reads):
                return None
            return _over(plan, filtered(plan.parents[0], [moved(predicate, lambda p: group[p])]))
        case TopK(group=group):
            return _over(plan, filtered(plan.parents[0], [predicate])) if reads and reads <= set(group) else None
        case Over(partition=partition):
            return _over(plan, filtered(plan.parents[0], [predicate])) if reads and reads <= set(partition) else None
        case FixedPoint(carried=carried):
            if not reads or not reads <= set(carried):
                return None
            first, *further = plan.parents
            return RelationalPlan(operator, (filtered(first, [predicate]), *further), plan.columns)
        case Unnest():
            ours = all(position < plan.parents[0].width for position in reads)
            return _over(plan, filtered(plan.parents[0], [predicate])) if ours else None
        case Base() | Ingress() | Egress() | Reader():
            return None
        case _:
            assert_never(operator)


def _cut(plan: RelationalPlan, predicate: Expression) -> RelationalPlan | None:
    """``σ_{n <= k} ω_{g; o; n = ROW_NUMBER}(X)`` as ``ω(τ_{g; o; k}(X))``; None where it is something else.

    Both break ties by the whole row. What else the ω computes must not look beyond the current row.
    """
    over = plan.operator
    if not isinstance(over, Over) or not all(map(_looks_back, over.calls)):
        return None
    (parent,) = plan.parents
    numbers = [at for at, each in enumerate(over.calls) if each.function is WindowFunction.ROW_NUMBER]
    limits = [most for at in numbers if (most := _most(predicate, parent.width + at)) is not None]
    if not limits:
        return None
    cut = _over(plan, top(parent, TopK(over.partition, over.order, max(limits[0], 0))))
    function = predicate.function if isinstance(predicate, Call) else ""
    decides = function in ("le", "lt", "ge", "gt") or (function == "eq" and limits[0] <= 1)
    return cut if decides else RelationalPlan(Filter(predicate), (cut,), cut.columns)


def _most(predicate: Expression, column: int) -> int | None:
    """The greatest number that a condition admits, of those from 1 on in a column; None where it tells none."""
    if not isinstance(predicate, Call):
        return None
    function, arguments = predicate.function, predicate.arguments
    if function in ("ge", "gt"):
        function, arguments = {"ge": "le", "gt": "lt"}[function], arguments[::-1]
    if function not in ("le", "lt", "eq", "between") or not isinstance(arguments[0], Field):
        return None
    most = arguments[-1]
    if arguments[0].position != column or not isinstance(most, Constant) or not isinstance(most.value, int):
        return None
    return most.value - 1 if function == "lt" else most.value


_BACK = frozenset((WindowFunction.ROW_NUMBER, WindowFunction.RANK, WindowFunction.DENSE_RANK, WindowFunction.LAG))
_FRAMELESS = frozenset(
    (WindowFunction.PERCENT_RANK, WindowFunction.CUME_DIST, WindowFunction.NTILE, WindowFunction.LEAD)
)


def _looks_back(call: WindowCall) -> bool:
    """Whether rows behind the current one never decide its value."""
    ends = call.frame.end.kind in (BoundKind.PRECEDING, BoundKind.CURRENT_ROW)
    return call.function in _BACK or (call.function not in _FRAMELESS and call.frame.rows and ends)


def _sunk_into_join(
    plan: RelationalPlan, kind: JoinKind, predicate: Expression, reads: frozenset[int]
) -> RelationalPlan | None:
    left, right = plan.parents
    if all(position < left.width for position in reads):
        return RelationalPlan(plan.operator, (filtered(left, [predicate]), right), plan.columns)
    if kind is not JoinKind.INNER:
        return None
    if all(position >= left.width for position in reads):
        sunk = filtered(right, [moved(predicate, lambda p: p - left.width)])
        return RelationalPlan(plan.operator, (left, sunk), plan.columns)
    return _as_join_column(plan, predicate)


def _as_join_column(plan: RelationalPlan, predicate: Expression) -> RelationalPlan | None:
    """An inner join with one more equality, or None where the predicate is none of two like columns."""
    sides, (left, right) = equality(predicate), plan.parents
    if sides is None or not isinstance(sides[0], Field) or not isinstance(sides[1], Field):
        return None
    one, other = sorted((sides[0], sides[1]), key=lambda field: field.position)
    if (one.type.kind, one.type.scale, one.type.collation) != (other.type.kind, other.type.scale, other.type.collation):
        return None
    assert isinstance(plan.operator, Join)
    pairs = [*zip(plan.operator.left_on, plan.operator.right_on, strict=True)]
    pair = (one.position, other.position - left.width)
    if pair not in pairs:
        if any(pair[0] == a or pair[1] == b for a, b in pairs):
            return None  # An index has no column twice.
        pairs.append(pair)
    return joined(JoinKind.INNER, left, right, [a for a, _ in pairs], [b for _, b in pairs], plan.operator.residual)


def _over(plan: RelationalPlan, parent: RelationalPlan) -> RelationalPlan:
    return RelationalPlan(plan.operator, (parent,), plan.columns)


def projected(plan: RelationalPlan, expressions: Sequence[Expression], names: Sequence[str]) -> RelationalPlan:
    """π, merged with a projection below, and nothing at all where it would change nothing."""
    if isinstance(plan.operator, Project) and _is_cheap(expressions, plan.operator.expressions):
        below = plan.operator.expressions
        return projected(plan.parents[0], [over(expression, below) for expression in expressions], names)
    columns = tuple(Column(name, e.type) for name, e in zip(names, expressions, strict=True))
    if tuple(expressions) == plan.fields():
        if columns == plan.columns:
            return plan
        return RelationalPlan(plan.operator, plan.parents, columns)
    return RelationalPlan(Project(tuple(expressions)), (plan,), columns)


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


def extended(
    plan: RelationalPlan, expressions: Sequence[Expression], names: Sequence[str]
) -> tuple[RelationalPlan, list[int]]:
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
    left: RelationalPlan,
    right: RelationalPlan,
    left_on: Sequence[int],
    right_on: Sequence[int],
    residual: Expression | None = None,
) -> RelationalPlan:
    """⋈, ⟕ or ⊳; the residual is over the left row followed by the right one."""
    operator = Join(kind, tuple(left_on), tuple(right_on), residual)
    added = (Column("matched", BOOL),) if kind is JoinKind.MARK else right.columns
    return RelationalPlan(operator, (left, right), left.columns + added)


def unnested(
    plan: RelationalPlan,
    document: Expression,
    table: JsonLevel,
    titles: Sequence[str],
    outer: bool,
    residual: Expression | None,
) -> RelationalPlan:
    """μ: the residual is over the row followed by one of the table."""
    added = tuple(Column(title, type) for title, type in zip(titles, table.types, strict=True))
    return RelationalPlan(Unnest(document, table, outer, residual), (plan,), plan.columns + added)


MOST_WRITTEN_OUT = 16
"""Constant rows that are written beside another plan's rows, each by a projection of its own."""


def crossed(left: RelationalPlan, right: RelationalPlan) -> RelationalPlan:
    """×. Of few constants it is no join: ``X × {(1), (2)} = π_{x, 1} X ∪ π_{x, 2} X``, which stands where X does."""
    for constants, plan in ((constant_rows(right), left), (constant_rows(left), right)):
        if constants is not None and len(constants) <= MOST_WRITTEN_OUT:
            names = [column.name for column in (*left.columns, *right.columns)]
            sides = [(row, plan.fields()) if plan is right else (plan.fields(), row) for row in constants]
            return united([projected(plan, [*one, *other], names) for one, other in sides])
    return joined(JoinKind.INNER, left, right, (), ())


def constant_rows(plan: RelationalPlan) -> list[tuple[Constant, ...]] | None:
    """The rows of a plan that is made of SELECTs without FROM; None of any other, and of those that compute."""
    match plan.operator:
        case Union():
            parents = [constant_rows(parent) for parent in plan.parents]
            return None if None in parents else [row for rows in parents for row in rows or ()]
        case Project(expressions=expressions):
            if not all(isinstance(e, Constant) for e in expressions) or not is_row_of_nothing(plan.parents[0]):
                return None
            return [tuple(e for e in expressions if isinstance(e, Constant))]
        case Filter() | Unnest() | Join() | Aggregate() | TopK() | Over() | FixedPoint():
            return None
        case Base() | Ingress() | Egress() | Reader():
            return None
        case operator:
            assert_never(operator)


def is_row_of_nothing(plan: RelationalPlan) -> bool:
    """Whether a plan is the one row of a SELECT without FROM: an aggregate over rows of which none passes."""
    return traits_of(plan.operator).row_over_nothing and is_never(traits_of(plan.parents[0].operator).demands)


def aggregated(
    plan: RelationalPlan, group: Columns, calls: Sequence[tuple[AggregateCall, str]], *, scalar: bool
) -> RelationalPlan:
    """γ: the group's columns, then one column a call."""
    columns = (*(plan.columns[i] for i in group), *(Column(name, call.type) for call, name in calls))
    return RelationalPlan(Aggregate(group, tuple(call for call, _ in calls), scalar), (plan,), columns)


def distinct(plan: RelationalPlan, group: Columns) -> RelationalPlan:
    """δ of some columns: a γ without functions."""
    if isinstance(plan.operator, Aggregate) and not plan.operator.calls and group == tuple(range(plan.width)):
        return plan
    return aggregated(plan, group, (), scalar=False)


def top(plan: RelationalPlan, operator: TopK) -> RelationalPlan:
    """τ; with a limit of 0 there is nothing to keep."""
    if operator.limit == 0:
        return filtered(plan, [NEVER])
    return RelationalPlan(operator, (plan,), plan.columns)


def united(plans: Sequence[RelationalPlan]) -> RelationalPlan:
    """∪ of bags, flat."""
    parents: list[RelationalPlan] = []
    for plan in plans:
        parents.extend(plan.parents if isinstance(plan.operator, Union) else (plan,))
    return RelationalPlan(Union(), tuple(parents), plans[0].columns)


def emit(plan: RelationalPlan, graph: JointGraph) -> NodeIndex:
    """The plan as nodes of the graph, parents first; what the graph has already is shared."""
    done: dict[int, NodeIndex] = {}

    def visit(part: RelationalPlan) -> NodeIndex:
        known = done.get(id(part))
        if known is None:
            parents = tuple(visit(parent) for parent in part.parents)
            known = done[id(part)] = graph.add(part.operator, parents, part.columns)
        return known

    return visit(plan)


def estimated(plan: RelationalPlan, statistics: Statistics) -> Estimated:
    """How many rows the plan has, and values each of its columns."""
    return traits_of(plan.operator).estimate([estimated(parent, statistics) for parent in plan.parents], statistics)


def parts(plan: RelationalPlan) -> Iterator[RelationalPlan]:
    """The plan and all that it is made of, from the top down."""
    yield plan
    for parent in plan.parents:
        yield from parts(parent)


def stored_columns(plan: RelationalPlan, columns: Columns) -> tuple[str, Columns] | None:
    """The base table whose rows the plan has, and where these columns are stored in it; None of any other plan."""
    while len(plan.parents) == 1 and traits_of(plan.operator).groups_by is None:
        columns = traits_of(plan.operator).origins(columns, [plan.parents[0].width])[0]
        if COMPUTED in columns:
            return None
        plan = plan.parents[0]
    operator = plan.operator
    return (operator.table, tuple(operator.columns[at] for at in columns)) if is_base(operator) else None
