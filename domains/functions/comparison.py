"""Comparisons: both sides are converted to their ``comparison_type`` while writing, then compared in Python itself.

So ``id = 7`` over an INTEGER column is ``r[0] == k1``: NULL equals no constant, and no other test is needed.
"""

from __future__ import annotations

from domains.expressions import Call, Constant, Expression
from domains.functions.logic import boolean
from domains.functions.source import Emitter, Function, converted_constant, is_bound, registry
from domains.functions.type_rules import comparison_type
from domains.temporal import canonical_datetime
from domains.types import BOOL, DATE, Kind, SqlType

_MIDNIGHT = " 00:00:00"


def _day(e: Expression) -> Expression:
    """A constant moment at midnight as a DATE: then a DATE column is compared as it stands."""
    if isinstance(e, Constant) and e.type.kind in (Kind.TEXT, Kind.DATETIME) and isinstance(e.value, str):
        moment = canonical_datetime(e.value)
        if moment is not None and moment.endswith(_MIDNIGHT):
            return Constant(moment[:10], DATE)
    return e


def compared(emitter: Emitter, left: Expression, right: Expression) -> list[str]:
    """Both sides' sources, converted so that Python compares them as SQL does."""
    if left.type.kind is Kind.DATE:
        right = _day(right)
    elif right.type.kind is Kind.DATE:
        left = _day(left)
    target = comparison_type(left.type, right.type)
    return [_converted(emitter, e, target) for e in (left, right)]


def _converted(emitter: Emitter, e: Expression, target: SqlType) -> str:
    if target.kind in (Kind.DECIMAL, Kind.INTEGER) and e.type.kind in (Kind.DECIMAL, Kind.INTEGER):
        return emitter.value(e)  # Python compares these two exactly, whatever the scale.
    return emitter.as_type(e, target)


def _comparison(name: str, symbol: str, opposite: str) -> Function:
    def condition(emitter: Emitter, call: Call, operator: str) -> str:
        sides = compared(emitter, *call.arguments)
        if operator == "==" and "None" not in sides:
            # One side that is not NULL is enough: NULL is equal to nothing else.
            for known, other in (sides, sides[::-1]):
                if is_bound(known):
                    return f"({other} == {known})"
            return emitter.present(sides[:1], lambda x: f"{x} == {sides[1]}")
        return emitter.present(sides, lambda x, y: f"{x} {operator} {y}")

    def value(emitter: Emitter, call: Call) -> str:
        return emitter.strict(compared(emitter, *call.arguments), lambda x, y: f"1 if {x} {symbol} {y} else 0")

    def truth(emitter: Emitter, call: Call) -> str:
        return condition(emitter, call, symbol)

    def falsity(emitter: Emitter, call: Call) -> str:
        return condition(emitter, call, opposite)

    return Function(name, (2, 2), boolean, value, truth, falsity)


def _identical(emitter: Emitter, call: Call) -> str:
    left, right = compared(emitter, *call.arguments)
    return f"({left} == {right})"


def _different(emitter: Emitter, call: Call) -> str:
    left, right = compared(emitter, *call.arguments)
    return f"({left} != {right})"


def _identical_value(emitter: Emitter, call: Call) -> str:
    return f"(1 if {_identical(emitter, call)} else 0)"


def _range(call: Call, value: Expression) -> Call:
    """``x BETWEEN a AND b`` is ``x >= a AND x <= b``, also where one bound is NULL."""
    _, low, high = call.arguments
    lower, upper = (Call(f, (value, bound), call.type) for f, bound in (("ge", low), ("le", high)))
    return Call("and", (lower, upper), call.type)


def _between_value(emitter: Emitter, call: Call) -> str:
    return emitter.let(call.arguments[0], lambda x: emitter.value(_range(call, x)))


def _between_truth(emitter: Emitter, call: Call) -> str:
    return emitter.let(call.arguments[0], lambda x: emitter.truth(_range(call, x)))


def _between_falsity(emitter: Emitter, call: Call) -> str:
    return emitter.let(call.arguments[0], lambda x: emitter.falsity(_range(call, x)))


class _Membership:
    """``x IN (…)`` taken apart: constants by the type that x meets them in, and everything else one by one."""

    def __init__(self, emitter: Emitter, call: Call, x: Expression) -> None:
        self.emitter, self.x = emitter, x
        self.has_null = False
        self.others: list[Expression] = []
        sets: dict[Kind, tuple[SqlType, set[object]]] = {}
        for e in call.arguments[1:]:
            element = _day(e) if x.type.kind is Kind.DATE else e
            if not isinstance(element, Constant):
                self.others.append(element)
                continue
            target = comparison_type(x.type, element.type)
            value = converted_constant(element, target)
            if value is None:
                self.has_null = True
            else:
                sets.setdefault(_EXACT.get(target.kind, target.kind), (target, set()))[1].add(value)
        self.groups = [(_converted(emitter, x, target), values) for target, values in sets.values()]

    def truth(self) -> str:
        tests = [self._among(source, values) for source, values in self.groups]
        tests += [self.emitter.truth(Call("eq", (self.x, e), BOOL)) for e in self.others]
        return f"({' or '.join(tests)})" if tests else "False"

    def falsity(self) -> str:
        if self.has_null:
            return "False"
        sources = [source for source, _ in self.groups]
        pairs = [compared(self.emitter, self.x, e) for e in self.others]

        def none_matches(*names: str) -> str:
            tests = [f"not {self._among(n, values)}" for n, (_, values) in zip(names, self.groups, strict=False)]
            rest = iter(names[len(self.groups) :])
            return " and ".join([*tests, *(f"{left} != {next(rest)}" for left in rest)])

        return self.emitter.present([*sources, *(side for pair in pairs for side in pair)], none_matches)

    def _among(self, source: str, values: set[object]) -> str:
        if len(values) == 1:
            return f"({source} == {self.emitter.bind(next(iter(values)))})"
        return f"({source} in {self.emitter.bind(frozenset(values))})"

    def value(self) -> str:
        return f"(1 if {self.truth()} else 0 if {self.falsity()} else None)"


_EXACT = {Kind.DECIMAL: Kind.INTEGER}
"""Equal numbers of these kinds are equal members of one set."""


def _in_value(emitter: Emitter, call: Call) -> str:
    return emitter.let(call.arguments[0], lambda x: _Membership(emitter, call, x).value())


def _in_truth(emitter: Emitter, call: Call) -> str:
    return emitter.let(call.arguments[0], lambda x: _Membership(emitter, call, x).truth())


def _in_falsity(emitter: Emitter, call: Call) -> str:
    return emitter.let(call.arguments[0], lambda x: _Membership(emitter, call, x).falsity())


FUNCTIONS = registry(
    _comparison("eq", "==", "!="),
    _comparison("ne", "!=", "=="),
    _comparison("lt", "<", ">="),
    _comparison("le", "<=", ">"),
    _comparison("gt", ">", "<="),
    _comparison("ge", ">=", "<"),
    Function("null_safe_eq", (2, 2), boolean, _identical_value, _identical, _different),
    Function("between", (3, 3), boolean, _between_value, _between_truth, _between_falsity),
    Function("in", (2, None), boolean, _in_value, _in_truth, _in_falsity),
)
