"""Aggregate functions: from their syntax to calls of a γ over columns of its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import assert_never

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Expression
from domains.language.functions import call, quotient_scale
from domains.language.functions.numeric import MASK
from domains.language.types import BIGINT, BLOB, DOUBLE, JSON, TEXT, Kind, SqlType, Value, decimal_type
from domains.plan.graph import AggregateFunction
from migrations.parse.reading import exp, text_of
from migrations.query.expressions.calls import AGGREGATES, spelled
from migrations.query.expressions.documents import as_value, sorting
from migrations.query.expressions.literals import LARGEST_SCALE, precise
from migrations.query.expressions.moments import own_nodes
from migrations.query.plans.late_queries import Sorting

_NODES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.GroupConcat)
_DISTINCT = {
    AggregateFunction.COUNT: AggregateFunction.COUNT_DISTINCT,
    AggregateFunction.SUM: AggregateFunction.SUM_DISTINCT,
    AggregateFunction.AVG: AggregateFunction.AVG_DISTINCT,
    AggregateFunction.GROUP_CONCAT: AggregateFunction.GROUP_CONCAT_DISTINCT,
}
_FUNCTIONS: dict[type[exp.Expr], AggregateFunction] = {
    exp.Min: AggregateFunction.MIN,
    exp.Max: AggregateFunction.MAX,
    exp.Sum: AggregateFunction.SUM,
    exp.Avg: AggregateFunction.AVG,
}
"""The aggregates of one argument."""
Translate = Callable[[exp.Expr], Expression]


@dataclass(frozen=True, slots=True)
class Summary:
    """An aggregate over expressions of the input's row."""

    function: AggregateFunction
    argument: Expression | None
    type: SqlType
    separator: str = ","
    order: tuple[Sorting, ...] = ()
    shown: SqlType | None = None
    """The type without the digits that are only computed with; None: it is ``type``."""

    @property
    def of_nothing(self) -> Value:
        """Its value over no rows."""
        match self.function:
            case AggregateFunction.COUNT_ROWS | AggregateFunction.COUNT | AggregateFunction.COUNT_DISTINCT:
                return 0
            case AggregateFunction.SUM | AggregateFunction.SUM_DISTINCT | AggregateFunction.MIN | AggregateFunction.MAX:
                return None
            case AggregateFunction.AVG | AggregateFunction.AVG_DISTINCT:
                return None
            case AggregateFunction.GROUP_CONCAT | AggregateFunction.GROUP_CONCAT_DISTINCT:
                return None
            case AggregateFunction.VAR_POP | AggregateFunction.VAR_SAMP:
                return None
            case AggregateFunction.STDDEV_POP | AggregateFunction.STDDEV_SAMP:
                return None
            case AggregateFunction.BIT_AND:
                return MASK
            case AggregateFunction.BIT_OR | AggregateFunction.BIT_XOR:
                return 0
            case AggregateFunction.JSON_ARRAYAGG | AggregateFunction.JSON_OBJECTAGG:
                return None
            case _:
                assert_never(self.function)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it makes one value of the rows of a group: not with OVER, which makes one for each row."""
    if isinstance(node.parent, exp.Window) and node.arg_key == "this":
        return False
    if not isinstance(node, exp.Anonymous):
        return isinstance(node, _NODES)
    name = spelled(node)[0]
    return name in AGGREGATES or name in CALLED


def is_operand(node: exp.Expr) -> bool:
    """Whether a node's value is an operand of arithmetic, or rounded, be it by way of a COALESCE."""
    above = node.parent
    while isinstance(above, (exp.Paren, exp.Coalesce, exp.Case, exp.If)):
        above = above.parent
    if isinstance(above, exp.Anonymous):
        return spelled(above)[0] in ("round", "truncate")
    return isinstance(above, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg))


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of an expression, without those of its subqueries."""
    for part in own_nodes(node):
        if is_aggregate(part):
            yield part


def summary(node: exp.Expr, translate: Translate, *, is_operand: bool = False) -> Summary:
    """The aggregate that a node means; ``translate`` gives expressions over the input's row.

    ``is_operand``: it is computed with further, so that a mean has more digits than it would show.

    :raises Unsupported: an aggregate that is not done.
    """
    if isinstance(node, exp.Count):
        return _count(node, translate)
    if isinstance(node, exp.GroupConcat):
        return _group_concat(node, translate)
    if isinstance(node, exp.Anonymous):
        return _called(node, translate)
    parts, is_distinct = _arguments(node)
    if len(parts) != 1 or isinstance(parts[0], exp.Star):
        raise SqlError(f"{text_of(node)}: one argument is wanted")
    argument = translate(parts[0])
    function = _FUNCTIONS[node.__class__]
    if function in (AggregateFunction.MIN, AggregateFunction.MAX):
        argument = call("cast", argument, type=TEXT) if argument.type.members else argument
        fine = precise(argument)
        return Summary(function, fine, fine.type, shown=argument.type)
    argument = _number(argument)
    fine, shown = precise(argument), _sum_type(function, argument.type)
    type = _sum_type(function, fine.type)
    if is_operand and function is AggregateFunction.AVG and type.kind is Kind.DECIMAL:
        type = decimal_type(max(type.scale, quotient_scale(fine.type.scale, 0)))
    return Summary(_DISTINCT[function] if is_distinct else function, fine, type, shown=shown)


def _arguments(node: exp.Expr) -> tuple[list[exp.Expr], bool]:
    inner = node.this
    is_distinct = isinstance(inner, exp.Distinct)
    parts = list(inner.expressions) if is_distinct else [inner, *node.expressions]
    if not parts or parts[0] is None:
        raise SqlError(f"{text_of(node)}: an argument is wanted")
    return parts, is_distinct


def _number(argument: Expression) -> Expression:
    """The expression that SUM and AVG add up: exact numbers as they are, text and dates as DOUBLE."""
    if argument.type.kind in (Kind.INTEGER, Kind.DECIMAL, Kind.DOUBLE):
        return argument
    return call("cast", argument, type=DOUBLE)


def _sum_type(function: AggregateFunction, argument: SqlType) -> SqlType:
    if argument.kind is Kind.DOUBLE:
        return DOUBLE
    if function is AggregateFunction.SUM:
        return BIGINT if argument.kind is Kind.INTEGER else decimal_type(argument.scale)
    return decimal_type(min(argument.scale + 4, LARGEST_SCALE))


def _count(node: exp.Expr, translate: Translate) -> Summary:
    parts, is_distinct = _arguments(node)
    if isinstance(parts[0], exp.Star):
        return Summary(AggregateFunction.COUNT_ROWS, None, BIGINT)
    arguments = [translate(part) for part in parts]
    if not is_distinct:
        if len(arguments) > 1:
            raise SqlError("COUNT of several columns wants DISTINCT")
        if isinstance(arguments[0], Constant) and arguments[0].value is not None:
            return Summary(AggregateFunction.COUNT_ROWS, None, BIGINT)
        return Summary(AggregateFunction.COUNT, arguments[0], BIGINT)
    return Summary(AggregateFunction.COUNT_DISTINCT, _combined(arguments), BIGINT)


def _combined(arguments: list[Expression]) -> Expression:
    """Several values as one that differs where any of them does, and is NULL where any of them is."""
    if len(arguments) == 1:
        return arguments[0]
    parts: list[Expression] = []
    for argument in arguments:
        if argument.type.collation is not None:
            raise Unsupported(
                f"DISTINCT of several values, one of which is a text under {argument.type.collation.value}",
                hint="count rows that are distinct: SELECT COUNT(*) FROM (SELECT DISTINCT a, b FROM t WHERE a IS NOT "
                "NULL AND b IS NOT NULL) AS x",
            )
        argument = call("json_order", argument) if argument.type.kind is Kind.JSON else argument
        text = call("hex", argument) if argument.type.kind is Kind.BLOB else call("cast", argument, type=TEXT)
        parts += [call("char_length", text), Constant(":", TEXT), text]
    return call("concat", *parts)


def _group_concat(node: exp.Expr, translate: Translate) -> Summary:
    separator, inner = node.args.get("separator"), node.this
    if separator is not None and not isinstance(separator, exp.Literal):
        raise SqlError("the SEPARATOR of GROUP_CONCAT must be a text")
    terms: list[exp.Expr] = []
    if isinstance(inner, exp.Order):
        inner, terms = inner.this, inner.expressions
    is_distinct = isinstance(inner, exp.Distinct)
    parts = list(inner.expressions) if is_distinct else [inner]
    if not parts or parts[0] is None:
        raise SqlError("GROUP_CONCAT wants an argument")
    # sqlglot has joined them already where there are several.
    arguments = [translate(part) for whole in parts for part in _joined_parts(whole)]
    order = [sorting(_sorted_by(term.this, arguments, translate), bool(term.args.get("desc"))) for term in terms]
    order = [term for term in order if not isinstance(term.expression, Constant)]
    argument = arguments[0] if len(arguments) == 1 else call("concat", *arguments)
    is_text = argument.type.kind in (Kind.TEXT, Kind.BLOB)
    text = argument if is_text else call("cast", argument, type=TEXT)
    function = AggregateFunction.GROUP_CONCAT_DISTINCT if is_distinct else AggregateFunction.GROUP_CONCAT
    type = BLOB if argument.type.kind is Kind.BLOB else TEXT
    return Summary(function, text, type, "," if separator is None else separator.name, tuple(order))


def _joined_parts(node: exp.Expr) -> list[exp.Expr]:
    return list(node.expressions) if isinstance(node, exp.Concat) else [node]


def _sorted_by(node: exp.Expr, arguments: list[Expression], translate: Translate) -> Expression:
    """What a term of GROUP_CONCAT's ORDER BY means: a whole number is the place of an argument."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
        return translate(node)
    if not 1 <= int(node.this) <= len(arguments):
        raise SqlError(f"ORDER BY {node.this}: GROUP_CONCAT has {len(arguments)} arguments")
    return arguments[int(node.this) - 1]


def _sortings(node: exp.Expr, translate: Translate) -> list[Sorting]:
    terms = [sorting(translate(term.this), bool(term.args.get("desc"))) for term in node.expressions]
    return [term for term in terms if not isinstance(term.expression, Constant)]


def _json(name: str, parts: list[exp.Expr], translate: Translate) -> Summary:
    """JSON_ARRAYAGG(value [ORDER BY …]), whose order is ours, and JSON_OBJECTAGG(key, value)."""
    wanted = 1 if name == "json_arrayagg" else 2
    order: list[Sorting] = []
    if len(parts) == 1 and isinstance(parts[0], exp.Order):
        order, parts = _sortings(parts[0], translate), [parts[0].this]
    if len(parts) != wanted or any(isinstance(part, (exp.Distinct, exp.Order, exp.Star)) for part in parts):
        raise SqlError("JSON_ARRAYAGG(value [ORDER BY …]) and JSON_OBJECTAGG(key, value) take nothing else")
    *key, value = map(translate, parts)
    if key:
        member = call("json_member", *key, as_value(value))
        return Summary(AggregateFunction.JSON_OBJECTAGG, member, JSON)
    element = call("json_element", as_value(value))
    return Summary(AggregateFunction.JSON_ARRAYAGG, element, JSON, order=tuple(order))


CALLED: dict[str, AggregateFunction] = {
    "any_value": AggregateFunction.MIN,
    **dict.fromkeys(("variance", "var_pop"), AggregateFunction.VAR_POP),
    "var_samp": AggregateFunction.VAR_SAMP,
    **dict.fromkeys(("std", "stddev", "stddev_pop"), AggregateFunction.STDDEV_POP),
    "stddev_samp": AggregateFunction.STDDEV_SAMP,
    "bit_and": AggregateFunction.BIT_AND,
    "bit_or": AggregateFunction.BIT_OR,
    "bit_xor": AggregateFunction.BIT_XOR,
}
"""The aggregates that sqlglot leaves as plain calls, all of one argument."""
_BITS = (AggregateFunction.BIT_AND, AggregateFunction.BIT_OR, AggregateFunction.BIT_XOR)


def _called(node: exp.Anonymous, translate: Translate) -> Summary:
    name, parts = spelled(node)
    if name.startswith("json_"):
        return _json(name, parts, translate)
    function = CALLED.get(name)
    if function is None:
        raise Unsupported(f"the aggregate {name.upper()}", hint="GROUP_CONCAT makes one text of several values")
    if len(parts) != 1:
        raise SqlError(f"{name.upper()} takes one argument, not {len(parts)}")
    argument = translate(parts[0])
    if function is AggregateFunction.MIN:
        return Summary(function, argument, argument.type)
    if function not in _BITS:
        return Summary(function, precise(_number(argument)), DOUBLE)
    if argument.type.kind is Kind.BLOB:
        raise Unsupported(f"{name.upper()} of a BLOB", hint="CAST it AS UNSIGNED where it is a number")
    bits = call("bit_or", argument, Constant(0, BIGINT))
    return Summary(function, bits, bits.type)
