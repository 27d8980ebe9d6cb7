"""GROUP BY: the rows of the first stage become groups, which are the second stage's rows.

Besides what GROUP BY names, a group keeps the columns that its parameters are compared with (each parameter value has
groups of its own) and the columns that the named ones determine, as MySQL's ONLY_FULL_GROUP_BY allows: a table's
primary key determines its row.

WITH ROLLUP adds the groups of each shorter beginning of the list, with NULL for what is left out. GROUPING(x) asks of
each row how many were left out, which is its last column::

    GROUP BY a, b WITH ROLLUP     π a, b, f, 0 (γ a, b; f)  ∪  π a, NULL, f, 1 (γ a; f)  ∪  π NULL, NULL, f, 2 (γ (); f)
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace

from domains.errors import HeadraceError, SqlError, Unsupported
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import is_determined
from domains.language.rewriting import fold
from domains.language.types import BIGINT, Column, Kind
from domains.plan.graph import AggregateCall, AggregateFunction, OrderTerm
from migrations.parse.reading import children, exp, text_of
from migrations.query.block import Rolled, SelectBlock
from migrations.query.eager import eagerly, is_asked_for
from migrations.query.expressions.aggregates import Summary, aggregates_in, is_aggregate, is_operand, summary
from migrations.query.expressions.calls import spelled
from migrations.query.expressions.late import fields_of, has_parameter
from migrations.query.expressions.literals import shown
from migrations.query.expressions.moments import NOW, own_nodes
from migrations.query.expressions.parameters import is_parameterised
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.terms import equality, substituted
from migrations.query.joins import Arranged
from migrations.query.plan import RelationalPlan, aggregated, projected, united
from migrations.query.plans.late_queries import LateCall, LateGroups
from migrations.query.relation import SEVERAL, Carried, LateParts, Relation, several_rows
from migrations.query.sources.asked import late_placeholder
from migrations.query.stage import SelectStage, Wide, stage_of


def group_rows(block: SelectBlock) -> None:
    """GROUP BY, and aggregates without it."""
    clause = block.node.args.get("group")
    nodes = _later_nodes(block.node)
    found = [node for part in nodes for node in aggregates_in(part)]
    aggregates, operands = dict.fromkeys(found), {node for node in found if is_operand(node)}
    eager = is_asked_for(block.node)
    if clause is None and not aggregates:
        if eager:
            raise SqlError("EAGER_AGGREGATION without an aggregate", hint="take the hint out")
        return
    _refuse_sums_of_outer_rows(block, aggregates)
    block.begin()
    if block.stage.matches:
        block.lift("an aggregate")
    if block.stage.single:
        raise several_rows("WHERE of a query with aggregates")
    block.stage.merge_parameters()
    groups = [] if clause is None else _group_expressions(block, clause)
    summaries = {
        node: summary(node, lambda n: block.own(n, "an aggregate"), is_operand=node in operands) for node in aggregates
    }
    if clause is not None and clause.args.get("rollup"):
        if eager:
            raise Unsupported("EAGER_AGGREGATION with ROLLUP", hint="take the hint out")
        if block.inner is not None:
            raise _rolled_late()
        _roll_up(block, groups, summaries, nodes)
        return
    if block.inner is not None and not eager:
        _group_answer(block, list(dict.fromkeys(groups)), summaries, scalar=clause is None)
        return
    if block.inner is not None or _is_late(block, groups, summaries.values(), nodes, scalar=clause is None):
        if eager:
            raise Unsupported("EAGER_AGGREGATION of groups that are made when the answer is read", hint="take it out")
        if clause is not None or groups:
            groups += _determined(block, groups, nodes)
        _group_late(block, list(dict.fromkeys(groups)), summaries, scalar=clause is None)
        return
    groups += [c.expression for c in block.stage.carried if c.expression not in groups]
    groups += block.correlations.columns()
    if clause is not None or groups:
        groups += _determined(block, groups, nodes)
    groups = list(dict.fromkeys(groups))
    _enter_second_stage(block, groups, summaries, scalar=clause is None)


def _refuse_sums_of_outer_rows(block: SelectBlock, aggregates: Iterable[exp.Expr]) -> None:
    """In MySQL, an aggregate is of the query whose columns it reads: ``(SELECT MAX(s.id))`` makes that one a group."""
    if not block.scope.bounds and any(node.find(exp.Column) is not None for node in aggregates):
        raise Unsupported(
            "an aggregate of a column of the query around in a SELECT without FROM", hint="move it into that query"
        )


def _later_nodes(select: exp.Select) -> list[exp.Expr]:
    """Expressions that are evaluated for groups: the SELECT list, HAVING, WINDOW, ORDER BY."""
    windows = select.args.get("windows") or ()
    parts = [*select.expressions, select.args.get("having"), *windows, select.args.get("order")]
    return [part for part in parts if part is not None]


def _group_expressions(block: SelectBlock, clause: exp.Group) -> list[Expression]:
    for modifier in ("cube", "grouping_sets", "totals"):
        if clause.args.get(modifier):
            raise Unsupported(f"GROUP BY … {modifier.upper().replace('_', ' ')}", hint="UNION ALL one query a level")
    return [_group_expression(block, node) for node in clause.expressions]


def _group_expression(block: SelectBlock, node: exp.Expr) -> Expression:
    items = block.node.expressions
    if isinstance(node, exp.Literal) and not node.is_string:
        if not node.this.isdigit() or not 1 <= int(node.this) <= len(items):
            raise SqlError(f"GROUP BY {node.this}: the SELECT list has {len(items)} items")
        node = items[int(node.this) - 1]
        if any(isinstance(part, exp.Star) for part in own_nodes(node)) and not is_aggregate(node):
            raise SqlError("GROUP BY the position of a *", hint="name the columns")
    elif isinstance(node, exp.Column) and not node.table and block.scope.find(node.name) is None:
        node = block.item(node.name) or node
    return block.own(node, "GROUP BY")


def _is_late(
    block: SelectBlock,
    groups: Sequence[Expression],
    summaries: Iterable[Summary],
    nodes: Iterable[exp.Expr],
    *,
    scalar: bool,
) -> bool:
    """Whether groups are made when the answer is read: no key tells which of the rows they have.

    So it is where a parameter asks for several values of a column that the groups do not keep apart, and where what a
    count of nothing shows, or whether it is shown, depends on a parameter.
    """
    stage, summaries = block.stage, list(summaries)
    several = any(c.slot.kind in SEVERAL and c.expression not in groups for c in stage.carried)
    inside = [*groups, *(e for s in summaries for e in (s.argument, *(t.expression for t in s.order)) if e is not None)]
    above = scalar and bool(stage.carried) and any(is_parameterised(node) for node in nodes)
    if block.context.outer is not None:  # The query around joins the row, and has NULLs where there is none.
        above = above and any(s.of_nothing is not None for s in summaries)
    return several or above or bool(stage.late) or any(map(has_parameter, inside))


def _group_late(
    block: SelectBlock, groups: list[Expression], summaries: dict[exp.Expr, Summary], *, scalar: bool
) -> None:
    """The rows are grouped by all that decides in which of the late groups they are; those merge what comes of them."""
    first = block.stage
    arranged = first.arrange(block.context.statistics)
    if first.empty_row() is not None:
        raise Unsupported("aggregates over an aggregate without GROUP BY that has a parameter below it")
    distinct = list(dict.fromkeys(summaries.values()))
    early = {s: call for s in distinct if (call := _early_call(s)) is not None}
    kept: dict[Expression, None] = {}
    for e in [*groups, *first.late, *(c.expression for c in first.carried), *_operands(distinct, early)]:
        kept.update(dict.fromkeys(fields_of(e) if has_parameter(e) else [] if isinstance(e, Constant) else [e]))
    calls = list(early.values())
    if len(early) < len(distinct):
        calls.append(_ROWS)
    calls = list(dict.fromkeys(calls))
    plan, group, aggregate_calls = _inputs(arranged, list(kept), calls)
    below = aggregated(plan, group, aggregate_calls, scalar=False)
    places = {e: below.field(at) for at, e in enumerate(kept)}

    def late(e: Expression) -> Expression:
        if isinstance(e, Constant):
            return e
        return substituted(e, lambda f: places[f]) if has_parameter(e) else places[e]

    def result(s: Summary) -> LateCall:
        if s in early:
            merged = _MERGES[s.function]
            value = below.field(len(group) + calls.index(early[s]))
            return LateCall(AggregateCall(merged, None, s.type), value, (), None, s.of_nothing)
        return replace(_late_call(s).over(late), weight=below.field(len(group) + calls.index(_ROWS)))

    carried = tuple(Carried(places[c.expression].position, c.slot) for c in first.carried)
    conditions = tuple(map(late, first.late))
    block.below = Relation(below, (), carried, late=LateParts(conditions, slots=tuple(first.slots)))
    block.merged = LateGroups(tuple(map(late, groups)), tuple(map(result, distinct)), scalar and not groups)
    _see_groups(block, below, groups, summaries, distinct)


def _group_answer(
    block: SelectBlock, groups: list[Expression], summaries: dict[exp.Expr, Summary], *, scalar: bool
) -> None:
    """Groups of the rows that a query below comes to when it is read."""
    assert block.inner is not None, "there is one"
    distinct = list(dict.fromkeys(summaries.values()))
    block.merged = LateGroups(tuple(groups), tuple(map(_late_call, distinct)), scalar and not groups)
    block.closed.append(block.stage)
    _see_groups(block, block.inner.plan, groups, summaries, distinct)


def _late_call(s: Summary) -> LateCall:
    """The aggregate of rows of which each stands for itself."""
    terms = tuple(OrderTerm(1 + at, term.descending) for at, term in enumerate(s.order))
    call = AggregateCall(s.function, None if s.argument is None else 0, s.type, s.separator, terms)
    return LateCall(call, s.argument, tuple(term.expression for term in s.order), None, s.of_nothing)


def _see_groups(
    block: SelectBlock,
    plan: RelationalPlan,
    groups: list[Expression],
    summaries: dict[exp.Expr, Summary],
    distinct: list[Summary],
) -> None:
    """Go on over the rows of the late groups."""
    row = [*groups, *(Constant(None, s.type) for s in distinct)]
    columns = tuple(Column("", e.type) for e in row)
    block.stage = stage_of(replace(plan, columns=columns))
    fields = {node: Field(len(groups) + distinct.index(s), s.type) for node, s in summaries.items()}
    _know(block, groups, {node: shown(field, summaries[node].shown or field.type) for node, field in fields.items()})


def _know(block: SelectBlock, groups: Sequence[Expression], places: dict[exp.Expr, Expression]) -> None:
    """Go on over the groups' rows; ``places``: what the aggregates are there."""
    block.groups = tuple(groups)
    block.known = lambda node: _known(block, node, places)


_ROWS = Summary(AggregateFunction.COUNT_ROWS, None, BIGINT)
_MERGES = {
    AggregateFunction.COUNT_ROWS: AggregateFunction.SUM,
    AggregateFunction.COUNT: AggregateFunction.SUM,
    AggregateFunction.SUM: AggregateFunction.SUM,
    AggregateFunction.MIN: AggregateFunction.MIN,
    AggregateFunction.MAX: AggregateFunction.MAX,
}
"""What makes one value of those of several groups."""


def _early_call(s: Summary) -> Summary | None:
    """The aggregate of the rows below, if those of several groups can be merged to one; a sum of doubles is rounded."""
    rounded = s.function is AggregateFunction.SUM and s.type.kind is Kind.DOUBLE
    computed = s.argument is not None and has_parameter(s.argument)
    return None if s.function not in _MERGES or rounded or computed else s


def _operands(summaries: Iterable[Summary], early: Container[Summary]) -> list[Expression]:
    late = [s for s in summaries if s not in early]
    return [e for s in late for e in (s.argument, *(term.expression for term in s.order)) if e is not None]


def _determined(block: SelectBlock, groups: Sequence[Expression], nodes: Iterable[exp.Expr]) -> list[Expression]:
    """The columns that the SELECT list and its like read and that the groups determine."""
    wanted = _columns_outside_aggregates(block, nodes)
    fields = {group.position for group in groups if isinstance(group, Field)}
    known = determined(block.stage, fields, block.stage.keys)
    return [field for field in wanted if field not in groups and field.position in known]


def determined(
    stage: SelectStage,
    columns: Iterable[int],
    keys: Collection[tuple[frozenset[int], frozenset[int]]],
    links: Sequence[Expression] = (),
) -> frozenset[int]:
    """The columns that have one value where these have; ``keys`` are columns that determine a source's row, and all of
    its columns."""
    known, fixing = {*columns, *_fixed_by(stage)}, _fixing_columns([*stage.all_conditions(), *links])
    while True:
        more = {p for key, own in keys if key <= known for p in own}
        more |= {other for one, other in fixing if one in known}
        if more <= known:
            return frozenset(known)
        known |= more


def _columns_outside_aggregates(block: SelectBlock, nodes: Iterable[exp.Expr]) -> list[Field]:
    found: dict[Field, None] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop(0)
        if is_aggregate(node):
            continue
        if isinstance(node, exp.Query):
            found.update((field, None) for field in _read_inside(block, node))
            continue
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            found.update((bound.field, None) for bound in block.scope.star(_table_of(node)))
        elif isinstance(node, exp.Column):
            field = block.scope.find(node.name, node.table) if _is_unique(block, node) else None
            if field is not None:
                found[field] = None
        else:
            pending += children(node)
    return list(found)


def _read_inside(block: SelectBlock, query: exp.Query) -> list[Field]:
    """The columns that a subquery reads by the name of a table of this block, which none of its own tables has."""
    own = {table.alias_or_name.lower() for table in query.find_all(exp.Table, exp.Subquery)}
    columns = [c for c in query.find_all(exp.Column) if c.table and c.table.lower() not in own]
    found = (block.scope.find(c.name, c.table) for c in columns if not isinstance(c.this, exp.Star))
    return [field for field in found if field is not None]


def _table_of(node: exp.Expr) -> str:
    return node.table if isinstance(node, exp.Column) else ""


def _is_unique(block: SelectBlock, node: exp.Column) -> bool:
    try:
        block.scope.find(node.name, node.table)
    except SqlError:
        return False  # It may be an alias of the SELECT list; whoever needs the column will say that it is ambiguous.
    return True


def _fixed_by(stage: SelectStage) -> set[int]:
    """Columns that WHERE sets equal to a constant."""
    fixed: set[int] = set()
    for condition in stage.conditions:
        for one, other in _sides(condition):
            if isinstance(one, Field) and isinstance(other, Constant) and is_determined(one.type, other.type):
                fixed.add(one.position)
    return fixed


def _fixing_columns(conditions: Iterable[Expression]) -> list[tuple[int, int]]:
    """(a, b): WHERE or ON sets b equal to a, so that with a's value there is one value of b."""
    pairs = [sides for condition in conditions for sides in _sides(condition)]
    return [
        (a.position, b.position)
        for a, b in pairs
        if isinstance(a, Field) and isinstance(b, Field) and is_determined(b.type, a.type)
    ]


def _sides(condition: Expression) -> list[tuple[Expression, Expression]]:
    sides = equality(condition)
    return [] if sides is None else [sides, (sides[1], sides[0])]


def _enter_second_stage(
    block: SelectBlock, groups: list[Expression], summaries: dict[exp.Expr, Summary], *, scalar: bool
) -> None:
    first = block.stage
    distinct = list(dict.fromkeys(summaries.values()))
    if is_asked_for(block.node):
        keys = [key for key, _ in first.keys]
        grouped = eagerly(first.joins(), keys, groups, distinct, scalar=scalar and not groups)
    else:
        plan, group, calls = _inputs(first.arrange(block.context.statistics), groups, distinct)
        grouped = aggregated(plan, group, calls, scalar=scalar and not group)
    if first.empty_row() is not None:
        raise Unsupported("aggregates over an aggregate without GROUP BY that has a parameter below it")
    second = stage_of(grouped)
    second.uniques.append((frozenset(range(len(groups))), frozenset(range(grouped.width))))
    second.carried = [Wide(Field(groups.index(c.expression), c.expression.type), c.slot) for c in first.carried]
    if scalar and groups:
        nothing = {len(groups) + i: s.of_nothing for i, s in enumerate(distinct)}
        second.empties.append(nothing)
    fields = {node: grouped.field(len(groups) + distinct.index(s)) for node, s in summaries.items()}
    block.stage = second
    block.correlations.grouped(groups)
    _know(block, groups, {node: shown(field, summaries[node].shown or field.type) for node, field in fields.items()})


def _rolled_late() -> Unsupported:
    return Unsupported("WITH ROLLUP over a parameter that is no key", hint="UNION ALL one query a level")


def _roll_up(
    block: SelectBlock, groups: list[Expression], summaries: dict[exp.Expr, Summary], nodes: list[exp.Expr]
) -> None:
    """Each level is a γ of its own over the same rows. What a parameter or a constant fixes is in all of them."""
    first = block.stage
    # A total is of all values of an IN list, also where each of them has a group of its own.
    several = any(c.slot.kind in SEVERAL for c in first.carried)
    if several or _is_late(block, groups, summaries.values(), nodes, scalar=False):
        raise _rolled_late()
    if block.correlations.columns():
        raise Unsupported("WITH ROLLUP in a subquery that reads the query around by more than =")
    if len(set(groups)) < len(groups):
        raise Unsupported("WITH ROLLUP by the same expression twice", hint="name it once")
    arranged = first.arrange(block.context.statistics)
    if first.empty_row() is not None:
        raise Unsupported("aggregates over an aggregate without GROUP BY that has a parameter below it")
    keys = [c.expression for c in first.carried]
    always = list(dict.fromkeys((*keys, *_determined(block, [], nodes))))
    distinct = list(dict.fromkeys(summaries.values()))
    plan, places, calls = _inputs(arranged, [*groups, *always], distinct)
    fixed = places[len(groups) :]
    levels: list[RelationalPlan] = []
    for level in range(len(groups) + 1):
        kept = places[: len(groups) - level]
        by = tuple(dict.fromkeys((*kept, *fixed)))
        grouped = aggregated(plan, by, calls, scalar=False)
        row: list[Expression] = [grouped.field(by.index(place)) for place in kept]
        row += [Constant(None, group.type) for group in groups[len(kept) :]]
        row += [grouped.field(by.index(place)) for place in fixed]
        row += [grouped.field(len(by) + at) for at in range(len(calls))]
        row.append(Constant(level, BIGINT))
        titles = [*(plan.columns[place].name for place in places), *(title for _, title in calls), "level"]
        levels.append(projected(grouped, row, titles))
    rolled = united(levels)
    second = stage_of(rolled)
    width = len(groups) + len(always)
    at = {e: rolled.field(len(groups) + place) for place, e in enumerate(always)}
    second.carried = [Wide(at[c.expression], c.slot) for c in first.carried]
    block.stage, block.rolled = second, Rolled(len(groups), rolled.field(rolled.width - 1))
    fields = {node: rolled.field(width + distinct.index(s)) for node, s in summaries.items()}
    known = {node: shown(field, summaries[node].shown or field.type) for node, field in fields.items()}
    _know(block, [*groups, *always], known)


def _grouping(block: SelectBlock, node: exp.Anonymous) -> Expression:
    """``GROUPING(a, b)``: a bit for each, the last one's is 1; set where the row has NULL for all of its values."""
    if block.rolled is None:
        raise SqlError("GROUPING() without WITH ROLLUP")
    bits: list[Expression] = []
    for part in node.expressions:
        group = block.translate(part, "GROUPING")
        if not isinstance(group, Field) or group.position >= block.rolled.groups:
            raise SqlError(f"GROUPING({text_of(part)}): it is not in GROUP BY")
        least = Constant(block.rolled.groups - group.position, BIGINT)
        bits.append(call("cast", call("ge", block.rolled.level, least), type=BIGINT))
    if not bits:
        raise SqlError("GROUPING() wants an argument")
    total = bits[0]
    for bit in bits[1:]:
        total = call("add", call("multiply", total, Constant(2, BIGINT)), bit)
    return total


def _inputs(
    arranged: Arranged, groups: Sequence[Expression], summaries: Sequence[Summary]
) -> tuple[RelationalPlan, tuple[int, ...], list[tuple[AggregateCall, str]]]:
    """The γ's input, projected if something in it is computed, and the γ's columns and calls over it."""
    needed = [arranged.put(group) for group in groups]
    for s in summaries:
        needed += [arranged.put(e) for e in (s.argument, *(term.expression for term in s.order)) if e is not None]
    needed = list(dict.fromkeys(needed))
    plan = arranged.plan
    if all(isinstance(e, Field) for e in needed):
        places: dict[Expression, int] = {e: e.position for e in needed if isinstance(e, Field)}
    else:
        plan = projected(plan, needed, [_column_name(plan, e, i) for i, e in enumerate(needed)])
        places = {e: i for i, e in enumerate(needed)}

    def place(expression: Expression) -> int:
        return places[arranged.put(expression)]

    calls = []
    for s in summaries:
        order = tuple(OrderTerm(place(term.expression), term.descending) for term in s.order)
        argument = None if s.argument is None else place(s.argument)
        calls.append((AggregateCall(s.function, argument, s.type, s.separator, order), str(s.function)))
    return plan, tuple(place(group) for group in groups), calls


def _column_name(plan: RelationalPlan, expression: Expression, index: int) -> str:
    return plan.columns[expression.position].name if isinstance(expression, Field) else f"computed_{index}"


def _known(block: SelectBlock, node: exp.Expr, places: dict[exp.Expr, Expression]) -> Expression | None:
    """The grouped form of a part of the SELECT list; None: it is computed from its own parts."""
    groups = block.groups or ()
    if isinstance(node, exp.Anonymous) and spelled(node)[0] == "grouping":
        return _grouping(block, node)
    if is_aggregate(node):
        return places[node]
    if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
        own = block.scope.resolve(node)
        return block.column(own, node.name) if isinstance(own, Field) else own
    if isinstance(node, (exp.Literal, exp.Query)) or all(isinstance(group, Field) for group in groups):
        return None
    try:
        late = late_placeholder(SelectStage(), lambda part: scalar(part, block.scope))
        setting = Setting(placeholder=late, moment=lambda: NOW)
        computed = fold(scalar(node, block.scope, setting), block.context.constants)
    except HeadraceError:
        return None  # It holds an aggregate or a subquery, so it is no group itself.
    if computed not in groups:
        return None
    return computed if isinstance(computed, Constant) else Field(groups.index(computed), computed.type)
