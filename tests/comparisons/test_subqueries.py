"""Subqueries as applications write them: ``subqueries.txt`` has the answers, and MariaDB is asked for the same where it
is installed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import SqlError
from loadgen.bench import servers

EXPECTED = Path(__file__).parent / "subqueries.txt"
MISSING = servers.missing("mariadb")
TABLES = (
    "CREATE TABLE s (id INT PRIMARY KEY, author INT, title VARCHAR(20), score INT, k INT)",
    "CREATE TABLE v (id INT PRIMARY KEY, story INT, user INT, vote INT)",
    "CREATE TABLE u (id INT PRIMARY KEY, name VARCHAR(20), boss INT, karma INT)",
    "CREATE TABLE c (id INT PRIMARY KEY, story INT NOT NULL, parent INT, score INT, body VARCHAR(20))",
    "CREATE TABLE b (story INT, user INT)",
)
BEFORE = (
    "INSERT INTO s VALUES (1, 1, 'a', 3, 2), (2, 1, 'b', 5, NULL), (3, 2, 'a', NULL, 1), (4, NULL, 'b', 2, 4)",
    "INSERT INTO v VALUES (1, 1, 1, 1), (2, 1, 2, 3), (3, 2, 1, NULL), (4, 3, NULL, 2), (11, 6, 3, 4)",
    "INSERT INTO u VALUES (1, 'ann', 2, 3), (2, 'bob', NULL, 1), (3, 'cat', 1, NULL)",
    "INSERT INTO b VALUES (1, 1), (1, 1), (2, 1), (2, 2), (3, NULL), (3, NULL)",
    "INSERT INTO c VALUES (1, 1, NULL, 3, 'a'), (2, 1, 1, 1, 'b'), (3, 2, NULL, 5, 'a')",
)
AFTER = (
    "INSERT INTO s VALUES (5, 3, 'c', 0, 3), (6, 2, 'c', 4, 8), (7, 4, 'a', 5, 7), (8, NULL, 'b', NULL, NULL)",
    "INSERT INTO v VALUES (5, 2, 2, 5), (6, 4, 1, 2), (7, 3, 2, 0), (8, NULL, 3, 1), (9, 5, 3, 0), (10, 7, 4, 5)",
    "DELETE FROM v WHERE id IN (1, 11)",
    "UPDATE s SET author = 2, score = 4 WHERE id = 1",
    "INSERT INTO u VALUES (4, 'dan', 3, 4)",
    "DELETE FROM u WHERE id = 2",
    "INSERT INTO c VALUES (4, 2, 3, NULL, 'b'), (5, 6, 4, 4, 'c'), (6, 7, NULL, 2, 'a')",
    "UPDATE c SET story = 3 WHERE id = 1",
    "INSERT INTO b VALUES (4, 3), (4, 3), (NULL, 1), (6, 2)",
    "DELETE FROM b WHERE story = 2 AND user = 1",
)


def recorded() -> dict[str, Any]:
    lines = EXPECTED.read_text("utf-8").splitlines()
    return {text: json.loads(answer) for text, answer in (line.rsplit(" : ", 1) for line in lines)}


def bag(rows: Iterable[Iterable[Any]]) -> list[list[Any]]:
    """Rows in an order of their own; numbers as such, whatever their type."""
    return sorted(([_plain(value) for value in row] for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if value is None:
        return None
    try:
        return round(float(value), 9)
    except ValueError:
        return str(value)


@pytest.mark.parametrize("shards", [1, 3])
async def test_subqueries_answer_as_recorded(tmp_path: Path, shards: int) -> None:
    """As views that were there before half of the writes, and without a view."""
    deployment = await LocalDeployment.open(tmp_path, shards=shards)
    try:
        await deployment.execute("; ".join((*TABLES, *BEFORE)))
        for at, query in enumerate(recorded()):
            await deployment.execute(f"CREATE EXT VIEW v{at} AS {query}")
        for statement in AFTER:
            await deployment.execute(statement)
        for at, (query, answer) in enumerate(recorded().items()):
            (held,), _ = await deployment.execute(f"SELECT * FROM v{at}")
            assert bag(held.rows) == answer, query
            await deployment.execute(f"DROP VIEW v{at}")
            (evaluated,), _ = await deployment.execute(query)
            assert bag(evaluated.rows) == answer, query
    finally:
        await deployment.close()


async def answered(port: int, queries: Iterable[str]) -> dict[str, Any]:
    """MariaDB's answers after all the writes."""
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    await cursor.execute("CREATE DATABASE subqueries COLLATE utf8mb4_bin")
    await cursor.execute("USE subqueries")
    for statement in (*TABLES, *BEFORE, *AFTER):
        await cursor.execute(statement)
    found = {}
    for query in queries:
        await cursor.execute(query)
        found[query] = bag(await cursor.fetchall())
    connection.close()
    return found


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(mariadb: int) -> None:
    assert asyncio.run(answered(mariadb, recorded())) == recorded()


SEVERAL = (
    "SELECT id, (SELECT user FROM v WHERE v.story = s.id) AS voter FROM s WHERE id = ?",
    "SELECT id, (SELECT MAX(user) FROM v WHERE v.story = s.id) AS voter FROM s "
    "WHERE id = ? AND COALESCE(author, 0) <= COALESCE((SELECT user FROM v WHERE v.story = s.id), 9)",
)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("query", SEVERAL, ids=["as a value", "in a condition"])
async def test_several_rows_are_an_error_when_they_are_read(tmp_path: Path, query: str, shards: int) -> None:
    """MySQL's error 1242. No write fails by it, other keys answer, and it is gone with the second row."""
    deployment = await LocalDeployment.open(tmp_path, shards=shards)
    try:
        await deployment.execute("; ".join((*TABLES, *BEFORE)))
        await deployment.execute(f"CREATE EXT VIEW voter AS {query}")

        async def answer(story: int) -> Any:
            (page,) = await deployment.pages("voter", [[story]])
            held = json.loads(b"[" + page + b"]")
            (evaluated,), _ = await deployment.execute(query.replace("?", str(story)))
            assert [list(row.values()) for row in held] == [list(row) for row in evaluated.rows]
            return held

        for _ in range(2):
            with pytest.raises(SqlError, match="more than one row"):
                await deployment.pages("voter", [[1]])
            with pytest.raises(SqlError, match="more than one row"):
                await deployment.execute(query.replace("?", "1"))
            assert await answer(2) == [{"id": 2, "voter": 1}]
            await deployment.execute("DELETE FROM v WHERE id = 1")
            assert await answer(1) == [{"id": 1, "voter": 2}]
            await deployment.execute("INSERT INTO v VALUES (1, 1, 1, 1)")
    finally:
        await deployment.close()
