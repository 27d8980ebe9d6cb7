"""Pages by their last row: ``(a, b) < (?, ?)`` and its like, in views and without one, over rows with NULLs.

Each stands there also written out, ``a < p OR (a = p AND b < q)``, as MySQL's manual has it. Judges are SQLite, and
MariaDB where it is installed.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from loadgen.bench import servers
from worker.reader_map import merging

MISSING = servers.missing("mariadb")
SEED = 20_261_126
VALUES = (None, 0, 1, 2, 3)
COLUMNS = "id INT PRIMARY KEY, user INT, a INT, b VARCHAR(9), c DECIMAL(4,1)"
INDEXES = "KEY by_user (user), KEY by_a (user, a, id), KEY by_c (c), KEY by_b (b, c)"
SQL = f"CREATE TABLE t ({COLUMNS}, {INDEXES})"
OPERATORS = ("<", "<=", ">", ">=")

Row = tuple[Any, ...]


def stored(count: int = 120) -> list[Row]:
    random = Random(SEED)

    def text(value: int | None) -> str | None:
        return None if value is None else "wxyz"[value]

    return [
        (i, random.randrange(2), random.choice(VALUES), text(random.choice(VALUES)), random.choice(VALUES))
        for i in range(count)
    ]


def inserted(rows: Sequence[Row]) -> str:
    def literal(value: Any) -> str:
        return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)

    return "INSERT INTO t VALUES " + ", ".join(f"({', '.join(map(literal, row))})" for row in rows)


def written_out(columns: Sequence[str], operator: str) -> tuple[str, list[int]]:
    """The condition without a row, and which value each of its parameters has."""
    if len(columns) == 1:
        return f"{columns[0]} {operator} ?", [0]
    rest, places = written_out(columns[1:], operator)
    text = f"{columns[0]} {operator[0]} ? OR ({columns[0]} = ? AND ({rest}))"
    return text, [0, 0, *(place + 1 for place in places)]


def queries() -> Iterator[tuple[str, list[int]]]:
    """A SELECT with parameters, and which value each has (-1: the user)."""
    for operator, columns in product(OPERATORS, (("a", "id"), ("a", "b", "id"), ("b", "c", "a"))):
        down = " DESC" if operator[0] == "<" else ""
        order = ", ".join(f"{column}{down}" for column in columns)
        places = list(range(len(columns)))
        row = f"({', '.join(columns)}) {operator} ({', '.join('?' * len(columns))})"
        text, spread = written_out(columns, operator)
        for condition, given in ((row, places), (text, spread)):
            yield f"SELECT id FROM t WHERE user = ? AND ({condition}) ORDER BY {order}, id LIMIT 7", [-1, *given]
        yield f"SELECT id FROM t WHERE {row} ORDER BY {order}, id LIMIT 5", places
        yield f"SELECT id FROM t WHERE user = ? AND {row} ORDER BY c, id LIMIT 9 OFFSET 2", [-1, *places]
        up = ", ".join(f"{column}{'' if down else ' DESC'}" for column in columns)
        yield f"SELECT id FROM t WHERE user = ? AND {row} ORDER BY {up}, id LIMIT 4", [-1, *places]
    yield "SELECT id FROM t WHERE user = ? AND a < ? ORDER BY a DESC, id LIMIT 6", [-1, 0]
    mixed = "a < ? OR (a = ? AND (b > ? OR (b = ? AND id < ?)))"
    yield f"SELECT id FROM t WHERE user = ? AND ({mixed}) ORDER BY a DESC, b, id DESC LIMIT 8", [-1, 0, 0, 1, 1, 2]
    between = "(a, id) > (?, ?) AND (a, id) <= (3, 90)"
    yield f"SELECT id FROM t WHERE user = ? AND {between} ORDER BY a, id LIMIT 50", [-1, 0, 1]
    both = "(a, id) > (?, ?) AND (a, id) < (?, ?)"
    yield f"SELECT id FROM t WHERE {both} ORDER BY a, id", [0, 1, 3, 4]


def columns_of(text: str) -> list[str]:
    """The column that each ``?`` stands beside, in the order of the text."""
    found: list[str] = []
    where = text[text.index("WHERE") : text.index(" ORDER")]
    waiting: list[str] = []
    for word in where.replace("(", " ( ").replace(")", " ) ").replace(",", " ").split():
        if word in ("a", "b", "c", "id", "user"):
            waiting.append(word)
        elif word == "?":
            found.append(waiting.pop(0))
    return found


def asked() -> list[tuple[str, list[list[Any]]]]:
    """Each query with values for its parameters; those of one place are often different."""
    random = Random(SEED + 1)
    found = []
    for text, places in queries():
        kinds = columns_of(text)
        assert len(kinds) == len(places) == text.count("?"), text
        several = []
        for _ in range(6):
            drawn: dict[tuple[int, str], Any] = {}
            same = random.random() < 0.8

            def value(place: int, kind: str, number: int, drawn: Any = drawn, same: bool = same) -> Any:
                if kind == "user":
                    return random.randrange(2)
                made = {
                    "a": random.choice(VALUES),
                    "b": random.choice((None, "w", "x", "xx", "z")),
                    "c": random.choice((None, "0.5", "1.0", "2")),
                    "id": random.choice((None, -1, 17, 50, 119, 500)),
                }[kind]
                return drawn.setdefault((place, kind) if same else (number, kind), made)

            several.append([value(p, k, n) for n, (p, k) in enumerate(zip(places, kinds, strict=True))])
        found.append((text, several))
    return found


CHANGES = (
    "DELETE FROM t WHERE id % 11 = 0",
    "UPDATE t SET a = NULL WHERE id % 13 = 0",
    "UPDATE t SET b = 'x' WHERE id % 7 = 0",
)


def answers_of_sqlite() -> list[list[int]]:
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE t ({COLUMNS})")
    for statement in (inserted(stored()), *CHANGES):
        database.execute(statement)
    return [[row[0] for row in database.execute(text, values)] for text, several in asked() for values in several]


def test_pages_of_views_and_selects_are_those_of_the_judges(tmp_path: Path) -> None:
    views, selects = asyncio.run(answers_of_headrace(tmp_path))
    expected = answers_of_sqlite()
    cases = [(text, values) for text, several in asked() for values in several]
    for case, page, selected, wanted in zip(cases, views, selects, expected, strict=True):
        assert page == wanted, case
        assert selected == wanted, case
    assert sum(map(len, expected)) > 400, "there are pages to compare"


async def answers_of_headrace(directory: Path) -> tuple[list[list[int]], list[list[int]]]:
    """Of views that were filled before most writes, and of SELECTs without a view."""
    deployment = await LocalDeployment.open(directory)
    try:
        rows, cases = stored(), asked()
        await deployment.execute(SQL)
        await deployment.execute(inserted(rows[:60]))
        selects = [f"CREATE EXT VIEW v{number} AS {text}" for number, (text, _) in enumerate(cases)]
        await deployment.execute("; ".join(selects))
        for number, (_, several) in enumerate(cases):
            await deployment.pages(f"v{number}", several)
        for statement in (inserted(rows[60:]), *CHANGES):
            await deployment.execute(statement)
        views = [
            [row["id"] for row in json.loads(b"[" + page + b"]")]
            for number, (_, several) in enumerate(cases)
            for page in await deployment.pages(f"v{number}", several)
        ]
        found = []
        await deployment.execute("; ".join(f"DROP VIEW v{number}" for number in range(len(cases))))
        for text, several in cases:
            for values in several:
                (answer,), _ = await deployment.execute(text, values)
                found.append([row[0] for row in answer.rows])
        return views, found
    finally:
        await deployment.close()


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same_pages(mariadb: int) -> None:
    async def answers() -> list[list[int]]:
        connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
        cursor = connection.cursor()
        for statement in ("CREATE DATABASE paged", "USE paged", SQL, inserted(stored()), *CHANGES):
            await cursor.execute(statement)
        found = []
        for text, several in asked():
            for values in several:
                await cursor.execute(text.replace("%", "%%").replace("?", "%s"), values)
                found.append([row[0] for row in await cursor.fetchall()])
        connection.close()
        return found

    assert asyncio.run(answers()) == answers_of_sqlite()


async def test_a_page_reads_its_own_rows_and_explain_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    rows_of = merging._rows

    def counted(*arguments: Any) -> Iterator[Any]:
        for row in rows_of(*arguments):
            walked.append(1)
            yield row

    monkeypatch.setattr(merging, "_rows", counted)
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute(SQL)
        await deployment.execute(inserted([(i, 1, i // 3, "x", None) for i in range(3_000)]))
        text = "SELECT id FROM t WHERE user = ? AND {} ORDER BY a DESC, id DESC LIMIT 20"
        conditions = "(a, id) < (?, ?)", "(a < ? OR (a = ? AND id < ?))"
        for number, condition in enumerate(conditions):
            await deployment.execute(f"CREATE EXT VIEW v{number} AS {text.format(condition)}")
            assert "partial by (user), walked within a range of (a, id)" in deployment.explain(f"v{number}")
        await deployment.execute(
            "CREATE EXT VIEW one AS SELECT id FROM t WHERE user = ? AND id < ? ORDER BY id DESC LIMIT 20"
        )
        for view, key in (("v0", [1, 500, 1501]), ("v1", [1, 500, 500, 1501]), ("one", [1, 1501])):
            (page,) = await deployment.pages(view, [key])
            walked.clear()
            assert (page,) == tuple(await deployment.pages(view, [key]))
            assert json.loads(b"[" + page + b"]") == [{"id": at} for at in range(1500, 1480, -1)]
            assert len(walked) == 20
    finally:
        await deployment.close()
