"""AND, OR, NOT, XOR and the IS tests: SQL's three-valued logic.

::

    AND │ T  F  N      OR │ T  F  N      NOT │          In a condition nothing of this is computed: truth(a AND b) is
    ────┼────────     ────┼────────      ────┼───       truth(a) and truth(b), falsity(a AND b) is falsity(a) or
     T  │ T  F  N      T  │ T  T  T       T  │ F        falsity(b), and NOT swaps the two forms.
     F  │ F  F  F      F  │ T  F  N       F  │ T
     N  │ N  F  N      N  │ T  N  N       N  │ N
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from domains.errors import Unsupported
from domains.language.collating.coercibility import met
from domains.language.collating.collation import keyed
from domains.language.expressions import Call, Expression
from domains.language.functions.source import Emit, Emitter, Function, Types, is_bound, registry
from domains.language.functions.type_rules import common_type
from domains.language.types import BOOL, Kind, SqlType

# CASE, IF, COALESCE, IFNULL, NULLIF, GREATEST and LEAST: one value out of several, in their common type.

_MOST_BRANCHES = 24
"""``a if b else …`` nests in Python's parser; a longer CASE goes on in a CASE of its own."""


def _case_type(types: Types) -> SqlType:
    """The common type of the values; conditions stand at even positions, but for an ELSE at the end."""
    values = list(types[1::2])
    if len(types) % 2:
        values.append(types[-1])
    return common_type(values)


def _case(emitter: Emitter, call: Call) -> str:
    cut = 2 * _MOST_BRANCHES
    rest = call.arguments[cut:] if len(call.arguments) > cut + 1 else ()
    arguments = call.arguments[:cut] if rest else call.arguments
    pieces = [
        f"{emitter.as_type(result, call.type)} if {emitter.truth(condition)} else "
        for condition, result in zip(arguments[::2], arguments[1::2], strict=False)
    ]
    if len(rest) > 1:
        last = emitter.move_out(Call("case", rest, call.type))
    elif len(call.arguments) % 2:
        last = emitter.as_type(call.arguments[-1], call.type)
    else:
        last = "None"
    return f"({''.join(pieces)}{last})"


def _coalesce(emitter: Emitter, call: Call) -> str:
    pieces: list[str] = []
    for argument in call.arguments[:-1]:
        source = emitter.as_type(argument, call.type)
        if source == "None":
            continue
        if is_bound(source):
            return f"({''.join(pieces)}{source})"
        test, name = emitter.named(source)
        pieces.append(f"{name} if {test} is not None else ")
    return f"({''.join(pieces)}{emitter.as_type(call.arguments[-1], call.type)})"


def _nullif(emitter: Emitter, call: Call) -> str:
    first, second = call.arguments

    def body(x: Expression) -> str:
        return f"(None if {emitter.truth(Call('eq', (x, second), BOOL))} else {emitter.as_type(x, call.type)})"

    return emitter.let(first, body)


def _extreme_type(types: Types) -> SqlType:
    if any(type.kind is Kind.JSON for type in types):
        raise Unsupported("GREATEST and LEAST of JSON", hint="take a value out of it: CAST(x->>'$.key' AS SIGNED)")
    return common_type(types)


def _extreme(name: str, function: object) -> Function:
    """NULL where any argument is; compared in the common type, so numbers with text as text."""

    def value(emitter: Emitter, call: Call) -> str:
        common = common_type(a.type for a in call.arguments)
        sources = [emitter.as_type(a, common) for a in call.arguments]
        collation = met(call.arguments, name) if common.kind is Kind.TEXT else None
        by = "" if collation is None else f", key={emitter.bind(keyed(collation))}"
        best = emitter.strict(sources, lambda *names: f"{emitter.bind(function)}({', '.join(names)}{by})")
        return emitter.converted(best, common, call.type)

    return Function(name, (2, None), _extreme_type, value, by_target=True)


CONTROL = registry(
    Function("case", (2, None), _case_type, _case, by_target=True),
    Function("if", (3, 3), lambda types: common_type(types[1:]), _case, by_target=True),
    Function("coalesce", (1, None), common_type, _coalesce, by_target=True),
    Function("ifnull", (2, 2), common_type, _coalesce, by_target=True),
    Function("nullif", (2, 2), lambda types: common_type(types[:1]), _nullif, by_target=True),
    _extreme("greatest", max),
    _extreme("least", min),
)


Number = int | float | Decimal | None


def boolean(_types: Types) -> SqlType:
    return BOOL


def operands(e: Call) -> list[Expression]:
    """The operands of a chain of ANDs (or ORs), from left to right, however it is nested."""
    found: list[Expression] = []
    stack: list[Expression] = [e]
    while stack:
        at = stack.pop()
        if isinstance(at, Call) and at.function == e.function:
            stack.extend(reversed(at.arguments))
        else:
            found.append(at)
    return found


def conjunction(*values: Number) -> int | None:
    unknown = False
    for value in values:
        if value is None:
            unknown = True
        elif not value:
            return 0
    return None if unknown else 1


def disjunction(*values: Number) -> int | None:
    unknown = False
    for value in values:
        if value:
            return 1
        unknown = unknown or value is None
    return None if unknown else 0


def _chain(name: str, implementation: Callable[..., int | None], when_true: str, when_false: str) -> Function:
    def value(emitter: Emitter, call: Call) -> str:
        numbers = [emitter.number(e) for e in operands(call)]
        return f"{emitter.bind(implementation)}({', '.join(numbers)})"

    def truth(emitter: Emitter, call: Call) -> str:
        return f"({when_true.join(emitter.truth(e) for e in operands(call))})"

    def falsity(emitter: Emitter, call: Call) -> str:
        return f"({when_false.join(emitter.falsity(e) for e in operands(call))})"

    return Function(name, (1, None), boolean, value, truth, falsity)


def _not_value(emitter: Emitter, call: Call) -> str:
    return emitter.strict([emitter.number(call.arguments[0])], lambda x: f"0 if {x} else 1")


def _not_truth(emitter: Emitter, call: Call) -> str:
    return emitter.falsity(call.arguments[0])


def _not_falsity(emitter: Emitter, call: Call) -> str:
    return emitter.truth(call.arguments[0])


def _xor(emitter: Emitter, call: Call) -> str:
    numbers = [emitter.number(e) for e in call.arguments]
    return emitter.strict(numbers, lambda x, y: f"0 if (not {x}) is (not {y}) else 1")


def _test(name: str, truth: Emit, falsity: Emit) -> Function:
    """IS …: never NULL itself."""

    def value(emitter: Emitter, call: Call) -> str:
        return f"(1 if {truth(emitter, call)} else 0)"

    return Function(name, (1, 1), boolean, value, truth, falsity)


def _is_null(emitter: Emitter, call: Call) -> str:
    return f"({emitter.value(call.arguments[0])} is None)"


def _is_not_null(emitter: Emitter, call: Call) -> str:
    return f"({emitter.value(call.arguments[0])} is not None)"


def _is_true(emitter: Emitter, call: Call) -> str:
    return emitter.truth(call.arguments[0])


def _is_not_true(emitter: Emitter, call: Call) -> str:
    return f"(not {emitter.truth(call.arguments[0])})"


def _is_false(emitter: Emitter, call: Call) -> str:
    return emitter.falsity(call.arguments[0])


def _is_not_false(emitter: Emitter, call: Call) -> str:
    return f"(not {emitter.falsity(call.arguments[0])})"


FUNCTIONS = registry(
    _chain("and", conjunction, " and ", " or "),
    _chain("or", disjunction, " or ", " and "),
    Function("not", (1, 1), boolean, _not_value, _not_truth, _not_falsity),
    Function("xor", (2, 2), boolean, _xor),
    _test("is_null", _is_null, _is_not_null),
    _test("is_not_null", _is_not_null, _is_null),
    _test("is_true", _is_true, _is_not_true),
    _test("is_false", _is_false, _is_not_false),
)
