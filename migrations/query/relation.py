"""The plan of a query, or of one source of a FROM clause: its operators, its outputs and the parameters it carries.

Outputs are expressions over the plan's row and not yet a projection, so that a derived table or a view that only picks
columns costs no node where another query reads it. A parameter is *carried*: the column that it is compared with
travels up, visible or not, until the view's reader makes a key of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Expression, Field
from domains.language.rewriting import FoldBudget
from domains.language.types import BIGINT, BOOL, Column, Row, SqlType, TableSchema, Value
from domains.plan.estimates import Statistics
from domains.plan.graph import AggregateCall, OrderTerm, ParameterKind, TopK
from migrations.catalog import Catalog
from migrations.parse.reading import exp, position, text_of
from migrations.query.expressions.late import has_parameter, marked_late
from migrations.query.expressions.scope import Scope
from migrations.query.expressions.terms import substituted
from migrations.query.plan import RelationalPlan, base, distinct, filtered, projected, top

Mark = tuple[int, ...]
"""Where a ``?`` stands: its place in the text, behind the places of the views that it was inlined through."""

SEVERAL = frozenset(ParameterKind) - {ParameterKind.EQUAL, ParameterKind.LIMIT, ParameterKind.OFFSET}
"""Kinds of parameters that ask for several values of their column at once."""


NEVER = Constant(0, BOOL)


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter on its way up."""

    name: str
    kind: ParameterKind
    type: SqlType
    marks: tuple[Mark, ...]
    """All the placeholders that feed it: a ``:name`` may stand several times."""
    named: bool = False
    """Written ``:name``."""

    @property
    def key(self) -> str:
        """What names it in expressions: see ``expressions/late.py``."""
        return f":{self.name}" if self.named else ".".join(map(str, self.marks[0]))


@dataclass(frozen=True, slots=True)
class Carried:
    """A slot and the column of the plan that it is compared with."""

    column: int
    slot: Slot


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    expression: Expression


@dataclass(frozen=True, slots=True)
class Sorting:
    """One term of ORDER BY, over the plan's row."""

    expression: Expression
    descending: bool = False


@dataclass(frozen=True, slots=True)
class LateCall:
    """An aggregate that is worked out when rows are read. Expressions are over the plan's row."""

    call: AggregateCall
    """Its column and order are not those of a row: ``argument`` and ``order`` are instead."""
    argument: Expression | None
    order: tuple[Expression, ...]
    weight: Expression | None
    """How many rows a row of the plan stands for; None: ``argument`` is an aggregate of them already."""
    of_nothing: Value


@dataclass(frozen=True, slots=True)
class LateGroups:
    """Groups that are made when rows are read: the group's values, then the calls'."""

    group: tuple[Expression, ...]
    calls: tuple[LateCall, ...]
    scalar: bool
    having: tuple[Expression, ...] = ()
    """Over the groups' rows, as the relation's outputs and order are."""


@dataclass(frozen=True, slots=True)
class LateParts:
    """The part of a query that no key stands for: it is done to the reader's rows at each look-up.

    ::

        plan's rows ─► σ conditions ─► γ groups, σ having ─► π outputs ─► δ ─► order, LIMIT
    """

    conditions: tuple[Expression, ...] = ()
    groups: LateGroups | None = None
    distinct: bool = False
    slots: tuple[Slot, ...] = ()
    """The parameters that are in expressions."""


@dataclass(frozen=True, slots=True)
class Relation:
    plan: RelationalPlan
    outputs: tuple[Output, ...]
    carried: tuple[Carried, ...] = ()
    empty: Row | None = None
    """The outputs where no row is: what COUNT(*) of a group that its parameters do not find answers."""
    order: tuple[Sorting, ...] = ()
    limit: int | Slot | None = None
    offset: int | Slot = 0
    key: tuple[int, ...] = ()
    """A base table's primary key, among the plan's columns."""
    late: LateParts = LateParts()
    """What is applied to the plan's rows when they are read."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(output.name, output.expression.type) for output in self.outputs)

    @property
    def is_plain(self) -> bool:
        """Whether every output is a column of the plan."""
        return all(isinstance(output.expression, Field) for output in self.outputs)


@dataclass(slots=True)
class QueryContext:
    """The tables and views that a query may read, and the plans so far."""

    catalog: Catalog
    ctes: Mapping[str, Relation] = field(default_factory=dict)
    outer: Scope | None = None
    views: dict[str, Relation] = field(default_factory=dict)
    edits: list[Callable[[], object]] = field(default_factory=list)
    """What would write ``*`` and NATURAL out in the text: see :func:`~migrations.query.view.frozen`."""

    constants: FoldBudget = field(default_factory=FoldBudget)
    statistics: Statistics | None = None
    """Of the tables, for the order of joins. None in a view: see ``joins.py``."""

    def inside(self, outer: Scope | None) -> QueryContext:
        """The context of a subquery."""
        return replace(self, outer=outer)

    def with_cte(self, name: str, relation: Relation) -> QueryContext:
        return replace(self, ctes={**self.ctes, name.lower(): relation})


def of_table(schema: TableSchema) -> Relation:
    plan = base(schema)
    outputs = tuple(Output(column.name, plan.field(i)) for i, column in enumerate(plan.columns))
    live = schema.live()
    return Relation(plan, outputs, key=tuple(live.index(i) for i in schema.primary_key))


def renamed(relation: Relation, names: Sequence[str]) -> Relation:
    outputs = tuple(Output(name, o.expression) for name, o in zip(names, relation.outputs, strict=True))
    return replace(relation, outputs=outputs)


def marked(relation: Relation, prefix: Mark) -> Relation:
    """The relation as read at a place of another text: its placeholders come where its name stands."""

    def moved(slot: Slot) -> Slot:
        return replace(slot, marks=tuple(prefix + mark for mark in slot.marks))

    def late(expressions: Sequence[Expression]) -> tuple[Expression, ...]:
        return tuple(marked_late(each, prefix) for each in expressions)

    parts = relation.late
    return replace(
        relation,
        carried=tuple(Carried(c.column, moved(c.slot)) for c in relation.carried),
        late=replace(parts, conditions=late(parts.conditions), slots=tuple(map(moved, parts.slots))),
        limit=moved(relation.limit) if isinstance(relation.limit, Slot) else relation.limit,
        offset=moved(relation.offset) if isinstance(relation.offset, Slot) else relation.offset,
    )


def settled(relation: Relation, *, extra: Iterable[Expression] = ()) -> tuple[Relation, list[int]]:
    """The relation projected: its outputs come first, then what it carries and ``extra`` where those are hidden.

    Also says where each of ``extra`` stands.
    """
    row: list[Expression] = [output.expression for output in relation.outputs]
    names = [output.name for output in relation.outputs]

    def place(expression: Expression, name: str) -> int:
        if expression not in row:
            row.append(expression)
            names.append(name)
        return row.index(expression)

    plan = relation.plan
    carried = tuple(Carried(place(plan.field(c.column), plan.columns[c.column].name), c.slot) for c in relation.carried)
    conditions = tuple(
        substituted(e, lambda f: Field(place(f, plan.columns[f.position].name), f.type))
        for e in relation.late.conditions
    )
    places = [place(e, plan.columns[e.position].name if isinstance(e, Field) else "sort_key") for e in extra]
    result = projected(plan, row, names)
    outputs = tuple(Output(o.name, Field(i, o.expression.type)) for i, o in enumerate(relation.outputs))
    late = replace(relation.late, conditions=conditions)
    return replace(relation, plan=result, outputs=outputs, carried=carried, key=(), late=late), places


def plain(relation: Relation) -> Relation:
    """The relation with every output a column of its plan; a projection only where one is computed."""
    return relation if relation.is_plain else settled(relation)[0]


def bounded(relation: Relation) -> Relation:
    """The relation as others read it: ORDER BY with LIMIT is carried out, ORDER BY alone means nothing.

    :raises Unsupported: the limit is a parameter, or applies across the values of one.
    """
    if isinstance(relation.limit, Slot) or isinstance(relation.offset, Slot):
        raise Unsupported(
            "LIMIT ? or OFFSET ? in a subquery, a UNION's branch or a view that another query reads",
            hint="only the outermost LIMIT can be a parameter",
        )
    refuse_late(relation)
    if relation.limit is None:
        if relation.offset:
            raise Unsupported("OFFSET without LIMIT")
        return replace(relation, order=())
    refuse_late_conditions(relation, "LIMIT")
    require_single(relation.carried, "LIMIT", ())
    return replace(limited(relation, relation.limit, relation.offset), order=())


def limited(relation: Relation, limit: int, offset: int) -> Relation:
    """τ: the limit for each combination of the parameters' values. The order stays noted."""
    if relation.empty is not None:
        if limit > 0 and offset == 0:
            return replace(relation, limit=None, offset=0)
        nothing = filtered(relation.plan, [NEVER])
        return replace(relation, plan=nothing, empty=None, limit=None, offset=0)
    closed, places = settled(relation, extra=[term.expression for term in relation.order])
    order = tuple(OrderTerm(place, t.descending) for place, t in zip(places, relation.order, strict=True))
    group = tuple(dict.fromkeys(c.column for c in closed.carried))
    plan = top(closed.plan, TopK(group, order, limit, offset))
    sorting = tuple(Sorting(plan.field(term.column), term.descending) for term in order)
    return replace(closed, plan=plan, order=sorting, limit=None, offset=0)


def deduplicated(relation: Relation) -> Relation:
    """δ of the outputs; an equality parameter's column becomes a part of what is distinct."""
    refuse_late_conditions(relation, "DISTINCT or UNION")
    relation = plain(relation)
    places = [o.expression.position for o in relation.outputs if isinstance(o.expression, Field)]
    require_single(relation.carried, "DISTINCT or UNION", places)
    group = tuple(dict.fromkeys([*places, *(c.column for c in relation.carried)]))
    plan = distinct(relation.plan, group)
    outputs = tuple(
        Output(o.name, plan.field(group.index(place))) for o, place in zip(relation.outputs, places, strict=True)
    )
    carried = tuple(Carried(group.index(c.column), c.slot) for c in relation.carried)
    return replace(relation, plan=plan, outputs=outputs, carried=carried, key=())


def refuse_late(relation: Relation) -> None:
    """:raises Unsupported: rows of this query come to be only when it is read, so that no other query can read them."""
    parts = relation.late
    computed = [output.name for output in relation.outputs if has_parameter(output.expression)]
    if not (parts.groups or parts.distinct or computed):
        return
    if computed:
        what = f'the parameter in the column "{computed[0]}"'
    else:
        what = "aggregates or DISTINCT over a condition with a parameter that is no column = ?"
    raise Unsupported(
        f"{what}, in a subquery, a UNION's branch or a view that another query reads",
        hint="they are worked out when the answer is read: only the outermost query can have them",
    )


def refuse_late_conditions(relation: Relation, construct: str, instead: str = "") -> None:
    if relation.late.conditions:
        raise Unsupported(
            f"a condition with a parameter below {construct}: it is applied when the answer is read, and {construct} "
            "comes before",
            hint="compare a column with the parameter by =, or "
            + (instead or f"leave {construct} to the outermost query"),
        )


def require_single(carried: Iterable[Carried], construct: str, group: Iterable[int]) -> None:
    """:raises Unsupported: a parameter asks for several values below ``construct``, whose rows mix those values."""
    inside = set(group)
    for c in carried:
        if c.slot.kind in SEVERAL and c.column not in inside:
            shape = "IN (?)" if c.slot.kind is ParameterKind.IN else f"{c.slot.kind.value} ?"
            raise Unsupported(
                f'the parameter "{c.slot.name} {shape}" below {construct}: the answer is not made of the answers for '
                "each value",
                hint=f'use "{c.slot.name} = ?", or make the column one of those that {construct} keeps',
            )


# ORDER BY and LIMIT as they are written: directions, counts, and the two parameters that are no columns.


def sorting_direction(term: exp.Expr) -> bool:
    """Whether an ORDER BY term descends."""
    return bool(term.args.get("desc"))


def read_limit(node: exp.Expr) -> tuple[int | Slot | None, int | Slot]:
    """LIMIT and OFFSET; None and 0 where they are absent. OFFSET alone is not MySQL's."""
    limit, offset = node.args.get("limit"), node.args.get("offset")
    if offset is not None and limit is None:
        raise SqlError("OFFSET without LIMIT", hint="write LIMIT n OFFSET m")
    count = None if limit is None else _count(limit.expression, ParameterKind.LIMIT)
    start = offset.expression if offset is not None else None
    return count, 0 if start is None else _count(start, ParameterKind.OFFSET)


def _count(node: exp.Expr, kind: ParameterKind) -> int | Slot:
    if isinstance(node, exp.Placeholder):
        name = str(node.this) if node.this else kind.value
        return Slot(name, kind, BIGINT, ((position(node),),), bool(node.this))
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return int(node.this)
    raise SqlError(f"{kind.value.upper()} wants a number or ?, not {text_of(node)}")
