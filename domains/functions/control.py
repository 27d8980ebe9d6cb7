"""CASE, IF, COALESCE, IFNULL, NULLIF, GREATEST and LEAST: one value out of several, in their common type."""

from __future__ import annotations

from domains.expressions import Call, Expression
from domains.functions.source import Emitter, Function, Types, is_bound, registry
from domains.functions.type_rules import common_type
from domains.types import BOOL, SqlType

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


def _extreme(name: str, function: object) -> Function:
    """NULL where any argument is; compared in the common type, so numbers with text as text."""

    def value(emitter: Emitter, call: Call) -> str:
        common = common_type(a.type for a in call.arguments)
        sources = [emitter.as_type(a, common) for a in call.arguments]
        best = emitter.strict(sources, lambda *names: f"{emitter.bind(function)}({', '.join(names)})")
        return emitter.converted(best, common, call.type)

    return Function(name, (2, None), common_type, value, by_target=True)


FUNCTIONS = registry(
    Function("case", (2, None), _case_type, _case, by_target=True),
    Function("if", (3, 3), lambda types: common_type(types[1:]), _case, by_target=True),
    Function("coalesce", (1, None), common_type, _coalesce, by_target=True),
    Function("ifnull", (2, 2), common_type, _coalesce, by_target=True),
    Function("nullif", (2, 2), lambda types: types[0], _nullif, by_target=True),
    _extreme("greatest", max),
    _extreme("least", min),
)
