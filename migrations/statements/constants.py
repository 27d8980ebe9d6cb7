"""Values that a statement states: constant expressions, parameters, and how they fit a column."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, cast

from domains.errors import BadRequest, Unsupported
from domains.language.coercion import coerce
from domains.language.expressions import Constant, Expression
from domains.language.functions.conversion import text_of as shown
from domains.language.rewriting import fold
from domains.language.temporal import utc_text
from domains.language.types import BLOB, DATETIME, DOUBLE, TIME, TableColumn, Value, decimal_type
from migrations.parse.reading import Parsed, exp, makes_of_select, nodes, parse_select, position, text_of
from migrations.query.expressions import calls, literals
from migrations.query.expressions.drawing import drawn_one
from migrations.query.expressions.moments import own_nodes
from migrations.query.expressions.scalar import Setting, scalar, seed_of
from migrations.query.expressions.scope import Scope
from migrations.query.select import reads_nothing

NO_COLUMNS = Scope(())

Argument = Value | tuple[Value, ...]
"""The value of a ``?``; a tuple stands for all of an IN list."""


def placeholders(node: exp.Expr) -> list[exp.Placeholder]:
    """The ``?`` below a node, in the order of the text.

    :raises Unsupported: one is named.
    """
    found = [part for part in nodes(node) if isinstance(part, exp.Placeholder)]
    for placeholder in found:
        if placeholder.args.get("this"):
            raise Unsupported(f'the named parameter ":{placeholder.name}"', hint="parameters are written ?")
    return sorted(found, key=position)


def count_placeholders(parsed: Parsed) -> int:
    """How many values a statement takes; those of a view are given when it is read.

    :raises Unsupported: a parameter is named.
    """
    tree = parsed.expression
    if isinstance(tree, (exp.Create, exp.Alter, exp.Drop)) and not makes_of_select(tree):
        return 0
    return len(placeholders(parsed.expression)) if "?" in parsed.sql or ":" in parsed.sql else 0


def miscounted(of: str, wanted: int, given: int) -> BadRequest:
    """A text or a statement is given more or fewer values than it has parameters."""
    values = "value is" if given == 1 else "values are"
    return BadRequest(
        f"the {of} has {wanted} {'parameter' if wanted == 1 else 'parameters'}, but {given} {values} given",
        hint="give one for each ?: params in JSON and Python, --param on the command line",
    )


def check_params(parsed: Parsed, params: Sequence[Any]) -> tuple[Argument, ...]:
    """The parameters as values, one for each ``?``.

    :raises BadRequest: too many, too few, or of a type that no column has.
    """
    wanted = count_placeholders(parsed)
    if wanted != len(params):
        raise miscounted("statement", wanted, len(params))
    return tuple(parameter(value, number) for number, value in enumerate(params, 1))


def parameter(value: Any, number: int) -> Argument:
    """A parameter as one of our values: ``bool`` becomes 0 or 1, a date its text, a list the values of ``IN (?)``.

    :raises BadRequest: another type.
    """
    if isinstance(value, (list, tuple)):
        return tuple(_single(part, number) for part in value)
    return _single(value, number)


def _single(value: Any, number: int) -> Value:
    if value is None or type(value) in (int, str, bytes):
        return cast(Value, value)
    if type(value) in (float, Decimal):
        if not math.isfinite(value):
            raise BadRequest(f"parameter {number} is not a finite number", hint="use NULL for a missing value")
        return cast(Value, value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, (date, time)):
        return str(value)
    if isinstance(value, timedelta):
        return value
    raise BadRequest(
        f"parameter {number} is of the type {type(value).__name__}",
        hint="numbers, strings, bytes, dates, times and None are there, and lists of them for IN (?)",
    )


def scalars(arguments: Sequence[Argument]) -> tuple[Value, ...]:
    """Parameters of a statement that takes no lists.

    :raises BadRequest: there is one.
    """
    values: list[Value] = []
    for number, argument in enumerate(arguments, 1):
        if isinstance(argument, tuple):
            raise BadRequest(f"parameter {number} is a list", hint="lists are for IN (?) in SELECT only")
        values.append(argument)
    return tuple(values)


def constant_of(value: Value) -> Constant:
    """A value with the type that its Python type tells."""
    if value is None:
        return literals.NOTHING
    if isinstance(value, int):
        return literals.integer(value)
    if isinstance(value, str):
        return literals.text(value)
    if isinstance(value, float):
        return Constant(value, DOUBLE)
    if isinstance(value, bytes):
        return Constant(value, BLOB)
    if isinstance(value, timedelta):
        return Constant(value, TIME)
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or -exponent > literals.LARGEST_SCALE:
        return Constant(float(value), DOUBLE)
    return Constant(value if exponent <= 0 else value.quantize(Decimal(1)), decimal_type(max(0, -exponent)))


def evaluate(node: exp.Expr, setting: Setting | None = None, *, place: str = "") -> Value:
    """The value of an expression without columns.

    :raises UnknownName: it names a column.
    """
    setting = setting or Setting()
    return value_of(scalar(node, NO_COLUMNS, replace(setting, place=place) if place else setting))


def value_of(expression: Expression) -> Value:
    """The value of an expression that reads no row."""
    constant = fold(expression)
    assert isinstance(constant, Constant), "a call of constants folds"
    return constant.value


def coerced(value: Any, column: TableColumn) -> Value:
    """:raises TypeViolation: the value does not fit the column."""
    return coerce(value, column.type, column=column.name)


# NOW() and its like in a query are values of the request, as those of ``?`` are: the time stands in the tree that is
# planned, ``CAST('2026-01-31 08:00:00' AS DATETIME)``, so that ``made > NOW() - INTERVAL 1 DAY`` is the range of a key.


def at_time(query: exp.Query, now: str) -> exp.Query:
    """The query with the time of the statement in place of NOW(); itself where it does not ask for that."""
    if not any(map(_asks_time, nodes(query))):
        return query
    query = query.copy()
    keep_names(query, _asks_time)
    for node in [node for node in nodes(query) if _asks_time(node)]:
        node.replace(_time(node, now))
    return query


# RAND() and UUID() in what has one row for each time that they are written, INSERT's VALUES and SELECT without FROM,
# are values of the request as well: the row that is logged and archived has the value, and so has the operation.


def with_draws(parsed: Parsed, start: Callable[[str], int]) -> Parsed:
    """The statement with a value drawn for each RAND() and UUID() in its VALUES, or in a SELECT without FROM; itself
    where there is none. ``start`` gives what the values of a function start from."""
    if not any(map(calls.is_drawn, _of_one_row(parsed.expression))):
        return parsed
    copy = parsed.expression.copy()
    keep_names(copy, calls.is_drawn)
    for node in [node for node in _of_one_row(copy) if calls.is_drawn(node)]:
        name, parts = calls.spelled(node)
        value = drawn_one(name, seed_of(name, parts), start(name))
        number = f"{value:.17e}" if isinstance(value, float) else ""
        node.replace(exp.Literal.number(number) if number else exp.Literal.string(str(value)))
    return Parsed(copy, parsed.sql)


MAY_DRAW = re.compile(r"rand\s*\(|uuid\s*\(", re.IGNORECASE)
"""In the text of what :func:`draws_values` goes through the tree for."""


def draws_values(sql: str, node: exp.Expr) -> bool:
    """Whether a statement has RAND() or UUID()."""
    return MAY_DRAW.search(sql) is not None and any(map(calls.is_drawn, nodes(node)))


def _of_one_row(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Insert):
        values = node.args.get("expression")
        return list(own_nodes(values)) if isinstance(values, exp.Values) else []
    return list(nodes(node)) if isinstance(node, exp.Query) and reads_nothing(node) else []


def _asks_time(node: exp.Expr) -> bool:
    return calls.asks_time(node) and all(isinstance(part, exp.Literal) for part in calls.spelled(node)[1])


def keep_names(query: exp.Expr, changes: Callable[[exp.Expr], bool]) -> None:
    """Give the columns of a query's SELECTs the names that their texts have now, where a node that ``changes`` stands
    in them."""
    for select in [node for node in nodes(query) if isinstance(node, exp.Select)]:
        items = [_named(item) if any(map(changes, nodes(item))) else item for item in select.expressions]
        select.set("expressions", items)


def _named(item: exp.Expr) -> exp.Expr:
    """An item of the SELECT list under the name that its text gives it."""
    return item if isinstance(item, exp.Alias) else exp.alias_(item, text_of(item), quoted=True)


def _time(node: exp.Expr, now: str) -> exp.Expr:
    constant = fold(calls.clock(calls.spelled(node)[0], Constant(now, DATETIME)))
    assert isinstance(constant, Constant), "the clock gives a value"
    if isinstance(constant.value, int):
        return exp.Literal.number(constant.value)
    assert constant.value is not None, "the clock gives a value"
    item: exp.Expr = parse_select(f"SELECT CAST('{shown(constant.value)}' AS {constant.type})").expressions[0]
    for part in nodes(item):
        part._meta = None  # It stands nowhere in the text that was sent.
    return item
