"""The judge: the same tables in SQLite, changed by MySQL's rules for constraints, asked with our own text.

Queries and the expressions of writes are SQLite's to evaluate. What becomes of a row that meets a key (refused,
ignored, replaced, updated) is decided in Python (``judged_writes.py``), because SQLite's own clauses differ from
MySQL's in detail.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.campaign.functions import install
from tests.campaign.judged_writes import Changed, Consideration, Refused, Stored, Verdict, completed, meets, plain
from tests.campaign.kinds import Kind, Value
from tests.campaign.queries import Cut, Output, Query, Select
from tests.campaign.rendering import judged, parameters
from tests.campaign.schema import Column, Reference, Table
from tests.campaign.statements import AlterConstraint, AskMore, ChangeColumn, Key, Write
from tests.campaign.terms import Term

AFFORDABLE = 400_000
"""SQLite's instructions for one query: tens of milliseconds. More would let one bad join eat the campaign's time."""

MOST_ROWS = 60
"""Of a table: an INSERT beyond it is left out."""


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

    def with_column(self, name: str, column: Column) -> Changed | None:
        """The rows with a column that is computed of them, or None where a value does not fit it."""
        table = self.tables[name]
        table = replace(table, columns=(*table.columns, column))
        names = ", ".join(table.names[:-1])
        rows = self.connection.execute(f"SELECT rowid, {names} FROM {name}").fetchall()
        try:
            found = {
                id: completed(self.connection, table, dict(zip(table.names, row, strict=False))) for id, *row in rows
            }
        except Refused:
            return None
        return {name: found}

    def altered(self, asked: AlterConstraint) -> Table | None:
        """The table with or without it; None where rows break it."""
        table = self.tables[asked.table]
        match asked.what:
            case Key(columns, unique):
                field = "unique" if unique else "indexes"
                keys = tuple(key for key in getattr(table, field) if key != columns)
                if asked.comes and unique and not self._is_unique(asked.table, columns):
                    return None
                return replace(table, **{field: (*keys, columns) if asked.comes else keys})  # type: ignore[arg-type]
            case Reference():
                kept = tuple(each for each in table.references if each.name != asked.what.name)
                table = replace(table, references=(*kept, asked.what) if asked.comes else kept)
                looked = Consideration(self.connection, self.tables)
                fits = all(looked.names_some(table, row) for row in self.contents(table.name))
            case (name, _):
                checks = tuple(check for check in table.checks if check[0] != name)
                table = replace(table, checks=(*checks, asked.what) if asked.comes else checks)
                fits = all(meets(self.connection, table, row) for row in self.contents(table.name))
        return table if fits else None

    def _is_unique(self, table: str, names: Sequence[str]) -> bool:
        rows = self.connection.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
        whole = [row for row in rows if None not in row]
        return len(set(whole)) == len(whole)

    def drop_column(self, name: str, column: str) -> None:
        table = self.tables[name]
        self.tables[name] = replace(table, columns=tuple(c for c in table.columns if c.name != column))
        self.connection.execute(f"ALTER TABLE {name} DROP COLUMN {column}")

    def change_column(self, changed: ChangeColumn) -> None:
        name, column = changed.table, changed.column
        if column.name != changed.name:
            self.connection.execute(f"ALTER TABLE {name} RENAME COLUMN {changed.name} TO {column.name}")
        if column.type.kind is Kind.TXT and self.tables[name].column(changed.name).type.kind is Kind.INT:
            self.connection.execute(f"UPDATE {name} SET {column.name} = CAST({column.name} AS TEXT)")
        self.tables[name] = changed.of(self.tables[name])
        for other, table in self.tables.items():
            if other != name:
                self.tables[other] = table.renamed(name, changed.name, column.name)

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
        return list(self.connection.execute(f"SELECT {', '.join(self.tables[table].names)} FROM {table}"))

    # --- writes ---------------------------------------------------------------------------------------------------

    def consider(self, write: Write) -> tuple[Verdict, Changed]:
        """What the write would leave in the tables that it changes, without changing them."""
        return Consideration(self.connection, self.tables).consider(write)

    def apply(self, changed: Changed) -> None:
        self.connection.execute("BEGIN")
        for table, rows in changed.items():
            names = ("rowid", *self.tables[table].names)
            self.connection.execute(f"DELETE FROM {table}")
            self.connection.executemany(
                f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' for _ in names)})",
                [(id, *row) for id, row in rows.items()],
            )
        self.connection.execute("COMMIT")


def _compared_columns(term: Term) -> list[tuple[Term, list[int]]]:
    """The columns of a comparison, with the numbers of the parameters of each: of rows they go one by one."""
    columns = [part for part in term.arguments if part.column is not None]
    ids = [part.parameter.id for part in term.walk() if part.parameter is not None]
    if len(columns) > 1 and len(columns) == len(ids):
        return [(column, [id]) for column, id in zip(columns, ids, strict=True)]
    return [(term.arguments[0], ids)]
