"""Random writes to tables with foreign keys leave the rows behind that MariaDB's InnoDB leaves, and are refused alike.

The tables and the writes are drawn from a seed. Left out is what differs on purpose (``docs/sql.md``): checks are made
when a statement is done, so writes of several rows at once are drawn only of tables that no others' deletes meet twice.
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncmy
import pytest
from asyncmy.errors import MySQLError

from controller.embedded.local import LocalDeployment
from domains.errors import ConstraintViolation, HeadraceError, StillInUse
from loadgen.bench import servers
from tests.comparisons.test_writes import in_order

MISSING = servers.missing("mariadb")
WRITES = 120
TABLES = ("a", "b", "c", "s")
REACTIONS = ("RESTRICT", "NO ACTION", "CASCADE", "SET NULL")


def definitions(drawn: random.Random) -> list[str]:
    """A chain of three tables and one that names itself; ``b`` has two columns that name ``a``."""

    def ways() -> str:
        return f"ON DELETE {drawn.choice(REACTIONS)} ON UPDATE {drawn.choice(REACTIONS)}"

    return [
        "CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT, UNIQUE KEY (x, y))",
        f"CREATE TABLE b (id INT PRIMARY KEY, p INT, q INT, CONSTRAINT one FOREIGN KEY (p) REFERENCES a (id) {ways()})",
        f"CREATE TABLE c (id INT, p INT, q INT, CONSTRAINT two FOREIGN KEY (p) REFERENCES b (id) {ways()}, "
        "UNIQUE KEY (id))",
        f"CREATE TABLE s (id INT PRIMARY KEY, p INT, q INT, CONSTRAINT own FOREIGN KEY (p) REFERENCES s (id) {ways()},"
        f" CONSTRAINT pair FOREIGN KEY (p, q) REFERENCES a (x, y) ON DELETE {drawn.choice(REACTIONS)})",
    ]


def write(drawn: random.Random) -> str:
    table, value = drawn.choice(TABLES), lambda: str(drawn.choice([*range(6), *range(3), "NULL"]))
    second, third = ("x", "y") if table == "a" else ("p", "q")
    row = f"({drawn.randrange(6)}, {value()}, {value()})"
    match drawn.randrange(10):
        case 0 | 1 | 2:
            return f"INSERT INTO {table} VALUES {row}"
        case 3:
            return f"INSERT IGNORE INTO {table} VALUES {row}"
        case 4:
            return f"REPLACE INTO {table} VALUES {row}"
        case 5:
            setting = drawn.choice((f"{second} = VALUES({second})", "id = id + 1"))
            return f"INSERT INTO {table} VALUES {row} ON DUPLICATE KEY UPDATE {setting}"
        case 6 | 7:
            column = drawn.choice(("id", second, third))
            new = drawn.randrange(6) if column == "id" else value()
            return f"UPDATE {table} SET {column} = {new} WHERE id = {drawn.randrange(6)}"
        case 8 if table == "c":
            return f"DELETE FROM {table} WHERE q = {drawn.randrange(6)}"
        case _:
            return f"DELETE FROM {table} WHERE id = {drawn.randrange(6)}"


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "")
@pytest.mark.parametrize("seed", range(8))
async def test_writes_leave_what_theirs_leave(seed: int, mariadb: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    await cursor.execute(f"CREATE DATABASE keys_{seed}")
    await cursor.execute(f"USE keys_{seed}")
    ours = await LocalDeployment.open(tmp_path)
    said: list[str] = []
    try:
        for definition in definitions(drawn):
            said.append(definition)
            await cursor.execute(definition)
            await ours.execute(definition)
        for number in range(WRITES):
            said.append(write(drawn))
            theirs: Any = "refused"
            with suppress(MySQLError):
                theirs = await cursor.execute(said[-1])
            try:
                (done,), _ = await ours.execute(said[-1])
                mine: Any = done.rows_affected
            except ConstraintViolation:
                mine = "refused"
            assert (mine == "refused") == (theirs == "refused"), (seed, number, mine, theirs, said)
            for table in TABLES:
                await cursor.execute(f"SELECT * FROM {table}")
                rows = in_order(await cursor.fetchall())
                (found,), _ = await ours.execute(f"SELECT * FROM {table}")
                assert in_order(found.rows) == rows, (seed, number, table, said)
        for refused in ("TRUNCATE a", "DROP TABLE a", "DROP INDEX two ON c"):
            with pytest.raises(MySQLError):
                await cursor.execute(refused)
            with pytest.raises(HeadraceError) as error:
                await ours.execute(refused)
            assert isinstance(error.value, StillInUse)
    finally:
        await ours.close()
        connection.close()
