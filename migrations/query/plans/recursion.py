"""WITH RECURSIVE: what a query begins with, and what it does again and again with what it has so far.

::

    WITH RECURSIVE r AS (SELECT … FROM a UNION SELECT … FROM r JOIN b …)

    r   ─►   fix ─┬─ the first part, X₁        γ, ⟕, anything
                  ├─ b                         what the other parts read and r is no part of: anything, too
                  └─ π ⋈ (r, b)                the rest, a round: σ, π, ∪, and joins of which r is not the optional side

The columns have the types of the first part, as in MySQL. A parameter in the first part is a column more, which each
round hands on as it is: so the recursion is partial by it, and by each column that a round leaves alone.

Queries that read each other are one recursion, whose rows say which of them they are of (``_Shape``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from domains.errors import SqlError, Unsupported
from domains.language.collating.collation import BINARY
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.types import BIGINT, Column, Kind, SqlType
from domains.plan.graph import (
    Columns,
    FixedPoint,
    Ingress,
    NodeIndex,
    OrderTerm,
    ParameterKind,
    Project,
    RoundStep,
)
from domains.plan.sides import COMPUTED, LEFT, RIGHT
from domains.plan.traits import is_ingress, traits_of
from migrations.parse.namespaces import reads_any
from migrations.parse.reading import exp
from migrations.query.block import Plan
from migrations.query.plan import RelationalPlan, filtered, parts, projected, united
from migrations.query.plans.monotone import candidates, ends_with_best, measured_in
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


@dataclass(slots=True)
class RecursiveMember:
    """One of the queries that are a recursion together."""

    name: str
    number: int
    first: exp.Expr | None
    rounds: list[exp.Expr]
    named: list[str]
    columns: tuple[Column, ...] = ()
    places: tuple[int, ...] = ()
    """Of its columns, among those of the recursion."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The columns of a recursion: of several members a number that tells them apart, those of all of them, which share
    what has the same type and, if it can be, name, and the parameters of the first parts."""

    title: str
    columns: tuple[Column, ...]
    slots: tuple[Slot, ...]
    is_told_apart: bool

    def row(
        self, member: RecursiveMember, outputs: Sequence[Expression], parameters: Sequence[Expression]
    ) -> list[Expression]:
        own = dict(zip(member.places, outputs, strict=True))
        width = len(self.columns) - len(self.slots)
        row = [own.get(at, Constant(None, self.columns[at].type)) for at in range(width)]
        if self.is_told_apart:
            row[0] = Constant(member.number, BIGINT)
        return [*row, *parameters]

    def read(self, whole: RelationalPlan, member: RecursiveMember) -> Relation:
        """A member, out of what there is of all."""
        if self.is_told_apart:
            whole = filtered(whole, [call("eq", whole.field(0), Constant(member.number, BIGINT))])
        outputs = zip(member.columns, member.places, strict=True)
        first = len(self.columns) - len(self.slots)
        return Relation(
            whole,
            tuple(Output(column.name, Field(at, column.type)) for column, at in outputs),
            tuple(Carried(first + at, slot) for at, slot in enumerate(self.slots)),
        )


def plan_recursion(ctes: Sequence[exp.CTE], context: QueryContext, plan: Plan) -> dict[str, Relation]:
    """Each of the queries, which are a recursion together, by its name.

    :raises SqlError: what MySQL refuses of recursion. :raises Unsupported: what is not done here."""
    title = ", ".join(cte.alias for cte in ctes)
    members, is_distinct = members_of(ctes)
    inside = context.inside(context.outer)
    is_within = any(is_ingress(relation.plan.operator) for relation in context.ctes.values())
    # Of what is evaluated once any table will do for constants; of a recursion around nothing is known.
    known = inside.statistics or (None if context.declared or is_within else {})
    begun: dict[str, Relation] = {}
    for member in members:
        if member.first is not None:
            first = _plain(plan(member.first, replace(inside, statistics=known)), member.name)
            begun[member.name] = first = named_columns(first, member.named, member.name)
            member.columns = first.columns
            if any(carried.slot.outer is not None for carried in first.carried):
                raise Unsupported(f'a recursion "{member.name}" that reads a query around it')
    lays = partial(_shape, title, members, next(iter(begun.values())))
    # Stands for what there is of it, where a round is planned; another one for each that is planned within.
    leaf = Ingress(NodeIndex(-1 - len(context.ctes)))
    while unknown := [member for member in members if not member.columns]:
        _find_columns(unknown, members, lays(), leaf, inside, plan)
    shape = lays()
    _refuse_collated(shape.columns, title, is_distinct)
    seeds = [_seed(begun[member.name], member, shape) for member in members if member.name in begun]
    seed = seeds[0] if len(seeds) == 1 else replace(united(seeds), columns=shape.columns)
    read = _reading(members, shape, leaf)
    inner = replace(inside, ctes={**inside.ctes, **read}, statistics=None)
    best = _best(members, shape, is_distinct=is_distinct)
    branches: list[RelationalPlan] = []
    for member in members:
        for each in member.rounds:
            with candidates(each):
                branches.append(_branch(_plain(plan(each, inner), member.name), member, shape))
    round_ = branches[0] if len(branches) == 1 else replace(united(branches), columns=shape.columns)
    whole = _fixed_point(seed, round_, leaf, FixedPoint(title, (), is_distinct, (), best=best))
    uniques = (frozenset(range(whole.width)),) if is_distinct else ()
    return {member.name: replace(shape.read(whole, member), uniques=uniques) for member in members}


def _reading(members: Sequence[RecursiveMember], shape: _Shape, leaf: Ingress) -> dict[str, Relation]:
    so_far = RelationalPlan(leaf, (), shape.columns)
    return {member.name.lower(): shape.read(so_far, member) for member in members if member.columns}


def _shape(title: str, members: Sequence[RecursiveMember], begun: Relation) -> _Shape:
    """Lays the columns of those members whose types are known so far."""
    is_told_apart = len(members) > 1
    columns = [Column("member", BIGINT)] if is_told_apart else []
    for member in members:
        places: list[int] = []
        for column in member.columns:
            alike = [at for at, own in enumerate(columns) if at and at not in places and _share(own.type, column.type)]
            alike.sort(key=lambda at: columns[at].name != column.name)
            places.append(alike[0] if alike and is_told_apart else len(columns))
            if places[-1] == len(columns):
                columns.append(column)
        member.places = tuple(places)
    asked = {
        carried.slot: Column(carried.slot.name, begun.plan.columns[carried.column].type) for carried in begun.carried
    }
    return _Shape(title, (*columns, *asked.values()), tuple(asked), is_told_apart)


def _share(one: SqlType, other: SqlType) -> bool:
    return one == other or one.kind is other.kind is Kind.INTEGER


def _find_columns(
    unknown: Sequence[RecursiveMember],
    members: Sequence[RecursiveMember],
    shape: _Shape,
    leaf: Ingress,
    context: QueryContext,
    plan: Plan,
) -> None:
    """The columns of a member that has no first part are those of its first query that reads only known ones."""
    inner = replace(context, ctes={**context.ctes, **_reading(members, shape, leaf)}, statistics=None)
    names = [member.name for member in unknown]
    for member in unknown:
        for each in member.rounds:
            if not reads_any(each, names):
                edits = len(context.edits)
                found = named_columns(plan(each, inner), member.named, member.name)
                del context.edits[edits:]  # It is planned once more.
                member.columns = found.columns
                return
    raise SqlError(f'no part of "{", ".join(names)}" begins it: each reads what is yet to come')


def members_of(ctes: Sequence[exp.CTE]) -> tuple[list[RecursiveMember], bool]:
    """Of each its parts, and whether what is there already is left out."""
    names = [cte.alias for cte in ctes]
    members: list[RecursiveMember] = []
    kinds: set[bool] = set()
    for number, cte in enumerate(ctes):
        first, rounds = _parts(cte.this, cte.alias, names, kinds)
        members.append(RecursiveMember(cte.alias, number, first, rounds, [c.name for c in cte.args["alias"].columns]))
    title = ", ".join(names)
    if all(member.first is None for member in members):
        raise SqlError(f'the first part of the recursion "{title}" reads it already')
    if len(kinds) > 1:
        raise Unsupported(f'UNION and UNION ALL in the recursion "{title}"', hint="write one of them throughout")
    return members, kinds.pop() if kinds else False


def _parts(query: exp.Expr, name: str, names: list[str], kinds: set[bool]) -> tuple[exp.Expr | None, list[exp.Expr]]:
    """The first part, which is None where each reads the recursion, and those that read it."""
    modified = [key for key in ("order", "limit", "offset", "with_") if query.args.get(key) is not None]
    if (len(names) == 1 and not isinstance(query, exp.Union)) or modified:
        raise Unsupported(
            f'a recursion "{name}" that is more than a UNION',
            hint="write SELECT … UNION SELECT … in it, and ORDER BY and LIMIT where it is read",
        )
    rounds: list[exp.Expr] = []
    first: exp.Expr = query
    while isinstance(first, exp.Union) and reads_any(first, names):
        kinds.add(bool(first.args.get("distinct")))
        if not reads_any(first.expression, names):
            raise SqlError(f'the parts of "{name}" that do not read it stand before those that do')
        rounds.insert(0, first.expression)
        first = first.this
    return (None, [first, *rounds]) if reads_any(first, names) else (first, rounds)


def _plain(relation: Relation, name: str) -> Relation:
    relation = bounded(relation)
    refuse_late_conditions(relation, f'the recursion "{name}"')
    if relation.empty is not None or relation.late.below or relation.late.groups is not None:
        raise Unsupported(f'an aggregate with a parameter in the recursion "{name}"', hint="compare it outside")
    return relation


def _best(members: Sequence[RecursiveMember], shape: _Shape, *, is_distinct: bool) -> OrderTerm | None:
    """What the parts that repeat take MIN or MAX of, which is the same in each."""
    found = {measured_in(each) for member in members for each in member.rounds}
    if found == {None}:
        return None
    if len(found) > 1 or len(members) > 1 or not is_distinct:
        raise Unsupported(
            f'MIN or MAX in the recursion "{shape.title}" that is of several queries, of UNION ALL, or has other parts',
            hint="take the same in each part that repeats, with UNION; or take it where the recursion is read",
        )
    (measured,) = found
    assert measured is not None
    at, function = measured
    return OrderTerm(members[0].places[at], function is exp.Max)


def _seed(begun: Relation, member: RecursiveMember, shape: _Shape) -> RelationalPlan:
    """The outputs, and a column for each parameter."""
    return _member_rows(
        begun,
        member,
        shape,
        f'a parameter in the first part of one of "{shape.title}"',
        "compare it where the recursion is read",
    )


def _branch(branch: Relation, member: RecursiveMember, shape: _Shape) -> RelationalPlan:
    """The rows of a round, as those of the first part."""
    if len(branch.outputs) != len(member.columns):
        given = f"{len(member.columns)} and {len(branch.outputs)}"
        raise SqlError(f'the parts of "{member.name}" have {given} columns')
    return _member_rows(
        branch,
        member,
        shape,
        f'a parameter in the part of "{member.name}" that repeats',
        "compare it in the first part, or where the recursion is read",
    )


def _member_rows(part: Relation, member: RecursiveMember, shape: _Shape, what: str, hint: str) -> RelationalPlan:
    """:raises Unsupported: it does not ask for the parameters of the recursion."""
    places: dict[Slot, int] = {}
    plan = part.plan
    for carried in part.carried:  # What a parameter is asked of twice, as by policies of two tables, is alike.
        first = plan.field(places.setdefault(carried.slot, carried.column))
        if carried.column != first.position:
            if carried.slot.kind is not ParameterKind.EQUAL:
                places.clear()
                break
            plan = filtered(plan, [call("eq", first, plan.field(carried.column))])
    if places.keys() != set(shape.slots):
        raise Unsupported(what, hint=hint)
    outputs = [as_type(o.expression, own.type) for o, own in zip(part.outputs, member.columns, strict=True)]
    row = shape.row(member, outputs, [plan.field(places[slot]) for slot in shape.slots])
    return projected(plan, row, [column.name for column in shape.columns])


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
            # Without names, which may change while the recursion stays what it is.
            RoundStep(
                plan.operator,
                tuple(at if at >= 0 else behind - at for at in inputs),
                tuple(Column("", column.type) for column in plan.columns),
            )
            for plan, inputs in self._steps
        )

    def _reads_so_far(self, plan: RelationalPlan) -> bool:
        return any(part.operator == self._leaf for part in parts(plan))

    def _check(self, plan: RelationalPlan) -> None:
        traits = traits_of(plan.operator)
        if traits.own_state:
            raise Unsupported(
                f'GROUP BY, DISTINCT, LIMIT or a window over the recursion "{self._name}" within it',
                hint="do it where the recursion is read; MIN or MAX may stand in it, grouped by all other columns",
            )
        if traits.matching is not None and traits.matching.outer and self._reads_so_far(plan.parents[RIGHT]):
            raise SqlError(f'the recursion "{self._name}" is the optional side of a join, or in a subquery of it')


def _fixed_point(seed: RelationalPlan, plan: RelationalPlan, leaf: Ingress, operator: FixedPoint) -> RelationalPlan:
    """The operator, complete with what a round does."""
    taken = _Round(seed, leaf, operator.title)
    if plan.operator == leaf:  # It derives what it has.
        plan = RelationalPlan(Project(plan.fields()), (plan,), plan.columns)
    taken.read(plan)
    steps, widths = taken.steps(), [parent.width for parent in taken.parents]
    carried, best = carried_by(steps, widths), operator.best
    if best is not None:
        carried = tuple(at for at in carried if at != best.column)
        operator = replace(operator, ends=ends_with_best(operator.title, steps, widths, best))
    operator = replace(operator, steps=steps, carried=carried, further=len(taken.parents) - 1)
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
