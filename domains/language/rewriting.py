"""Expressions looked at and changed as trees: which fields they read, on which row they stand, what is constant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domains.language.compiled import compiled
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import FUNCTIONS
from domains.language.functions.source import Emitter
from domains.language.types import BOOL, Value

# From source to function: expressions and operators as generated code.
#
# A template holds the operator's own text with one ``{}`` for the emitted expression. Sources consist of our own
# templates and generated names only; everything of the user's is bound.


def emitter() -> Emitter:
    return Emitter(FUNCTIONS)


def defined(source: str, emitter: Emitter) -> Any:
    """The function ``operator`` that ``source`` defines, together with what the emitter has moved out."""
    names = dict(emitter.names)
    text = "\n".join([*emitter.definitions, source])
    exec(compiled(text, "<expression>"), names)
    return names["operator"]


def evaluate_constant(e: Call) -> Value:
    """The value of a call that reads no field."""
    emit = emitter()
    source = emit.value(e)
    value: Value = defined(f"def operator(r):\n    return {source}", emit)(())
    return value


def fields_of(e: Expression) -> frozenset[int]:
    """The row positions that the expression reads."""
    found: set[int] = set()
    stack = [e]
    while stack:
        at = stack.pop()
        if isinstance(at, Field):
            found.add(at.position)
        elif isinstance(at, Call):
            stack.extend(at.arguments)
    return frozenset(found)


def is_constant(e: Expression) -> bool:
    """Whether it reads no field; all functions are deterministic, so it has one value then."""
    return not fields_of(e)


def remap(e: Expression, mapping: Mapping[int, int]) -> Expression:
    """The same expression over another row: the field at ``p`` is read at ``mapping[p]`` (KeyError if it has none)."""
    if isinstance(e, Field):
        return Field(mapping[e.position], e.type)
    if isinstance(e, Call):
        return Call(e.function, tuple(remap(a, mapping) for a in e.arguments), e.type)
    return e


def fold(e: Expression) -> Expression:
    """Constant folding: every call of constants alone is replaced by its value, AND and OR lose what decides nothing.

    ``a = 1 + 2`` → ``a = 3``;  ``a AND TRUE AND b`` → ``a AND b``;  ``a AND FALSE`` → ``FALSE``
    """
    if not isinstance(e, Call):
        return e
    arguments = tuple(fold(a) for a in e.arguments)
    if arguments != e.arguments:
        e = Call(e.function, arguments, e.type)
    if e.function in FUNCTIONS and all(isinstance(a, Constant) for a in arguments):
        return Constant(evaluate_constant(e), e.type)
    return _fold_chain(e) if e.function in ("and", "or") else e


def _fold_chain(e: Call) -> Expression:
    """Drop the operands that are neutral (true in AND, false in OR); one that decides is the result."""
    deciding = 0 if e.function == "and" else 1
    kept: list[Expression] = []
    for argument in e.arguments:
        if not isinstance(argument, Constant) or argument.value is None:
            kept.append(argument)
            continue
        is_true = evaluate_constant(Call("is_true", (argument,), BOOL))
        if is_true == deciding:
            return Constant(deciding, e.type)
    # One operand stays a chain: AND makes a boolean of what may be any number.
    return e if len(kept) == len(e.arguments) else Call(e.function, tuple(kept), e.type)
