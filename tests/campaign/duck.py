"""DuckDB as a second judge of the judge: the MySQL text, translated by sqlglot, on the same rows.

Only for queries in which the two agree on what is meant: no division, no functions of text and dates, no doubles as
text. What is left (joins, three-valued logic, subqueries, grouping, DISTINCT, UNION, sums) is where its own mistakes
would hide, because there nothing was rewritten by hand.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot

from tests.campaign.judge import Judge
from tests.campaign.kinds import JSON, TIME, Kind
from tests.campaign.queries import Query, terms
from tests.campaign.rendering import view_text
from tests.campaign.schema import Column, Table

_SHARED = {"AND", "OR", "IN", "COUNT", "SUM", "MIN", "MAX", "COALESCE", "IFNULL", "NULLIF", "ABS", "CAST", "EXISTS"}
_SHARED |= {
    "FROM",
    "WHERE",
    "ON",
    "BY",
    "AS",
    "NOT",
    "WHEN",
    "THEN",
    "ELSE",
    "UNION",
    "ALL",
    "SELECT",
    "BETWEEN",
    "DISTINCT",
}


def comparable(query: Query) -> bool:
    """Whether the text says the same to both."""
    text = re.sub(r"'[^']*'", "''", view_text(query))
    called = set(re.findall(r"([A-Z_]+)\s?\(", text))
    foreign = re.search(
        r" / | DIV | XOR | % |JSON|CAST\([^()]* AS (CHAR|SIGNED)|LIKE|\d e0|\de0| INTERVAL |<=>|WITH ROLLUP", text
    )
    if any(part.type in (TIME, JSON) or part.type.members for term in terms(query) for part in term.walk()):
        return False
    return foreign is None and called <= _SHARED and "?" not in text and not _compares_kinds(text)


def _compares_kinds(text: str) -> bool:
    """Text with a number, which only MySQL compares as numbers."""
    return re.search(r"\(''\s*[<>=]+ \(?-?\d|\d\)?\s*[<>=]+ ''", text) is not None


class Duck:
    """One database with the tables of a judge."""

    def __init__(self, judge: Judge) -> None:
        self.connection = duckdb.connect(":memory:")
        self.connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        self.connection.execute("SET threads = 1")
        for table in judge.tables.values():
            self._copy(table, judge)

    def _copy(self, table: Table, judge: Judge) -> None:
        columns = ", ".join(f"{c.name} {_declared(c)}" for c in table.columns)
        self.connection.execute(f"CREATE TABLE {table.name} ({columns})")
        rows = [list(row) for row in judge.contents(table.name)]
        if rows:
            slots = ", ".join("?" for _ in table.columns)
            self.connection.executemany(f"INSERT INTO {table.name} VALUES ({slots})", rows)

    def rows(self, query: Query) -> list[tuple[Any, ...]]:
        """Every row, in no order (the outermost LIMIT must have been taken off)."""
        (text,) = sqlglot.transpile(view_text(query), read="mysql", write="duckdb")
        return [tuple(map(_plain, row)) for row in self.connection.execute(text).fetchall()]

    def close(self) -> None:
        self.connection.close()


def _declared(column: Column) -> str:
    """A TIME is microseconds to the judge."""
    if column.type.members or column.type.kind is Kind.JSON:
        return "VARCHAR"
    return "BIGINT" if column.type == TIME else column.declared


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, int | float | str | Decimal):
        return value
    return str(value)
