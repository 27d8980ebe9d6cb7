"""Values written into SQL text: where a parameter's value must become a part of the query."""

from __future__ import annotations

from decimal import Decimal

from domains.types import Value
from migrations.parse import exp


def literal_node(value: Value) -> exp.Expr:
    """The literal that reads back as ``value``, with its type."""
    if value is None:
        return exp.Null()
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, bytes):
        # Bare it would be a number among numbers.
        return exp.Cast(this=exp.HexString(this=value.hex()), to=exp.DataType.build("BINARY", dialect="mysql"))
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
