"""Expressions as SQL-like text, for EXPLAIN: ``stories.id = 7 AND title LIKE 'a%'``.

For people, not for parsing: functions carry our names, and brackets stand only where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal

from domains.language.durations import text_of_time
from domains.language.exact import text_of_decimal, text_of_double
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import Value

_BINARY = {
    "or": ("OR", 1),
    "xor": ("XOR", 2),
    "and": ("AND", 3),
    "eq": ("=", 5),
    "ne": ("<>", 5),
    "lt": ("<", 5),
    "le": ("<=", 5),
    "gt": (">", 5),
    "ge": (">=", 5),
    "null_safe_eq": ("<=>", 5),
    "like": ("LIKE", 5),
    "regexp": ("REGEXP", 5),
    "bit_or": ("|", 6),
    "bit_and": ("&", 7),
    "shift_left": ("<<", 8),
    "shift_right": (">>", 8),
    "add": ("+", 9),
    "subtract": ("-", 9),
    "multiply": ("*", 10),
    "divide": ("/", 10),
    "quotient": ("/", 10),
    "int_divide": ("DIV", 10),
    "modulo": ("%", 10),
    "mod": ("%", 10),
    "bit_xor": ("^", 11),
}
"""Operators and how tightly they bind, as in MySQL."""

_POSTFIX = {"is_null": "IS NULL", "is_not_null": "IS NOT NULL", "is_true": "IS TRUE", "is_false": "IS FALSE"}
_NOT, _COMPARISON, _PREFIX, _ATOM = 4, 5, 12, 13


def describe(e: Expression, names: Sequence[str]) -> str:
    """The expression with ``names[p]`` for the field at ``p`` (``#p`` where there is no name)."""
    return _describe(e, names)[0]


def literal(value: Value) -> str:
    """A constant as SQL writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, timedelta):
        return f"TIME'{text_of_time(value)}'"
    if isinstance(value, Decimal):
        return text_of_decimal(value)
    return text_of_double(value) if isinstance(value, float) else str(value)


def _describe(e: Expression, names: Sequence[str]) -> tuple[str, int]:
    """(text, how tightly its outermost operator binds)."""
    if isinstance(e, Field):
        return (names[e.position] if 0 <= e.position < len(names) else f"#{e.position}"), _ATOM
    if isinstance(e, Constant):
        return literal(e.value), _ATOM

    def at_least(argument: Expression, strength: int) -> str:
        text, own = _describe(argument, names)
        return text if own >= strength else f"({text})"

    if e.function in _BINARY and len(e.arguments) > 1:
        return _infix(e, at_least)
    if e.function in _POSTFIX:
        return f"{at_least(e.arguments[0], _COMPARISON + 1)} {_POSTFIX[e.function]}", _COMPARISON
    if e.function == "not":
        return f"NOT {at_least(e.arguments[0], _NOT)}", _NOT
    if e.function in ("negate", "bit_not"):
        return ("-" if e.function == "negate" else "~") + at_least(e.arguments[0], _ATOM), _PREFIX
    if e.function == "between":
        value, low, high = (at_least(a, _COMPARISON + 1) for a in e.arguments)
        return f"{value} BETWEEN {low} AND {high}", _COMPARISON
    if e.function == "in":
        elements = ", ".join(at_least(a, 0) for a in e.arguments[1:])
        return f"{at_least(e.arguments[0], _COMPARISON + 1)} IN ({elements})", _COMPARISON
    return _function(e, [at_least(a, 0) for a in e.arguments]), _ATOM


def _infix(e: Call, at_least: Callable[[Expression, int], str]) -> tuple[str, int]:
    symbol, strength = _BINARY[e.function]
    # AND and OR are associative and the left operand of the others is taken first, so only the rest needs brackets.
    chain = e.function in ("and", "or")
    first, *rest = e.arguments
    left = at_least(first, strength + 1 if strength == _COMPARISON else strength)
    if e.function == "like" and len(rest) == 2:
        pattern, escape = (at_least(a, strength + 1) for a in rest)
        return f"{left} LIKE {pattern} ESCAPE {escape}", strength
    right = [at_least(a, strength if chain else strength + 1) for a in rest]
    return f" {symbol} ".join([left, *right]), strength


def _function(e: Call, texts: list[str]) -> str:
    if e.function in ("cast", "equal_to"):
        return f"{e.function.upper()}({texts[0]} AS {e.type})"
    if e.function in ("date_add", "date_sub"):
        return f"{e.function.upper()}({texts[0]}, INTERVAL {texts[1]} {_unit(e.arguments[2], texts[2])})"
    if e.function == "timestampdiff":
        return f"TIMESTAMPDIFF({_unit(e.arguments[0], texts[0])}, {texts[1]}, {texts[2]})"
    if e.function == "case":
        branches = [f"WHEN {c} THEN {v}" for c, v in zip(texts[::2], texts[1::2], strict=False)]
        if len(texts) % 2:
            branches.append(f"ELSE {texts[-1]}")
        return f"CASE {' '.join(branches)} END"
    return f"{e.function.upper()}({', '.join(texts)})"


def _unit(e: Expression, text: str) -> str:
    return e.value.upper() if isinstance(e, Constant) and isinstance(e.value, str) else text
