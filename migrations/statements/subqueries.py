"""Subqueries in INSERT, UPDATE and DELETE: asked first, then put in as constants.

They read views and the statement writes tables, so they cannot run in one step of the engine. The caller runs each as
a SELECT of its own and hands the rows to ``dml.resolve``; between the two another write may come, as between two
statements of an application.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal

from domains.errors import SqlError, Unsupported
from domains.language.durations import text_of_time
from domains.language.expressions import Expression
from domains.language.functions import call
from domains.language.types import Row, Value
from migrations.parse.measure import too_many_rows
from migrations.parse.reading import exp, text_of
from migrations.query.expressions import literals
from migrations.query.expressions.scalar import Setting, scalar
from migrations.query.expressions.scope import Scope
from migrations.query.select import reads_nothing
from migrations.statements.constants import at_time, constant_of, placeholders
from migrations.statements.statement import SelectStatement

# Values written into SQL text: where a parameter's value must become a part of the query.


def literal_node(value: Value) -> exp.Expr:
    """The literal that reads back as ``value``, with its type."""
    if value is None:
        return exp.Null()
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, bytes):
        # Bare it would be a number among numbers.
        return exp.Cast(this=exp.HexString(this=value.hex()), to=exp.DataType.build("BINARY", dialect="mysql"))
    if isinstance(value, timedelta):
        return exp.Cast(this=exp.Literal.string(text_of_time(value)), to=exp.DataType.build("TIME", dialect="mysql"))
    negative = value < 0
    text = _digits(-value if negative else value)
    node = exp.Literal(this=text, is_string=False)
    return exp.Paren(this=exp.Neg(this=node)) if negative else node


def _digits(value: float | Decimal) -> str:
    """A number without a sign; a DOUBLE has an exponent, which tells it from a DECIMAL."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, int):
        return str(value)
    text = repr(value)
    return text if "e" in text else f"{text}e0"


Answers = Sequence[Sequence[Row]]


def subqueries(node: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost nodes that stand for a SELECT, in the order of the text: the query itself, IN or EXISTS with it."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, (exp.Query, exp.Exists)):
            yield part
        elif isinstance(part, exp.In) and part.args.get("query") is not None:
            yield part
            pending.append(part.this)
        else:
            pending.extend(reversed(list(part.iter_expressions())))


def select_of(node: exp.Expr, values: Mapping[int, Value], now: str) -> SelectStatement:
    """The SELECT of a subquery, with the values of its own ``?`` (in its text where it reads nothing) and the time."""
    query = node.args["query"] if isinstance(node, exp.In) else node.this if isinstance(node, exp.Exists) else node
    while isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Query):
        raise Unsupported(f'"{text_of(node)[:60]}"')
    own = tuple(values[id(found)] for found in placeholders(query))
    timed = at_time(query, now)
    if not reads_nothing(query):
        return SelectStatement(timed, text_of(timed), own, of_now=timed is not query, now=now)
    constant = timed.copy()
    for found, value in zip(placeholders(constant), own, strict=True):
        found.replace(literal_node(value))
    return SelectStatement(constant, text_of(constant))


def answered(
    nodes: Sequence[exp.Expr], answers: Answers, scope: Scope, setting: Setting, most: int
) -> Callable[[exp.Expr], Expression | None] | None:
    """The part of :class:`Setting` that says what each subquery has become over ``scope``; IN takes at most so many
    rows."""
    if not nodes:
        return None
    known = {id(node): rows for node, rows in zip(nodes, answers, strict=True)}

    def replacement(node: exp.Expr) -> Expression | None:
        rows = known.get(id(node))
        if rows is None:
            return None
        if isinstance(node, exp.Exists):
            return literals.truth(bool(rows))
        if isinstance(node, exp.In):
            return _membership(node, rows, scope, setting, most)
        if len(rows) > 1:
            raise SqlError("a subquery that is used as a value gives more than one row", hint="add LIMIT 1")
        return constant_of(_only(rows[0])) if rows else literals.NOTHING

    return replacement


def _membership(node: exp.In, rows: Sequence[Row], scope: Scope, setting: Setting, most: int) -> Expression:
    if isinstance(node.this, exp.Tuple):
        raise Unsupported("(a, b) IN (SELECT …) in UPDATE and DELETE", hint="one column at a time")
    if len(rows) > most:
        raise too_many_rows(len(rows), most)
    value = scalar(node.this, scope, setting)
    if not rows:
        return literals.truth(False)
    return call("in", value, *(constant_of(value) for value in dict.fromkeys(_only(row) for row in rows)))


def _only(row: Row) -> Value:
    if len(row) != 1:
        raise SqlError(f"a subquery gives {len(row)} columns where one is wanted")
    return row[0]
