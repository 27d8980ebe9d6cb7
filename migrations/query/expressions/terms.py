"""Questions about typed expressions, and their rewriting: which columns, moved where, true of what."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from domains.language.compile import compile_expression, compile_predicate
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import call
from domains.language.rewriting import fields_of as positions
from domains.language.types import BOOL, Row, Value

__all__ = [
    "and_parts",
    "conditions_of",
    "conjunction",
    "deciding",
    "equality",
    "moved",
    "not_unequal",
    "null_rejected",
    "over",
    "positions",
    "substituted",
]

_STRICT = frozenset(
    "eq ne lt le gt ge like regexp not xor cast negate add subtract multiply divide quotient int_divide modulo".split()  # noqa: SIM905
)
"""Functions that are NULL as soon as one argument is."""

_STRICT_IN_FIRST = frozenset(["in", "between"])
"""Functions that are NULL as soon as their first argument is."""


def substituted(expression: Expression, replacement: Callable[[Field], Expression]) -> Expression:
    """The expression with every field replaced."""
    if isinstance(expression, Field):
        return replacement(expression)
    if isinstance(expression, Constant):
        return expression
    arguments = tuple(substituted(argument, replacement) for argument in expression.arguments)
    return expression if arguments == expression.arguments else Call(expression.function, arguments, expression.type)


def moved(expression: Expression, place: Callable[[int], int]) -> Expression:
    """The expression over a row whose columns stand elsewhere."""
    return substituted(expression, lambda field: Field(place(field.position), field.type))


def over(expression: Expression, row: Sequence[Expression]) -> Expression:
    """The expression with each field replaced by what computes it."""
    return substituted(expression, lambda field: row[field.position])


def conjunction(predicates: Sequence[Expression]) -> Expression:
    """All of the predicates as one; nested ANDs are flattened and repetitions dropped."""
    parts = list(dict.fromkeys(part for predicate in predicates for part in and_parts(predicate)))
    if len(parts) == 1:
        return parts[0]
    return Call("and", tuple(parts), BOOL)


def and_parts(predicate: Expression) -> Iterator[Expression]:
    """The predicates that AND joins."""
    pending = [predicate]
    while pending:
        part = pending.pop()
        if isinstance(part, Call) and part.function == "and":
            pending.extend(reversed(part.arguments))
        else:
            yield part


def conditions_of(predicate: Expression) -> list[Expression]:
    """The predicates that a condition comes to when AND joins them: what all branches of an OR say comes in front.

    ``(a AND b) OR (a AND c)`` → ``a``, ``b OR c``;  ``a OR (a AND b)`` → ``a``. Both hold in SQL's three-valued logic.
    An equality that a query repeats in every branch, as TPC-H 19 does, is a join column only where it stands alone.
    """
    return [found for part in and_parts(predicate) for found in _factored(part)]


def _factored(predicate: Expression) -> list[Expression]:
    if not isinstance(predicate, Call) or predicate.function != "or":
        return [predicate]
    branches = [{_sense(part): part for part in conditions_of(branch)} for branch in predicate.arguments]
    common = set.intersection(*(set(branch) for branch in branches))
    if not common:
        return [predicate]
    front = [part for sense, part in branches[0].items() if sense in common]
    left = [[part for sense, part in branch.items() if sense not in common] for branch in branches]
    return [*front, Call("or", tuple(map(conjunction, left)), predicate.type)] if all(left) else front


def _sense(predicate: Expression) -> Expression | frozenset[Expression]:
    """The same for ``a = b`` and ``b = a``."""
    sides = equality(predicate)
    return predicate if sides is None else frozenset(sides)


def equality(predicate: Expression) -> tuple[Expression, Expression] | None:
    """Both sides of ``a = b``, or None."""
    if isinstance(predicate, Call) and predicate.function == "eq":
        left, right = predicate.arguments
        return left, right
    return None


def null_rejected(predicate: Expression) -> frozenset[int]:
    """The columns that are certainly not NULL where the predicate is true."""
    if isinstance(predicate, Call):
        if predicate.function in ("is_not_null", "is_true"):
            inner = predicate.arguments[0]
            return _nulled_by(inner) if predicate.function == "is_not_null" else null_rejected(inner)
        if predicate.function == "and":
            return frozenset[int]().union(*(null_rejected(part) for part in predicate.arguments))
        if predicate.function == "or":
            return frozenset.intersection(*(null_rejected(part) for part in predicate.arguments))
    return _nulled_by(predicate)


def _nulled_by(expression: Expression) -> frozenset[int]:
    """The columns each of which, being NULL, makes the expression NULL."""
    if isinstance(expression, Field):
        return frozenset([expression.position])
    if isinstance(expression, Constant):
        return frozenset()
    if expression.function in _STRICT:
        return frozenset[int]().union(*(_nulled_by(argument) for argument in expression.arguments))
    if expression.function in _STRICT_IN_FIRST:
        return _nulled_by(expression.arguments[0])
    if expression.function in ("and", "or"):
        return frozenset.intersection(*(_nulled_by(argument) for argument in expression.arguments))
    return frozenset()


# Expressions evaluated while planning: over the one row that a counting query answers where it finds nothing.


def value_of(expression: Expression, row: Mapping[int, Value]) -> Value:
    """The expression's value over a row of which only some columns are not NULL."""
    return compile_expression(expression)(_spread(expression, row))


def is_satisfied(predicate: Expression, row: Mapping[int, Value]) -> bool:
    return compile_predicate(predicate)(_spread(predicate, row))


def _spread(expression: Expression, row: Mapping[int, Value]) -> Row:
    width = max(positions(expression), default=-1) + 1
    return tuple(row.get(position) for position in range(width))


def not_unequal(left: Sequence[Expression], right: Sequence[Expression]) -> Expression:
    """Whether two rows are equal, or may be for all that is known."""
    equal = call("and", *(call("eq", x, y) for x, y in zip(left, right, strict=True)))
    return call("not", call("is_false", equal))


def deciding(name: str, is_any: bool, x: Expression, least: Expression, most: Expression) -> Expression:
    """The condition under which a comparison with some value makes ANY true, or ALL false."""
    denied = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
    name = name if is_any else denied[name]
    if name == "ne":
        return call("or", call("ne", x, least), call("ne", x, most))
    return call(name, x, least if name in ("gt", "ge") else most)
