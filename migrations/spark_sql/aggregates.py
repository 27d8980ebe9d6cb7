"""Aggregates in Spark's words: of a group, and with OVER of a window."""

from __future__ import annotations

from typing import assert_never

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant
from domains.language.types import DOUBLE, TEXT, Kind
from domains.plan.graph import AggregateFunction
from migrations.query.expressions.aggregates import Summary
from migrations.spark_sql.expressions import Names
from migrations.spark_sql.functions import unsigned
from migrations.spark_sql.values import decimal, quoted, refuse_told_apart

_DISTINCT = "DISTINCT "


def aggregate(summary: Summary, names: Names, over: str = "") -> str:
    """The aggregate over the rows of a group, or of the window that ``over`` says.

    :raises Unsupported: Spark has no way to say it.
    """
    function, argument = summary.function, summary.argument
    if argument is None:
        assert function is AggregateFunction.COUNT_ROWS, f"{function} has an argument"
        return f"count(1){over}"
    text = names.value(argument)
    if function not in (AggregateFunction.COUNT_ROWS, AggregateFunction.COUNT):
        refuse_told_apart([argument.type])
    match function:
        case AggregateFunction.COUNT_ROWS:
            return f"count(1){over}"
        case AggregateFunction.COUNT:
            return f"count({text}){over}"
        case AggregateFunction.COUNT_DISTINCT:
            return f"count({_DISTINCT}{text})"
        case AggregateFunction.SUM:
            return _sum(summary, text, over)
        case AggregateFunction.SUM_DISTINCT:
            return _sum(summary, text, word=_DISTINCT)
        case AggregateFunction.AVG:
            return _mean(summary, text, over)
        case AggregateFunction.AVG_DISTINCT:
            return _mean(summary, text, word=_DISTINCT)
        case AggregateFunction.MIN:
            return f"min({text}){over}"
        case AggregateFunction.MAX:
            return f"max({text}){over}"
        case AggregateFunction.VAR_POP | AggregateFunction.VAR_SAMP:
            return f"{function}({names.as_type(argument, DOUBLE)}){over}"
        case AggregateFunction.STDDEV_POP | AggregateFunction.STDDEV_SAMP:
            return f"{function}({names.as_type(argument, DOUBLE)}){over}"
        case AggregateFunction.BIT_AND | AggregateFunction.BIT_OR | AggregateFunction.BIT_XOR:
            return _bits(summary, text, over)
        case AggregateFunction.GROUP_CONCAT:
            return _joined(summary, names, "")
        case AggregateFunction.GROUP_CONCAT_DISTINCT:
            return _joined(summary, names, _DISTINCT)
        case AggregateFunction.JSON_ARRAYAGG | AggregateFunction.JSON_OBJECTAGG:
            raise Unsupported(f"{function.value.upper()}, which Spark writes otherwise")
        case _:
            assert_never(function)


def _sum(summary: Summary, number: str, over: str = "", word: str = "") -> str:
    """A DECIMAL's sum has ten digits more to Spark, and is brought back."""
    text = f"sum({word}{number}){over}"
    return f"CAST({text} AS {decimal(summary.type.scale)})" if summary.type.kind is Kind.DECIMAL else text


def _mean(summary: Summary, number: str, over: str = "", word: str = "") -> str:
    """The mean; that of exact numbers is the exact quotient, rounded once."""
    if summary.type.kind is Kind.DOUBLE:
        return f"avg({word}{number}){over}"
    assert summary.argument is not None
    own = summary.argument.type.scale
    if own > 6:
        raise Unsupported("AVG of numbers with many digits after the point, which Spark rounds")
    exact = f"CAST(sum({word}CAST({number} AS {decimal(own, 18)})){over} AS {decimal(own, 18)})"
    count = f"count({word}{number}){over}"
    return f"CAST({exact} / NULLIF(CAST({count} AS DECIMAL(12,0)), 0) AS {decimal(summary.type.scale)})"


def _bits(summary: Summary, number: str, over: str) -> str:
    """Spark's are over 64 bits with a sign, and NULL where there is no value."""
    signed = f"CAST(CASE WHEN {number} >= {2**63}BD THEN {number} - {2**64}BD ELSE {number} END AS BIGINT)"
    return f"COALESCE({unsigned(f'{summary.function}({signed}){over}')}, {summary.of_nothing!r}BD)"


def _joined(summary: Summary, names: Names, word: str) -> str:
    """Ties of the order go by the text, as everything here that MySQL leaves open."""
    assert summary.argument is not None
    if summary.type.kind is Kind.BLOB:
        raise Unsupported("GROUP_CONCAT of a BLOB, which the judge does not know")
    own = {summary.argument, *(summary.argument.arguments if isinstance(summary.argument, Call) else ())}
    if word and any(term.expression not in own for term in summary.order):
        raise Unsupported("GROUP_CONCAT(DISTINCT x ORDER BY y) with another y than x, which the judge does not know")
    text = names.as_type(summary.argument, TEXT)
    if word and summary.order and any(isinstance(term.expression, Constant) for term in summary.order):
        raise Unsupported("GROUP_CONCAT(DISTINCT … ORDER BY constant), which the judge does not know")
    terms = [] if word else [sorted_by(names.value(t.expression), t.descending) for t in summary.order]
    if word and summary.order:
        terms = [sorted_by(text, summary.order[0].descending)]
    elif not word or not summary.order:
        terms.append(sorted_by(text, False))
    return f"listagg({word}{text}, {quoted(summary.separator)}) WITHIN GROUP (ORDER BY {', '.join(terms)})"


def sorted_by(text: str, descending: bool) -> str:
    """A term of ORDER BY: NULL is less than everything."""
    return f"{text} DESC NULLS LAST" if descending else f"{text} ASC NULLS FIRST"
