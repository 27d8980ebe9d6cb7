"""INSERT IGNORE, REPLACE and ON DUPLICATE KEY UPDATE tell the counts, and by first_id the row, that MariaDB tells."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import asyncmy
import pytest

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


async def _theirs(url: str, asked: list[tuple[str, str]]) -> list[Told]:
    port = int(url.rstrip("/").rsplit(":", 1)[1])
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
def test_mariadb_tells_the_same(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    asked = statements(random.Random(seed))
    with servers.mariadb(tmp_path, durable=False) as url:
        theirs = asyncio.run(_theirs(url, asked))
    with embedded(tmp_path / "ours", read_your_writes=True) as db:
        for text in TABLES.values():
            db.execute(text)
        for (table, text), expected in zip(asked, theirs, strict=True):
            written = db.execute(text)
            first = written.first_id
            named = first and [tuple(row) for row in db.execute(f"SELECT u FROM {table} WHERE id = {first}").rows]
            assert (written.rows_affected, named) == expected, text
