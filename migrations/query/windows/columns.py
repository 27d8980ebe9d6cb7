"""OVER: window functions are columns of the rows that WHERE, GROUP BY and HAVING leave.

::

    ω_{g, c; o; f}(X)  =  X with f over the rows of X that agree on g and c, in the order o, ties by the row

``c`` are the columns that are carried: those that the query's own parameters are compared with, and those by which a
subquery is correlated. For each of their values a window sees the rows of that value, as it would if it stood in WHERE
as a constant. All functions of one PARTITION BY and ORDER BY are one ω; for others another one stands above it.

A condition of a query around this one comes after the windows: it passes below an ω only if it reads columns of its g
alone. ``ROW_NUMBER() … <= k`` is a top-k: see ``plan.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from domains.errors import Unsupported
from domains.language.expressions import Expression
from domains.language.types import Column
from domains.plan.graph import Columns, OrderTerm, Over, WindowCall
from migrations.parse.reading import exp
from migrations.query.block import SelectBlock
from migrations.query.expressions.late import has_parameter
from migrations.query.expressions.literals import NOTHING, shown
from migrations.query.joins import Arranged
from migrations.query.plan import RelationalPlan, extended, projected
from migrations.query.relation import SEVERAL
from migrations.query.stage import SelectStage, refuse_matches, stage_of
from migrations.query.windows.meaning import WindowMeaning, named_windows, window_meaning, windows_in


def add_windows(block: SelectBlock) -> None:
    """Window functions of the SELECT list and ORDER BY, as further columns of the present stage."""
    names = named_windows(block.node)
    order = block.node.args.get("order")
    parts = [*block.node.expressions, *([] if order is None else [order])]
    nodes = list(dict.fromkeys(window for part in parts for window in windows_in(part)))
    if not nodes:
        return
    meanings = {w: window_meaning(w, names, lambda n: block.own(n, "a window function")) for w in nodes}
    _check(block, meanings)
    first, before = block.stage, block.known
    arranged = first.arrange(block.context.statistics)
    if first.empty_row() is not None:
        raise Unsupported(
            "a window function over an aggregate without GROUP BY that has a parameter below it",
            hint="group by the parameter's column",
        )
    wide, titles = _all_columns(arranged, first.width)
    plan = projected(arranged.plan, wide, titles)
    plan, places = _over(plan, meanings, [c.expression for c in first.carried])
    second = stage_of(plan)
    second.carried, second.slots, second.single = first.carried, first.slots, first.single
    columns: dict[exp.Expr, Expression] = {
        node: shown(plan.field(places[node]), meant.shown or meant.type) for node, meant in meanings.items()
    }
    block.stage = second
    block.known = lambda node: columns[node] if isinstance(node, exp.Window) else before(node) if before else None


def _all_columns(arranged: Arranged, width: int) -> tuple[list[Expression], list[str]]:
    """The wide row with its titles. What only marks rows has columns in it that nothing can read: they are NULL."""
    wide: list[Expression] = [NOTHING] * width
    titles = [""] * width
    for place, at in enumerate(arranged.layout):
        if at >= 0:
            wide[at], titles[at] = arranged.plan.field(place), arranged.plan.columns[place].name
    return wide, titles


def _check(block: SelectBlock, meanings: dict[exp.Window, WindowMeaning]) -> None:
    """:raises Unsupported: parameters that decide only when the answer is read which rows a window has."""
    stage: SelectStage = block.stage
    refuse_matches(stage, "a window function")
    if block.merged is not None or stage.late or any(has_parameter(e) for m in meanings.values() for e in m.operands()):
        raise Unsupported(
            "a parameter below a window function that is no column = ?: it is applied when the answer is read, and the "
            "window comes before",
            hint="compare a column with the parameter by =, or put the window into a subquery, the parameter outside",
        )
    stage.merge_parameters()
    for carried in stage.carried:
        if carried.slot.kind in SEVERAL and not all(carried.expression in m.partition for m in meanings.values()):
            raise Unsupported(
                f'the parameter "{carried.slot.name}" asks for several values below a window function, whose rows mix '
                "those values",
                hint=f'use "{carried.slot.name} = ?", make its column one of PARTITION BY, or put the window into a '
                "subquery and the parameter around it",
            )


def _over(
    plan: RelationalPlan, meanings: dict[exp.Window, WindowMeaning], carried: list[Expression]
) -> tuple[RelationalPlan, dict[exp.Window, int]]:
    """The plan with all functions as further columns, and where each of them is."""
    operands = list(dict.fromkeys([*carried, *(e for m in meanings.values() for e in m.operands())]))
    plan, at = extended(plan, operands, [f"operand_{number}" for number in range(len(operands))])
    place = dict(zip(operands, at, strict=True)).__getitem__
    windows: dict[tuple[Columns, tuple[OrderTerm, ...]], dict[WindowCall, list[exp.Window]]] = {}
    for node, meant in meanings.items():
        partition = tuple(dict.fromkeys(place(e) for e in (*carried, *meant.partition)))
        order = tuple(OrderTerm(place(term.expression), term.descending) for term in meant.order)
        windows.setdefault((partition, order), {}).setdefault(_call(meant, place), []).append(node)
    places: dict[exp.Window, int] = {}
    for (partition, order), calls in windows.items():
        for number, nodes in enumerate(calls.values()):
            places.update(dict.fromkeys(nodes, plan.width + number))
        columns = tuple(Column(each.function.value, each.type) for each in calls)
        plan = RelationalPlan(Over(partition, order, tuple(calls)), (plan,), plan.columns + columns)
    return plan, places


def _call(meant: WindowMeaning, place: Callable[[Expression], int]) -> WindowCall:
    argument = None if meant.argument is None else place(meant.argument)
    default = None if meant.default is None else place(meant.default)
    return WindowCall(meant.function, argument, meant.type, meant.frame(place), meant.number, default)
