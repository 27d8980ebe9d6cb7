"""How EXPLAIN writes operators that say much: joins, calls, orders, frames."""

from __future__ import annotations

from collections.abc import Sequence

from domains.language.description import describe
from domains.plan.graph import (
    BoundKind,
    Columns,
    Frame,
    FrameBound,
    Join,
    JoinKind,
    Over,
    TopK,
    Unnest,
    WindowCall,
    WindowFunction,
    order_text,
)


def join_text(join: Join, left: Sequence[str], right: Sequence[str]) -> str:
    on = [f"{left[a]} = {right[b]}" for a, b in zip(join.left_on, join.right_on, strict=True)]
    if join.residual is not None:
        on.append(describe(join.residual, [*left, *right]))
    if not on:
        return "⊳" if join.kind is JoinKind.MARK else "×"
    return f"{_SYMBOLS[join.kind]} {' AND '.join(on)}"


_SYMBOLS = {JoinKind.INNER: "⋈", JoinKind.LEFT: "⟕", JoinKind.MARK: "⊳"}


def unnest_text(unnest: Unnest, names: Sequence[str]) -> str:
    outer = " outer" if unnest.outer else ""
    rest = ""
    if unnest.residual is not None:
        own = [f"column {at}" for at in range(1, unnest.table.width + 1)]
        rest = f" on {describe(unnest.residual, [*names, *own])}"
    return f"μ{outer} JSON_TABLE({describe(unnest.document, names)}){rest}"


def topk_text(topk: TopK, names: Sequence[str]) -> str:
    skipped = f" after {topk.offset}" if topk.offset else ""
    return f"τ {topk.limit}{skipped}{_of_each(topk.group, names)}{order_text(topk.order, names)}"


def over_text(over: Over, names: Sequence[str]) -> str:
    calls = ", ".join(_window_text(call, names) for call in over.calls)
    return f"ω {calls}{_of_each(over.partition, names)}{order_text(over.order, names)}"


def _of_each(group: Columns, names: Sequence[str]) -> str:
    return f" of each {', '.join(names[column] for column in group)}" if group else ""


_FRAMED = frozenset(WindowFunction) - {
    *(WindowFunction.ROW_NUMBER, WindowFunction.RANK, WindowFunction.DENSE_RANK, WindowFunction.PERCENT_RANK),
    *(WindowFunction.CUME_DIST, WindowFunction.NTILE, WindowFunction.LAG, WindowFunction.LEAD),
}
_NUMBERED = frozenset((WindowFunction.NTILE, WindowFunction.LAG, WindowFunction.LEAD, WindowFunction.NTH_VALUE))


def _window_text(call: WindowCall, names: Sequence[str]) -> str:
    name = call.function.value.upper()
    arguments = [] if call.argument is None else [names[call.argument]]
    if call.function is WindowFunction.COUNT_ROWS:
        name, arguments = "COUNT", ["*"]
    if call.function in _NUMBERED:
        arguments.append(str(call.number))
    if call.default is not None:
        arguments.append(names[call.default])
    frame = "" if call.function not in _FRAMED or call.frame == Frame(rows=False) else _frame_text(call.frame, names)
    return f"{name}({', '.join(arguments)}){frame}"


def _frame_text(frame: Frame, names: Sequence[str]) -> str:
    def bound(at: FrameBound) -> str:
        if at.kind not in (BoundKind.PRECEDING, BoundKind.FOLLOWING):
            return at.kind.value
        return f"{at.by} {at.kind.value}" if frame.rows else names[at.by]

    return f" [{'rows' if frame.rows else 'range'} {bound(frame.start)} to {bound(frame.end)}]"
