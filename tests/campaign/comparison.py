"""Whether an answer is one that the judge allows.

Without ORDER BY an answer is a bag. With it the sort keys must be in order and ties may stand as they like; LIMIT and
OFFSET may cut through a tie anywhere. So the judge's rows are grouped by sort key, each group owns a slice of the
positions, and the rows found there must be the group's (all of it, or some of it where the cut goes through).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from itertools import groupby
from typing import Any

from tests.campaign.judge import Expected
from tests.campaign.kinds import SECOND, Kind, Type, duration
from tests.campaign.queries import OrderKey


class Different(Exception):
    """Says what differs, with both sides."""


class WrongType(Different):
    """A value, or a row's width, is not of the view's columns."""


def canonical(value: Any, type: Type) -> Any:
    """One form for a value of the engine, of JSON and of SQLite. Raises ValueError on a value of a wrong kind."""
    if value is None:
        return None
    match type.kind:
        case Kind.INT:
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{value!r} is no integer")
            return value
        case Kind.DEC:
            if isinstance(value, bool):
                raise ValueError(f"{value!r} is no decimal")
            try:
                exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
            except InvalidOperation as error:
                raise ValueError(f"{value!r} is no decimal") from error
            return exact.quantize(Decimal(1).scaleb(-type.scale)) + 0
        case Kind.DBL:
            if isinstance(value, str | bool):
                raise ValueError(f"{value!r} is no double")
            return float(f"{float(value):.9g}") + 0.0
        case Kind.TIME:
            if isinstance(value, str):
                return duration(value) // SECOND
            return value // SECOND if isinstance(value, timedelta) else int(value)
        case Kind.JSON if value == "null":
            return None  # A client cannot tell them apart.
        case _:
            if not isinstance(value, str):
                raise ValueError(f"{value!r} is no text")
            return value


def canonical_row(row: Sequence[Any], types: Sequence[Type]) -> tuple[Any, ...]:
    if len(row) != len(types):
        raise ValueError(f"{len(row)} columns instead of {len(types)}: {row!r}")
    return tuple(canonical(value, type) for value, type in zip(row, types, strict=True))


def compare(
    found: Sequence[Sequence[Any]], expected: Expected, types: Sequence[Type], order: Sequence[OrderKey]
) -> None:
    """Raises Different."""
    try:
        got = [canonical_row(row, types) for row in found]
    except ValueError as error:
        raise WrongType(str(error)) from error
    entries = [(canonical_row(row, types), keys[: len(order)]) for row, keys in expected.rows]
    for position in reversed(range(len(order))):
        entries.sort(key=lambda entry: _sortable(entry[1][position]), reverse=order[position].descending)
    end = len(entries) if expected.limit is None else expected.offset + expected.limit
    start = expected.offset if expected.limit is not None else 0
    length = max(0, min(end, len(entries)) - start)
    if len(got) != length:
        raise Different(f"{len(got)} rows instead of {length}{_sides(got, entries)}")
    position = 0
    for keys, group in groupby(entries, key=lambda entry: entry[1]):
        rows = Counter(row for row, _ in group)
        stop = position + rows.total()
        here = Counter(got[max(position - start, 0) : max(min(stop, end) - start, 0)])
        if not here <= rows:
            where = f" at sort keys {keys}" if order else ""
            raise Different(f"rows that should not be there{where}: {dict(here - rows)}{_sides(got, entries)}")
        position = stop


def _sortable(value: Any) -> tuple[bool, Any]:
    return (value is not None, 0 if value is None else value)


def _sides(got: Sequence[Any], entries: Sequence[tuple[Any, Any]]) -> str:
    rows = [row for row, _ in entries]
    missing, extra = Counter(rows) - Counter(got), Counter(got) - Counter(rows)
    text = "\n    missing: " + _short(missing) + "\n    extra:   " + _short(extra)
    if len(rows) <= 12:
        text += f"\n    all rows:  {_plain(rows)}\n    found:     {_plain(got)}"
    return text


def _short(rows: Counter[Any]) -> str:
    shown = [f"{_plain([row])[1:-1]}×{n}" if n > 1 else _plain([row])[1:-1] for row, n in list(rows.items())[:6]]
    return ", ".join(shown) + (" …" if len(rows) > 6 else "") if rows else "nothing"


def _plain(rows: Sequence[Any]) -> str:
    return repr([tuple(str(v) if isinstance(v, Decimal) else v for v in row) for row in rows])
