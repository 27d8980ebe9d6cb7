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
from dataclasses import replace

from domains.errors import Unsupported
from domains.language.expressions import Expression, Field
from domains.language.types import Column
from domains.plan.graph import Columns, OrderTerm, Over, WindowCall
from migrations.parse.reading import exp
from migrations.query.block import SelectBlock
from migrations.query.expressions.late import has_parameter
from migrations.query.expressions.literals import shown
from migrations.query.plan import RelationalPlan, extended, projected
from migrations.query.plans.late_queries import LateWindows
from migrations.query.relation import SEVERAL
from migrations.query.sources.tree import Leaf
from migrations.query.stage import SelectStage, all_columns, stage_of
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
    if _is_late(block, meanings):
        _add_late(block, meanings)
        return
    first = block.stage
    arranged = first.arrange(block.context.statistics)
    if first.empty_row() is not None:
        raise Unsupported(
            "a window function over an aggregate without GROUP BY that has a parameter below it",
            hint="group by the parameter's column",
        )
    wide, titles = all_columns(arranged, first.width)
    plan = projected(arranged.plan, wide, titles)
    carried = [c.expression for c in first.carried]
    operands = _operands(meanings, carried)
    plan, at = extended(plan, operands, [f"operand_{number}" for number in range(len(operands))])
    overs, places = _overs(meanings, carried, dict(zip(operands, at, strict=True)).__getitem__, plan.width)
    for over in overs:
        plan = RelationalPlan(over, (plan,), (*plan.columns, *_columns(over)))
    second = stage_of(plan)
    second.carried, second.slots, second.single = first.carried, first.slots, first.single
    _know(block, second, meanings, places)


def _know(
    block: SelectBlock, stage: SelectStage, meanings: dict[exp.Window, WindowMeaning], places: dict[exp.Window, int]
) -> None:
    """Go on over the rows of the windows."""
    before = block.known
    columns: dict[exp.Expr, Expression] = {
        node: shown(Field(places[node], meant.type), meant.shown or meant.type) for node, meant in meanings.items()
    }
    block.stage = stage
    block.known = lambda node: columns[node] if isinstance(node, exp.Window) else before(node) if before else None


def _is_late(block: SelectBlock, meanings: dict[exp.Window, WindowMeaning]) -> bool:
    """Whether it is known only when the answer is read which rows a window has, or what it makes of them."""
    stage = block.stage
    if block.merged is not None or block.inner is not None:
        return True
    stage.merge_parameters()  # Of two comparisons with one value, one is late from here on.
    if stage.late or stage.matches:
        return True
    asked = any(has_parameter(e) for m in meanings.values() for e in m.operands())
    return asked or any(
        carried.slot.kind in SEVERAL and not all(carried.expression in m.partition for m in meanings.values())
        for carried in stage.carried
    )


def _add_late(block: SelectBlock, meanings: dict[exp.Window, WindowMeaning]) -> None:
    """The windows are those of the rows that the answer has when it is read."""
    if block.merged is None and block.inner is None:
        block.lift("a window function")
    stage = block.stage
    if not isinstance(stage.source, Leaf):
        raise Unsupported(
            "a subquery or join beside rows that are worked out when the answer is read", hint="ask for it by itself"
        )
    row: list[Expression] = [*stage.source.plan.fields()]
    operands = _operands(meanings, [])
    row += [e for e in operands if e not in row]
    overs, places = _overs(meanings, [], row.index, len(row))
    columns = [Column("", e.type) for e in row] + [column for over in overs for column in _columns(over)]
    block.windows = LateWindows(tuple(row), tuple(overs))
    block.closed.append(stage)
    _know(block, stage_of(replace(stage.source.plan, columns=tuple(columns))), meanings, places)


def _operands(meanings: dict[exp.Window, WindowMeaning], carried: list[Expression]) -> list[Expression]:
    return list(dict.fromkeys([*carried, *(e for m in meanings.values() for e in m.operands())]))


def _columns(over: Over) -> tuple[Column, ...]:
    return tuple(Column(each.function.value, each.type) for each in over.calls)


def _overs(
    meanings: dict[exp.Window, WindowMeaning],
    carried: list[Expression],
    place: Callable[[Expression], int],
    width: int,
) -> tuple[list[Over], dict[exp.Window, int]]:
    """All functions over rows of ``width`` columns, one behind the other, and where each of them is."""
    windows: dict[tuple[Columns, tuple[OrderTerm, ...]], dict[WindowCall, list[exp.Window]]] = {}
    for node, meant in meanings.items():
        partition = tuple(dict.fromkeys(place(e) for e in (*carried, *meant.partition)))
        order = tuple(OrderTerm(place(term.expression), term.descending) for term in meant.order)
        windows.setdefault((partition, order), {}).setdefault(_call(meant, place), []).append(node)
    places: dict[exp.Window, int] = {}
    overs: list[Over] = []
    for (partition, order), calls in windows.items():
        for number, nodes in enumerate(calls.values()):
            places.update(dict.fromkeys(nodes, width + number))
        overs.append(Over(partition, order, tuple(calls)))
        width += len(calls)
    return overs, places


def _call(meant: WindowMeaning, place: Callable[[Expression], int]) -> WindowCall:
    argument = None if meant.argument is None else place(meant.argument)
    default = None if meant.default is None else place(meant.default)
    return WindowCall(meant.function, argument, meant.type, meant.frame(place), meant.number, default)
