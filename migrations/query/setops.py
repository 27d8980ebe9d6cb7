"""UNION, INTERSECT and EXCEPT: branches brought to the same columns, types and parameters.

A set operation takes NULL for equal to NULL, as groups do and joins do not. So the rows of both sides are counted by
value, and the counts decide::

    A INTERSECT B     π σ a > 0 AND b > 0 (γ row; SUM(a), SUM(b))     of A with (1, 0) and B with (0, 1) behind each row
    A EXCEPT B        π σ a > 0 AND b = 0 (γ row; SUM(a), SUM(b))

which is kept up to date by a row's own counts, and partial by any column that can be traced on both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from domains.errors import SqlError, Unsupported
from domains.language.collating.coercibility import collated, met, with_collation
from domains.language.collating.collation import BINARY
from domains.language.compile import compile_expression
from domains.language.encoding import encode_order
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call, common_type
from domains.language.functions.comparands import are_alike
from domains.language.rewriting import fold
from domains.language.types import BIGINT, Column, Kind, Row, SqlType
from domains.plan.graph import (
    AggregateCall,
    AggregateFunction,
    BoundKind,
    Frame,
    FrameBound,
    Over,
    WindowCall,
    WindowFunction,
)
from migrations.parse.reading import exp
from migrations.query.block import Plan
from migrations.query.expressions.documents import sorting
from migrations.query.expressions.literals import literal, precise
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Bound, Scope
from migrations.query.expressions.terms import positions, substituted
from migrations.query.plan import RelationalPlan, aggregated, filtered, projected, united
from migrations.query.plans.late_queries import Sorting
from migrations.query.relation import (
    Carried,
    LateParts,
    Output,
    QueryContext,
    Relation,
    Slot,
    bounded,
    deduplicated,
    read_limit,
    refuse_late_conditions,
    require_single,
    sorting_direction,
)
from migrations.query.stage import Wide, late_condition


def plan_set_operation(node: exp.SetOperation, context: QueryContext, plan: Plan) -> Relation:
    """A chain of set operations, from the left; sqlglot has put an INTERSECT, which binds first, into parentheses."""
    first, steps = _chain(node)
    context = context.inside(context.outer)
    branches = [bounded(plan(branch, context)) for branch in (first, *(step.expression for step in steps))]
    for branch in branches[1:]:
        if len(branch.outputs) != len(branches[0].outputs):
            raise SqlError(f"the branches of a UNION have {len(branches[0].outputs)} and {len(branch.outputs)} columns")
    if _are_told_apart(branches):
        return sorted_and_limited(_told_apart(branches, steps), node)
    relation, run = branches[0], list[tuple[Relation, bool]]()
    for step, branch in zip(steps, branches[1:], strict=True):
        is_distinct = bool(step.args.get("distinct"))
        if isinstance(step, exp.Union):
            run.append((branch, is_distinct))
            continue
        counted = _counted if is_distinct else _counted_copies
        relation, run = counted(_united(relation, run), branch, is_difference=isinstance(step, exp.Except)), []
    return sorted_and_limited(_united(relation, run), node)


# Branches with parameters of their own: no key of the whole, nor a condition of the whole, stands for them. So the rows
# of each say whose they are, and what a branch asks is asked of its own rows, when the answer is read:
#
#     σ_p A ∪ σ_q B  =  π σ (branch ≠ 0 OR p) AND (branch ≠ 1 OR q) (A × (0, columns of p) ∪ B × (1, columns of q))


def _are_told_apart(branches: Sequence[Relation]) -> bool:
    if any(branch.late.conditions for branch in branches):
        return True
    carried = [_by_place(branch.carried) for branch in branches]
    if any(c.slot.outer is not None or c.slot.named for some in carried for c in some):
        return False  # A query around asks all branches alike, and so does a :name.
    # What asks each for the same columns was one parameter once, and recipes have it: it is refused, and not another.
    kinds = [[(c.slot.name.lower(), c.slot.kind) for c in some] for some in carried]
    return any(each != kinds[0] for each in kinds)


def _told_apart(branches: Sequence[Relation], steps: Sequence[exp.SetOperation]) -> Relation:
    is_distinct = bool(steps[-1].args.get("distinct"))
    mixed = not is_distinct and any(step.args.get("distinct") for step in steps)
    if mixed or not all(isinstance(step, exp.Union) for step in steps):
        for branch in branches:
            hint = "ask it as a SELECT without a view, or declare a view of each branch"
            refuse_late_conditions(branch, "a set operation", hint)
        _unified([_by_place(branch.carried) for branch in branches])
    asked = [_conditions(branch) for branch in branches]
    needed = [sorted(frozenset[int]().union(*map(positions, conditions))) for conditions in asked]
    told = []
    for number, branch in enumerate(branches):
        further = [Output("branch", Constant(number, BIGINT))]
        for other, columns in zip(branches, needed, strict=True):
            fields = [other.plan.field(column) for column in columns]
            further += [Output("asked", f if other is branch else Constant(None, f.type)) for f in fields]
        carried = tuple(c for c in branch.carried if c.slot.outer is not None)
        told.append(replace(branch, outputs=(*branch.outputs, *further), carried=carried, late=LateParts()))
    relation = _united(told[0], [(each, is_distinct) for each in told[1:]])
    width = len(branches[0].outputs)
    of, *rest = (output.expression for output in relation.outputs[width:])
    conditions, at = list[Expression](), 0
    for number, (some, columns) in enumerate(zip(asked, needed, strict=True)):
        places = dict(zip(columns, rest[at : at + len(columns)], strict=True))
        at += len(columns)
        is_other = call("ne", of, Constant(number, BIGINT))
        conditions += [call("or", is_other, _placed(each, places)) for each in some]
    slots = tuple(slot for b in branches for slot in (*b.late.slots, *_demoted(b)))
    late = LateParts(tuple(conditions), slots=slots, distinct=is_distinct)
    return replace(relation, outputs=relation.outputs[:width], late=late)


def _placed(condition: Expression, places: Mapping[int, Expression]) -> Expression:
    return substituted(condition, lambda field: places[field.position])


def _demoted(branch: Relation) -> list[Slot]:
    return [c.slot for c in branch.carried if c.slot.outer is None]


def _conditions(branch: Relation) -> list[Expression]:
    """What a branch asks when it is read: also what would be a key, were it asked alone."""
    keys = [late_condition(Wide(branch.plan.field(c.column), c.slot)) for c in branch.carried if c.slot.outer is None]
    return [*branch.late.conditions, *keys]


def _united(first: Relation, steps: Sequence[tuple[Relation, bool]]) -> Relation:
    """A chain of UNIONs. All that stands before the last DISTINCT one needs only that one's."""
    if not steps:
        return first
    last = max((i for i, (_, is_distinct) in enumerate(steps, 1) if is_distinct), default=0)
    aligned = _aligned([first, *(branch for branch, _ in steps)])
    if last:
        aligned = [deduplicated(_union(aligned[: last + 1])), *aligned[last + 1 :]]
        if len(aligned) > 1:
            aligned = _aligned(aligned)
    return _union(aligned)


def _counted(left: Relation, right: Relation, *, is_difference: bool) -> Relation:
    """INTERSECT or EXCEPT: the values of which the left side has a row, and the right side one or none."""
    sides = _aligned([left, right])
    relation = _union(sides)
    places = [i for i, _ in enumerate(relation.outputs)]
    require_single(relation.carried, "EXCEPT" if is_difference else "INTERSECT", places)
    plans = [side.plan for side in sides]
    row = range(plans[0].width)
    names = [column.name for column in plans[0].columns]
    marked = [
        projected(plan, [*(plan.field(i) for i in row), *_MARKS[at]], [*names, "left_rows", "right_rows"])
        for at, plan in enumerate(plans)
    ]
    sums = [(AggregateCall(AggregateFunction.SUM, len(row) + at, BIGINT), f"rows_{at}") for at in range(2)]
    counts = aggregated(replace(united(marked), columns=_typed(marked)), tuple(row), sums, scalar=False)
    ours, theirs = counts.field(len(row)), counts.field(len(row) + 1)
    conditions = [call("gt", ours, _NONE), call("eq" if is_difference else "gt", theirs, _NONE)]
    plan = projected(filtered(counts, conditions), [counts.field(i) for i in row], names)
    outputs = tuple(Output(o.name, plan.field(i)) for i, o in enumerate(relation.outputs))
    return replace(relation, plan=plan, outputs=outputs)


def _counted_copies(left: Relation, right: Relation, *, is_difference: bool) -> Relation:
    """INTERSECT ALL or EXCEPT ALL: on both sides the copies of a row are numbered, ``ω_{row; n = ROW_NUMBER}``, and the
    n-th copy of the left side meets the n-th of the right one."""
    relation = _counted(*map(_numbered, _aligned([left, right])), is_difference=is_difference)
    return replace(relation, outputs=relation.outputs[:-1])


def _numbered(relation: Relation) -> Relation:
    plan = relation.plan
    frame = Frame(True, FrameBound(BoundKind.UNBOUNDED_PRECEDING), FrameBound(BoundKind.CURRENT_ROW))
    number = WindowCall(WindowFunction.ROW_NUMBER, None, BIGINT, frame)
    over = Over(tuple(range(plan.width)), (), (number,))
    plan = RelationalPlan(over, (plan,), (*plan.columns, Column("copy", BIGINT)))
    return replace(relation, plan=plan, outputs=(*relation.outputs, Output("copy", plan.field(plan.width - 1))))


_NONE, _ONE = Constant(0, BIGINT), Constant(1, BIGINT)
_MARKS = ((_ONE, _NONE), (_NONE, _ONE))
"""Behind a row of the left side, and of the right one."""


def sorted_and_limited(relation: Relation, node: exp.Expr) -> Relation:
    """The relation with the ORDER BY and LIMIT that follow a UNION or a query in parentheses."""
    clause = node.args.get("order")
    order = relation.order
    if clause is not None:
        order = tuple(_sorting(term, relation) for term in clause.expressions)
    limit, offset = read_limit(node)
    return replace(relation, order=order, limit=limit, offset=offset)


def _chain(node: exp.SetOperation) -> tuple[exp.Expr, list[exp.SetOperation]]:
    """The first branch, and the operations behind it."""
    steps: list[exp.SetOperation] = []
    at: exp.Expr = node
    while isinstance(at, exp.SetOperation):
        if at is not node and any(at.args.get(key) is not None for key in ("order", "limit", "offset", "with_")):
            break
        steps.append(at)
        at = at.this
    return at, steps[::-1]


def _aligned(branches: Sequence[Relation]) -> list[Relation]:
    """Every branch projected to the same columns: the outputs in their common types, then the parameters' columns."""
    if any(branch.empty is not None for branch in branches):
        raise Unsupported(
            "a UNION of aggregates without GROUP BY that have parameters",
            hint="group them by the parameter's column",
        )
    slots = _unified([_by_place(branch.carried) for branch in branches])
    outputs = range(len(branches[0].outputs))
    types = [_common([branch.outputs[i].expression for branch in branches]) for i in outputs]
    keys = [[branch.plan.field(c.column) for c in _by_place(branch.carried)] for branch in branches]
    for compared in zip(*keys, strict=True):
        if not all(are_alike(compared[0].type, key.type) for key in compared):
            raise Unsupported(
                "a UNION in which one parameter is compared with columns of several kinds",
                hint="CAST the columns to one type",
            )
    key_types = [common_type([key[i].type for key in keys]) for i in range(len(slots))]
    places = [_place(i, branches, keys) for i in range(len(slots))]
    hidden = [i for i, place in enumerate(places) if place is None]
    names = [output.name for output in branches[0].outputs]
    aligned = []
    for branch, key in zip(branches, keys, strict=True):
        row = [as_type(o.expression, t) for o, t in zip(branch.outputs, types, strict=True)]
        row += [as_type(key[i], key_types[i]) for i in hidden]
        plan = projected(branch.plan, row, [*names, *(slots[i].name for i in hidden)])
        shown = tuple(Output(name, plan.field(i)) for i, name in enumerate(names))
        columns = [len(names) + hidden.index(i) if place is None else place for i, place in enumerate(places)]
        carried = tuple(Carried(column, slot) for column, slot in zip(columns, slots, strict=True))
        aligned.append(Relation(plan, shown, carried))
    return aligned


def _place(index: int, branches: Sequence[Relation], keys: Sequence[Sequence[Expression]]) -> int | None:
    """The output that every branch shows a parameter's column as; None where it must stay hidden."""
    for i in range(len(branches[0].outputs)):
        if all(b.outputs[i].expression == key[index] for b, key in zip(branches, keys, strict=True)):
            return i
    return None


def _by_place(carried: Sequence[Carried]) -> list[Carried]:
    return sorted(carried, key=lambda c: (c.slot.outer is not None, c.slot.marks[:1], repr(c.slot.outer)))


def _unified(branches: Sequence[Sequence[Carried]]) -> list[Slot]:
    """The parameters of all branches: the k-th of each is one parameter.

    :raises Unsupported: they differ in number, column name or comparison, or are several ``?``.
    """
    first = branches[0]
    for other in branches[1:]:
        ours = [(c.slot.name.lower(), c.slot.kind, c.slot.outer) for c in first]
        theirs = [(c.slot.name.lower(), c.slot.kind, c.slot.outer) for c in other]
        if ours != theirs and any(c.slot.outer is not None for c in (*first, *other)):
            raise Unsupported(
                "a UNION in a correlated subquery whose branches compare other columns of the query around",
                hint="write one EXISTS, or one subquery, for each branch",
            )
        if ours != theirs:
            raise Unsupported(
                "a UNION whose branches have different parameters",
                hint="give every branch the same parameters, each as :name, in the same order",
            )
    return [_one_slot([c.slot for c in carried]) for carried in zip(*branches, strict=True)]


def _one_slot(slots: Sequence[Slot]) -> Slot:
    """The parameter that the branches share: the same ``:name``, the same ``?`` of a CTE, or a parameter of views."""
    marks = tuple(sorted({mark for slot in slots for mark in slot.marks}))
    bare = any(not slot.named and any(len(mark) == 1 for mark in slot.marks) for slot in slots)
    if bare and any(slot.marks != slots[0].marks for slot in slots):
        name = slots[0].name
        raise Unsupported(
            f'a ? for "{name}" in each branch of a UNION, which would be one parameter',
            hint=f"write :{name} in every branch for one value; branches by different values are different views",
        )
    return replace(slots[0], marks=marks)


def _common(expressions: Sequence[Expression]) -> SqlType:
    common = common_type([e.type for e in expressions])
    return with_collation(common, met(expressions, "UNION")) if common.kind is Kind.TEXT else common


def as_type(expression: Expression, target: SqlType) -> Expression:
    """A value as the union's type: values of one kind stay as they are, but a DECIMAL takes the common scale."""
    same = expression.type.kind is target.kind
    if same and (target.kind is not Kind.DECIMAL or expression.type.scale == target.scale):
        return collated(expression, target.collation)
    return fold(call("cast", precise(expression), type=target))


def _union(branches: Sequence[Relation]) -> Relation:
    if len(branches) == 1:
        return branches[0]
    plans = [branch.plan for branch in branches]
    plan = replace(united(plans), columns=_typed(plans))
    outputs = tuple(Output(o.name, plan.field(i)) for i, o in enumerate(branches[0].outputs))
    return replace(branches[0], plan=plan, outputs=outputs)


def _typed(plans: Sequence[RelationalPlan]) -> tuple[Column, ...]:
    """The columns of a union, by the names of the first branch."""
    columns = enumerate(plans[0].columns)
    return tuple(Column(first.name, common_type([p.columns[i].type for p in plans])) for i, first in columns)


def _sorting(term: exp.Expr, relation: Relation) -> Sorting:
    node = term.this
    position = literal(node)
    if position is not None and isinstance(position.value, int):
        if not 1 <= position.value <= len(relation.outputs):
            raise SqlError(f"ORDER BY {position.value}: there are {len(relation.outputs)} columns")
        return sorting(relation.outputs[position.value - 1].expression, sorting_direction(term))
    fields = {o.name: o.expression for o in relation.outputs}
    bounds = [Bound("", name, relation.plan.field(i)) for i, name in enumerate(fields)]
    return sorting(scalar(node, Scope(bounds), Setting(place="ORDER BY")), sorting_direction(term))


# Branches that read nothing are rows at once: SELECT 1 UNION SELECT 2, and VALUES ROW(1), ROW(2), which is UNION ALL.


@dataclass(frozen=True, slots=True)
class ConstantRows:
    """The answer of a query that reads nothing."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


def combined(node: exp.SetOperation, answered: Callable[[exp.Expr], ConstantRows]) -> ConstantRows:
    """A set operation on two queries that read nothing, which ``answered`` answers."""
    left, right = answered(node.this), answered(node.expression)
    if len(left.columns) != len(right.columns):
        raise SqlError(f"the branches of a UNION have {len(left.columns)} and {len(right.columns)} columns")
    if any(column.type.collation is not None for column in (*left.columns, *right.columns)):
        raise Unsupported("COLLATE in a set operation of constants", hint=f"leave it out, or COLLATE {BINARY}")
    if any(column.type.kind is Kind.JSON for column in (*left.columns, *right.columns)) and not _is_sum(node):
        raise Unsupported("a set operation of constants that are JSON", hint="UNION ALL, or CAST(… AS CHAR)")
    pairs = zip(left.columns, right.columns, strict=True)
    columns = tuple(Column(one.name, common_type([one.type, other.type])) for one, other in pairs)
    ours, theirs = _of_types(left, columns), _of_types(right, columns)
    is_distinct, left_over = bool(node.args.get("distinct")), Counter(theirs)
    if isinstance(node, exp.Union):
        rows = [*ours, *theirs]
    elif is_distinct:
        rows = [row for row in ours if (row in left_over) is isinstance(node, exp.Intersect)]
    else:  # Each row of the right side meets one of the left.
        rows = []
        for row in ours:
            has_met = left_over[row] > 0
            left_over[row] -= has_met
            if has_met is isinstance(node, exp.Intersect):
                rows.append(row)
    return in_order(node, ConstantRows(columns, tuple(dict.fromkeys(rows) if is_distinct else rows)))


def _is_sum(node: exp.SetOperation) -> bool:
    return isinstance(node, exp.Union) and not node.args.get("distinct")


def _of_types(answer: ConstantRows, columns: Sequence[Column]) -> list[Row]:
    fields = [Field(at, column.type) for at, column in enumerate(answer.columns)]
    made = [compile_expression(as_type(f, column.type)) for f, column in zip(fields, columns, strict=True)]
    return [tuple([convert(row) for convert in made]) for row in answer.rows]


def in_order(node: exp.Expr, answer: ConstantRows) -> ConstantRows:
    """The rows with the ORDER BY and LIMIT that follow a set operation or a query in parentheses."""
    rows, clause = list(answer.rows), node.args.get("order")
    if clause is not None:
        fields = [Field(at, column.type) for at, column in enumerate(answer.columns)]
        bounds = [Bound("", column.name, field) for column, field in zip(answer.columns, fields, strict=True)]
        sought = [_term(term.this, fields, Scope(bounds)) for term in clause.expressions]
        if any(e.type.collation is not None for e in sought):
            raise Unsupported("COLLATE in ORDER BY of constants", hint=f"leave it out, or COLLATE {BINARY}")
        terms = [compile_expression(sorting(e, False).expression) for e in sought]
        descending = tuple(map(sorting_direction, clause.expressions))
        rows.sort(key=lambda row: encode_order(tuple([term(row) for term in terms]), descending))
    limit, offset = read_limit(node)
    if isinstance(limit, Slot) or isinstance(offset, Slot):
        raise AssertionError("the values of LIMIT ? are in the text")
    return ConstantRows(answer.columns, tuple(rows[offset:][:limit]))


def _term(node: exp.Expr, fields: Sequence[Field], scope: Scope) -> Expression:
    place = literal(node)
    if place is None or not isinstance(place.value, int):
        return scalar(node, scope, Setting(place="ORDER BY"))
    if not 1 <= place.value <= len(fields):
        raise SqlError(f"ORDER BY {place.value}: there are {len(fields)} columns")
    return fields[place.value - 1]
