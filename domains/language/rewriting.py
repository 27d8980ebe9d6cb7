"""Expressions looked at and changed as trees: which fields they read, on which row they stand, what is constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domains.errors import LimitExceeded
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


def is_never(condition: Expression | None) -> bool:
    """Whether a condition is a constant that is not true."""
    return isinstance(condition, Constant) and condition.value in (None, 0)


def remap(e: Expression, mapping: Mapping[int, int]) -> Expression:
    """The same expression over another row: the field at ``p`` is read at ``mapping[p]`` (KeyError if it has none)."""
    if isinstance(e, Field):
        return Field(mapping[e.position], e.type)
    if isinstance(e, Call):
        return Call(e.function, tuple(remap(a, mapping) for a in e.arguments), e.type)
    return e


FOLD_STEPS = 10_000
"""Calls of constants that one statement may have worked out while it is planned: 0.2 s."""
FOLD_BYTES = 1_048_576
"""Text and bytes that they may come to. A constant of a plan is sent, kept and compared; what is greater is data."""


@dataclass(slots=True)
class FoldBudget:
    """The remainder of what a statement's constants may take.

    :raises LimitExceeded: by name, where they take more.
    """

    steps: int = FOLD_STEPS
    bytes: int = FOLD_BYTES

    def spend(self, value: Value) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise LimitExceeded(
                f"the constants of the statement take more than {FOLD_STEPS} steps to work out (fold_steps)",
                hint="give their result, or pass it as a parameter",
            )
        if isinstance(value, (str, bytes)):
            self.bytes -= len(value)
            if self.bytes < 0:
                raise LimitExceeded(
                    f"the constants of the statement come to more than {FOLD_BYTES} bytes (fold_bytes)",
                    hint="store the text in a table, or compute it where the answer is read",
                )


def fold(e: Expression, budget: FoldBudget | None = None) -> Expression:
    """Constant folding: every call of constants alone is replaced by its value, AND and OR lose what decides nothing.

    ``a = 1 + 2`` → ``a = 3``;  ``a AND TRUE AND b`` → ``a AND b``;  ``a AND FALSE`` → ``FALSE``

    :raises LimitExceeded: the budget, which without ``budget`` is this expression's own, is spent.
    """
    return _folded(e, budget or FoldBudget())


def fold_most(e: Expression) -> Expression:
    """The same where it cannot be refused any more: what would spend the budget is left to be computed for each row."""
    try:
        return fold(e)
    except LimitExceeded:
        return e


def _folded(e: Expression, budget: FoldBudget) -> Expression:
    if not isinstance(e, Call):
        return e
    arguments = tuple(_folded(a, budget) for a in e.arguments)
    if arguments != e.arguments:
        e = Call(e.function, arguments, e.type)
    # COLLATE stays: a constant alone takes the collation of what it meets.
    if e.function in FUNCTIONS and e.function != "collate" and all(isinstance(a, Constant) for a in arguments):
        value = evaluate_constant(e)
        budget.spend(value)
        return Constant(value, e.type)
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
