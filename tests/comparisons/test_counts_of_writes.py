"""INSERT IGNORE, REPLACE and ON DUPLICATE KEY UPDATE tell the counts, and by first_id the row, that MariaDB tells; and
writes of several tables at once, and UPDATE IGNORE, tell its counts and leave its rows."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from headrace.embedding import embedded
from loadgen.bench import servers

TABLES = {
    "generated": "CREATE TABLE generated (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE, n INT)",
    "two_keys": "CREATE TABLE two_keys (id INT NOT NULL PRIMARY KEY, u INT UNIQUE, n INT)",
    "one_key": "CREATE TABLE one_key (id INT NOT NULL PRIMARY KEY, u INT, n INT)",
}
STATEMENTS = 120
MISSING = servers.missing("mariadb")
Told = tuple[int, Any]
"""Rows affected, and the row that the first generated value names."""


def statements(rng: random.Random) -> list[tuple[str, str]]:
    """(table, statement)"""
    made = []
    for _ in range(STATEMENTS):
        table = rng.choice(list(TABLES))
        verb, end = rng.choice(
            (("INSERT IGNORE", ""), ("REPLACE", ""), ("INSERT", " ON DUPLICATE KEY UPDATE n = VALUES(n)"))
        )
        rows = [
            f"({'NULL' if table == 'generated' else rng.randrange(8)}, {rng.randrange(8)}, {rng.randrange(2)})"
            for _ in range(rng.randrange(1, 5))
        ]
        made.append((table, f"{verb} INTO {table} (id, u, n) VALUES {', '.join(rows)}{end}"))
    return made


async def _theirs(port: int, asked: list[tuple[str, str]]) -> list[Told]:
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    cursor = connection.cursor()

    async def rows(sql: str) -> list[tuple[Any, ...]]:
        await cursor.execute(sql)
        return list(await cursor.fetchall())

    await rows("CREATE DATABASE written")
    await rows("USE written")
    for text in TABLES.values():
        await rows(text)
    told: list[Told] = []
    for table, text in asked:
        await rows("SELECT LAST_INSERT_ID(0)")
        affected = await cursor.execute(text)
        first = (await rows("SELECT LAST_INSERT_ID()"))[0][0]
        told.append((affected, (await rows(f"SELECT u FROM {table} WHERE id = {first}")) if first else None))
    connection.close()
    return told


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_tells_the_same(tmp_path: Path, mariadb: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    asked = statements(random.Random(seed))
    theirs = asyncio.run(_theirs(mariadb, asked))
    with embedded(tmp_path / "ours", read_your_writes=True) as db:
        for text in TABLES.values():
            db.execute(text)
        for (table, text), expected in zip(asked, theirs, strict=True):
            written = db.execute(text)
            first = written.first_id
            named = first and [tuple(row) for row in db.execute(f"SELECT u FROM {table} WHERE id = {first}").rows]
            assert (written.rows_affected, named) == expected, text


# --- several tables at once -----------------------------------------------------------------------------------------

JOINED = {
    "a": "CREATE TABLE a (id INT PRIMARY KEY, u INT, n INT, KEY (u))",
    "b": "CREATE TABLE b (id INT PRIMARY KEY, u INT, n INT, UNIQUE KEY (u))",
    "bag": "CREATE TABLE bag (id INT, u INT, n INT, KEY (u))",
}


def of_several(rng: random.Random) -> str:
    """What is set depends on the row alone, and neither it nor the join on a column that is set: all else is open in
    MySQL, which changes rows of one table while it still reads."""
    one, other = rng.sample(("a", "b"), 2)
    kind = rng.choice(("JOIN", "LEFT JOIN"))
    source = f"{one} {kind} {other} ON {one}.u = {other}.{rng.choice(('id', 'u'))}"
    written = [one, other]
    if rng.random() < 0.4:
        source = f"{source} {kind} bag ON bag.u = {one}.u"
        written = ["bag", rng.choice((one, other))] if kind == "JOIN" else written
    rng.shuffle(written)
    where = f" WHERE {one}.id {rng.choice(('<', '>', '<>'))} {rng.randrange(12)}" if rng.random() < 0.7 else ""
    if rng.random() < 0.35:
        where += f"{' AND' if where else ' WHERE'} {other}.id % 3 = {rng.randrange(3)}"
        if rng.random() < 0.3:
            return f"DELETE FROM {', '.join(written)} USING {source}{where}"
        return f"DELETE {', '.join(written)} FROM {source}{where}"
    values = (f"{rng.randrange(9)}", "{0}.id + 1", "{0}.u * 2", "NULL")
    items = [f"{table}.n = {rng.choice(values).format(table)}" for table in written]
    return f"UPDATE {source} SET {', '.join(items)}{where}"


def ignoring(rng: random.Random) -> str:
    """MariaDB takes the rows by their primary key, since nothing else serves the condition."""
    table = rng.choice(("a", "b"))
    column = rng.choice(("id", "u", "n"))
    values = [f"{rng.randrange(12)}", "id + 1", "id * 2 % 9"]
    value = rng.choice(values if column == "id" else [*values, "u - 1", "n % 5", "NULL"])
    also = f", n = {rng.randrange(12)}" if column != "n" and rng.random() < 0.4 else ""
    where = f" WHERE id {rng.choice(('<', '>', '<>'))} {rng.randrange(12)}" if rng.random() < 0.6 else ""
    order = rng.choice(("", "", " ORDER BY id DESC", " ORDER BY n, id", " ORDER BY id DESC LIMIT 3"))
    return f"UPDATE IGNORE {table} SET {column} = {value}{also}{where}{order}"


async def _of_several_as_theirs(port: int, directory: Path, rng: random.Random) -> None:
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    ours = await LocalDeployment.open(directory)

    async def both(sql: str) -> None:
        theirs = await cursor.execute(sql)
        (done,), _ = await ours.execute(sql)
        assert done.rows_affected == theirs, sql
        for table in JOINED:
            await cursor.execute(f"SELECT * FROM {table}")
            (found,), _ = await ours.execute(f"SELECT * FROM {table}")
            assert sorted(map(repr, found.rows)) == sorted(map(repr, await cursor.fetchall())), (table, sql)

    await cursor.execute("CREATE DATABASE several")
    await cursor.execute("USE several")
    for text in JOINED.values():
        await cursor.execute(text)
        await ours.execute(text)
    for _ in range(STATEMENTS):
        table = rng.choice(list(JOINED))
        rows = [(rng.randrange(12), rng.randrange(12), rng.randrange(12)) for _ in range(rng.randrange(1, 6))]
        await both(f"INSERT IGNORE INTO {table} VALUES {', '.join(map(str, rows))}")
        await both(of_several(rng))
        await both(ignoring(rng))
    await ours.close()
    connection.close()


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_writes_of_several_tables_leave_what_theirs_leave(tmp_path: Path, mariadb: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    asyncio.run(_of_several_as_theirs(mariadb, tmp_path / "ours", random.Random(seed)))
