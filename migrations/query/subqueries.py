"""Subqueries in expressions become sources of the stage, joined with its rows.

S is the subquery's rows. What it reads of this query by ``own column = g(this row)`` it *carries* (``correlation.py``),
as columns k: they join its groups, and here it is joined by ``k = g``. Without correlation k is none, and the joins are
crosses with one row.

================================  ==========================================================================
``x IN (S)`` under AND            ⋈ δ_{k, y}(S) on x = y, k = g
``x IN (S)`` elsewhere            ⟕ δ_{k, y}(S) on x = y, k = g, ⟕ γ_{k; rows, values of y}(S) on k = g, and a CASE
                                  that knows all three answers from them
``EXISTS (S)`` under AND          ⋈ δ_k(S) on k = g; × one row if S has any
``EXISTS (S)`` elsewhere          ⟕ δ_k(S) on k = g: is there a match?; × (number of rows of S) > 0
… where S has other conditions    ⊳ S on k = g and those (and x = y): a mark join
rows ``(x, …) IN (S)`` elsewhere  ⊳ S on all equal, ⊳ S on none unequal
``x > ANY (S)`` and its like      ⟕ γ_{k; MIN y, MAX y, rows, values of y}(S) on k = g, and a CASE
``(SELECT aggregate …)``          ⟕ its row on k = g; where there is none, what the aggregates of nothing are
``(SELECT … of a unique key)``    ⟕ S on k = g
``(SELECT … LIMIT 1)``            ⟕ τ_k(S) on k = g; × MAX of it, which is it, or NULL where there is none
… with ``column = ?``             instead of ⟕, what is decided when the answer is read (``joins.LateLeft``)
any other ``(SELECT …)``          ⟕ γ_{k; MAX, rows}(S) on k = g; more than one row is an error when it is read
================================  ==========================================================================

δ_k and γ_k are partial by k: with ``WHERE s.id = ?`` around them they hold the keys of the stories that are asked for.
So a semi-join is a join with δ_k, and an anti-join ``σ k IS NULL`` above a left join with it: the count of rows that
δ_k keeps for a key answers both sides' changes without reading S, of which a join of its own would need the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import are_alike, keys
from domains.language.types import BIGINT, Kind, Value
from domains.plan.graph import AggregateCall, AggregateFunction
from domains.plan.traits import traits_of
from migrations.parse.reading import exp
from migrations.query.correlation import Correlations, inward, levels, outer_columns
from migrations.query.expressions.literals import NOTHING, truth
from migrations.query.expressions.terms import deciding, moved, not_unequal
from migrations.query.plan import aggregated, distinct, projected
from migrations.query.relation import (
    LOWER,
    ORDERS,
    SEVERAL,
    Around,
    Asked,
    Carried,
    Output,
    QueryContext,
    Relation,
    bounded,
    deduplicated,
    plain,
    refuse_late,
    refuse_late_conditions,
    require_single,
    settled,
)
from migrations.query.sources.tree import Leaf
from migrations.query.stage import SelectStage, Wide, late_condition, wide

Plan = Callable[[exp.Expr, QueryContext], Relation]
Translate = Callable[[exp.Expr], Expression]
Links = list[tuple[int, Expression]]
"""A subquery's columns, and what of the row around they are equal to."""


class Subqueries:
    """Joins the subqueries of one stage's expressions to it."""

    def __init__(
        self,
        stage: SelectStage,
        around: Around,
        context: QueryContext,
        plan: Plan,
        correlations: Correlations,
        doubts: list[Expression],
    ) -> None:
        self._stage = stage
        self._around = around
        self._context = context
        self._plan = plan
        self._correlations = correlations
        self._doubts = doubts

    def replace(self, node: exp.Expr, translate: Translate) -> Expression | None:
        """The value of a subquery's node over the stage's row; None where the node is none."""
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._membership(node.this, node.args["query"], translate)
        if isinstance(node, exp.Exists):
            return self._existence(node)
        if isinstance(node, (exp.Subquery, exp.Select, exp.SetOperation)):
            values = self._values(node)
            if len(values) != 1:
                raise SqlError(f"a subquery that is a value has {len(values)} columns instead of one")
            return values[0]
        if type(node) in _COMPARISONS:
            return self._comparison(node, translate)
        return None

    def restrict(self, node: exp.Expr, translate: Translate) -> bool:
        """Join a condition that keeps rows only if a subquery has something; False where it is no such condition."""
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            self._keep_members(node.this, node.args["query"], translate)
            return True
        if isinstance(node, exp.EQ) and isinstance(node.args["expression"], exp.Any):
            self._keep_members(node.this, node.args["expression"].this, translate)
            return True
        if isinstance(node, exp.Exists) and self._stage.source is not None:
            self._keep_if_any(node)
            return True
        return False

    # --- conditions under AND -----------------------------------------------------------------------------------

    def _keep_members(self, row: exp.Expr, query: exp.Expr, translate: Translate) -> None:
        relation = self._read(query, Asked.MEMBERS)
        left = self._left(row, relation, translate)
        if relation.linked:
            left = [self._correlations.put(x, self._stage) for x in left]
            self._stage.conditions.append(self._marked(relation, self._pairs("eq", left)))
            return
        relation = self._members(left, relation)
        relation, links = self.parted(relation, optional=False)
        leaf = self._stage.leaf(relation)
        equal = [call("eq", x, wide(leaf, _position(o))) for x, o in zip(left, relation.outputs, strict=True)]
        correlated = [each for each in equal if outer_columns(each)]
        self._stage.conditions += correlated
        self._stage.cross(leaf, [*linked(leaf, links), *(each for each in equal if each not in correlated)])

    def _keep_if_any(self, node: exp.Exists) -> None:
        relation = self._read(node.this, Asked.EXISTENCE)
        if relation.linked:
            self._stage.conditions.append(self._marked(relation))
            return
        if not _is_correlated(relation):
            one = replace(relation, outputs=(Output("one", truth(True)),))
            if relation.empty is not None:
                raise Unsupported("EXISTS of an aggregate without GROUP BY", hint="it always has a row")
            self._stage.cross(self._stage.leaf(plain(deduplicated(one))))
            return
        if relation.empty is not None:
            _refuse_parameters(relation, "EXISTS of an aggregate without GROUP BY")
            return  # It always has a row.
        relation, links = self.parted(_keyed(_ranged(relation)), optional=False)
        leaf = self._stage.leaf(relation)
        self._stage.cross(leaf, linked(leaf, links))

    # --- values -------------------------------------------------------------------------------------------------

    def _membership(self, row: exp.Expr, query: exp.Expr, translate: Translate) -> Expression:
        """TRUE where x is in S; else FALSE for an empty S; else NULL if x is NULL or S has a NULL; else FALSE."""
        width = len(row.expressions) if isinstance(row, exp.Tuple) else 1
        relation = self._read(query, Asked.ROWS if width == 1 else Asked.MEMBERS)
        _refuse_parameters(relation, "NOT IN, or IN outside of a WHERE's ANDs")
        left = [self._correlations.put(x, self._stage) for x in self._left(row, relation, translate)]
        if width > 1:
            found = self._marked(relation, self._pairs("eq", left))
            possible = self._marked(relation, lambda leaf, outputs: [not_unequal(left, outputs)])
            return call("case", found, truth(True), possible, NOTHING, truth(False))
        facts = plain(relation)
        column = AggregateCall(AggregateFunction.COUNT, _position(facts.outputs[0]), BIGINT)
        leaf, links = self._beside(_summarised(facts, [(_COUNT_ROWS, "rows"), (column, "values")], _facts))
        is_empty = call("is_null", wide(leaf, links[0][0])) if links else wide(leaf, 0)
        unknown = call("or", call("is_null", left[0]), call("not", wide(leaf, _outputs(leaf, links) + 1)))
        members, links = self.parted(self._members(left, relation), optional=True)
        at = _position(members.outputs[0])
        leaf = self._stage.leaf(members)
        y = wide(leaf, at)
        self._stage.match(leaf, [*linked(leaf, links), call("eq", left[0], y)])
        found = call("is_not_null", y)
        return call("case", found, truth(True), is_empty, truth(False), unknown, NOTHING, truth(False))

    def _existence(self, node: exp.Exists) -> Expression:
        relation = self._read(node.this, Asked.EXISTENCE)
        if relation.linked:
            return self._marked(relation)
        if not _is_correlated(relation):
            return self._existence_of_all(relation)
        if relation.empty is not None:
            _refuse_parameters(relation, "NOT EXISTS of an aggregate without GROUP BY")
            return truth(True)
        leaf, links = self._beside(_keyed(relation))
        return call("is_not_null", wide(leaf, links[0][0]))

    def _existence_of_all(self, relation: Relation) -> Expression:
        alone = self._stage.source is None
        if not alone:
            _refuse_parameters(relation, "NOT EXISTS, or EXISTS outside of a WHERE's ANDs")
        positive: Shown = lambda counts: [("exists", call("gt", counts[0], Constant(0, BIGINT)))]
        counted = _summarised(relation, [(_COUNT_ROWS, "rows")], positive)
        leaf = self._stage.leaf(counted)
        self._stage.cross(leaf)
        return wide(leaf, _position(counted.outputs[0]))

    def _values(self, node: exp.Expr) -> list[Expression]:
        """The columns of a subquery's only row, NULLs where there is none."""
        relation = self._read(node, keep_limit=True)
        is_correlated = _is_correlated(relation)
        is_cut = relation.limit == 0 or relation.offset != 0
        is_single = relation.empty is not None or _has_one_row(relation) or (is_correlated and _is_unique(relation))
        doubtful = False
        if not is_single or is_cut:
            doubtful = relation.limit not in (0, 1)
            relation = bounded(relation)
            if doubtful or not is_correlated:
                _refuse_parameters(relation, "a subquery as a value without an aggregate")
                relation = _largest(relation, counted=doubtful)
        relation = plain(replace(relation, order=(), limit=None, offset=0))
        leaf, links = self._beside(relation)
        values = [or_of_nothing(leaf, links, relation, at) for at in range(len(relation.outputs))]
        if doubtful:
            self._doubt(values.pop())
        return values

    def _doubt(self, count: Expression) -> None:
        """Several rows are an error when the answer is read, and what has them gets there whatever WHERE says."""
        self._stage.single.append(count)
        self._doubts.append(call("gt", count, Constant(1, BIGINT)))

    def _comparison(self, node: exp.Expr, translate: Translate) -> Expression | None:
        """Comparisons with ANY and ALL, and of rows with the row of a subquery."""
        name, left, right = _COMPARISONS[type(node)], node.this, node.args["expression"]
        if isinstance(right, (exp.Any, exp.All)):
            return self._quantified(name, left, right, translate)
        if isinstance(left, exp.Subquery) and isinstance(right, exp.Tuple):
            left, right = right, left
        if not isinstance(left, exp.Tuple) or not isinstance(right, (exp.Subquery, exp.Select)):
            return None
        if name not in _OF_ROWS:
            raise Unsupported("comparison of rows with anything but = and <>", hint="compare column by column")
        values = self._values(right)
        if len(values) != len(left.expressions):
            raise SqlError("a row is compared with a row of another length")
        pairs = zip(map(translate, left.expressions), values, strict=True)
        return call(_OF_ROWS[name], *(call(name, x, y) for x, y in pairs))

    def _quantified(self, name: str, left: exp.Expr, right: exp.Any | exp.All, translate: Translate) -> Expression:
        """``x > ANY (S)``: TRUE if it is so of the least; ``x > ALL (S)``: FALSE if it is not so of the greatest."""
        is_any = isinstance(right, exp.Any)
        if (name, is_any) in (("eq", True), ("ne", False)):
            found = self._membership(left, right.this, translate)
            return found if is_any else call("not", found)
        relation = self._read(right.this)
        _refuse_parameters(relation, f"a comparison with {'ANY' if is_any else 'ALL'}")
        if isinstance(left, exp.Tuple):
            raise Unsupported("rows compared with ANY or ALL", hint="compare column by column in an EXISTS")
        (x,) = (self._correlations.put(x, self._stage) for x in self._left(left, relation, translate))
        if not are_alike(x.type, relation.outputs[0].expression.type):
            raise Unsupported(
                f"a comparison of {x.type} with {'ANY' if is_any else 'ALL'} of {relation.outputs[0].expression.type}",
                hint="CAST one of the two",
            )
        relation = plain(relation)
        at, y = _position(relation.outputs[0]), relation.outputs[0].expression
        calls = [AggregateCall(f, at, y.type) for f in (AggregateFunction.MIN, AggregateFunction.MAX)]
        calls += [AggregateCall(AggregateFunction.COUNT, at, BIGINT), _COUNT_ROWS]
        leaf, links = self._beside(_summarised(relation, [(c, str(c.function)) for c in calls]))
        least, most, values, rows = (wide(leaf, _outputs(leaf, links) + i) for i in range(4))
        is_empty = call("is_null", wide(leaf, links[0][0])) if links else call("eq", rows, Constant(0, BIGINT))
        decided = deciding(name, is_any, x, least, most)
        unknown = call("or", call("is_null", x), call("ne", rows, values))
        rest: list[Expression] = [is_empty, truth(not is_any), decided, truth(is_any), unknown, NOTHING]
        return call("case", *rest, truth(not is_any))

    # --- parts --------------------------------------------------------------------------------------------------

    def _read(self, node: exp.Expr, asked: Asked = Asked.ROWS, *, keep_limit: bool = False) -> Relation:
        modifiers = ("order", "limit", "offset", "with_")
        while isinstance(node, exp.Subquery) and not any(map(node.args.get, modifiers)):
            node = node.this
        is_block = isinstance(node, exp.Select)
        relation = self._plan(node, self._context.inside(self._around, asked if is_block else Asked.ROWS))
        refuse_late(relation)
        refuse_late_conditions(relation, "a subquery in an expression")
        return relation if keep_limit else bounded(relation)

    def _left(self, row: exp.Expr, relation: Relation, translate: Translate) -> list[Expression]:
        """The left side of IN, one expression for each column of the subquery."""
        left = row.expressions if isinstance(row, exp.Tuple) else [row]
        if len(left) != len(relation.outputs):
            raise SqlError(f"IN compares {len(left)} columns with the {len(relation.outputs)} of its subquery")
        return list(map(translate, left))

    def _members(self, left: Sequence[Expression], relation: Relation) -> Relation:
        """δ of the subquery.

        Its columns are converted first: ``'1'`` and ``'01'`` are two texts, but a number that is IN them is found once.
        An aggregate with a parameter below it has one row for each of its values, and nothing to convert twice.
        """
        if relation.empty is None or _is_correlated(relation):
            compared = [Output(o.name, keys(x, o.expression)[1]) for x, o in zip(left, relation.outputs, strict=True)]
            relation = plain(replace(relation, outputs=tuple(compared)))
            if any(c.slot.kind in SEVERAL for c in relation.carried):
                return _ranged(relation, [_position(o) for o in relation.outputs])
        return plain(deduplicated(relation))

    def parted(self, relation: Relation, *, optional: bool) -> tuple[Relation, Links]:
        """What the relation carries of this row, as links. ``optional``: its rows may be missing, so that what it
        carries of rows further out is linked with columns of this row too."""
        links: Links = []
        kept: list[Carried] = []
        for carried in relation.carried:
            outer = carried.slot.outer
            if outer is not None and levels(outer) == {self._around.level}:
                links.append((carried.column, inward(outer, self._around.level)))
            elif outer is not None and optional:
                links.append((carried.column, self._correlations.put(outer, self._stage)))
            else:
                kept.append(carried)
        return replace(relation, carried=tuple(kept)), links

    def _beside(self, relation: Relation) -> tuple[Leaf, Links]:
        """Join a relation of at most one row for what it carries, and of exactly one if that is nothing."""
        relation, links = self.parted(relation, optional=True)
        if not links and (links := self._stage.fed_alike(relation)):
            relation = replace(relation, carried=())
        # Without a link there is one row for each value of a parameter, as of any aggregate that has one below it.
        asked = relation.carried if links else ()
        if any(c.slot.kind in SEVERAL for c in asked):
            _refuse_parameters(relation, "NOT EXISTS, or a subquery as a value,")
        if links:
            relation = replace(relation, empty=None, carried=())
        leaf = self._stage.leaf(relation)
        if asked:
            assert self._stage.source is not None, "a subquery reads this query"
            self._stage.slots += [c.slot for c in asked]
            conditions = [late_condition(Wide(wide(leaf, c.column), c.slot)) for c in asked]
            self._stage.source = self._stage.ask(self._stage.source, linked(leaf, links), conditions, leaf)
        elif links:
            self._stage.match(leaf, linked(leaf, links))
        else:
            self._stage.cross(leaf)
        return leaf, links

    def _pairs(self, name: str, left: Sequence[Expression]) -> Conditions:
        return lambda leaf, outputs: [call(name, x, y) for x, y in zip(left, outputs, strict=True)]

    def _marked(self, relation: Relation, conditions: Conditions | None = None) -> Expression:
        """Whether the subquery has a row that meets the conditions."""
        _refuse_parameters(relation, "EXISTS or IN with a condition that is no equality of a column")
        if self._stage.source is None:
            raise Unsupported("this comparison with a subquery in a SELECT without FROM")
        relation, links = self.parted(relation, optional=True)
        leaf = self._stage.leaf(replace(relation, uniques=(), key=()))
        here = [inward(_shifted(e, leaf), self._around.level) for e in relation.linked]
        if conditions is not None:
            here += conditions(leaf, [_shifted(o.expression, leaf) for o in relation.outputs])
        return self._stage.mark(leaf, [*linked(leaf, links), *here])


Conditions = Callable[[Leaf, Sequence[Expression]], list[Expression]]
_COUNT_ROWS = AggregateCall(AggregateFunction.COUNT_ROWS, None, BIGINT)
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}
_OF_ROWS = {"eq": "and", "ne": "or"}


def _position(output: Output) -> int:
    assert isinstance(output.expression, Field)
    return output.expression.position


def _shifted(e: Expression, leaf: Leaf) -> Expression:
    return moved(e, lambda place: leaf.offset + place)


def linked(leaf: Leaf, links: Links) -> list[Expression]:
    return [call("eq", outer, wide(leaf, column)) for column, outer in links]


def _is_correlated(relation: Relation) -> bool:
    return bool(relation.linked) or any(c.slot.outer is not None for c in relation.carried)


def _is_unique(relation: Relation, members: Sequence[int] = ()) -> bool:
    """Whether there is one row at most for what the relation carries, and for each of its members."""
    carried = {*members, *(c.column for c in relation.carried if c.slot.outer is not None)}
    return any(unique <= carried for unique in relation.uniques)


def _ranged(relation: Relation, members: Sequence[int] = ()) -> Relation:
    """One row for all that EXISTS (or IN, of each of its ``members``) is asked with ``column > ?``: some value is above
    the bound if the greatest is. (Of a row for each value, several would keep the row outside.) Raises Unsupported for
    other parameters of many values."""
    several = [c for c in relation.carried if c.slot.kind in SEVERAL]
    if not several or _is_unique(relation, members):
        return replace(relation, key=())
    single = tuple(c for c in relation.carried if c.slot.kind not in SEVERAL)
    (at, slot), compared = (several[0].column, several[0].slot), relation.plan.columns[several[0].column]
    if len(several) > 1 or slot.kind not in ORDERS or compared.type.members or compared.type.kind is Kind.JSON:
        require_single(several, "IN" if members else "EXISTS", ())
    extreme = AggregateCall(AggregateFunction.MAX if slot.kind in LOWER else AggregateFunction.MIN, at, compared.type)
    own = tuple(Carried(at, slot) for at in members)
    summary = _summarised(replace(relation, carried=(*own, *single)), [(extreme, compared.name)])
    own, single = summary.carried[: len(own)], summary.carried[len(own) :]
    outputs = tuple(Output(o.name, summary.plan.field(c.column)) for o, c in zip(relation.outputs, own, strict=False))
    return replace(
        summary, outputs=outputs, carried=(*single, Carried(_position(summary.outputs[0]), slot)), empty=None
    )


def _keyed(relation: Relation) -> Relation:
    """The different values of what is carried; those of a unique key are different anyway."""
    if _is_unique(relation):
        return replace(relation, outputs=(), key=())
    group = tuple(dict.fromkeys(c.column for c in relation.carried))
    carried = tuple(Carried(group.index(c.column), c.slot) for c in relation.carried)
    uniques = (frozenset(range(len(group))),)
    return Relation(distinct(relation.plan, group), (), carried, late=relation.late, uniques=uniques)


Shown = Callable[[Sequence[Expression]], list[tuple[str, Expression]]]


def _summarised(relation: Relation, calls: Sequence[tuple[AggregateCall, str]], shown: Shown | None = None) -> Relation:
    """γ by what is carried, and what is computed of the calls; of nothing, where counts are 0."""
    group = tuple(dict.fromkeys(c.column for c in relation.carried))
    carried = tuple(Carried(group.index(c.column), c.slot) for c in relation.carried)
    plan = aggregated(relation.plan, group, calls, scalar=not group)
    if shown is not None:
        computed = shown([plan.field(len(group) + at) for at in range(len(calls))])
        fields = [plan.field(at) for at in range(len(group))]
        names = [*(plan.columns[at].name for at in range(len(group))), *(name for name, _ in computed)]
        plan = projected(plan, [*fields, *(e for _, e in computed)], names)
    places = range(len(group), plan.width)
    nothing: list[Value] = [0] * len(places)
    outputs = tuple(Output(plan.columns[at].name, plan.field(at)) for at in places)
    uniques = (frozenset(range(len(group))),)
    empty = tuple(nothing) if group else None
    return Relation(plan, outputs, carried, empty=empty, late=relation.late, uniques=uniques)


def _outputs(leaf: Leaf, links: Links) -> int:
    """The place at which a summary's own columns begin."""
    return len({column for column, _ in links})


def _facts(counts: Sequence[Expression]) -> list[tuple[str, Expression]]:
    """About a subquery of one column: is it empty, is it without NULLs."""
    rows, values = counts
    return [("is_empty", call("eq", rows, Constant(0, BIGINT))), ("has_no_null", call("eq", rows, values))]


def or_of_nothing(leaf: Leaf, links: Links, relation: Relation, at: int) -> Expression:
    """An output of a relation that was joined; where it has no row, what it is of nothing."""
    field = wide(leaf, _position(relation.outputs[at]))
    nothing = None if relation.empty is None else relation.empty[at]
    if not links or nothing is None:
        return field
    return call("case", call("is_null", wide(leaf, links[0][0])), Constant(nothing, field.type), field)


def _has_one_row(relation: Relation) -> bool:
    """Whether the relation always has exactly one row: an aggregate without GROUP BY, at most projected."""
    plan = relation.plan
    while True:
        traits = traits_of(plan.operator)
        if traits.row_over_nothing or not traits.row_for_row:
            return traits.row_over_nothing
        plan = plan.parents[0]


def _largest(relation: Relation, *, counted: bool) -> Relation:
    """The only row's values, or NULLs where there is none; ``counted``: and how many there are."""
    relation, _ = settled(relation)
    outputs = relation.outputs
    calls = [(AggregateCall(AggregateFunction.MAX, _position(o), o.expression.type), o.name) for o in outputs]
    calls += [(_COUNT_ROWS, "rows")] if counted else []
    summary = _summarised(relation, calls)
    return replace(summary, empty=None)


def _refuse_parameters(relation: Relation, construct: str) -> None:
    carried = [c for c in relation.carried if c.slot.outer is None]
    if carried:
        raise Unsupported(
            f'the parameter "{carried[0].slot.name}" below {construct}',
            hint="write it as EXISTS or NOT EXISTS with column = ? and correlated by =, or view the subquery by itself",
        )
