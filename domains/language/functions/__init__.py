"""Scalar functions: every name that a ``Call`` may carry, how it is typed, and the Python that it becomes.

A function is an entry of a theme's small table, and :data:`FUNCTIONS` is all of them. Its typing rule speaks of types
alone; where a constant decides (ROUND's digits, an interval's unit) :func:`call` looks at the arguments, so a planner
makes its calls with :func:`call`. Functions are deterministic (NOW, RAND and UUID are not here: the engine is pure),
follow MySQL 8, and never raise for data: what has no value is NULL.

::

    type_rules   which type two types meet in           arithmetic  numeric  text  digests
    conversion   one kind's value as another's          comparands  comparison  logic  matching  searching
    source       Function, Emitter: writing Python      casts  temporal/  json/

Known differences from MySQL: INTEGER arithmetic does not overflow; a text with garbage behind a date is no date (NULL);
DATETIME as a number drops its fraction; REGEXP reads a BLOB as UTF-8.
"""

from __future__ import annotations

from domains.errors import Unsupported
from domains.language.collating.coercibility import by_character, collated, is_coercible, met, with_collation
from domains.language.expressions import Call, Expression
from domains.language.functions import (
    arithmetic,
    casts,
    comparands,
    comparison,
    digests,
    logic,
    matching,
    numeric,
    searching,
    temporal,
    text,
)
from domains.language.functions.conversion import refuse_day_of_time
from domains.language.functions.json import FUNCTIONS as JSON_FUNCTIONS
from domains.language.functions.source import Emitter, Function
from domains.language.functions.type_rules import UNSIGNED, common_type, comparison_type, numeric_type, quotient_scale
from domains.language.types import Kind, SqlType

__all__ = [
    "FUNCTIONS",
    "UNSIGNED",
    "Emitter",
    "Function",
    "call",
    "common_type",
    "comparison_type",
    "numeric_type",
    "quotient_scale",
    "result_type",
]

FUNCTIONS: dict[str, Function] = {
    **arithmetic.FUNCTIONS,
    **comparands.FUNCTIONS,
    **comparison.FUNCTIONS,
    **logic.FUNCTIONS,
    **matching.FUNCTIONS,
    **searching.FUNCTIONS,
    **logic.CONTROL,
    **numeric.FUNCTIONS,
    **numeric.BITS,
    **text.FUNCTIONS,
    **text.TEXT_SEARCH,
    **digests.FUNCTIONS,
    **temporal.FUNCTIONS,
    **casts.FUNCTIONS,
    **JSON_FUNCTIONS,
}


def _function(name: str, count: int) -> Function:
    function = FUNCTIONS.get(name)
    if function is None:
        raise Unsupported(f'function "{name}" is not supported')
    function.check(count)
    return function


def result_type(name: str, argument_types: tuple[SqlType, ...]) -> SqlType:
    """The type of a call, from its arguments' types alone.

    Raises Unsupported for an unknown name and TypeViolation for a wrong number of arguments.
    """
    return _function(name, len(argument_types)).result_type(argument_types)


def call(name: str, *arguments: Expression, type: SqlType | None = None) -> Call:
    """A typed call. ``type`` is CAST's target; any other call is converted to it where it differs from its own."""
    function = _function(name, len(arguments))
    if name == "cast" and type is not None:
        refuse_day_of_time(arguments[0].type, type)
    if type is None:
        types = tuple(argument.type for argument in arguments)
        type = function.refine(arguments) if function.refine else function.result_type(types)
        if any(each.collation is not None for each in types):
            arguments, type = _by_collation(name, arguments, type)
    return Call(name, arguments, type)


_COMPARING = {
    *("eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq", "between", "in", "like", "regexp"),
    *("nullif", "greatest", "least", "find_in_set", "strcmp", "field", "locate", "instr", "position"),
    *("regexp_instr", "regexp_substr", "regexp_replace"),
}


def _by_collation(
    name: str, arguments: tuple[Expression, ...], type: SqlType
) -> tuple[tuple[Expression, ...], SqlType]:
    """The call's arguments, and its type, where some of them have a collation.

    :raises SqlError: they have different ones, and none of them prevails.
    """
    is_text = type.kind is Kind.TEXT and not type.members
    if name not in _COMPARING and not is_text:
        return arguments, type
    collation = met(arguments, name.upper())
    if name == "find_in_set" and collation is not None:
        arguments = tuple(by_character(e, collation) if e.type.kind is Kind.TEXT else e for e in arguments)
    elif name in _COMPARING:
        # Said at each text that has another one: what stands for a column later may be more or less explicit than it.
        arguments = tuple(e if is_coercible(e) else collated(e, collation) for e in arguments)
    return arguments, with_collation(type, collation) if is_text else type
