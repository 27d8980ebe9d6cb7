"""A parameter's value as what its column's values are compared with.

Nothing is stored, so nothing has to fit: ``id = 7.5``, ``id = 99999999999`` and ``day = '2026-01-31 08:00:00'`` are
true for no row, as in MySQL, and ``id > 7.5`` is true from 8 on. What a value is among its column's
``domains/functions/comparands.py`` says, as for every comparison; what a look-up makes of that, ``binding.py`` knows.

What names no number, or no date, is refused: MySQL would compare with 0, or only warn. So is a number for a text
column, which many a text equals (``'7'``, ``'07'``), and a look-up finds one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from domains.coercion import coercer, exact_number
from domains.errors import TypeViolation
from domains.expressions import Constant
from domains.functions.comparands import Comparand, comparand
from domains.types import DOUBLE, TEXT, Kind, SqlType, decimal_type

_PLAIN = 2**64
"""Whole numbers below this are taken as they are: 0.3 µs against 3."""


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
        return lambda given: _among(Constant(None if convert(given) is None else str(given), TEXT), type)
    if type.kind in (Kind.TEXT, Kind.BLOB):
        return lambda given: Comparand(convert(_no_number(given, type, name)))
    return lambda given: Comparand(convert(given))


def _number(given: Any, type: SqlType, name: str) -> Comparand:
    if given is None or (type.kind is Kind.INTEGER and isinstance(given, int) and abs(given) < _PLAIN):
        return Comparand(None if given is None else int(given))
    number = exact_number(given, type, column=name)
    if isinstance(given, float):
        return _among(Constant(given, DOUBLE), type)
    return _among(Constant(number, decimal_type(0)), type)


def _among(constant: Constant, type: SqlType) -> Comparand:
    found = comparand(constant, type)
    assert found is not None, "numbers are compared with numbers here, and text with days"
    return found


def _no_number(given: Any, type: SqlType, name: str) -> Any:
    if isinstance(given, (int, float, Decimal)):
        raise TypeViolation(
            f'{given!r} does not fit type {type} of column "{name}": a number is compared with the number in a text',
            hint=f'give the text itself, "{given}"; or ask SQL for {name} = {given}, which reads every row',
        )
    return given
