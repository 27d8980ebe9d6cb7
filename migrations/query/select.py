"""One SELECT block, as a tuple of passes over a :class:`SelectBlock`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import filterfalse

from domains.errors import LimitExceeded, SqlError, Unsupported
from domains.language.compile import compile_expression, compile_predicate
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import call
from domains.language.rewriting import FoldBudget, fold
from domains.language.types import Column, Row, Value
from domains.plan.graph import AggregateCall, OrderTerm
from migrations.parse.reading import exp, text_of
from migrations.query.block import Plan, Replacement, SelectBlock
from migrations.query.expressions.aggregates import aggregates_in, is_operand, summary
from migrations.query.expressions.documents import sorting
from migrations.query.expressions.late import has_parameter
from migrations.query.expressions.literals import shown, truth
from migrations.query.expressions.moments import own_nodes
from migrations.query.expressions.parameters import has_query, is_parameterised
from migrations.query.expressions.scalar import Setting, conjuncts, scalar
from migrations.query.expressions.scope import Outer, Scope
from migrations.query.expressions.terms import conditions_of, null_rejected, value_of
from migrations.query.finish import summarised
from migrations.query.grouping import determined, group_rows
from migrations.query.joins import Arranged
from migrations.query.plan import extended
from migrations.query.plans.late_queries import LateCall, LateGroups, Sorting
from migrations.query.relation import (
    SEVERAL,
    Asked,
    Carried,
    LateParts,
    Output,
    QueryContext,
    Relation,
    deduplicated,
    read_limit,
    sorting_direction,
)
from migrations.query.setops import ConstantRows, combined, in_order
from migrations.query.source import FromClause
from migrations.query.sources.asked import read_parameters
from migrations.query.sources.tree import links_of, sources_of
from migrations.query.stage import SelectStage, Wide, is_same_value, late_condition
from migrations.query.windows.columns import add_windows
from migrations.query.windows.meaning import windows_in

# FROM, WHERE and HAVING: the sources of a stage, and the conditions on its rows.


def read_sources(block: SelectBlock) -> None:
    """FROM: sources and names."""
    clause = block.node.args.get("from_")
    if clause is None or reads_dual(clause.this, block.node):
        block.scope = Scope((), _outside(block))
        return
    reader = FromClause(block.stage, block.context, block.plan, block.correlations, block.doubts)
    named = reader.read(clause.this, block.node.args.get("joins") or ())
    block.stage.source, block.inner = named.source, reader.below
    block.scope = Scope(named.bounds, _outside(block))


def _outside(block: SelectBlock) -> Outer | None:
    return None if block.context.outer is None else block.context.outer.resolve


def filter_rows(block: SelectBlock) -> None:
    """WHERE."""
    where = block.node.args.get("where")
    parts = [] if where is None else list(conjuncts(where.this))
    plain = [part for part in parts if not has_query(part)]
    _restrict(block, plain, "WHERE", None)
    _correlate(block, _outer_of_groups(block))
    # They see the rows that the other conditions leave.
    _restrict(block, [part for part in parts if has_query(part)], "WHERE", None)
    _correlate(block, ())
    block.read_later()


def _correlate(block: SelectBlock, further: Sequence[Expression]) -> None:
    is_plain = not any(block.node.args.get(key) for key in ("group", "having", "limit", "offset", "distinct"))
    marks = is_plain and block.context.asked is not Asked.ROWS and not _aggregates(block)
    block.correlations.take(block.stage, further, marks=marks)


def _aggregates(block: SelectBlock) -> bool:
    """Whether rows of the answer are made of several rows, by aggregates or by windows."""
    order = block.node.args.get("order")
    parts = [*block.node.expressions, *([] if order is None else [order])]
    return any(windows_in(part) or any(aggregates_in(part)) for part in parts)


def _outer_of_groups(block: SelectBlock) -> list[Expression]:
    """The columns of queries around that are read outside of WHERE."""
    if block.context.outer is None or _is_only_counted(block):
        return []
    found = [node for part in block.node.expressions for node in own_nodes(part)]
    clauses = [block.node.args.get(key) for key in ("group", "having", "order")]
    later = (node for clause in clauses if clause is not None for node in own_nodes(clause))
    found += (n for n in later if not isinstance(n, exp.Column) or n.table or block.item(n.name) is None)
    outside: list[Expression] = []
    for node in found:
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            own = block.scope.find(node.name, node.table) if node.table else block.scope.fields(node.name)
            column = block.context.outer.resolve(node) if own in (None, []) else None
            outside += [] if column is None else [column]
    return outside


def _is_only_counted(block: SelectBlock) -> bool:
    """Whether it is only asked if there are rows, and each row of FROM that WHERE leaves is one."""
    clauses = any(block.node.args.get(key) for key in ("group", "having"))
    return block.context.asked is Asked.EXISTENCE and not clauses and not _aggregates(block)


def filter_groups(block: SelectBlock) -> None:
    """HAVING: over groups, where there are any, and over rows where there are none."""
    having = block.node.args.get("having")
    if having is not None:
        _restrict(block, list(conjuncts(having.this)), "HAVING", lambda node: _alias(block, node))


def _restrict(block: SelectBlock, parts: Sequence[exp.Expr], place: str, aliases: Replacement | None) -> None:
    """Parameters and subqueries that restrict rows are taken out; the other conditions must hold."""
    translate = partial(block.translate if place == "WHERE" else block.own, place=place, aliases=aliases)
    for part in parts:
        if block.merged is not None:
            block.stage.late.append(translate(part))
        elif is_parameterised(part):
            if block.stage.empties:
                raise Unsupported("a parameter on the result of an aggregate that has a parameter below it")
            block.stage.conditions += read_parameters(part, translate, block.stage, is_condition=True)
        elif not block.subqueries().restrict(part, translate):
            before = len(block.doubts)
            found = translate(part)
            doubts = block.doubts[before:]
            conditions = [call("or", found, *doubts)] if doubts else conditions_of(found)
            block.stage.late += filter(has_parameter, conditions)
            block.stage.conditions += filterfalse(has_parameter, conditions)


def _alias(block: SelectBlock, node: exp.Expr) -> Expression | None:
    """HAVING looks for a name among the groups first, then in the SELECT list."""
    if not isinstance(node, exp.Column) or node.table or block.names_group(node.name):
        return None
    item = block.item(node.name)
    return None if item is None else block.translate(item, "HAVING")


Pass = Callable[[SelectBlock], None]


def list_outputs(block: SelectBlock) -> None:
    """The SELECT list."""
    if not block.node.expressions:
        raise SqlError("the SELECT list is empty")
    taken: set[str] = set()
    written: list[exp.Expr] = []
    translate = block.translate if _is_only_counted(block) else block.own
    for item in block.node.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            bounds = block.scope.star(item.table if isinstance(item, exp.Column) else "")
            found = [(bound.name, block.column(bound.field, bound.name)) for bound in bounds]
            written += [exp.column(bound.name, table=bound.table or None, quoted=True) for bound in bounds]
        else:
            found = [(output_name(item), translate(item, "the SELECT list"))]
            written.append(item)
        block.outputs += [Output(unique_name(name, taken), expression) for name, expression in found]
    if _is_only_counted(block):
        block.outputs = [Output("one", truth(True))]
    if written != block.node.expressions:
        block.context.edits.append(lambda: block.node.set("expressions", written))


def sort_rows(block: SelectBlock) -> None:
    """ORDER BY: positions, aliases, then anything that the SELECT list could hold."""
    clause = block.node.args.get("order")
    for term in clause.expressions if clause is not None and not _is_only_counted(block) else ():
        expression = block.correlations.put(_sort_expression(block, term.this), block.stage)
        if not isinstance(expression, Constant):
            block.order.append(sorting(expression, sorting_direction(term)))


PASSES: tuple[Pass, ...] = (
    read_sources,
    filter_rows,
    group_rows,
    filter_groups,
    add_windows,
    list_outputs,
    sort_rows,
)


def plan_select(node: exp.Select, context: QueryContext, plan: Plan) -> Relation:
    """The relation that a SELECT block means; ORDER BY and LIMIT are noted in it and not yet carried out."""
    block = SelectBlock(node, context, plan)
    for step in PASSES:
        step(block)
    return _with_limit(_finished(block), node)


def output_name(item: exp.Expr) -> str:
    """The name of a SELECT item: its alias, its column's name, or its text."""
    if isinstance(item, exp.Alias):
        return item.alias
    return item.name if isinstance(item, exp.Column) else text_of(item)


def unique_name(name: str, taken: set[str]) -> str:
    """``id``, ``id_2``, ``id_3`` …"""
    candidate, count = name, 1
    while candidate.lower() in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate.lower())
    return candidate


def _sort_expression(block: SelectBlock, node: exp.Expr) -> Expression:
    if isinstance(node, exp.Literal) and not node.is_string:
        if not node.this.isdigit() or not 1 <= int(node.this) <= len(block.outputs):
            raise SqlError(f"ORDER BY {node.this}: the SELECT list has {len(block.outputs)} columns")
        return block.outputs[int(node.this) - 1].expression
    whole = node.unnest()
    return block.translate(node, "ORDER BY", lambda part: _aliased(block, part, is_whole=part is whole))


def _aliased(block: SelectBlock, node: exp.Expr, *, is_whole: bool) -> Expression | None:
    """ORDER BY looks for a name in the SELECT list first, then among the columns; within an expression, as in
    ``SELECT -n AS n … ORDER BY n + 0``, MySQL does it the other way round."""
    if not isinstance(node, exp.Column) or node.table:
        return None
    if not is_whole and len(block.scope.fields(node.name)) == 1:
        return None
    item = block.item(node.name)
    return None if item is None else block.translate(item, "ORDER BY")


def _finished(block: SelectBlock) -> Relation:
    """The last stage arranged, with all expressions over its plan's row; then DISTINCT."""
    if block.inner is not None:
        return _above(block, block.inner)
    if block.merged is not None:
        return _merged(block, block.merged)
    block.begin()
    stage = block.stage
    arranged = stage.arrange(block.context.statistics)
    nothing = stage.empty_row()
    if nothing is not None and any(block.correlations.reads(output.expression) for output in block.outputs):
        raise Unsupported(
            "a column of the query around beside an aggregate without GROUP BY",
            hint="compute with the subquery's value outside of it",
        )
    empty = None if nothing is None else tuple(_of_nothing(output.expression, nothing) for output in block.outputs)
    plan, places = extended(
        arranged.plan, [arranged.put(c.expression) for c in stage.carried], [c.slot.name for c in stage.carried]
    )
    relation = Relation(
        plan=plan,
        outputs=tuple(Output(output.name, arranged.put(output.expression)) for output in block.outputs),
        carried=tuple(Carried(place, c.slot) for place, c in zip(places, stage.carried, strict=True)),
        empty=empty,
        order=tuple(Sorting(arranged.put(term.expression), term.descending) for term in block.order),
        late=stage.late_parts(arranged),
        linked=tuple(map(arranged.put, stage.linked)),
        uniques=_uniques(stage, arranged),
    )
    is_distinct = block.node.args.get("distinct") is not None and not _is_only_counted(block)
    return _distinct(relation) if is_distinct else relation


def _of_nothing(e: Expression, nothing: Mapping[int, Value]) -> Value:
    """An output where there is no row; of one with a parameter it is known where it is NULL whatever that is."""
    if not has_parameter(e):
        return value_of(e, nothing)
    if all(nothing.get(place) is not None for place in null_rejected(call("is_not_null", e))):
        raise Unsupported("a parameter beside the result of an aggregate that has a parameter below it")
    return None


def _uniques(stage: SelectStage, arranged: Arranged) -> tuple[frozenset[int], ...]:
    """Sets of columns with the values of which there is one row at most: what is carried, or a key of one source."""
    assert stage.source is not None
    carried = frozenset(c.expression.position for c in stage.carried if isinstance(c.expression, Field))
    rows, links = sources_of(stage.source), links_of(stage.source)

    def is_unique(key: frozenset[int]) -> bool:
        """Whether it decides a key of each source: a bag has rows that no column tells apart."""
        known = determined(stage, key, stage.uniques, links)
        return all(any(row == own and inner <= known for inner, own in stage.uniques) for row in rows)

    keys = dict.fromkeys([carried, *(key for key, own in stage.uniques if own in rows)])
    return tuple(frozenset(map(arranged.place, key)) for key in keys if is_unique(key))


def _merged(block: SelectBlock, groups: LateGroups) -> Relation:
    """The rows that groups are made of when the answer is read; all above them is worked out then."""
    assert block.below is not None, "groups are of something"
    return _read_late(block, block.below, groups, [*block.closed, block.stage])


def _read_late(
    block: SelectBlock, below: Relation, groups: LateGroups | None, stages: Sequence[SelectStage]
) -> Relation:
    """What is done to the rows of a relation when they are read; HAVING is that of the first stage."""
    if any(stage.leaves > 1 for stage in stages):
        raise Unsupported(
            "a subquery or join beside rows that are worked out when the answer is read", hint="ask for it by itself"
        )
    having = (*stages[0].conditions, *stages[0].late)
    return replace(
        below,
        outputs=tuple(block.outputs),
        order=tuple(block.order),
        late=replace(
            below.late,
            groups=None if groups is None else replace(groups, having=having),
            windows=block.windows,
            distinct=block.node.args.get("distinct") is not None,
            slots=(*below.late.slots, *(slot for stage in stages for slot in stage.slots)),
        ),
    )


def _above(block: SelectBlock, inner: Relation) -> Relation:
    """All of the block is done to the answer of the query below it, when that is read; see ``LateParts``.

    What compares a column of it with a parameter is a key nevertheless, where the answer has that column of its rows.
    """
    first, *stages = [*block.closed, block.stage]
    first.merge_parameters()
    places = [_place_below(each, inner) for each in first.carried]
    keys = tuple(Carried(at, c.slot) for c, at in zip(first.carried, places, strict=True) if at is not None)
    others = [c for c, at in zip(first.carried, places, strict=True) if at is None]
    if any(c.slot.outer is not None for c in others):
        raise Unsupported("a subquery that compares what comes to be when the answer is read with the query around")
    first.slots += [each.slot for each in others]
    below = inner.outermost if inner.limit is not None else replace(inner.outermost, order=())
    late = LateParts(
        inner.late.conditions,
        inner.late.matches,
        slots=(*inner.late.slots, *first.slots),
        single=inner.late.single,
        below=(*inner.late.below, below),
        filters=(*first.conditions, *first.late, *map(late_condition, others)),
    )
    carried = (*inner.carried, *keys)
    relation = replace(inner, carried=carried, late=late, limit=None, offset=0, uniques=())
    if first.leaves > 1:
        stages = [first]
    return _read_late(block, relation, block.merged, stages or [SelectStage()])


def _place_below(asked: Wide, inner: Relation) -> int | None:
    """The column of the plan that is this one of the answer; None where more of its rows decide about the answer's."""
    late = inner.late
    if late.below or late.matches or late.single or inner.limit is not None or not isinstance(asked.expression, Field):
        return None
    if any(is_same_value(slot, asked.slot) for slot in (*(c.slot for c in inner.carried), *late.slots)):
        return None
    if asked.expression.position >= len(inner.outputs):
        raise Unsupported("a parameter beside a column of another table than what comes to be when the answer is read")
    column = inner.outputs[asked.expression.position].expression
    if late.groups is not None and isinstance(column, Field):
        column = late.groups.group[column.position] if column.position < len(late.groups.group) else asked.expression
        if column is asked.expression:
            return None
    return column.position if isinstance(column, Field) else None


def _distinct(relation: Relation) -> Relation:
    if _is_late_distinct(relation):
        return replace(relation, late=replace(relation.late, distinct=True))
    unique = deduplicated(relation)
    order = tuple(Sorting(_over_outputs(t.expression, relation, unique), t.descending) for t in relation.order)
    return replace(unique, order=order)


def _is_late_distinct(relation: Relation) -> bool:
    """Whether answers are made distinct when they are read: more of a row decides than what is shown of it."""
    visible = [output.expression for output in relation.outputs]
    several = (relation.plan.field(c.column) for c in relation.carried if c.slot.kind in SEVERAL)
    late = bool(relation.late.conditions or relation.late.matches or relation.late.single)
    return late or any(map(has_parameter, visible)) or any(f not in visible for f in several)


def _over_outputs(expression: Expression, before: Relation, after: Relation) -> Expression:
    """A sort expression over the rows that DISTINCT leaves."""
    for old, new in zip(before.outputs, after.outputs, strict=True):
        if old.expression == expression:
            return new.expression
    if isinstance(expression, Call):
        arguments = tuple(_over_outputs(argument, before, after) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.type)
    if isinstance(expression, Field):
        name = before.plan.columns[expression.position].name
        raise SqlError(f'ORDER BY "{name}" is not in the SELECT list, which DISTINCT needs', hint="select it as well")
    return expression


def _with_limit(relation: Relation, node: exp.Expr) -> Relation:
    limit, offset = read_limit(node)
    if limit is None and offset == 0:
        return relation
    return replace(relation, limit=limit, offset=offset)


# A SELECT without FROM has one row, which is computed at once.


def reads_nothing(relation: exp.Expr) -> bool:
    """Whether a query is made of SELECTs without FROM (or FROM DUAL), so that :func:`constant_select` answers it."""
    if isinstance(relation, exp.SetOperation) and relation.args.get("with_") is None:
        return reads_nothing(relation.this) and reads_nothing(relation.expression)
    if isinstance(relation, exp.Subquery) and not relation.alias and relation.args.get("with_") is None:
        return reads_nothing(relation.this)
    if not isinstance(relation, exp.Select):
        return False
    clause = relation.args.get("from_")
    alone = clause is None or reads_dual(clause.this, relation)
    return alone and not any(relation is not node for node in relation.find_all(exp.Select))


def reads_dual(first: exp.Expr, select: exp.Select) -> bool:
    return isinstance(first, exp.Table) and first.name.lower() == "dual" and not select.args.get("joins")


def constant_select(relation: exp.Expr, setting: Setting = Setting()) -> ConstantRows:
    """The row of ``SELECT 1 + 1``. ``setting`` says what a ``?`` and NOW() are.

    :raises Unsupported: it reads a table, or has GROUP BY.
    """
    if not reads_nothing(relation):
        raise Unsupported("a query that is not a SELECT without FROM as a constant")
    if isinstance(relation, exp.SetOperation):
        return combined(relation, lambda side: constant_select(side, setting))
    if isinstance(relation, exp.Subquery):
        return in_order(relation, constant_select(relation.this, setting))
    assert isinstance(relation, exp.Select), "a query is one of these"
    if relation.args.get("group"):
        raise Unsupported("GROUP BY without FROM")
    try:
        return _evaluated(relation, setting)
    except RecursionError:
        raise LimitExceeded("the expression nests too deep") from None


def _evaluated(relation: exp.Select, setting: Setting) -> ConstantRows:
    if not relation.expressions:
        raise SqlError("the SELECT list is empty")
    scope, constants = Scope(()), FoldBudget()
    where, having = relation.args.get("where"), relation.args.get("having")
    stays = where is None or compile_predicate(scalar(where.this, scope, setting))(())
    parts = [*relation.expressions, *([] if having is None else [having.this])]
    aggregates = dict.fromkeys(node for part in parts for node in aggregates_in(part))
    if aggregates:
        rows: list[Row] = [()] if stays else []
        known = {node: _summarised(node, rows, scope, setting) for node in aggregates}
        setting, stays = replace(setting, replace=known.get), True
    if having is not None and stays:
        aliases = {item.alias.lower(): item.this for item in relation.expressions if isinstance(item, exp.Alias)}
        stays = compile_predicate(scalar(_without_aliases(having.this, aliases), scope, setting))(())
    expressions: list[Expression] = []
    names: list[str] = []
    for item in relation.expressions:
        if isinstance(item, exp.Star):
            raise SqlError("SELECT * without FROM")
        expressions.append(fold(scalar(item, scope, setting), constants))
        names.append(output_name(item))
    columns = tuple(Column(name, e.type) for name, e in zip(names, expressions, strict=True))
    row = tuple(compile_expression(e)(()) for e in expressions)
    limit, offset = read_limit(relation)
    return ConstantRows(columns, (row,) if stays and limit != 0 and offset == 0 else ())


def _summarised(node: exp.Expr, rows: Sequence[Row], scope: Scope, setting: Setting) -> Expression:
    """An aggregate over the one row of a SELECT without FROM, or over none."""
    meant = summary(node, lambda part: fold(scalar(part, scope, setting)), is_operand=is_operand(node))
    argument = None if meant.argument is None else 0
    terms = tuple(OrderTerm(1 + at, term.descending) for at, term in enumerate(meant.order))
    call = AggregateCall(meant.function, argument, meant.type, meant.separator, terms)
    order = tuple(term.expression for term in meant.order)
    value = summarised(LateCall(call, meant.argument, order, None, meant.of_nothing), rows)
    return shown(Constant(value, meant.type), meant.shown or meant.type)


def _without_aliases(condition: exp.Expr, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
    """HAVING with the expressions that names of the SELECT list stand for."""

    def meant(node: exp.Expr) -> exp.Expr:
        is_name = isinstance(node, exp.Column) and not node.table
        return aliases[node.name.lower()].copy() if is_name and node.name.lower() in aliases else node

    return condition.transform(meant)
