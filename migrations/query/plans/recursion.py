"""WITH RECURSIVE: what a query begins with, and what it does again and again with what it has so far.

::

    WITH RECURSIVE r AS (SELECT … FROM a UNION SELECT … FROM r JOIN b …)

    r   ─►   fix ─┬─ the first part, X₁        γ, ⟕, anything
                  ├─ b                         what the other parts read and r is no part of: anything, too
                  └─ π ⋈ (r, b)                the rest, a round: σ, π, ∪, and joins of which r is not the optional side

The columns have the types of the first part, as in MySQL. A parameter in the first part is a column more, which each
round hands on as it is: so the recursion is partial by it, and by each column that a round leaves alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domains.errors import SqlError, Unsupported
from domains.language.collating.collation import BINARY
from domains.language.expressions import Expression
from domains.language.functions import call
from domains.language.types import Column, Kind
from domains.plan.graph import Columns, FixedPoint, Ingress, NodeIndex, ParameterKind, Project, RoundStep
from domains.plan.sides import COMPUTED, LEFT, RIGHT
from domains.plan.traits import is_ingress, traits_of
from migrations.parse.reading import exp, nodes
from migrations.query.block import Plan
from migrations.query.plan import RelationalPlan, filtered, parts, projected, united
from migrations.query.relation import (
    Carried,
    Output,
    QueryContext,
    Relation,
    Slot,
    bounded,
    refuse_late_conditions,
)
from migrations.query.setops import as_type
from migrations.query.source import named_columns


def reads_itself(cte: exp.CTE) -> bool:
    """Whether its query reads itself."""
    return _reads(cte.this, cte.alias)


def plan_recursion(cte: exp.CTE, context: QueryContext, plan: Plan) -> Relation:
    """:raises SqlError: what MySQL refuses of recursion. :raises Unsupported: what is not done here."""
    name = cte.alias
    first, rounds, is_distinct = _parts(cte.this, name)
    inside = context.inside(context.outer)
    is_within = any(is_ingress(relation.plan.operator) for relation in context.ctes.values())
    # Of what is evaluated once any table will do for constants; of a recursion around nothing is known.
    known = inside.statistics or (None if context.declared or is_within else {})
    begun = _plain(plan(first, replace(inside, statistics=known)), name)
    begun = named_columns(begun, [column.name for column in cte.args["alias"].columns], name)
    if any(carried.slot.outer is not None for carried in begun.carried):
        raise Unsupported(f'a recursion "{name}" that reads a query around it')
    seed = _seed(begun)
    _refuse_collated(seed.columns, name, is_distinct)
    width = len(begun.outputs)
    # Stands for what there is of it, where a round is planned; another one for each that is planned within.
    leaf = Ingress(NodeIndex(-1 - len(context.ctes)))
    so_far = RelationalPlan(leaf, (), seed.columns)
    slots = [carried.slot for carried in begun.carried]
    read = Relation(
        so_far,
        tuple(Output(output.name, so_far.field(at)) for at, output in enumerate(begun.outputs)),
        tuple(Carried(width + at, slot) for at, slot in enumerate(slots)),
    )
    inner = replace(inside.with_cte(name, read), statistics=None)
    branches = [_branch(_plain(plan(each, inner), name), read, name) for each in rounds]
    round_ = branches[0] if len(branches) == 1 else replace(united(branches), columns=seed.columns)
    whole = _fixed_point(seed, round_, leaf, name, is_distinct=is_distinct)
    outputs = tuple(Output(output.name, whole.field(at)) for at, output in enumerate(begun.outputs))
    uniques = (frozenset(range(whole.width)),) if is_distinct else ()
    return Relation(whole, outputs, read.carried, uniques=uniques)


def _parts(query: exp.Expr, name: str) -> tuple[exp.Expr, list[exp.Expr], bool]:
    """The first part, those that read the recursion, and whether what is there already is left out."""
    modified = [key for key in ("order", "limit", "offset", "with_") if query.args.get(key) is not None]
    if not isinstance(query, exp.Union) or modified:
        raise Unsupported(
            f'a recursion "{name}" that is more than a UNION',
            hint="write SELECT … UNION SELECT … in it, and ORDER BY and LIMIT where it is read",
        )
    rounds: list[exp.Expr] = []
    kinds: set[bool] = set()
    first: exp.Expr = query
    while isinstance(first, exp.Union) and _reads(first, name):
        if not _reads(first.expression, name):
            raise SqlError(f'the parts of "{name}" that do not read it stand before those that do')
        rounds.insert(0, first.expression)
        kinds.add(bool(first.args.get("distinct")))
        first = first.this
    if _reads(first, name):
        raise SqlError(f'the first part of the recursion "{name}" reads it already')
    if len(kinds) > 1:
        raise Unsupported(f'UNION and UNION ALL in the recursion "{name}"', hint="write one of them throughout")
    return first, rounds, kinds.pop()


def _reads(query: exp.Expr, name: str) -> bool:
    return any(
        isinstance(node, exp.Table) and node.name.lower() == name.lower() and not node.db for node in nodes(query)
    )


def _plain(relation: Relation, name: str) -> Relation:
    relation = bounded(relation)
    refuse_late_conditions(relation, f'the recursion "{name}"')
    if relation.empty is not None or relation.late.below or relation.late.groups is not None:
        raise Unsupported(f'an aggregate with a parameter in the recursion "{name}"', hint="compare it outside")
    return relation


def _seed(begun: Relation) -> RelationalPlan:
    """The outputs, and a column for each parameter."""
    plan = begun.plan
    row: list[Expression] = [output.expression for output in begun.outputs]
    row += [plan.field(carried.column) for carried in begun.carried]
    return projected(plan, row, [*(o.name for o in begun.outputs), *(c.slot.name for c in begun.carried)])


def _branch(branch: Relation, read: Relation, name: str) -> RelationalPlan:
    """The rows of a round, as those of the first part."""
    if len(branch.outputs) != len(read.outputs):
        raise SqlError(f'the parts of "{name}" have {len(read.outputs)} and {len(branch.outputs)} columns')
    places: dict[Slot, int] = {}
    plan = branch.plan
    for carried in branch.carried:  # What a parameter is asked of twice, as by policies of two tables, is alike.
        first = plan.field(places.setdefault(carried.slot, carried.column))
        if carried.column != first.position:
            alike = carried.slot.kind is ParameterKind.EQUAL
            plan = filtered(plan, [call("eq", first, plan.field(carried.column))]) if alike else plan
            if not alike:
                places.clear()
                break
    if places.keys() != {carried.slot for carried in read.carried}:
        raise Unsupported(
            f'a parameter in the part of "{name}" that repeats',
            hint="compare it in the first part, or where the recursion is read",
        )
    row = [as_type(o.expression, own.expression.type) for o, own in zip(branch.outputs, read.outputs, strict=True)]
    row += [plan.field(places[carried.slot]) for carried in read.carried]
    return projected(plan, row, [column.name for column in read.plan.columns])


def _refuse_collated(columns: Sequence[Column], name: str, is_distinct: bool) -> None:
    for column in columns if is_distinct else ():
        if column.type.kind is Kind.TEXT and column.type.collation not in (None, BINARY):
            raise Unsupported(
                f'UNION of texts that are equal in several spellings in the recursion "{name}"',
                hint=f"COLLATE {BINARY}, or UNION ALL",
            )


class _Round:
    """A round, taken apart: what does not read the recursion is a parent of it."""

    def __init__(self, seed: RelationalPlan, leaf: Ingress, name: str) -> None:
        self.parents = [seed]
        self._leaf = leaf
        self._steps: list[tuple[RelationalPlan, tuple[int, ...]]] = []
        """With the numbers of their inputs: of a step its place, from -1 downwards."""
        self._name = name

    def read(self, plan: RelationalPlan) -> int:
        """The number of what has the rows of a plan."""
        if plan.operator == self._leaf:
            return 0
        if not self._reads_so_far(plan):
            if plan not in self.parents[1:]:
                self.parents.append(plan)
            return self.parents.index(plan, 1)
        self._check(plan)
        self._steps.append((plan, tuple(self.read(parent) for parent in plan.parents)))
        return -len(self._steps)

    def steps(self) -> tuple[RoundStep, ...]:
        behind = len(self.parents) - 1
        return tuple(
            RoundStep(plan.operator, tuple(at if at >= 0 else behind - at for at in inputs), plan.columns)
            for plan, inputs in self._steps
        )

    def _reads_so_far(self, plan: RelationalPlan) -> bool:
        return any(part.operator == self._leaf for part in parts(plan))

    def _check(self, plan: RelationalPlan) -> None:
        traits = traits_of(plan.operator)
        if traits.own_state:
            raise Unsupported(
                f'GROUP BY, DISTINCT, LIMIT or a window over the recursion "{self._name}" within it',
                hint="do it where the recursion is read",
            )
        if traits.matching is not None and traits.matching.outer and self._reads_so_far(plan.parents[RIGHT]):
            raise SqlError(f'the recursion "{self._name}" is the optional side of a join, or in a subquery of it')


def _fixed_point(
    seed: RelationalPlan, plan: RelationalPlan, leaf: Ingress, name: str, *, is_distinct: bool
) -> RelationalPlan:
    taken = _Round(seed, leaf, name)
    if plan.operator == leaf:  # It derives what it has.
        plan = RelationalPlan(Project(plan.fields()), (plan,), plan.columns)
    taken.read(plan)
    steps, widths = taken.steps(), [parent.width for parent in taken.parents]
    operator = FixedPoint(name, steps, is_distinct, carried_by(steps, widths), len(taken.parents) - 1)
    return RelationalPlan(operator, tuple(taken.parents), seed.columns)


def carried_by(steps: Sequence[RoundStep], widths: Sequence[int]) -> Columns:
    """The columns of a recursion that a round leaves as they are; ``widths`` are those of its parents.

    Of a join of the recursion with itself those in which both rows are alike: else what has the same values in them
    would be no recursion of its own."""
    known: list[list[int] | None] = [[*range(widths[0])], *(None for _ in widths[1:])]
    wide = [*widths]
    for step in steps:
        traits, sources = traits_of(step.operator), [known[at] for at in step.inputs]
        ways = traits.origins(tuple(range(len(step.columns))), [wide[at] for at in step.inputs])
        if traits.matching is not None and traits.matching.outer:  # The right columns may be NULL, whatever they equal.
            ways = (
                tuple(range(wide[step.inputs[LEFT]])) + (COMPUTED,) * (len(step.columns) - len(sources[LEFT] or ())),
            )
        found = [
            [COMPUTED if at == COMPUTED else source[at] for at in way]
            for way, source in zip(ways, sources, strict=False)
            if source is not None
        ]
        known.append([some[0] if len(set(some)) == 1 else COMPUTED for some in zip(*found, strict=True)])
        wide.append(len(step.columns))
    return tuple(at for at, own in enumerate(known[-1] or ()) if own == at)
