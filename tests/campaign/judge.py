"""The judge: the same tables in SQLite, changed by MySQL's rules for constraints, asked with our own text.

Queries and the expressions of writes are SQLite's to evaluate. What becomes of a row that meets a key (refused,
ignored, replaced, updated) is decided here in Python, because SQLite's own clauses differ from MySQL's in detail.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tests.campaign.functions import install, my_dec
from tests.campaign.kinds import SECOND, Kind, Value
from tests.campaign.queries import Cut, Output, Query, Select
from tests.campaign.rendering import judged, parameters
from tests.campaign.schema import Column, Table
from tests.campaign.statements import AskMore, Assignment, Delete, Insert, Update, Write
from tests.campaign.terms import Term

Stored = tuple[Any, ...]
Rows = dict[int, Stored]
"""Row id → values in the order of the table's columns."""


AFFORDABLE = 400_000
"""SQLite's instructions for one query: tens of milliseconds. More would let one bad join eat the campaign's time."""

MOST_ROWS = 60
"""Of a table: an INSERT beyond it is left out."""


class Verdict(StrEnum):
    DONE = "done"
    REFUSED = "refused"
    """A constraint or a type is violated: nothing is changed."""
    OPEN = "open"
    """Right in the end, but keys collide on the way: MySQL's answer depends on the order of the rows."""


class Refused(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Expected:
    """Every row of a query, with its sort keys; the comparison applies order, LIMIT and OFFSET."""

    rows: list[tuple[Stored, Stored]]
    limit: int | None
    offset: int


class Judge:
    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=512)
        self.tables: dict[str, Table] = {}
        install(self.connection)

    def close(self) -> None:
        self.connection.close()

    # --- schema ---------------------------------------------------------------------------------------------------

    def create_table(self, table: Table) -> None:
        self.tables[table.name] = table
        # Without declared types nothing is coerced: values stay what the campaign put in.
        self.connection.execute(f"CREATE TABLE {table.name} ({', '.join(table.names)})")

    def add_column(self, name: str, column: Column) -> None:
        table = self.tables[name]
        self.tables[name] = replace(table, columns=(*table.columns, column))
        self.connection.execute(f"ALTER TABLE {name} ADD COLUMN {column.name}")
        self.connection.execute(f"UPDATE {name} SET {column.name} = ?", (plain(column.default),))

    def drop_column(self, name: str, column: str) -> None:
        table = self.tables[name]
        self.tables[name] = replace(table, columns=tuple(c for c in table.columns if c.name != column))
        self.connection.execute(f"ALTER TABLE {name} DROP COLUMN {column}")

    def fits(self, asked: AskMore) -> bool:
        """Whether the rows are what is asked."""
        names = asked.names
        rows = self.connection.execute(f"SELECT {', '.join(names)} FROM {asked.table}").fetchall()
        whole = [row for row in rows if None not in row]
        if asked.what == "NOT NULL":
            return len(whole) == len(rows)
        return len(set(whole)) == len(whole) and (asked.what == "UNIQUE" or len(whole) == len(rows))

    def ask_more(self, asked: AskMore) -> None:
        table, names = self.tables[asked.table], asked.names
        if asked.what != "UNIQUE":
            columns = (replace(c, nullable=c.nullable and c.name not in names) for c in table.columns)
            table = replace(table, columns=tuple(columns))
        if asked.what == "PRIMARY KEY":
            table = replace(table, primary_key=names)
        elif asked.what == "UNIQUE" and names not in table.keys:
            table = replace(table, unique=(*table.unique, names))
        self.tables[asked.table] = table

    # --- queries --------------------------------------------------------------------------------------------------

    def expected(self, query: Query, values: Sequence[Any] = ()) -> Expected:
        """``values``: one for each parameter in the order of the text, a list for IN."""
        bound = dict(zip((p.id for p in parameters(query)), values, strict=True))
        named = {
            f"p{id}": json.dumps([plain(v) for v in value]) if isinstance(value, list) else plain(value)
            for id, value in bound.items()
        }
        width = len(query.outputs)
        rows = [(row[:width], row[width:]) for row in self.connection.execute(judged(query), named)]
        limit, offset = query.cut.limit, query.cut.offset
        return Expected(
            rows,
            limit if limit is None or isinstance(limit, int) else bound[limit.id],
            offset if isinstance(offset, int) else bound[offset.id],
        )

    def affordable(self, query: Query) -> bool:
        """Whether the query is cheap for every key at once, as the tables are now."""
        if isinstance(query, Select):
            kept = tuple(t for t in query.where if all(part.parameter is None for part in t.walk()))
            query = replace(query, where=kept, having=None, cut=Cut())
        elif parameters(query):
            query = replace(query, cut=Cut())
        self.connection.set_progress_handler(lambda: 1, AFFORDABLE)
        try:
            unbound = {f"p{parameter.id}": None for parameter in parameters(query)}
            self.connection.execute(f"SELECT COUNT(*) FROM ({judged(query)})", unbound).fetchone()
        except sqlite3.OperationalError as error:
            if str(error) != "interrupted":
                raise
            return False
        finally:
            self.connection.set_progress_handler(None, 0)
        return True

    def candidates(self, query: Query) -> list[dict[int, Value]]:
        """Values, by parameter number, under which the WHERE of a plain SELECT is met by some row."""
        if not isinstance(query, Select):
            return []
        asking = [t for t in query.where if any(part.parameter is not None for part in t.walk())]
        conditions = [t for t in asking if t.arguments[0].column is not None]
        if not conditions:
            return []
        rest = tuple(term for term in query.where if term not in asking)
        compared = [pair for term in conditions for pair in _compared_columns(term)]
        outputs = tuple(Output(column, f"x{i}") for i, (column, _) in enumerate(compared))
        text = judged(Select(outputs, query.sources, rest)) + " LIMIT 60"
        return [
            {id: value for (_, ids), value in zip(compared, row, strict=True) for id in ids}
            for row in self.connection.execute(text)
        ]

    def contents(self, table: str) -> list[Stored]:
        return list(self.connection.execute(f"SELECT * FROM {table}"))

    # --- writes ---------------------------------------------------------------------------------------------------

    def consider(self, write: Write) -> tuple[Verdict, Rows]:
        """What the write would leave in the table, without changing it."""
        table = self.tables[write.table]
        before = {row[0]: row[1:] for row in self.connection.execute(f"SELECT rowid, * FROM {table.name}")}
        try:
            if isinstance(write, Insert):
                return Verdict.DONE, self._inserted(table, before, write)
            if isinstance(write, Delete):
                gone = self._matching(write, ())
                return Verdict.DONE, {id: row for id, row in before.items() if id not in gone}
            return self._updated(table, before, write)
        except Refused:
            return Verdict.REFUSED, before

    def apply(self, table: str, rows: Rows) -> None:
        width = len(self.tables[table].columns)
        self.connection.execute("BEGIN")
        self.connection.execute(f"DELETE FROM {table}")
        slots = ", ".join("?" * (width + 1))
        names = ", ".join(("rowid", *self.tables[table].names))
        self.connection.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({slots})", [(id, *row) for id, row in rows.items()]
        )
        self.connection.execute("COMMIT")

    def _inserted(self, table: Table, before: Rows, insert: Insert) -> Rows:
        rows = dict(before)
        for values in insert.rows:
            given = dict(zip(insert.columns, values, strict=True))
            row = tuple(stored(c, given.get(c.name, c.default), table) for c in table.columns)
            holders = [id for key in table.keys for id in self._holders(table, rows, key, row)]
            if not holders:
                rows[max(rows, default=0) + 1] = row
            elif insert.mode == "":
                raise Refused
            elif insert.mode == "replace":
                for id in holders:
                    rows.pop(id, None)
                rows[max(rows, default=0) + 1] = row
            elif insert.mode == "update":
                rows[holders[0]] = self._assigned(table, insert.assignments, rows[holders[0]], row)
                self._require_unique(table, rows)
        return rows

    def _assigned(self, table: Table, assignments: Iterable[Assignment], old: Stored, new: Stored) -> Stored:
        slots = ", ".join(f"? AS {name}" for name in table.names)
        shown = ", ".join(term.judge() for _, term in assignments)
        text = f"SELECT {shown} FROM (SELECT {slots}) AS {table.name}, (SELECT {slots}) AS inserted"
        results = next(self.connection.execute(text, (*old, *new)))
        return self._changed(table, assignments, old, results)

    def _changed(self, table: Table, assignments: Iterable[Assignment], old: Stored, results: Stored) -> Stored:
        changed = list(old)
        for (name, _), value in zip(assignments, results, strict=True):
            changed[table.names.index(name)] = stored(table.column(name), value, table)
        return tuple(changed)

    def _updated(self, table: Table, before: Rows, update: Update) -> tuple[Verdict, Rows]:
        results = self._matching(update, tuple(term for _, term in update.assignments))
        rows = dict(before)
        if update.ignore:
            return Verdict.DONE, self._updated_one_by_one(table, rows, update, results)
        for id, values in results.items():
            rows[id] = self._changed(table, update.assignments, before[id], values)
        self._require_unique(table, rows)
        for key in table.keys:
            positions = [table.names.index(name) for name in key]
            for id in results:
                now = [rows[id][p] for p in positions]
                others = (row for other, row in before.items() if other != id and other in results)
                if None not in now and any([row[p] for p in positions] == now for row in others):
                    return Verdict.OPEN, rows
        return Verdict.DONE, rows

    def _updated_one_by_one(self, table: Table, rows: Rows, update: Update, results: Rows) -> Rows:
        """UPDATE IGNORE, in the order of the primary key."""
        new = {id: self._changed(table, update.assignments, rows[id], values) for id, values in results.items()}
        places = [table.names.index(name) for name in table.primary_key]
        for id in sorted(new, key=lambda id: [rows[id][place] for place in places]):
            others = {other: row for other, row in rows.items() if other != id}
            if not any(self._holders(table, others, key, new[id]) for key in table.keys):
                rows[id] = new[id]
        return rows

    def _matching(self, write: Update | Delete, terms: tuple[Any, ...]) -> Rows:
        shown = ", ".join(["rowid", *(term.judge() for term in terms)])
        text = f"SELECT {shown} FROM {write.table}"
        if write.where is not None:
            text += f" WHERE {write.where.judge()}"
        return {row[0]: row[1:] for row in self.connection.execute(text)}

    def _holders(self, table: Table, rows: Rows, key: tuple[str, ...], row: Stored) -> list[int]:
        positions = [table.names.index(name) for name in key]
        wanted = [row[p] for p in positions]
        if None in wanted:
            return []
        return [id for id, other in rows.items() if [other[p] for p in positions] == wanted]

    def _require_unique(self, table: Table, rows: Rows) -> None:
        for key in table.keys:
            if any(len(self._holders(table, rows, key, row)) > 1 for row in rows.values()):
                raise Refused


def plain(value: Value) -> Any:
    """The value as SQLite holds it."""
    if isinstance(value, timedelta):
        return value // SECOND
    return float(value) if isinstance(value, Decimal) else value


def stored(column: Column, value: Any, table: Table) -> Any:
    """The value as the column keeps it, or Refused."""
    value = plain(value)
    if value is None:
        if not column.nullable or column.name in table.primary_key:
            raise Refused
        return None
    match column.type.kind:
        case Kind.INT:
            if not isinstance(value, int) or (column.declared != "BIGINT" and abs(value) > 2**31 - 1):
                raise Refused
        case Kind.DEC:
            if isinstance(value, str) or abs(value) >= 10**6:
                raise Refused
            value = my_dec(value, column.type.scale)
        case Kind.DBL:
            if isinstance(value, str):
                raise Refused
            value = float(value)
        case Kind.TXT:
            if len(value) > (column.width or 65_535):
                raise Refused
        case Kind.DATE:
            try:
                date.fromisoformat(value)
            except ValueError:
                raise Refused from None
        case Kind.TIME:
            if isinstance(value, str):
                raise Refused
    return value


def _compared_columns(term: Term) -> list[tuple[Term, list[int]]]:
    """The columns of a comparison, with the numbers of the parameters of each: of rows they go one by one."""
    columns = [part for part in term.arguments if part.column is not None]
    ids = [part.parameter.id for part in term.walk() if part.parameter is not None]
    if len(columns) > 1 and len(columns) == len(ids):
        return [(column, [id]) for column, id in zip(columns, ids, strict=True)]
    return [(term.arguments[0], ids)]
