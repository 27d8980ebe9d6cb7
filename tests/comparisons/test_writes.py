"""Writes with joins, subqueries, ORDER BY and RETURNING leave the rows behind that MariaDB's leave.

``writes.txt`` has a case a line: the statement (or several, with ``;;`` between them), and what MariaDB answers to the
last one (rows affected, or the rows that it returns) and has in the tables then. Each begins with the same rows.
MariaDB is asked again where it is installed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncmy
import pytest
from asyncmy.errors import MySQLError

from controller.embedded.local import LocalDeployment
from domains.errors import ConstraintViolation, SqlError, Unsupported
from loadgen.bench import servers

EXPECTED = Path(__file__).parent / "writes.txt"
MISSING = servers.missing("mariadb")
TABLES = {
    "stories": "id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, author INT NOT NULL, title VARCHAR(20) DEFAULT 'none', "
    "score DECIMAL(6,2), made DATETIME, KEY by_author (author)",
    "votes": "user INT NOT NULL, story_id INT NOT NULL, weight INT, PRIMARY KEY (user, story_id), KEY k (story_id)",
    "users": "id INT NOT NULL PRIMARY KEY, name VARCHAR(20), karma INT DEFAULT 5",
    "log": "day DATE, n INT, KEY (n)",
    "stamped": "id INT NOT NULL PRIMARY KEY, n INT, seen DATETIME DEFAULT '2000-01-01' ON UPDATE CURRENT_TIMESTAMP",
    "derived": "a INT, b INT, c INT AS (a + b) STORED, d VARCHAR(20) AS (CONCAT('v', c)) VIRTUAL, UNIQUE KEY (c)",
    "limited": "id INT NOT NULL PRIMARY KEY, a INT CHECK (a > 0), b INT, CONSTRAINT ordered CHECK (a < b)",
}
"""All text is compared by code point: MariaDB is told ``utf8mb4_bin``."""
ROWS = {
    "stories": "(1, 1, 'x', 1, '2024-01-01'), (2, 1, 'y', 2.5, NULL), (3, 2, 'z', NULL, '2024-03-01 08:00:00')",
    "votes": "(1, 1, 1), (2, 1, NULL), (3, 3, 2), (3, 1, 4)",
    "users": "(1, 'ann', 10), (2, 'bob', NULL), (3, NULL, 30)",
    "log": "('2024-01-01', 1), ('2024-01-01', 1), (NULL, 2), (NULL, NULL), ('2024-01-03', 3)",
    "stamped": "(1, 10, DEFAULT), (2, 20, DEFAULT)",
    "derived": "(1, 1, DEFAULT, DEFAULT), (2, NULL, DEFAULT, DEFAULT), (3, 4, DEFAULT, DEFAULT)",
    "limited": "(1, 1, 2), (2, NULL, 1), (3, 5, NULL)",
}
SHOWN = {"stamped": "id, n, seen > '2020-01-01'"}
"""In place of all columns."""

UNCHANGED: dict[str, list[Any]] = {
    "stories": [
        [1, 1, "x", "1.00", "2024-01-01 00:00:00"],
        [2, 1, "y", "2.50", None],
        [3, 2, "z", None, "2024-03-01 08:00:00"],
    ],
    "votes": [[1, 1, 1], [2, 1, None], [3, 1, 4], [3, 3, 2]],
    "users": [[1, "ann", 10], [2, "bob", None], [3, None, 30]],
    "log": [["2024-01-01", 1], ["2024-01-01", 1], ["2024-01-03", 3], [None, 2], [None, None]],
    "stamped": [[1, 10, 0], [2, 20, 0]],
    "derived": [[1, 1, 2, "v2"], [2, None, None, None], [3, 4, 7, "v7"]],
    "limited": [[1, 1, 2], [2, None, 1], [3, 5, None]],
}
"""As they are compared."""
MOVING = {
    "UPDATE log l JOIN users u ON u.id = l.n SET l.day = '2025-01-01'",
    "UPDATE stamped SET id = id + 10",
}
"""Rows would go to other shards."""
SEVERAL = ("UPDATE stories s JOIN votes v ON v.story_id = s.id SET s.", "DELETE s, v ", "DELETE FROM s, v ")
"""Writes of several tables, whose rows would have to be in one shard, begin so."""


def recorded() -> dict[str, Any]:
    lines = EXPECTED.read_text("utf-8").splitlines()
    return {text: json.loads(answer) for text, answer in (line.rsplit(" : ", 1) for line in lines)}


def alike(value: Any) -> Any:
    """As JSON has it; numbers with their digits, and a moment without a fraction that is zero."""
    if value is None or isinstance(value, int):
        return value
    return str(value)


def in_order(rows: Any) -> list[Any]:
    return sorted([[alike(value) for value in row] for row in rows], key=repr)


@pytest.fixture(params=[1, 4], ids=["one shard", "four shards"])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path, shards=request.param)
    for name, columns in TABLES.items():
        await opened.execute(f"CREATE TABLE {name} ({columns})")
    yield opened
    await opened.close()


async def test_the_rows_are_those_that_are_recorded(deployment: LocalDeployment) -> None:
    moving, is_whole = dict[str, str](), deployment.state.shards == 1
    for text, expected in recorded().items():
        for name, rows in ROWS.items():
            await deployment.execute(f"DELETE FROM {name}; INSERT INTO {name} VALUES {rows}")
        answer: Any = None
        try:
            for statement in text.split(" ;; "):
                (found,), _ = await deployment.execute(statement)
                answer = in_order(found.rows) if found.columns else found.rows_affected
        except (ConstraintViolation, SqlError):
            answer = "refused"
        except Unsupported as error:
            moving[text] = error.message
            continue
        tables = {}
        for name in TABLES:
            (held,), _ = await deployment.execute(f"SELECT {SHOWN.get(name, '*')} FROM {name}")
            tables[name] = in_order(held.rows)
        if is_whole or answer != "refused":  # Else other shards may have done their part.
            assert {"answer": answer, "tables": changed(tables)} == expected, text
        else:
            assert expected["answer"] == "refused", text
    several = {text for text in recorded() if text.startswith(SEVERAL) and ("v." in text[55:] or "DELETE" in text)}
    assert moving.keys() == (set() if is_whole else MOVING | several)
    assert all(("in different shards" if text in several else "by which") in why for text, why in moving.items())


def changed(tables: dict[str, Any]) -> dict[str, Any]:
    """Those with other rows than at the beginning. Which numbers AUTO_INCREMENT gives depends on the cases before."""
    tables["stories"] = [["new" if row[0] > 3 else row[0], *row[1:]] for row in tables["stories"]]
    return {name: rows for name, rows in tables.items() if rows != UNCHANGED[name]}


async def their_answers(port: int, texts: list[str]) -> dict[str, Any]:
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    await cursor.execute("CREATE DATABASE writes COLLATE utf8mb4_bin")
    await cursor.execute("USE writes")
    for name, columns in TABLES.items():
        await cursor.execute(f"CREATE TABLE {name} ({columns})")
    found = {}
    for text in texts:
        for name, rows in ROWS.items():
            await cursor.execute(f"TRUNCATE {name}")
            await cursor.execute(f"INSERT INTO {name} VALUES {rows}")
        answer: Any = None
        try:
            for statement in text.split(" ;; "):
                affected = await cursor.execute(statement)
                answer = in_order(await cursor.fetchall()) if cursor.description else affected
        except MySQLError:
            answer = "refused"
        tables = {}
        for name in TABLES:
            await cursor.execute(f"SELECT {SHOWN.get(name, '*')} FROM {name}")
            tables[name] = in_order(await cursor.fetchall())
        found[text] = {"answer": answer, "tables": changed(tables)}
    connection.close()
    return found


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(mariadb: int) -> None:
    assert asyncio.run(their_answers(mariadb, list(recorded()))) == recorded()
