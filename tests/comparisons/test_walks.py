"""SELECTs without a view that walk an index: ranges, the first rows of an order, and both, over rows with NULLs.

Judges are SQLite, and MariaDB where it is installed. How many rows are read is counted, and no time is taken.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from controller.statements.shapes import AdHocMode
from domains.language.types import Delta
from loadgen.bench import servers
from worker.adhoc import cut
from worker.rocks.stored_table import StoredTable

MISSING = servers.missing("mariadb")
ROWS = 400
T = "id INT PRIMARY KEY, user INT, a INT, name VARCHAR(9) COLLATE utf8mb4_general_ci, c DECIMAL(4,1), made DATETIME"
INDEXES = "KEY (user, a), KEY (name), KEY (c), KEY (made, user)"
USERS = "CREATE TABLE users (id INT PRIMARY KEY, nick VARCHAR(9))"
NAMES = (None, "ada", "Ada", "bob", "BOB", "b", "éva", "Zoe")

Row = tuple[Any, ...]


def stored() -> list[Row]:
    random = Random(7)
    return [
        (
            i,
            random.randrange(5),
            random.choice((None, *range(9))),
            random.choice(NAMES),
            random.choice((None, "-1.5", "0.0", "2.5", "3.0")),
            random.choice((None, "2026-01-01 00:00:00", "2026-02-03 04:05:06", "2026-02-03 12:00:00")),
        )
        for i in range(ROWS)
    ]


def inserted(table: str, rows: list[Row]) -> str:
    def literal(value: Any) -> str:
        return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)

    return f"INSERT INTO {table} VALUES " + ", ".join(f"({', '.join(map(literal, row))})" for row in rows)


def queries() -> Iterator[str]:
    """Each leaves no ties where it has a LIMIT."""
    for down in ("", " DESC"):
        for operator in ("<", "<=", ">", ">="):
            yield f"SELECT id FROM t WHERE id {operator} 57 ORDER BY id{down} LIMIT 7"
            yield f"SELECT id FROM t WHERE user = 3 AND a {operator} 4 ORDER BY a{down}, id{down} LIMIT 9"
            yield f"SELECT id FROM t WHERE c {operator} 2.7 ORDER BY c{down}, id{down} LIMIT 11 OFFSET 3"
            yield f"SELECT id FROM t WHERE name {operator} 'BOB' ORDER BY id{down} LIMIT 8"
            yield f"SELECT id, user FROM t WHERE (user, a, id) {operator} (2, 4, 100) ORDER BY user, a, id LIMIT 5"
            made = f"made {operator} '2026-02-03' AND a < 5 ORDER BY made{down}, user{down}, id"
            yield f"SELECT id FROM t WHERE {made} LIMIT 6"
        yield f"SELECT id FROM t ORDER BY id{down} LIMIT 4"
        yield f"SELECT id, a FROM t WHERE a > 3 AND c < 1 ORDER BY id{down} LIMIT 200"
        yield f"SELECT id FROM t WHERE user = 4 ORDER BY a{down}, id{down} LIMIT 12"
        yield f"SELECT id FROM t WHERE user IN (1, 4) ORDER BY user{down}, a{down}, id{down} LIMIT 12 OFFSET 60"
        yield f"SELECT id FROM t WHERE name = 'ADA' ORDER BY id{down} LIMIT 5"
        yield f"SELECT t.id, u.nick FROM t JOIN users u ON u.id = t.user WHERE t.id > 40 ORDER BY t.id{down} LIMIT 6"
        yield f"SELECT t.id, u.nick FROM t LEFT JOIN users u ON u.id = t.a ORDER BY t.id{down} LIMIT 9"
        derived = f"SELECT id, a FROM t WHERE c > 0 ORDER BY id{down} LIMIT 20"
        yield f"SELECT q.id FROM ({derived}) q WHERE q.a > 2 ORDER BY q.id"
    yield "SELECT COUNT(*), MIN(a) FROM t WHERE id BETWEEN 20 AND 90 AND name <> 'bob'"
    yield "SELECT id FROM t WHERE id BETWEEN 300 AND 310 OR id < 4 ORDER BY id"
    yield "SELECT id FROM t WHERE c > 2.5 AND c <= 3 ORDER BY id"
    yield "SELECT id FROM t WHERE a < NULL ORDER BY id LIMIT 3"
    yield "SELECT id FROM t WHERE id > 9 AND id < 5 ORDER BY id LIMIT 3"
    yield "SELECT user, COUNT(*) FROM t WHERE name >= 'b' GROUP BY user ORDER BY user"
    yield "SELECT id FROM t WHERE user = 1 AND a IS NULL ORDER BY a, id LIMIT 5"


CHANGES = "DELETE FROM t WHERE id % 9 = 0", "UPDATE t SET a = NULL, name = 'x' WHERE id % 11 = 0"


def answers_of_sqlite() -> list[list[Row]]:
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE t ({T.replace('utf8mb4_general_ci', 'NOCASE')})")
    users = [(i, f"n{i}") for i in range(4)]
    for statement in (USERS, inserted("t", stored()), inserted("users", users), *CHANGES):
        database.execute(statement)
    return [list(database.execute(text)) for text in queries()]


@pytest.fixture(params=[1, 3])
async def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    found = await LocalDeployment.open(tmp_path / "data", shards=request.param, ad_hoc=AdHocMode.ANSWER)
    users = [(i, f"n{i}") for i in range(4)]
    for statement in (f"CREATE TABLE t ({T}, {INDEXES})", USERS, inserted("t", stored()), inserted("users", users)):
        await found.execute(statement)
    for statement in CHANGES:
        await found.execute(statement)
    yield found
    await found.close()


@pytest.mark.parametrize("few", [cut.FEW_ROWS, 1], ids=["between two steps", "beside"])
async def test_walks_answer_as_the_judge(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(cut, "FEW_ROWS", few)
    for text, wanted in zip(queries(), answers_of_sqlite(), strict=True):
        (answer,), _ = await deployment.execute(text)
        assert [tuple(row) for row in answer.rows] == wanted, text


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(mariadb: int) -> None:
    async def answers() -> list[list[Row]]:
        connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
        cursor = connection.cursor()
        users = [(i, f"n{i}") for i in range(4)]
        made = "CREATE DATABASE walks", "USE walks", f"CREATE TABLE t ({T}, {INDEXES})", USERS
        for statement in (*made, inserted("t", stored()), inserted("users", users), *CHANGES):
            await cursor.execute(statement)
        found = []
        for text in queries():
            await cursor.execute(text)
            found.append(list(await cursor.fetchall()))
        connection.close()
        return found

    assert asyncio.run(answers()) == answers_of_sqlite()


READS = {
    "SELECT id FROM t WHERE id > 50 ORDER BY id LIMIT 20": ("walked by (id) within a range, the first rows", 21),
    "SELECT id FROM t WHERE id < 50 ORDER BY id DESC LIMIT 20": ("walked downwards by (id) within a range", 21),
    "SELECT id FROM t ORDER BY id DESC LIMIT 3": ("walked downwards by (id), the first rows", 4),
    "SELECT id FROM t WHERE user = 3 AND a > 2 ORDER BY a, id LIMIT 6": ("walked by (user, a, id) within a range", 7),
    "SELECT id FROM t WHERE (user, a, id) > (3, 2, 1) ORDER BY user, a, id LIMIT 6": ("walked by (user, a, id)", 7),
    "SELECT COUNT(*) FROM t WHERE id BETWEEN 100 AND 120": ("walked by (id) within a range", 21),
    "SELECT id FROM t WHERE id >= 370": ("walked by (id) within a range", 30),
    "SELECT t.id, u.nick FROM t JOIN users u ON u.id = t.user WHERE t.id > 40 ORDER BY t.id LIMIT 6": (
        "walked by (id) within a range, the first rows",
        64,
    ),
}


@pytest.mark.parametrize("sql", READS)
async def test_a_walk_reads_its_own_rows_and_explain_says_so(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    (way, most), read, slices = READS[sql], list[int](), StoredTable.walk

    def counted(self: StoredTable, *arguments: Any, **ways: Any) -> Iterator[list[Delta]]:
        for part in slices(self, *arguments, **ways):
            read.append(len(part))
            yield part

    (explained,), _ = await deployment.execute(f"EXPLAIN {sql}")
    assert any(re.search(rf"\bt  {re.escape(way)}", row[0]) for row in explained.rows), explained.rows
    monkeypatch.setattr(StoredTable, "walk", counted)
    (told,), _ = await deployment.execute(f"EXPLAIN ANALYZE {sql}")
    line = next(row[0] for row in told.rows if re.search(r"\bt  walked", row[0]))
    assert 0 < int(re.search(r"\((\d+) rows?,", line)[1]) <= most, line  # type: ignore[index]
    assert 0 < sum(read) <= most * 3, "each shard reads its own, and no more"
