"""MIN and MAX within a recursion: whether better rows make better ones, so that rounds may go on from the best alone.

::

    SELECT e.dst, MIN(d.n + e.length) FROM d JOIN edge e ON e.src = d.node GROUP BY e.dst

The column that is compared (*measured*: n) may go up and down with itself (``n + length``, ``GREATEST(n, capacity)``),
and be bounded on the worse side (``n < 10``). Whatever else reads it could give up what a better row brings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.rewriting import fields_of
from domains.plan.graph import (
    Aggregate,
    Base,
    Egress,
    Filter,
    FixedPoint,
    Ingress,
    Join,
    JoinKind,
    OrderTerm,
    Over,
    Project,
    Reader,
    RoundStep,
    TopK,
    Union,
    Unnest,
)
from migrations.parse.reading import exp

Measured = dict[int, bool]
"""The measured columns of rows, and whether each is surely no better than the one that it came from."""
_BOUNDS = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def measured_in(query: exp.Expr) -> tuple[int, type[exp.Expr]] | None:
    """Which of its columns is the MIN or MAX of a SELECT whose others are what it is grouped by."""
    if not isinstance(query, exp.Select) or query.args.get("group") is None:
        return None
    items = [item.unalias() for item in query.expressions]
    found = [(at, type(item)) for at, item in enumerate(items) if isinstance(item, (exp.Min, exp.Max))]
    group = query.args["group"]
    others = [item for item in items if not isinstance(item, (exp.Min, exp.Max))]
    modified = any(query.args.get(key) is not None for key in ("having", "distinct", "order", "limit", "offset"))
    if modified or len(found) != 1 or set(group.expressions) != set(others) or set(group.args) != {"expressions"}:
        return None
    return found[0]


@contextmanager
def candidates(query: exp.Expr) -> Iterator[None]:
    """Have a SELECT of MIN or MAX be one of all that this is taken of: which is the best is seen with what there is."""
    measured = measured_in(query)
    if measured is None:
        yield
        return
    items, group = [*query.expressions], query.args["group"]
    function = items[measured[0]].unalias()
    within = function.this
    query.set("expressions", [*items[: measured[0]], within, *items[measured[0] + 1 :]])
    query.set("group", None)
    try:
        yield
    finally:
        function.set("this", within)
        query.set("expressions", items)
        query.set("group", group)


def ends_with_best(name: str, steps: Sequence[RoundStep], widths: Sequence[int], best: OrderTerm) -> bool:
    """Whether it surely comes to an end, out of finite rows; ``widths`` are those of its parents.

    :raises Unsupported: the best row might be taken for one that others would lead further than."""
    return _Monotone(name, best).follow(steps, widths)


class _Monotone:
    def __init__(self, name: str, best: OrderTerm) -> None:
        self._name = name
        self._best = best
        self._computes = False

    def follow(self, steps: Sequence[RoundStep], widths: Sequence[int]) -> bool:
        sources: list[Measured] = [{self._best.column: True}, *({} for _ in widths[1:])]
        wide = [*widths]
        for step in steps:
            inputs = [sources[at] for at in step.inputs]
            sources.append(self._step(step, inputs, wide[step.inputs[0]]))
            wide.append(len(step.columns))
        measured = sources[-1]
        if measured.keys() - {self._best.column}:
            raise self._refused("is another column of the result, too")
        return not self._computes and measured.get(self._best.column, True)

    def _step(self, step: RoundStep, inputs: Sequence[Measured], left: int) -> Measured:
        match step.operator:
            case Filter(predicate):
                self._bound(predicate, inputs[0])
                return inputs[0]
            case Project(expressions):
                return self._projected(expressions, inputs[0])
            case Union():
                together = dict[int, bool]()
                for measured in inputs:
                    for column, worsens in measured.items():
                        together[column] = worsens and together.get(column, True)
                return together
            case Join(kind=kind, left_on=left_on, right_on=right_on, residual=residual):
                joined = inputs[0] | {left + column: worsens for column, worsens in inputs[1].items()}
                if joined.keys() & {*left_on, *(left + column for column in right_on)}:
                    raise self._refused("is what a join goes by")
                if residual is not None and joined.keys() & fields_of(residual):
                    if kind is not JoinKind.INNER:
                        raise self._refused("decides what an outer join or a subquery finds")
                    self._bound(residual, joined)
                return {column: worsens for column, worsens in joined.items() if column < len(step.columns)}
            case Base() | Unnest() | Aggregate() | TopK() | Over() | FixedPoint() | Ingress() | Egress() | Reader():
                if any(inputs):
                    raise self._refused("is read by more than joins, conditions and sums")
                return {}
            case _:
                assert_never(step.operator)

    def _projected(self, expressions: Sequence[Expression], given: Measured) -> Measured:
        measured = Measured()
        for at, expression in enumerate(expressions):
            if given.keys() & fields_of(expression):
                if not _rises(expression, given):
                    raise self._refused("is computed with in a way that does not always rise with it")
                measured[at] = self._worsens(expression, given)
            elif not isinstance(expression, (Field, Constant)):
                self._computes = True
        return measured

    def _bound(self, predicate: Expression, measured: Measured) -> None:
        """:raises Unsupported: a better row could fail where a worse one passes."""
        if not measured.keys() & fields_of(predicate):
            return
        match predicate:
            case Call("and", parts):
                for part in parts:
                    self._bound(part, measured)
                return
            case Call(function, (one, other)) if function in _BOUNDS:
                if measured.keys() & fields_of(other):
                    function, one, other = _BOUNDS[function], other, one
                passes = function in (("gt", "ge") if self._best.descending else ("lt", "le"))
                if passes and _rises(one, measured) and not measured.keys() & fields_of(other):
                    return
        side = "below" if self._best.descending else "above"
        raise self._refused(f"is in a condition that does more than leave out what is {side} a bound")

    def _worsens(self, expression: Expression, measured: Measured) -> bool:
        """Whether it is surely no better than what it was. Where there is NULL, that is the worst."""
        descending = self._best.descending
        match expression:
            case Field(position=position):
                return measured.get(position, False)
            case Call("add", (one, other)):
                steps = ((one, other), (other, one))
                return any(self._worsens(a, measured) and _has_sign(b, -1 if descending else 1) for a, b in steps)
            case Call("subtract", (one, other)):
                return self._worsens(one, measured) and _has_sign(other, 1 if descending else -1)
            case Call("least" | "greatest" as function, arguments):
                return function == ("least" if descending else "greatest") and any(
                    self._worsens(argument, measured) for argument in arguments
                )
        return False

    def _refused(self, what: str) -> Unsupported:
        function = "MAX" if self._best.descending else "MIN"
        return Unsupported(
            f'{function} within the recursion "{self._name}", whose column {what}',
            hint=f"a round goes on from the best row of a group alone; take {function} where the recursion is read",
        )


def _rises(expression: Expression, measured: Measured) -> bool:
    """Whether it never falls where the measured columns rise."""
    match expression:
        case Field() | Constant():
            return True
        case Call("add" | "least" | "greatest", arguments):
            return all(_rises(argument, measured) for argument in arguments)
        case Call("subtract", (one, other)):
            return _rises(one, measured) and not measured.keys() & fields_of(other)
        case Call("multiply", (one, other)):
            return any(
                _rises(a, measured) and not measured.keys() & fields_of(b) and _has_sign(b, 1)
                for a, b in ((one, other), (other, one))
            )
    return not measured.keys() & fields_of(expression)


def _has_sign(expression: Expression, sign: int) -> bool:
    """Whether it is surely nothing or of this sign."""
    match expression:
        case Constant(value=value):
            return isinstance(value, int) and value * sign >= 0
        case Field(type=type_):
            bound = type_.low if sign > 0 else type_.high
            return bound is not None and bound * sign >= 0
    return False
