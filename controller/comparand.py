"""A parameter's value as what its column's values are compared with.

Nothing is stored, so nothing has to fit: ``id = 7.5``, ``id = 99999999999`` and ``day = '2026-01-31 08:00:00'`` are
true for no row, as in MySQL, and ``id > 7.5`` is true from 8 on. So a value becomes the greatest value of the column's
kind that is not above it, and says whether that is all of it; what a comparison makes of that, ``binding.py`` knows.
What names no number, or no date, is refused: MySQL would compare with 0, or only warn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any

from domains.coercion import coercer, exact_number
from domains.functions.exact import MAX_SCALE, quantum, zero
from domains.temporal import canonical_datetime
from domains.types import Kind, SqlType, Value

DIGITS_MAX = 200
"""Before the point: more than a column has (65), or a sum or product of some. A number beyond is above them all, and
``1e999999999`` must not be written out."""

_PLAIN = 2**64
"""Whole numbers below this are taken as they are: 0.3 µs against 3."""

_DOWN = Context(prec=DIGITS_MAX + MAX_SCALE + 1, rounding=ROUND_FLOOR)


@dataclass(frozen=True, slots=True)
class Comparand:
    value: Value
    """The greatest value of the column's kind that is not above what was given; None for NULL."""
    exact: bool = True
    """Whether it is what was given."""


def comparand_maker(type: SqlType, name: str) -> Callable[[Any], Comparand]:
    """For the values of one parameter, out of a query string, JSON or a statement.

    What is made raises TypeViolation for what is no value of this kind at all, and names the parameter.
    """
    if type.kind in (Kind.INTEGER, Kind.DECIMAL):
        return lambda given: _number(given, type, name)
    # A text that is too long for the column is equal to none of its values, and is compared like any other.
    wanted = replace(type, length=None) if type.length is not None else type
    convert = coercer(wanted, column=name, from_json=True)
    if type.kind is Kind.DATE:
        return lambda given: _day(given, convert)
    return lambda given: Comparand(convert(given))


def _number(given: Any, type: SqlType, name: str) -> Comparand:
    if given is None or (type.kind is Kind.INTEGER and isinstance(given, int) and abs(given) < _PLAIN):
        return Comparand(None if given is None else int(given))
    number = Decimal(exact_number(given, type, column=name))
    if number and number.adjusted() >= DIGITS_MAX:
        # As good as infinite. Below zero the next value that is not above it is beyond what is compared, too.
        number, beyond = Decimal((int(number < 0), (1,), DIGITS_MAX - 1)), True
    else:
        beyond = False
    scale = 0 if type.kind is Kind.INTEGER else type.scale
    floor = _DOWN.quantize(number, quantum(scale)) or zero(scale)
    exact = not beyond and floor == number
    return Comparand(int(floor) if type.kind is Kind.INTEGER else floor, exact)


def _day(given: Any, convert: Callable[[object], Value]) -> Comparand:
    """A column of days is compared with a time of the day, too: 8 o'clock is after the day, and before the next."""
    day = convert(given)
    return Comparand(day, day is None or canonical_datetime(str(given)) == f"{day!s} 00:00:00")
