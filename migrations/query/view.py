"""How a SELECT becomes the nodes of a view and the reader at their end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from domains.errors import LimitExceeded, SqlError, Unsupported
from domains.language.rewriting import FoldBudget
from domains.language.types import Column
from domains.plan.estimates import Statistics
from domains.plan.graph import Columns, NodeIndex, OrderTerm, Parameter, ParameterKind, RangeTerm, Reader
from domains.plan.traits import is_base
from migrations.catalog import Catalog
from migrations.joint_graph.graph import JointGraph
from migrations.joint_graph.provenance import traced
from migrations.parse.namespaces import groups_of, reads_itself
from migrations.parse.reading import exp, nodes
from migrations.query.expressions.drawing import is_drawn
from migrations.query.expressions.late import has_parameter
from migrations.query.expressions.moments import HiddenParameter, claim_of
from migrations.query.expressions.ranges import SoughtRange, begins_with, ranged_parameters, sought_range
from migrations.query.finish import Finish
from migrations.query.plan import emit
from migrations.query.plans.late_queries import Sorting
from migrations.query.plans.naming import PlacedParameter, name_parameters, told_apart
from migrations.query.plans.parts import (
    answer_of,
    answers_below,
    beside_each_other,
    finish_of,
    kept_part,
    keys_and_conditions,
    keys_of,
)
from migrations.query.plans.pruning import pruned
from migrations.query.plans.recursion import plan_recursion
from migrations.query.relation import (
    EQUALITIES,
    ORDERS,
    LateParts,
    QueryContext,
    Relation,
    Slot,
    bounded,
    limited,
    settled,
)
from migrations.query.select import plan_select
from migrations.query.setops import plan_set_operation, sorted_and_limited
from migrations.query.source import named_columns
from migrations.query.sources.hints import partial_by
from migrations.query.sources.origins import with_origins
from migrations.query.stage import Wide, is_same_value, late_condition


def plan_query(node: exp.Expr, context: QueryContext) -> Relation:
    """The relation that a SELECT, a UNION or a query in parentheses means, with all names resolved.

    :raises SqlError: the text is wrong.
    :raises Unsupported: right SQL that is not done.
    """
    if context.text is None:
        return _whole(node, replace(context, text=node))
    clause = node.args.get("with_")
    if clause is not None:
        context = _with_ctes(clause, context)
    if isinstance(node, exp.Select):
        return plan_select(node, context, plan_query)
    if isinstance(node, exp.SetOperation):
        return plan_set_operation(node, context, plan_query)
    if isinstance(node, exp.Subquery):
        return _in_parentheses(node, context)
    raise Unsupported(f"{type(node).__name__.upper()} as a query", hint="use SELECT")


def _whole(node: exp.Expr, context: QueryContext) -> Relation:
    """All of a query. Of a view that another query in it cannot read before the answer is read, what is below that is
    put off till then, too: what needs nothing of the kind keeps the plan that it has, and what can be joined is not
    asked for each row around."""
    edits = len(context.edits)
    try:
        return plan_query(node, context)
    except Unsupported:
        for asks_each in (False, True) if context.declared else ():
            del context.edits[edits:]
            more = replace(context, puts_off=True, asks_each=asks_each, answers=[], constants=FoldBudget())
            with suppress(Unsupported):
                return plan_query(node, more)
        raise


def _in_parentheses(node: exp.Subquery, context: QueryContext) -> Relation:
    relation = plan_query(node.this, context.inside(context.outer))
    modified = [key for key in ("order", "limit", "offset") if node.args.get(key) is not None]
    return sorted_and_limited(bounded(relation), node) if modified else relation


def _with_ctes(clause: exp.With, context: QueryContext) -> QueryContext:
    names: set[str] = set()
    for cte in clause.expressions:
        if cte.alias.lower() in names:
            raise SqlError(f'the name "{cte.alias}" is used twice in WITH')
        names.add(cte.alias.lower())
        if not isinstance(cte.this, exp.Query):
            raise Unsupported(f'WITH "{cte.alias}" that is not a SELECT')
    is_recursive = bool(clause.args.get("recursive"))
    for group in groups_of(clause):
        if is_recursive and reads_itself(group):
            for name, relation in plan_recursion(group, context, plan_query).items():
                context = context.with_cte(name, relation)
            continue
        (cte,) = group
        relation = plan_query(cte.this, context.inside(context.outer))
        named = named_columns(relation, [column.name for column in cte.args["alias"].columns], cte.alias)
        context = context.with_cte(cte.alias, named)
    return context


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A view whose nodes are in the graph; its Reader node is yet to be added above ``root``."""

    name: str
    root: NodeIndex
    """Its columns are the visible ones, then the hidden ones."""
    reader: Reader
    columns: tuple[Column, ...]
    """The visible columns."""
    parameters: tuple[Parameter, ...]
    tables: frozenset[str]
    """The base tables below it, by their names in the catalog."""
    placeholders: tuple[int, ...]
    """The parameter that each ``?`` feeds, in the order of the text (a view's own where its name stands)."""
    finish: Finish | None = None
    """What is done to the reader's rows when they are read, where that is anything."""
    hidden: tuple[HiddenParameter, ...] = ()
    """Behind the ``parameters``, among those of the reader: those that the time and claims of a request fill in."""
    unique: tuple[int, ...] | None = None
    """Visible columns that tell the rows of an answer apart, but for NULL; None where none are known to."""


def plan_view(
    catalog: Catalog,
    graph: JointGraph,
    name: str,
    relation: exp.Expr,
    *,
    columns: Sequence[str] = (),
    meaning: Relation | None = None,
    statistics: Statistics | None = None,
    drawn: bool = False,
) -> PlannedView:
    """Plan a view's SELECT and add its nodes to ``graph``; nothing is added if it fails.

    ``meaning`` is what the SELECT comes to in this catalog, where the caller knows it already; ``statistics`` decide
    the order of joins of what is no view of a recipe.

    :raises SqlError: the text is wrong. :raises Unsupported: right SQL that is not done.
    """
    try:
        meant = (
            plan_query(relation, QueryContext(catalog, statistics=statistics, drawn=drawn, declared=not drawn))
            if meaning is None
            else meaning
        )
        made = _finished(named_columns(meant, columns, name), relation, graph, name)
        return replace(made, columns=with_origins(made.columns, relation, columns, catalog))
    except RecursionError:
        raise LimitExceeded("the query nests too deep", hint="split it into several views") from None


def frozen(catalog: Catalog, relation: exp.Query) -> tuple[exp.Query, Relation | None]:
    """The query with ``*`` and NATURAL written out, as MySQL keeps a view: columns that a table gets later stay out.

    The text given is left as it is. To be kept in a :class:`ViewDefinition`, whose query is planned anew wherever the
    view is read. Also answers what it means, so that it need not be planned again at once; None where something was
    written out, since it is then another text.
    """
    try:
        context = QueryContext(catalog, declared=True)
        meaning = plan_query(relation, context)
        if not context.edits:
            return relation, meaning
        copy, context = relation.copy(), QueryContext(catalog, declared=True)
        plan_query(copy, context)
    except RecursionError:
        raise LimitExceeded("the query nests too deep", hint="split it into several views") from None
    for edit in context.edits:
        edit()
    return copy, None


def asks(meaning: Relation) -> bool:
    """Whether a query has parameters."""
    return (
        bool(meaning.carried)
        or bool(meaning.late.slots)
        or isinstance(meaning.limit, Slot)
        or isinstance(meaning.offset, Slot)
    )


def _finished(relation: Relation, written: exp.Expr, graph: JointGraph, name: str) -> PlannedView:
    if answers_below(relation):
        made = _finished_late(relation, written, graph, name)
    elif _range_of(relation) is not None:
        made = _finished_range(relation, written, graph, name)
    elif is_late(relation):
        made = _finished_late(relation, written, graph, name)
    else:
        made = _finished_plain(relation, written, graph, name)
    return replace(made, unique=told_apart(relation))


def _finished_plain(relation: Relation, written: exp.Expr, graph: JointGraph, name: str) -> PlannedView:
    visible = relation.columns
    limit, offset = relation.limit, relation.offset
    if isinstance(limit, int) and isinstance(offset, int) and _has_one_key(relation):
        # The limit holds within each key, so it is applied where the key's rows change and not at every reading.
        relation = limited(relation, limit, offset)
        limit, offset = None, 0
    relation, places = settled(relation, extra=[term.expression for term in relation.order])
    slots = _slots(relation, limit, offset)
    _refuse_lost_placeholders(written, slots)
    parameters = name_parameters(slots, relation.plan.columns)
    root = emit(pruned(relation.plan), graph)
    key, seek = _sought(slots, written, name, parameters, graph, root)
    reader = Reader(
        view=name,
        key=key,
        seek=seek,
        order=tuple(OrderTerm(place, t.descending) for place, t in zip(places, relation.order, strict=True)),
        visible=len(visible),
        parameters=parameters,
        limit=limit if isinstance(limit, int) else None,
        offset=offset if isinstance(offset, int) else 0,
        empty=relation.empty,
    )
    shown, hidden = _parted(slots, parameters)
    return PlannedView(name, root, reader, visible, shown, _tables(graph, root), _placeholders(slots), hidden=hidden)


def _parted(
    slots: Sequence[PlacedParameter], parameters: tuple[Parameter, ...]
) -> tuple[tuple[Parameter, ...], tuple[HiddenParameter, ...]]:
    """The parameters that clients give, and those that follow from the time."""
    hidden = tuple(
        HiddenParameter(parameter, p.slot.moment, claim_of(p.slot.moment))
        for p, parameter in zip(slots, parameters, strict=True)
        if p.slot.moment is not None
    )
    return parameters[: len(parameters) - len(hidden)], hidden


def _sought(
    slots: Sequence[PlacedParameter],
    written: exp.Expr,
    name: str,
    parameters: Sequence[Parameter],
    graph: JointGraph,
    root: NodeIndex,
) -> tuple[Columns, Columns]:
    """The columns that are the reader's key, and those that are sought within it."""
    equal = _columns_of(slots, EQUALITIES)
    ranged = tuple(column for column in _columns_of(slots, ORDERS) if column not in equal)
    hinted = partial_by(written)
    key = equal if hinted is None else _hinted_key(hinted, name, parameters, graph, root)
    return key, (*(column for column in equal if column not in key), *ranged)


def _range_of(relation: Relation) -> SoughtRange | None:
    """What the parameters that are no keys come to, where they are one range, and nothing else is left to reading. A
    range of one column alone is one only if ORDER BY begins with that column, and so makes the walk."""
    late = relation.late
    shown = [*(o.expression for o in relation.outputs), *(t.expression for t in relation.order)]
    made = late.groups or late.windows or late.distinct or late.below
    if late.single or made or relation.empty is not None:
        return None
    asked = (*(c.slot for c in relation.carried), *late.slots)
    if any(map(has_parameter, shown)) or any(slot.moment is not None for slot in asked):
        return None
    plan = relation.plan
    compared = [late_condition(Wide(plan.field(c.column), c.slot)) for c in relation.carried if c.slot.kind in ORDERS]
    found = sought_range((*late.conditions, *compared))
    equal = [c for c in relation.carried if c.slot.kind in EQUALITIES]
    if found is None or any(c.column in found.columns for c in equal):
        return None
    if any(is_same_value(c.slot, slot) for c in equal for slot in late.slots):
        return None  # A reader's parameter is a key or a bound of a range.
    return found if late.conditions or begins_with(relation.order, found.columns) else None


def _finished_range(relation: Relation, written: exp.Expr, graph: JointGraph, name: str) -> PlannedView:
    """A view that is walked within a range of its order, or of columns that are sought before it."""
    visible, limit, offset = relation.columns, relation.limit, relation.offset
    relation, places = settled(relation, extra=[term.expression for term in relation.order])
    order = tuple(OrderTerm(place, t.descending) for place, t in zip(places, relation.order, strict=True))
    found = _range_of(
        replace(relation, order=tuple(Sorting(relation.plan.field(t.column), t.descending) for t in order))
    )
    assert found is not None, "it is one of the relation before its columns had their places"
    placed = [(relation.plan.field(c.column), c.slot) for c in relation.carried]
    slots, _ = keys_and_conditions(placed, relation.late.slots)  # No condition is left: a range begins with one column.
    slots += [PlacedParameter(count, None) for count in (limit, offset) if isinstance(count, Slot)]
    slots.sort(key=lambda p: p.slot.marks[0])
    _refuse_lost_placeholders(written, slots)
    at = {mark: number for number, p in enumerate(slots) for mark in keys_of(p.slot)}
    ranges = tuple(
        tuple(tuple(RangeTerm(t.column, t.kind, at[t.key]) for t in terms) for terms in alternatives)
        for alternatives in found.conditions
    )
    parameters = ranged_parameters(name_parameters(slots, relation.plan.columns), ranges, relation.plan.columns)
    root = emit(pruned(relation.plan), graph)
    equal = [PlacedParameter(p.slot, p.column) for p in slots if p.slot.kind in EQUALITIES and p.column is not None]
    key, seek = _sought(equal, written, name, parameters, graph, root)
    if tuple(t.column for t in order[: len(found.columns)]) != found.columns:
        seek += found.columns
    reader = Reader(
        view=name,
        key=key,
        seek=seek,
        order=order,
        visible=len(visible),
        parameters=parameters,
        limit=limit if isinstance(limit, int) else None,
        offset=offset if isinstance(offset, int) else 0,
        ranges=ranges,
    )
    return PlannedView(name, root, reader, visible, parameters, _tables(graph, root), _placeholders(slots))


def is_late(relation: Relation) -> bool:
    """Whether a part of the query is worked out when it is read."""
    late = relation.late
    shown = [*(o.expression for o in relation.outputs), *(t.expression for t in relation.order)]
    ranged = {c.column for c in relation.carried if c.slot.kind in ORDERS}
    computed = any(map(has_parameter, shown))
    later = bool(late.conditions or late.matches or late.single or late.below or late.distinct)
    return later or bool(late.groups or late.windows) or computed or len(ranged) > 1


def _finished_late(relation: Relation, written: exp.Expr, graph: JointGraph, name: str) -> PlannedView:
    """The reader keeps what does not depend on the parameters that are no keys; the rest is the view's finish."""
    if relation.empty is not None:
        raise Unsupported(
            "a parameter that is no column = ? above an aggregate without GROUP BY that another query counts",
            hint="ask for the aggregate itself",
        )
    _refuse_drawn(relation.late)
    asked = answers_below(relation)
    parts = [kept_part(each) for each in (relation, *(slot.answer for slot in asked if slot.answer is not None))]
    if asked:
        parts = beside_each_other(parts)
    own, *below = parts
    slots, further = keys_and_conditions(own.placed, [slot for part in parts for slot in part.slots])
    own = replace(own, conditions=(*own.conditions, *further))
    limit, offset = relation.limit, relation.offset
    slots += [PlacedParameter(count, None) for count in (limit, offset) if isinstance(count, Slot)]
    slots.sort(key=lambda p: p.slot.rank)
    _refuse_lost_placeholders(written, slots)
    parameters = name_parameters(slots, own.plan.columns)
    root = emit(pruned(own.plan), graph)
    key, seek = _sought(slots, written, name, parameters, graph, root)
    places = tuple((mark, at) for at, p in enumerate(slots) for mark in keys_of(p.slot))
    finish = replace(finish_of(own, relation.columns, places), answers=tuple(map(answer_of, asked, below)))
    reader = Reader(name, key, seek, (), own.plan.width, parameters)
    shown, tables, (given, hidden) = relation.columns, _tables(graph, root), _parted(slots, parameters)
    return PlannedView(name, root, reader, shown, given, tables, _placeholders(slots), finish, hidden)


def _refuse_drawn(late: LateParts) -> None:
    """:raises Unsupported: rows are made of several ones after RAND() or UUID() was drawn for each."""
    drawn = [slot.name.split()[0][1:].upper() for slot in late.slots if is_drawn(slot.key)]
    if drawn and (late.groups is not None or late.windows is not None or late.distinct or late.below):
        raise Unsupported(
            f"{drawn[0]}() beside DISTINCT, or below an aggregate or GROUP BY",
            hint="it is drawn for each row of the answer: take DISTINCT or the groups in a query in FROM",
        )


def _has_one_key(relation: Relation) -> bool:
    """Whether every answer is made of the rows of one key."""
    return all(c.slot.kind is ParameterKind.EQUAL for c in relation.carried)


def _slots(relation: Relation, limit: int | Slot | None, offset: int | Slot) -> list[PlacedParameter]:
    """All parameters with their columns, in the order in which the statement names them."""
    placed = [PlacedParameter(c.slot, c.column) for c in relation.carried]
    placed += [PlacedParameter(count, None) for count in (limit, offset) if isinstance(count, Slot)]
    return sorted(placed, key=lambda p: p.slot.rank)


def _hinted_key(
    hinted: Sequence[str], view: str, parameters: Sequence[Parameter], graph: JointGraph, root: NodeIndex
) -> tuple[int, ...]:
    """The columns that PARTIAL_BY names, by the names of the parameters.

    :raises SqlError, Unsupported: the view cannot be partial by one of them.
    """
    known = {parameter.name.lower(): parameter for parameter in parameters}
    names = ", ".join(f'"{p.name}"' for p in parameters if p.kind in EQUALITIES)
    hint = f"those compared by = or IN are {names}" if names else "it has none that is compared by = or IN"
    columns: dict[int, None] = {}
    for name in hinted:
        found = known.get(name.lower())
        if found is None:
            raise SqlError(f'PARTIAL_BY: view "{view}" has no parameter "{name}"', hint=hint)
        if found.column is None or found.kind not in EQUALITIES:
            raise SqlError(f'PARTIAL_BY: the parameter "{name}" is not compared by = or IN', hint=hint)
        if not traced(root, found.column, graph.node):
            raise Unsupported(
                f'PARTIAL_BY: the parameter "{name}" cannot be followed up to a base table',
                hint="be partial by another, and it is sought within that one's rows",
            )
        columns[found.column] = None
    return tuple(columns)


def _columns_of(slots: Sequence[PlacedParameter], kinds: Sequence[ParameterKind]) -> tuple[int, ...]:
    columns = [p.column for p in slots if p.slot.kind in kinds and p.column is not None]
    return tuple(dict.fromkeys(columns))


def _placeholders(slots: Sequence[PlacedParameter]) -> tuple[int, ...]:
    fed = sorted((mark, i) for i, p in enumerate(slots) for mark in p.slot.marks)
    return tuple(i for _, i in fed)


def _refuse_lost_placeholders(written: exp.Expr, slots: Sequence[PlacedParameter]) -> None:
    """:raises Unsupported: a ``?`` stands in a part of the text that the answer does not depend on."""
    own = {mark for p in slots for mark in p.slot.marks if len(mark) == 1}
    count = sum(isinstance(node, exp.Placeholder) for node in nodes(written))
    if count != len(own):
        raise Unsupported(
            "a parameter in a part of the query that nothing reads", hint="leave out the WITH that is not used"
        )


def _tables(graph: JointGraph, root: NodeIndex) -> frozenset[str]:
    operators = (graph.node(index).operator for index in graph.ancestors(root))
    return frozenset(operator.table for operator in operators if is_base(operator))
