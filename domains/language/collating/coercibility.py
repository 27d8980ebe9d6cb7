"""Which collation compares texts that meet: the most explicit one, by MySQL's levels (*coercibility*).

====================================  =====  ============================================================
``x COLLATE c``                       0      explicit: it decides, and two that differ are an error
a column, and what is made of it      2      implicit: two that differ are an error, but ``_bin`` prevails
a constant, a ``?``                   4      takes what it meets; among each other they are compared as ``_bin``
====================================  =====  ============================================================

A call has the least level of its texts and their collation, so ``LOWER(name)`` is compared as ``name`` is. The levels
follow from the expression, and the collation that comes out stands in the call's type: nothing is decided while rows
pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from domains.errors import SqlError
from domains.language.collating.collation import BINARY, Collation
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.types import TEXT, Kind, SqlType

EXPLICIT, IMPLICIT, COERCIBLE = 0, 2, 4
_LEVELS = {EXPLICIT: "EXPLICIT", IMPLICIT: "IMPLICIT"}

PARAMETER = "parameter"
"""A call of this name is a ``?``: ``migrations/query/expressions/late.py``."""


def _level(e: Expression) -> int:
    if isinstance(e, Field):
        return IMPLICIT
    if isinstance(e, Constant) or e.function == PARAMETER:
        return COERCIBLE
    if e.function == "collate":
        return EXPLICIT
    if any(argument.type.kind is Kind.JSON for argument in e.arguments):
        return IMPLICIT  # What is taken out of a document is utf8mb4_bin.
    return min((_level(argument) for argument in e.arguments if argument.type.kind is Kind.TEXT), default=COERCIBLE)


def is_coercible(e: Expression) -> bool:
    """Whether it takes the collation of what it meets."""
    return _level(e) == COERCIBLE


def met(expressions: Iterable[Expression], operation: str) -> Collation | None:
    """The collation by which these are compared, as far as they are texts.

    :raises SqlError: two of them are as explicit and differ.
    """
    texts = [e for e in expressions if e.type.kind is Kind.TEXT]
    if all(e.type.collation is None for e in texts):
        return None
    levels: dict[int, dict[Collation | None, None]] = {}
    for e in texts:
        level = _level(e)
        if level < COERCIBLE:
            levels.setdefault(level, {})[e.type.collation] = None
    if not levels:
        return None
    level = min(levels)
    found = levels[level]
    if level == IMPLICIT and None in found:
        return None
    if len(found) > 1:
        raise illegal_mix(found, _LEVELS[level], operation)
    return next(iter(found))


def illegal_mix(collations: Iterable[Collation | None], level: str, operation: str) -> SqlError:
    named = " and ".join(f"({each or BINARY}, {level})" for each in collations)
    return SqlError(
        f"illegal mix of collations {named} for {operation}", hint=f"say which one is meant: … COLLATE {BINARY}"
    )


def with_collation(type: SqlType, collation: Collation | None) -> SqlType:
    return type if type.collation is collation else replace(type, collation=collation)


_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq", "in", "between"})
_NULL_TESTS = frozenset({"is_null", "is_not_null"})


def is_congruent(e: Expression) -> bool:
    """Whether the value is the same for texts that the collations of their columns find equal, and for equal documents:
    a condition that is not may tell rows of one group apart, and has to stay above the group."""
    if not isinstance(e, Call):
        return e.type.equality is None
    if e.function in _NULL_TESTS:
        return all(isinstance(argument, Field) or is_congruent(argument) for argument in e.arguments)
    if e.function in _COMPARISONS:
        collation = met(e.arguments, e.function)
        return all(
            is_congruent(argument)
            or (isinstance(argument, Field) and argument.type.equality in (collation, Collation.DOCUMENT))
            for argument in e.arguments
        )
    return all(map(is_congruent, e.arguments))


def collated(e: Expression, collation: Collation | None) -> Expression:
    """The text, to be compared by that collation: the same values under another type.

    It is a call, never a field of another type: a look-up that passes has keys of its column's own collation.
    """
    if e.type.kind is not Kind.TEXT or e.type.collation is collation:
        return e
    return Call("collate", (e,), with_collation(e.type, collation))


def by_character(e: Expression, collation: Collation) -> Call:
    """The text with characters of one weight made the same: FIND_IN_SET compares by characters, without padding."""
    return Call(f"alike_{collation}", (e,), TEXT)
