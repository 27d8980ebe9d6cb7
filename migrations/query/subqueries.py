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
S that comes to be when read      without k: a parameter (``plans/parts.py``); else ⋈ S is (``plans/put_off.py``)
================================  ==========================================================================

δ_k and γ_k are partial by k: with ``WHERE s.id = ?`` around them they hold the keys of the stories that are asked for.
So a semi-join is a join with δ_k, and an anti-join ``σ k IS NULL`` above a left join with it: the count of rows that
δ_k keeps for a key answers both sides' changes without reading S, of which a join of its own would need the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Expression
from domains.language.functions import call
from domains.language.functions.comparands import are_alike, keys
from domains.language.types import BIGINT
from domains.plan.graph import AggregateCall, AggregateFunction, ParameterKind
from migrations.parse.reading import exp
from migrations.query.correlation import Correlations, Links, inward, outer_columns, parted
from migrations.query.expressions.late import parameter_call
from migrations.query.expressions.literals import NOTHING, truth
from migrations.query.expressions.scalar import compared_rows
from migrations.query.expressions.terms import deciding, moved, not_unequal, null_rejected, substituted
from migrations.query.plans.each_row import EachRow
from migrations.query.plans.summaries import (
    COUNT_ROWS,
    Shown,
    column_of,
    facts,
    has_one_row,
    is_correlated,
    is_put_off,
    is_unique,
    keyed,
    largest,
    ranged,
    refuse_put_off,
    summarised,
    with_operands,
)
from migrations.query.relation import (
    EQUALITIES,
    SEVERAL,
    Around,
    Asked,
    Output,
    QueryContext,
    Relation,
    Slot,
    bounded,
    deduplicated,
    is_made_late,
    plain,
    refuse_late_limit,
)
from migrations.query.sources.tree import Leaf
from migrations.query.stage import SelectStage, Wide, late_condition, wide

Plan = Callable[[exp.Expr, QueryContext], Relation]
Translate = Callable[[exp.Expr], Expression]


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
        self._each = EachRow(stage, around, context, correlations)

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
        if is_put_off(relation) and not _is_joined(relation):
            self._keep_later(left, relation)
            return
        if relation.linked:
            left = [self._correlations.put(x, self._stage) for x in left]
            self._stage.conditions.append(self._marked(relation, self._pairs("eq", left)))
            return
        relation = self._members(left, relation)
        relation, links = self.parted(relation, optional=False)
        leaf = self._stage.leaf(relation)
        equal = [call("eq", x, wide(leaf, column_of(o))) for x, o in zip(left, relation.outputs, strict=True)]
        correlated = [each for each in equal if outer_columns(each)]
        self._stage.conditions += correlated
        self._stage.cross(leaf, [*linked(leaf, links), *(each for each in equal if each not in correlated)])

    def _keep_if_any(self, node: exp.Exists) -> None:
        relation = self._read(node.this, Asked.EXISTENCE)
        if is_put_off(relation) and (is_made_late(replace(relation, outputs=())) or not is_unique(relation)):
            self._keep_later([], relation)
            return
        if relation.linked:
            self._stage.conditions.append(self._marked(relation))
            return
        if not is_correlated(relation):
            one = replace(relation, outputs=(Output("one", truth(True)),))
            if relation.empty is not None:
                raise Unsupported("EXISTS of an aggregate without GROUP BY", hint="it always has a row")
            self._stage.cross(self._stage.leaf(plain(deduplicated(one))))
            return
        if relation.empty is not None:
            _refuse_parameters(relation, "EXISTS of an aggregate without GROUP BY")
            return  # It always has a row.
        relation, links = self.parted(keyed(ranged(relation)), optional=False)
        leaf = self._stage.leaf(relation)
        self._stage.cross(leaf, linked(leaf, links))

    def _keep_later(self, left: Sequence[Expression], relation: Relation) -> None:
        """Rows that the subquery has something for, which is known when the answer is read (``plans/put_off.py``)."""
        if self._context.asks_each and is_correlated(relation):
            self._stage.late.append(self._each.membership(left, relation) if left else self._each.existence(relation))
            return
        has_key = any(c.slot.kind in EQUALITIES and c.slot.outer is None for c in self._stage.carried)
        if not is_correlated(relation) and not has_key and len(left) < 2:
            self._stage.late.append(self._among(left[0] if left else truth(True), relation, any_row=not left))
            return
        if relation.linked or self._stage.source is None:
            raise Unsupported("a parameter below EXISTS or IN with a condition that is no equality of a column")
        relation, links = self.parted(relation, optional=False)
        leaf, columns = self._stage.later(relation, is_semi=True)
        equal = [call("eq", x, y) for x, y in zip(left, columns, strict=True)] if left else []
        self._stage.conditions += equal
        self._stage.cross(leaf, linked(leaf, links))

    def _among(self, x: Expression, relation: Relation, *, any_row: bool = False) -> Expression:
        """``x IN (S)`` of a subquery that a look-up asks first; ``any_row``: whether it has a row, 1 IN (SELECT 1)."""
        if is_correlated(relation) or (len(relation.outputs) != 1 and not any_row):
            raise Unsupported("a parameter below a subquery that reads the query around, outside of a WHERE's ANDs")
        if any_row:
            relation = replace(relation, outputs=(Output("one", truth(True)),), empty=relation.empty and (1,))
        return call("in", x, self._answer(relation, ParameterKind.IN))

    def _answer(self, relation: Relation, kind: ParameterKind = ParameterKind.EQUAL) -> Expression:
        """The answer to a query below as a parameter of this one (``plans/parts.py``)."""
        type, known = relation.outputs[0].expression.type, self._context.answers
        known.append(Slot("answer", kind, type, ((-1 - len(known),),), answer=relation))
        self._stage.slots.append(known[-1])
        return parameter_call(known[-1].key, type, exact=False)

    def _is_asked_first(self, relation: Relation) -> bool:
        """Whether a look-up asks it first: no key of the query around stands for its parameters."""
        own = any(c.slot.outer is None for c in relation.carried)
        return self._context.puts_off and not is_correlated(relation) and (own or is_put_off(relation))

    # --- values -------------------------------------------------------------------------------------------------

    def _membership(self, row: exp.Expr, query: exp.Expr, translate: Translate) -> Expression:
        """TRUE where x is in S; else FALSE for an empty S; else NULL if x is NULL or S has a NULL; else FALSE."""
        width = len(row.expressions) if isinstance(row, exp.Tuple) else 1
        relation = self._read(query, Asked.ROWS if width == 1 else Asked.MEMBERS)
        if width == 1 and self._is_asked_first(relation):
            (x,) = self._left(row, relation, translate)
            return self._among(x, relation)
        if self._each.answers(relation):
            return self._each.membership(self._left(row, relation, translate), relation)
        refuse_put_off(relation)
        _refuse_parameters(relation, "NOT IN, or IN outside of a WHERE's ANDs")
        left = [self._correlations.put(x, self._stage) for x in self._left(row, relation, translate)]
        if width > 1:
            found = self._marked(relation, self._pairs("eq", left))
            possible = self._marked(relation, lambda leaf, outputs: [not_unequal(left, outputs)])
            return call("case", found, truth(True), possible, NOTHING, truth(False))
        known = plain(relation)
        column = AggregateCall(AggregateFunction.COUNT, column_of(known.outputs[0]), BIGINT)
        leaf, links = self._beside(summarised(known, [(COUNT_ROWS, "rows"), (column, "values")], facts))
        is_empty = call("is_null", wide(leaf, links[0][0])) if links else wide(leaf, 0)
        unknown = call("or", call("is_null", left[0]), call("not", wide(leaf, _outputs(leaf, links) + 1)))
        members, links = self.parted(self._members(left, relation), optional=True)
        at = column_of(members.outputs[0])
        leaf = self._stage.leaf(members)
        y = wide(leaf, at)
        self._stage.match(leaf, [*linked(leaf, links), call("eq", left[0], y)])
        found = call("is_not_null", y)
        return call("case", found, truth(True), is_empty, truth(False), unknown, NOTHING, truth(False))

    def _existence(self, node: exp.Exists) -> Expression:
        relation = self._read(node.this, Asked.EXISTENCE)
        if self._is_asked_first(relation):
            return self._among(truth(True), relation, any_row=True)
        if self._each.answers(relation):
            return self._each.existence(self._read(node.this) if relation.linked else relation)
        refuse_put_off(relation)
        if relation.linked:
            return self._marked(relation)
        if not is_correlated(relation):
            return self._existence_of_all(relation)
        if relation.empty is not None:
            _refuse_parameters(relation, "NOT EXISTS of an aggregate without GROUP BY")
            return truth(True)
        leaf, links = self._beside(keyed(relation))
        return call("is_not_null", wide(leaf, links[0][0]))

    def _existence_of_all(self, relation: Relation) -> Expression:
        alone = self._stage.source is None
        if not alone:
            _refuse_parameters(relation, "NOT EXISTS, or EXISTS outside of a WHERE's ANDs")
        positive: Shown = lambda counts: [("exists", call("gt", counts[0], Constant(0, BIGINT)))]
        counted = summarised(relation, [(COUNT_ROWS, "rows")], positive)
        leaf = self._stage.leaf(counted)
        self._stage.cross(leaf)
        return wide(leaf, column_of(counted.outputs[0]))

    def _values(self, node: exp.Expr) -> list[Expression]:
        """The columns of a subquery's only row, NULLs where there is none."""
        relation = self._read(node, keep_limit=True)
        if self._is_asked_first(relation) and len(relation.outputs) == 1:
            return [self._answer(relation)]
        if self._each.answers(relation):
            return self._each.values(relation)
        if is_put_off(replace(relation, outputs=())):
            return self._value_later(relation)
        shown, relation = relation.outputs, with_operands(relation)
        operands = relation.outputs
        is_linked = is_correlated(relation)
        is_cut = relation.limit == 0 or relation.offset != 0
        is_single = relation.empty is not None or has_one_row(relation) or (is_linked and is_unique(relation))
        doubtful = False
        if not is_single or is_cut:
            refuse_put_off(replace(relation, outputs=shown))
            doubtful = relation.limit not in (0, 1)
            relation = bounded(relation)
            if doubtful or not is_linked:
                _refuse_parameters(relation, "a subquery as a value without an aggregate")
                relation = largest(relation, counted=doubtful)
        relation = plain(replace(relation, order=(), limit=None, offset=0))
        leaf, links = self._beside(relation)
        values = [or_of_nothing(leaf, links, relation, at) for at in range(len(relation.outputs))]
        if doubtful:
            self._doubt(values.pop())
        if shown is operands:
            return values
        of = {operand.expression: value for operand, value in zip(operands, values, strict=True)}
        return [substituted(output.expression, lambda field: of[field]) for output in shown]

    def _value_later(self, relation: Relation) -> list[Expression]:
        """The columns of a row that comes to be when the answer is read; without one they are missing, and so is the
        row around."""
        groups = relation.late.groups
        if not self._context.puts_off or relation.linked or groups is None or not groups.scalar:
            refuse_put_off(relation)
        assert groups is not None, "it is refused without"
        nothing = frozenset(len(groups.group) + at for at, each in enumerate(groups.calls) if each.of_nothing is None)
        if relation.limit is not None or not all(
            null_rejected(call("is_not_null", output.expression)) & nothing for output in relation.outputs
        ):
            raise Unsupported("a count of nothing that comes to be when the answer is read, as a subquery's value")
        relation, links = self.parted(relation, optional=False)
        leaf, columns = self._stage.later(relation, is_value=True)
        self._stage.cross(leaf, linked(leaf, links))
        return list(columns)

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
            name, left, right = _MIRRORED.get(name, name), right, left
        if not isinstance(left, exp.Tuple) or not isinstance(right, (exp.Subquery, exp.Select)):
            return None
        values = self._values(right)
        if len(values) != len(left.expressions):
            raise SqlError("a row is compared with a row of another length")
        return compared_rows(name, list(zip(map(translate, left.expressions), values, strict=True)))

    def _quantified(self, name: str, left: exp.Expr, right: exp.Any | exp.All, translate: Translate) -> Expression:
        """``x > ANY (S)``: TRUE if it is so of the least; ``x > ALL (S)``: FALSE if it is not so of the greatest."""
        is_any = isinstance(right, exp.Any)
        if (name, is_any) in (("eq", True), ("ne", False)):
            found = self._membership(left, right.this, translate)
            return found if is_any else call("not", found)
        relation = self._read(right.this)
        if not (is_late := self._each.answers(relation, alone=True)):
            refuse_put_off(relation)
            _refuse_parameters(relation, f"a comparison with {'ANY' if is_any else 'ALL'}")
        if isinstance(left, exp.Tuple):
            raise Unsupported("rows compared with ANY or ALL", hint="compare column by column in an EXISTS")
        (x,) = (self._correlations.put(x, self._stage) for x in self._left(left, relation, translate))
        if not are_alike(x.type, relation.outputs[0].expression.type):
            raise Unsupported(
                f"a comparison of {x.type} with {'ANY' if is_any else 'ALL'} of {relation.outputs[0].expression.type}",
                hint="CAST one of the two",
            )
        relation = relation if is_late else plain(relation)
        y = relation.outputs[0].expression
        at = 0 if is_late else column_of(relation.outputs[0])
        calls = [AggregateCall(f, at, y.type) for f in (AggregateFunction.MIN, AggregateFunction.MAX)]
        calls += [AggregateCall(AggregateFunction.COUNT, at, BIGINT), COUNT_ROWS]
        if is_late:
            least, most, values, rows = self._each.summary(relation, calls)
            is_empty = call("is_null", rows)
        else:
            leaf, links = self._beside(summarised(relation, [(c, str(c.function)) for c in calls]))
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
        if self._context.puts_off and is_put_off(relation):
            refuse_late_limit(relation)
            return relation
        if not keep_limit:
            refuse_put_off(relation)
            return bounded(relation)
        refuse_put_off(replace(relation, outputs=()))
        return relation

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
        if _is_joined(relation):
            return replace(relation, key=())
        if relation.empty is None or is_correlated(relation):
            compared = [Output(o.name, keys(x, o.expression)[1]) for x, o in zip(left, relation.outputs, strict=True)]
            relation = plain(replace(relation, outputs=tuple(compared)))
            if any(c.slot.kind in SEVERAL for c in relation.carried):
                return ranged(relation, [column_of(o) for o in relation.outputs])
        return plain(deduplicated(relation))

    def parted(self, relation: Relation, *, optional: bool) -> tuple[Relation, Links]:
        return parted(relation, self._around.level, self._stage, self._correlations, optional=optional)

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
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _shifted(e: Expression, leaf: Leaf) -> Expression:
    return moved(e, lambda place: leaf.offset + place)


def _is_joined(relation: Relation) -> bool:
    """Whether each of a subquery's rows is another member, so that conditions that wait may go on with the join."""
    if is_made_late(relation) or not relation.late.conditions or not relation.is_plain or relation.limit is not None:
        return False
    return is_unique(relation, [column_of(output) for output in relation.outputs])


def linked(leaf: Leaf, links: Links) -> list[Expression]:
    return [call("eq", outer, wide(leaf, column)) for column, outer in links]


def _outputs(leaf: Leaf, links: Links) -> int:
    """The place at which a summary's own columns begin."""
    return len({column for column, _ in links})


def or_of_nothing(leaf: Leaf, links: Links, relation: Relation, at: int) -> Expression:
    """An output of a relation that was joined; where it has no row, what it is of nothing."""
    field = wide(leaf, column_of(relation.outputs[at]))
    nothing = None if relation.empty is None else relation.empty[at]
    if not links or nothing is None:
        return field
    return call("case", call("is_null", wide(leaf, links[0][0])), Constant(nothing, field.type), field)


def _refuse_parameters(relation: Relation, construct: str) -> None:
    carried = [c for c in relation.carried if c.slot.outer is None]
    if carried:
        raise Unsupported(
            f'the parameter "{carried[0].slot.name}" below {construct}',
            hint="write it as EXISTS or NOT EXISTS with column = ? and correlated by =, or view the subquery by itself",
        )
