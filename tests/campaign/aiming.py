"""Writes that hit: foreign keys that name rows which are there, and rows that others name, as the tables are just then.

Without it one insert in three would name a row that is there, and few deletes would cascade.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any

from tests.campaign.judge import Judge
from tests.campaign.kinds import INT, SECOND, Kind, Type, Value
from tests.campaign.schema import Reference, Table
from tests.campaign.statements import Delete, Insert, Joined, Update, Write
from tests.campaign.terms import both, column, constant, same

OFTEN = 0.85


def aimed(write: Write, judge: Judge, random: Random) -> Write:
    table = judge.tables[write.table]
    if isinstance(write, Insert):
        return _pointed(write, table, judge, random)
    if isinstance(write, Joined):
        return write
    named = [(child, each) for child in judge.tables.values() for each in child.references if each.parent == table.name]
    if not named or random.random() > OFTEN:
        return write
    child, reference = random.choice(named)
    found = _keys(judge, child.name, reference.columns)
    return _where(write, table, reference.key, random.choice(found)) if found else write


def _where(write: Update | Delete, table: Table, key: Sequence[str], values: Sequence[Any]) -> Update | Delete:
    terms = []
    for name, value in zip(key, values, strict=True):
        type = table.column(name).type
        terms.append(same(INT, "({0} = {1})", column(table.name, name, type), constant(value_of(value, type), type)))
    return replace(write, where=both(terms))


def _pointed(insert: Insert, table: Table, judge: Judge, random: Random) -> Insert:
    for reference in table.references:
        found = _keys(judge, reference.parent, reference.key)
        if found:
            insert = _with_key(insert, table, reference, found, random)
    return insert


def _with_key(insert: Insert, table: Table, reference: Reference, found: Sequence[Any], random: Random) -> Insert:
    types = [table.column(name).type for name in reference.columns]
    names = (*insert.columns, *(name for name in reference.columns if name not in insert.columns))
    rows = []
    for row in insert.rows:
        given: dict[str, Value] = dict(zip(insert.columns, row, strict=True))
        if random.random() < OFTEN:
            key = random.choice(found)
            given |= {n: value_of(v, t) for n, v, t in zip(reference.columns, key, types, strict=True)}
        rows.append(tuple(given.get(name) for name in names))
    return replace(insert, columns=names, rows=tuple(rows))


def _keys(judge: Judge, table: str, names: Sequence[str]) -> list[tuple[Any, ...]]:
    known = " AND ".join(f"{name} IS NOT NULL" for name in names)
    text = f"SELECT DISTINCT {', '.join(names)} FROM {table} WHERE {known} ORDER BY rowid"
    return list(judge.connection.execute(text))


def value_of(value: Any, type: Type) -> Value:
    """A value of the judge's as one that is written."""
    if isinstance(value, float) and type.kind is Kind.DEC:
        return Decimal(repr(value)).quantize(Decimal(1).scaleb(-type.scale))
    if isinstance(value, int) and type.kind is Kind.TIME:
        return value * SECOND
    return value  # type: ignore[no-any-return]
