"""Parameters in expressions: a ``?`` that is compared with no column, so that it is worked out when a view is read.

Such a ``?`` becomes ``parameter('key', exact)``, a call of no function that there is: nothing folds it, no node of the
dataflow may hold it, and :func:`with_values` puts a constant in its place when a look-up brings the value.

Its type is decided when the view is planned. Beside another operand it is that one's (``price * ?``), below CAST what
CAST says, else TEXT. Where it is an operand of a comparison the value stays what it is, whatever the type, so that
``id > 7.5`` is true from 8 on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from domains.errors import TypeViolation
from domains.language.coercion import coerce, exact_number
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions.temporal.intervals import COMPOUND
from domains.language.rewriting import FoldBudget, fold
from domains.language.types import BOOL, DOUBLE, TEXT, Kind, Row, SqlType, Value, decimal_type
from migrations.parse.policies import is_claim
from migrations.parse.reading import exp, nodes, position
from migrations.query.expressions import literals

PARAMETER = "parameter"
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.In, exp.Between)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
"""Of a DECIMAL with any number of digits: 0.0001 times a sum of cents is not 0.00 times it."""
_TEXTS = (exp.Like, exp.RegexpLike, exp.Escape)
_DAYS = ("ADDDATE", "SUBDATE")
"""Functions whose second argument is a number of days."""
_NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE)


def late_parameter(node: exp.Placeholder, translate: Callable[[exp.Expr], Expression]) -> tuple[Call, str]:
    """The call that stands for a ``?``, and its name. ``translate`` gives the operands beside it."""
    child, parent = _surroundings(node)
    if isinstance(parent, exp.Tuple):
        exact, sibling = isinstance(parent.parent, _COMPARISONS), _beside_in_row(child, parent)
    else:
        exact, sibling = isinstance(parent, _COMPARISONS), _sibling(child, parent)
    type, name = TEXT, "parameter"
    if isinstance(parent, exp.Cast):
        type = literals.cast_target(parent.args["to"])
    elif isinstance(parent, exp.Interval):
        type, name, exact = _interval_type(parent), "interval", True
    elif isinstance(parent, exp.Anonymous) and parent.name.upper() in _DAYS and child is parent.expressions[-1]:
        type, name, exact = ANY_INTEGER, "interval", True
    elif sibling is not None and not isinstance(parent, _TEXTS):
        type = _type_beside(translate(sibling).type)
        exact = exact or (type.kind is Kind.DECIMAL and isinstance(parent, _ARITHMETIC))
    if isinstance(sibling, exp.Column):
        name = sibling.name
    key = f":{node.this}" if node.this else str(position(node))
    return parameter_call(key, type, exact=exact), str(node.this or name)


def type_beside(node: exp.Expr, translate: Callable[[exp.Expr], Expression]) -> SqlType:
    """The type of what a call is compared with; TEXT where that is nothing that has one."""
    child, parent = _surroundings(node)
    if isinstance(parent, exp.Tuple):
        sibling = _beside_in_row(child, parent)
    else:
        sibling = _sibling(child, parent) if isinstance(parent, _COMPARISONS) else None
    if sibling is None or any(map(is_claim, nodes(sibling))):
        return TEXT
    return _type_beside(translate(sibling).type)


def takes_list(node: exp.Placeholder) -> bool:
    """Whether a ``?`` stands alone in an IN list."""
    _, parent = _surroundings(node)
    return isinstance(parent, exp.In) and len(parent.expressions) == 1 and node is not parent.this


def parameter_call(key: str, type: SqlType, *, exact: bool = True) -> Call:
    return Call(PARAMETER, (Constant(key, TEXT), Constant(int(exact), BOOL)), type)


def _surroundings(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Neg)):
        node, parent = parent, parent.parent
    return node, parent


def _sibling(child: exp.Expr, parent: exp.Expr | None) -> exp.Expr | None:
    """What stands beside a ``?`` and says of which type it is: no ``?`` itself, and no subquery."""
    if not isinstance(parent, (*_COMPARISONS, *_TEXTS, exp.Binary)):
        return None
    others = [each for each in parent.iter_expressions() if each is not child]
    plain = (each for each in others if not any(isinstance(n, (exp.Placeholder, exp.Query)) for n in each.walk()))
    # What an INTERVAL is added to is a moment, which is a text.
    return next((each for each in plain if not isinstance(each, exp.Interval)), None)


def _interval_type(interval: exp.Interval) -> SqlType:
    """The type of ``INTERVAL ? DAY``, a number, or ``INTERVAL ? HOUR_MINUTE``, a text of several."""
    unit = interval.args.get("unit")
    return TEXT if unit is not None and unit.name.upper() in COMPOUND else ANY_INTEGER


ANY_INTEGER = SqlType(Kind.INTEGER, "BIGINT", low=-(2**63), high=2**64 - 1)
"""The type of a ``?`` beside an integer: a column's own bounds are those of what it stores, and -1 may be added to any.
"""


def _beside_in_row(child: exp.Expr, row: exp.Tuple) -> exp.Expr | None:
    """What stands at the same place of the row that this one is compared with; None where it has a ``?`` itself."""
    if row.parent is None or not isinstance(row.parent, exp.Binary):
        return None
    other = row.parent.right if row.parent.left is row else row.parent.left
    place = next(at for at, part in enumerate(row.expressions) if part is child)
    if not isinstance(other, exp.Tuple) or place >= len(other.expressions):
        return None
    found: exp.Expr = other.expressions[place]
    return None if any(isinstance(n, (exp.Placeholder, exp.Query)) for n in found.walk()) else found


def _type_beside(type: SqlType) -> SqlType:
    if type.members:
        return TEXT
    return ANY_INTEGER if type.kind in (Kind.NULL, Kind.INTEGER) else type


def has_parameter(e: Expression) -> bool:
    return any(True for _ in parameters_in(e))


def parameters_in(e: Expression) -> Iterator[Call]:
    pending = [e]
    while pending:
        part = pending.pop()
        if isinstance(part, Call):
            if part.function == PARAMETER:
                yield part
            else:
                pending += part.arguments


def key_of(parameter: Call) -> str:
    key = parameter.arguments[0]
    assert isinstance(key, Constant)
    return str(key.value)


def marked_late(e: Expression, prefix: Sequence[int]) -> Expression:
    """The expression as read at a place of another text (see ``relation.marked``)."""
    return replaced(e, lambda each: Call(PARAMETER, (_prefixed(each, prefix), each.arguments[1]), each.type))


def _prefixed(parameter: Call, prefix: Sequence[int]) -> Constant:
    key = key_of(parameter)
    return Constant(key if key[0] in ":@" else ".".join((*map(str, prefix), key)), TEXT)


Given = Value | tuple[Value, ...]
"""The value of a parameter; a tuple for that of an IN list."""


class LookedUp:
    """What a query below has answered for each row around it: its columns by key (``plans/each_row.py``)."""

    def __init__(self, rows: Mapping[Row, Row], nothing: Row, key_of: Callable[[Row], Row]) -> None:
        self._rows, self._nothing, self._key_of = rows, nothing, key_of

    def __call__(self, column: int, key: Row) -> Value:
        return self._rows.get(self._key_of(key), self._nothing)[column]


Filled = Given | Constant | tuple[Constant, ...] | LookedUp
"""The same, or what a query below has answered."""


def with_values(e: Expression, values: Mapping[str, Filled | Field]) -> Expression:
    """The expression with these values in the place of its parameters, by key; a field is where the row has it."""
    return fold(_with_values(e, values), FoldBudget())


def _with_values(e: Expression, values: Mapping[str, Filled | Field]) -> Expression:
    if not isinstance(e, Call):
        return e
    if e.function == PARAMETER:
        return _constant(e, values[key_of(e)])
    arguments: list[Expression] = []
    for argument in e.arguments:
        given = values[key_of(argument)] if isinstance(argument, Call) and argument.function == PARAMETER else None
        if isinstance(given, tuple) and isinstance(argument, Call):
            arguments += [_constant(argument, each) for each in given]
        else:
            arguments.append(_with_values(argument, values))
    if e.function == "in" and len(arguments) == 1:
        return Constant(0, BOOL)  # Nothing is IN no list.
    return Call(e.function, tuple(arguments), e.type)


def replaced(e: Expression, replacement: Callable[[Call], Expression]) -> Expression:
    if not isinstance(e, Call):
        return e
    if e.function == PARAMETER:
        return replacement(e)
    arguments = tuple(replaced(argument, replacement) for argument in e.arguments)
    return e if arguments == e.arguments else Call(e.function, arguments, e.type)


def _constant(parameter: Call, value: Filled | Field) -> Expression:
    assert not isinstance(value, tuple), "a list stands in IN alone"
    if isinstance(value, Field):
        return Field(value.position, parameter.type)
    if isinstance(value, Constant):
        return value
    if isinstance(value, LookedUp):
        return Constant(value, parameter.type)  # type: ignore[arg-type]
    type, exact = parameter.type, parameter.arguments[1] == Constant(1, BOOL)
    if value is None:
        return Constant(None, type)
    if not exact:
        return Constant(coerce(value, type, column="?"), type)
    if isinstance(value, int):
        return literals.integer(value)
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int), "a finite number"
        return Constant(value, decimal_type(max(0, -exponent)))
    return Constant(value, DOUBLE if isinstance(value, float) else TEXT if isinstance(value, str) else type)


def late_value(given: Any, type: SqlType, name: str) -> Value:
    """A value of a request as that of a parameter of this type.

    :raises TypeViolation: it is none of this kind at all.
    """
    if given is None:
        return None
    if type.kind in (Kind.INTEGER, Kind.DECIMAL):
        number = exact_number(given, type, column=name)
        return int(number) if number == int(number) and not isinstance(given, Decimal) else number
    if type.kind in (Kind.DATE, Kind.DATETIME):
        return str(given)
    if type.kind is Kind.JSON:
        if isinstance(given, (str, int, float, Decimal)):
            return int(given) if isinstance(given, bool) else given
        raise TypeViolation(
            f'parameter "{name}" is compared with JSON', hint="give a text or a number; CAST(? AS JSON)"
        )
    if type.kind is Kind.TEXT and not isinstance(given, str):
        raise TypeViolation(
            f'{given!r} is no text, which parameter "{name}" is', hint="write CAST(? AS SIGNED) where it is a number"
        )
    # It is compared, and not stored: it may be longer than the column takes, and no member of it.
    wanted = replace(type, length=None, members=()) if type.length is not None or type.members else type
    return coerce(given, wanted, column=name, from_json=True)


def fields_of(e: Expression) -> list[Field]:
    """The columns that an expression reads, each once, from left to right."""
    found: dict[Field, None] = {}
    pending = [e]
    while pending:
        part = pending.pop()
        if isinstance(part, Field):
            found[part] = None
        elif isinstance(part, Call):
            pending += reversed(part.arguments)
    return list(found)
