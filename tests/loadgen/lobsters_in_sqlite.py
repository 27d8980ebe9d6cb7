"""The Lobsters program in SQLite, as the judge of what its views should say.

The views run there word for word. Only the CREATE TABLEs are said anew (SQLite has no KEY clause), and the few
functions that SQLite lacks are Python's.
"""

from __future__ import annotations

import math
import re
import sqlite3
from datetime import UTC, datetime

import sqlglot
from sqlglot import exp

from lobsters import program
from lobsters.data import Data


def _unix_timestamp(text: str) -> float:
    """A float, since SQLite would divide two integers as integers and MySQL does not."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def page_queries() -> dict[str, str]:
    """Each page query's SELECT by its name, in the program's order."""
    text = re.sub(r"--.*", "", program.page_queries())
    return dict(re.findall(r"CREATE EXT VIEW (\w+) AS\s+(.*?);", text, re.DOTALL))


def open_site(data: Data) -> sqlite3.Connection:
    """A database in memory with all of ``data`` and the natural views."""
    connection = sqlite3.connect(":memory:")
    connection.create_function("LOG10", 1, math.log10, deterministic=True)
    connection.create_function("GREATEST", 2, max, deterministic=True)
    connection.create_function("SIGN", 1, lambda x: (x > 0) - (x < 0), deterministic=True)
    connection.create_function("UNIX_TIMESTAMP", 1, _unix_timestamp, deterministic=True)
    for statement in sqlglot.parse(program.schema(), read="mysql"):
        columns = [
            f'"{column.name}" {column.kind.sql(dialect="sqlite")}' + _default(column)
            for column in statement.find_all(exp.ColumnDef)
        ]
        connection.execute(f"CREATE TABLE {statement.find(exp.Table).name} ({', '.join(columns)})")
    for table, rows in data.batches():
        names = list(rows[0])
        connection.executemany(
            f"INSERT INTO {table} ({', '.join(f'`{name}`' for name in names)}) "
            f"VALUES ({', '.join(f':{name}' for name in names)})",
            rows,
        )
    for column in ("votes(story_id)", "votes(comment_id)", "comments(story_id)", "comments(id)", "stories(id)"):
        connection.execute(f"CREATE INDEX {re.sub('[()]', '_', column)} ON {column}")
    connection.executescript(program.natural_views())
    return connection


def _default(column: exp.ColumnDef) -> str:
    default = column.find(exp.DefaultColumnConstraint)
    return f" {default.sql()}" if default else ""
