"""The plan of a query, or of one source of a FROM clause: its operators, its outputs and the parameters it carries.

Outputs are expressions over the plan's row and not yet a projection, so that a derived table or a view that only picks
columns costs no node where another query reads it. A parameter is *carried*: the column that it is compared with
travels up, visible or not, until the view's reader makes a key of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.rewriting import FoldBudget
from domains.language.types import BIGINT, Column, Row, SqlType, TableSchema
from domains.plan.estimates import Statistics
from domains.plan.graph import AggregateCall, AggregateFunction, OrderTerm, ParameterKind, TopK
from migrations.catalog import Catalog
from migrations.parse.reading import exp, nodes, position, text_of
from migrations.query.expressions.late import has_parameter, marked_late
from migrations.query.expressions.scope import Scope
from migrations.query.expressions.terms import substituted
from migrations.query.plan import NEVER, RelationalPlan, aggregated, base, distinct, filtered, projected, top
from migrations.query.plans.late_queries import LateGroups, LateMatch, LateQuery, LateWindows, Sorting

Mark = tuple[int, ...]
"""The place of a ``?``: its place in the text, behind the places of the views that it was inlined through."""

EQUALITIES = (ParameterKind.EQUAL, ParameterKind.IN)
LOWER = (ParameterKind.GREATER, ParameterKind.GREATER_EQUAL)
UPPER = (ParameterKind.LESS, ParameterKind.LESS_EQUAL)
ORDERS = (*LOWER, *UPPER)
SEVERAL = frozenset(ParameterKind) - {ParameterKind.EQUAL, ParameterKind.LIMIT, ParameterKind.OFFSET}
"""Kinds of parameters that ask for several values of their column at once."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter on its way up."""

    name: str
    kind: ParameterKind
    type: SqlType
    marks: tuple[Mark, ...]
    """All the placeholders that feed it, in the order of the text: a ``:name`` may stand several times."""
    named: bool = False
    """Written ``:name``."""
    outer: Expression | None = None
    """What feeds it is no request but the row of a query around: see ``correlation.py``."""
    moment: Expression | None = None
    """What feeds it is the time of the request, in this expression of it: see ``expressions/moments.py``."""
    answer: Relation | None = None
    """What feeds it is the answer to a query below: see ``plans/parts.py``."""
    each: tuple[LateQuery, ...] | None = None
    """That answer has a row for each row around, or what these answer of no row: see ``plans/each_row.py``."""
    width: int = 1
    """The columns of that row; behind them are those by which it is found."""

    @property
    def key(self) -> str:
        """What names it in expressions: see ``expressions/late.py``."""
        if self.moment is not None:
            return f"@{self.name}"
        return f":{self.name}" if self.named else ".".join(map(str, self.marks[0]))

    @property
    def rank(self) -> tuple[bool, tuple[Mark, ...], str, str]:
        """Its place among the parameters of a view: in the order of the text, those that nobody gives behind."""
        return self.moment is not None, self.marks[:1], self.name, self.kind.value


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
class LateParts:
    """The part of a query that no key stands for: it is done to the reader's rows at each look-up.

    ::

        plan's rows ─► ⟕ matches ─► σ conditions ─► γ groups, σ having ─► ω ─► π outputs ─► δ ─► order, LIMIT

    A query around one that has such parts, and that reads nothing else, goes on with its answer. So ``below`` are the
    queries inside, the innermost first, and groups, outputs and all that follows are those of the outermost one::

        plan's rows ─► ⟕ matches ─► σ conditions ─► [below: σ, γ, π, δ, LIMIT] … ─► σ filters ─► γ … LIMIT
    """

    conditions: tuple[Expression, ...] = ()
    matches: tuple[LateMatch, ...] = ()
    groups: LateGroups | None = None
    windows: LateWindows | None = None
    distinct: bool = False
    slots: tuple[Slot, ...] = ()
    """The parameters that are in expressions."""
    single: tuple[Expression, ...] = ()
    """Over the plan's rows that meet the conditions: more than one is an error."""
    below: tuple[LateQuery, ...] = ()
    filters: tuple[Expression, ...] = ()
    """Over the rows of the last query below."""


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
    linked: tuple[Expression, ...] = ()
    """Conditions that read the row of the query around too, which takes them into its mark join."""
    uniques: tuple[frozenset[int], ...] = ()
    """Sets of the plan's columns, with the values of which there is one row at most."""

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(output.name, output.expression.type) for output in self.outputs)

    @property
    def outermost(self) -> LateQuery:
        """What its own SELECT does when it is read; a LIMIT that is a parameter is left to the look-up."""
        late, outputs = self.late, tuple(output.expression for output in self.outputs)
        limit = self.limit if isinstance(self.limit, int) else None
        offset = self.offset if isinstance(self.offset, int) else 0
        return LateQuery(outputs, late.filters, late.groups, late.windows, late.distinct, self.order, limit, offset)

    @property
    def is_plain(self) -> bool:
        """Whether every output is a column of the plan."""
        return all(isinstance(output.expression, Field) for output in self.outputs)


OUTER = "outer"
"""The call that is a column of a query around."""


@dataclass(frozen=True, slots=True)
class Around:
    """The query around a subquery, as far as it has come."""

    level: int
    scope: Scope
    column: Callable[[Field, str], Expression]
    """A column of its FROM, over its row of now: that of a group, once there are groups."""
    rows: Callable[[Sequence[int]], RelationalPlan]
    """Some columns of its row, of all rows that it has by now."""
    further: Around | None

    def resolve(self, column: exp.Column) -> Expression | None:
        """What a subquery's column is here or further out; None where it is no column there."""
        field = self.scope.find(column.name, column.table)
        if field is not None:
            own = self.column(field, column.name)
            level = Constant(self.level, BIGINT)
            return substituted(own, lambda f: Call(OUTER, (level, Constant(f.position, BIGINT)), f.type))
        return None if self.further is None else self.further.resolve(column)

    def at(self, level: int) -> Around:
        """Itself, or a query further out."""
        if level == self.level:
            return self
        assert self.further is not None, "a subquery reads queries around it"
        return self.further.at(level)


class Asked(Enum):
    """What a query is asked for by the one around it."""

    ROWS = auto()
    MEMBERS = auto()
    """Whether a row is among its rows: a mark join may decide it."""
    EXISTENCE = auto()
    """Whether there are any, likewise; what its columns are does not matter."""


@dataclass(slots=True)
class QueryContext:
    """The tables and views that a query may read, and the plans so far."""

    catalog: Catalog
    ctes: Mapping[str, Relation] = field(default_factory=dict)
    text: exp.Expr | None = None
    """All of the query."""
    outer: Around | None = None
    asked: Asked = Asked.ROWS
    views: dict[str, Relation] = field(default_factory=dict)
    edits: list[Callable[[], object]] = field(default_factory=list)
    """What would write ``*`` and NATURAL out in the text: see :func:`~migrations.query.view.frozen`."""

    constants: FoldBudget = field(default_factory=FoldBudget)
    statistics: Statistics | None = None
    """Statistics of the tables, for the order of joins. None in a view: see ``joins.py``."""
    drawn: bool = False
    """Whether it is the outermost SELECT of one without a view, which may have RAND() and UUID()."""
    declared: bool = False
    """Whether it is a view: what may not be read by another query before the answer is read is put off till then."""
    puts_off: bool = False
    """Whether that is done: see ``view.plan_query``."""
    asks_each: bool = False
    """Whether that is done also of what reads the row around: see ``plans/each_row.py``."""
    answers: list[Slot] = field(default_factory=list)
    """The parameters that queries below answer."""

    def inside(self, outer: Around | None, asked: Asked = Asked.ROWS) -> QueryContext:
        """The context of a subquery."""
        return replace(self, outer=outer, asked=asked, drawn=False)

    def with_cte(self, name: str, relation: Relation) -> QueryContext:
        return replace(self, ctes={**self.ctes, name.lower(): relation})


def of_table(schema: TableSchema) -> Relation:
    plan = base(schema)
    outputs = tuple(Output(column.name, plan.field(i)) for i, column in enumerate(plan.columns))
    live = schema.live()
    keys = [key for key in (schema.primary_key, *schema.unique) if key and set(key) <= set(live)]
    uniques = tuple(frozenset(live.index(i) for i in key) for key in keys)
    return Relation(plan, outputs, key=tuple(live.index(i) for i in schema.primary_key), uniques=uniques)


def row_of_nothing(context: QueryContext) -> Relation:
    """The one row of a SELECT without FROM: ``γ_{(); COUNT(*)} σ_FALSE(t)``, which is there whatever t has.

    So constants need no source of their own, and stand in one shard as any aggregate without GROUP BY does. Nothing is
    ever read of t, which is the first base table that the text names; of what is evaluated once, any.
    """
    schema = None if context.text is None else _first_table(context.text, context.catalog)
    if schema is None and (context.drawn or context.statistics is not None):
        schema = next(iter(context.catalog.tables.values()), None)
    if schema is None:
        raise Unsupported("SELECT without FROM in a query that names no table", hint="write its constants into it")
    count = AggregateCall(AggregateFunction.COUNT_ROWS, None, BIGINT)
    plan = aggregated(filtered(base(schema), [NEVER]), (), [(count, "rows")], scalar=True)
    return Relation(plan, (), uniques=(frozenset(),))


def _first_table(query: exp.Expr, catalog: Catalog) -> TableSchema | None:
    ctes = {node.alias.lower() for node in nodes(query) if isinstance(node, exp.CTE)}
    names = [node.name.lower() for node in nodes(query) if isinstance(node, exp.Table)]
    for name in sorted(names, key=lambda each: each in ctes):  # A CTE may have a table's name, and read it.
        found = catalog.named(name)
        if found is None and name in catalog.views:
            found = _first_table(catalog.views[name].relation, catalog)
        if found is not None:
            return found
    return None


def renamed(relation: Relation, names: Sequence[str]) -> Relation:
    outputs = tuple(Output(name, o.expression) for name, o in zip(names, relation.outputs, strict=True))
    return replace(relation, outputs=outputs)


def marked(relation: Relation, prefix: Mark) -> Relation:
    """The relation as read at a place of another text: its placeholders come where its name stands."""

    def moved(slot: Slot) -> Slot:
        answer = None if slot.answer is None else marked(slot.answer, prefix)
        each = slot.each and tuple(query.changed(late) for query in slot.each)
        return replace(slot, marks=tuple(prefix + mark for mark in slot.marks), answer=answer, each=each)

    def late(expression: Expression) -> Expression:
        return marked_late(expression, prefix)

    parts, own = relation.late, relation.outermost.changed(late)
    return replace(
        relation,
        outputs=tuple(replace(o, expression=e) for o, e in zip(relation.outputs, own.outputs, strict=True)),
        carried=tuple(Carried(c.column, moved(c.slot)) for c in relation.carried),
        order=own.order,
        late=LateParts(
            tuple(map(late, parts.conditions)),
            tuple(each.over(late) for each in parts.matches),
            own.groups,
            own.windows,
            parts.distinct,
            tuple(map(moved, parts.slots)),
            tuple(map(late, parts.single)),
            tuple(each.changed(late) for each in parts.below),
            own.conditions,
        ),
        limit=moved(relation.limit) if isinstance(relation.limit, Slot) else relation.limit,
        offset=moved(relation.offset) if isinstance(relation.offset, Slot) else relation.offset,
    )


def settled(relation: Relation, *, extra: Iterable[Expression] = ()) -> tuple[Relation, list[int]]:
    """The relation projected: its outputs come first, then what it carries and ``extra`` where those are hidden.

    Also says where each of ``extra`` stands.
    """
    uniques, row = relation.uniques, [output.expression for output in relation.outputs]
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
    linked = tuple(
        substituted(e, lambda f: Field(place(f, plan.columns[f.position].name), f.type)) for e in relation.linked
    )
    places = [place(e, plan.columns[e.position].name if isinstance(e, Field) else "sort_key") for e in extra]
    result = projected(plan, row, names)
    outputs = tuple(Output(o.name, Field(i, o.expression.type)) for i, o in enumerate(relation.outputs))
    late = replace(relation.late, conditions=conditions)
    relation = replace(relation, plan=result, outputs=outputs, carried=carried, key=(), late=late)
    fields = [{plan.field(column) for column in unique} for unique in uniques]
    kept = tuple(frozenset(map(row.index, unique)) for unique in fields if unique.issubset(row))
    return replace(relation, linked=linked, uniques=kept), places


def plain(relation: Relation) -> Relation:
    """The relation with every output a column of its plan; a projection only where one is computed."""
    return relation if relation.is_plain else settled(relation)[0]


def bounded(relation: Relation) -> Relation:
    """The relation as others read it: ORDER BY with LIMIT is carried out, ORDER BY alone means nothing.

    :raises Unsupported: the limit is a parameter, or applies across the values of one.
    """
    refuse_late_limit(relation)
    refuse_late(relation)
    if relation.limit is None:
        if relation.offset:
            raise Unsupported("OFFSET without LIMIT")
        return replace(relation, order=())
    assert isinstance(relation.limit, int), "a parameter is refused"
    assert isinstance(relation.offset, int), "a parameter is refused"
    refuse_late_conditions(relation, "LIMIT")
    require_single(relation.carried, "LIMIT", ())
    return replace(limited(relation, relation.limit, relation.offset), order=())


def refuse_late_limit(relation: Relation) -> None:
    if isinstance(relation.limit, Slot) or isinstance(relation.offset, Slot):
        raise Unsupported(
            "LIMIT ? or OFFSET ? in a subquery, a UNION's branch or a view that another query reads",
            hint="only the outermost LIMIT can be a parameter",
        )


def is_made_late(relation: Relation) -> bool:
    """Whether rows of the answer come to be only when it is read: all but a query that reads nothing else has to
    refuse it (:func:`refuse_late`)."""
    parts = relation.late
    shown = [*(o.expression for o in relation.outputs), *(t.expression for t in relation.order if relation.limit)]
    several = any(c.slot.kind in SEVERAL for c in relation.carried)
    cut = relation.limit is not None and (bool(parts.conditions) or several)
    made = bool(parts.groups or parts.windows or parts.distinct or parts.single or parts.matches or parts.below)
    return made or cut or any(map(has_parameter, shown))


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
    uniques = (frozenset(group),) if limit == 1 else ()
    return replace(closed, plan=plan, order=sorting, limit=None, offset=0, uniques=uniques)


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
    uniques = (frozenset(range(len(group))),)
    return replace(relation, plan=plan, outputs=outputs, carried=carried, key=(), uniques=uniques)


def refuse_late(relation: Relation) -> None:
    """:raises Unsupported: rows of this query come to be only when it is read, so that no other query can read them."""
    parts = relation.late
    if parts.single:
        raise several_rows("a subquery, a UNION's branch or a view that another query reads")
    if parts.matches:
        raise Unsupported(
            "a parameter that an outer join or NOT EXISTS asks for, in a subquery, a UNION's branch or a view that "
            "another query reads",
            hint="it is applied when the answer is read: only the outermost query can have it",
        )
    computed = [output.name for output in relation.outputs if has_parameter(output.expression)]
    if not (parts.groups or parts.windows or parts.distinct or parts.below or computed):
        return
    if computed:
        what = f'the parameter in the column "{computed[0]}"'
    else:
        what = "aggregates, DISTINCT or windows over a condition with a parameter that is no column = ?"
    raise Unsupported(
        f"{what}, in a subquery, a UNION's branch or a view that another query reads",
        hint="they are worked out when the answer is read: only the outermost query can have them",
    )


def several_rows(construct: str) -> Unsupported:
    return Unsupported(
        f"a subquery as a value that may have several rows, in {construct}",
        hint="that is an error of the answer, which only the outermost query has: make it an aggregate without GROUP "
        "BY, have it compare a unique key, or end it with LIMIT 1",
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
