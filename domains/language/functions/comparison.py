"""Comparisons: both sides are converted while writing, as ``comparands.py`` says, then compared in Python itself.

So ``id = 7`` over an INTEGER column is ``r[0] == k1``: NULL equals no constant, and no other test is needed.
"""

from __future__ import annotations

from domains.language.collating.coercibility import met
from domains.language.collating.collation import keyed
from domains.language.expressions import Call, Constant, Expression
from domains.language.functions.comparands import comparable, settled
from domains.language.functions.conversion import Converter, double_of_number, refuse_day_of_time
from domains.language.functions.source import Emitter, Function, Types, is_bound, registry
from domains.language.types import BLOB, BOOL, DOUBLE, Kind, SqlType, Value


def compared(emitter: Emitter, left: Expression, right: Expression) -> list[str]:
    """Both sides' sources, converted so that Python compares them as SQL does."""
    left, right = settled(left, right), settled(right, left)
    return [_converted(emitter, e, _conversion(e, other)) for e, other in ((left, right), (right, left))]


def _conversion(e: Expression, other: Expression) -> Converter | None:
    """A function that converts ``e`` for comparison with ``other``: of texts that a collation compares, their keys."""
    if e.type.kind is Kind.TEXT and other.type.kind is Kind.TEXT:
        collation = met((e, other), "a comparison")
        return None if collation is None else keyed(collation)
    return comparable(e.type, other.type)


def _converted(emitter: Emitter, e: Expression, convert: Converter | None) -> str:
    if isinstance(e, Constant):
        value = _constant(e, convert)
        return emitter.value(Constant(value, BLOB if isinstance(value, bytes) else e.type))
    if convert is double_of_number:
        return emitter.as_type(e, DOUBLE)
    source = emitter.value(e)
    return source if convert is None else emitter.strict([source], lambda x: f"{emitter.bind(convert)}({x})")


def _constant(e: Constant, convert: Converter | None) -> Value:
    return e.value if convert is None or e.value is None else convert(e.value)


def _compared_type(types: Types) -> SqlType:
    """:raises Unsupported: a TIME meets a day."""
    for other in types[1:]:
        refuse_day_of_time(types[0], other)
        refuse_day_of_time(other, types[0])
    return BOOL


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

    return Function(name, (2, 2), _compared_type, value, truth, falsity)


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
    """``x IN (…)`` taken apart: constants by what x becomes where it meets them, and everything else one by one."""

    def __init__(self, emitter: Emitter, call: Call, x: Expression) -> None:
        self.emitter, self.x = emitter, x
        self.has_null = False
        self.others: list[Expression] = []
        sets: dict[Converter | None, set[object]] = {}
        for e in call.arguments[1:]:
            element = settled(e, x)
            if not isinstance(element, Constant):
                self.others.append(element)
                continue
            value = _constant(element, _conversion(element, x))
            if value is None:
                self.has_null = True
            else:
                sets.setdefault(_conversion(x, element), set()).add(value)
        self.groups = [(_converted(emitter, x, convert), values) for convert, values in sets.items()]

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
    Function("null_safe_eq", (2, 2), _compared_type, _identical_value, _identical, _different),
    Function("between", (3, 3), _compared_type, _between_value, _between_truth, _between_falsity),
    Function("in", (2, None), _compared_type, _in_value, _in_truth, _in_falsity),
)
