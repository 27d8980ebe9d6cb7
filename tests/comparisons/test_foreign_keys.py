"""Random writes to tables with foreign keys leave the rows behind that MariaDB's InnoDB leaves, and are refused alike.

The tables and the writes are drawn from a seed. In every second seed the keys come by ALTER TABLE when there are rows,
which are refused alike, too; texts are named without regard to case. Left out is what differs on purpose
(``docs/sql.md``): checks are made when a statement is done, so writes of several rows at once are drawn only of tables
that no others' deletes meet twice.
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
WRITES, COMPARED = 120, 3
"""All tables are compared after each third of them, which is what takes time."""
TABLES = ("a", "b", "c", "s", "n", "m")
REACTIONS = ("RESTRICT", "NO ACTION", "CASCADE", "SET NULL")


FOLDED = "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
SPELLED = ("'ann'", "'Ann'", "'bob'", "'BOB '", "'cat'", "NULL")


def definitions(drawn: random.Random) -> list[tuple[str, list[str]]]:
    """Tables and their keys: a chain of three tables and one that names itself and ``a`` by two columns; and one that
    names another by a text."""

    def ways() -> str:
        return f"ON DELETE {drawn.choice(REACTIONS)} ON UPDATE {drawn.choice(REACTIONS)}"

    return [
        ("a (id INT PRIMARY KEY, x INT, y INT, UNIQUE KEY (x, y))", []),
        ("b (id INT PRIMARY KEY, p INT, q INT)", [f"CONSTRAINT one FOREIGN KEY (p) REFERENCES a (id) {ways()}"]),
        ("c (id INT, p INT, q INT, UNIQUE KEY (id))", [f"CONSTRAINT two FOREIGN KEY (p) REFERENCES b (id) {ways()}"]),
        (
            "s (id INT PRIMARY KEY, p INT, q INT)",
            [
                f"CONSTRAINT own FOREIGN KEY (p) REFERENCES s (id) {ways()}",
                f"CONSTRAINT pair FOREIGN KEY (p, q) REFERENCES a (x, y) ON DELETE {drawn.choice(REACTIONS)}",
            ],
        ),
        (f"n (id INT PRIMARY KEY, x {FOLDED}, y INT, UNIQUE KEY (x))", []),
        (f"m (id INT PRIMARY KEY, x {FOLDED}, y INT)", [f"CONSTRAINT name FOREIGN KEY (x) REFERENCES n (x) {ways()}"]),
    ]


def write(drawn: random.Random) -> str:
    table = drawn.choice(TABLES)
    second, third = ("x", "y") if table in "anm" else ("p", "q")

    def value() -> str:
        return str(drawn.choice(SPELLED if table in "nm" else [*range(6), *range(3), "NULL"]))

    other = str(drawn.randrange(6)) if table in "nm" else value()
    row = f"({drawn.randrange(6)}, {value()}, {other})"
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
            new = drawn.randrange(6) if column == "id" or (column == "y" and table in "nm") else value()
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

    async def both(sql: str) -> bool:
        """Whether both have done it."""
        said.append(sql)
        theirs: Any = "refused"
        with suppress(MySQLError):
            theirs = await cursor.execute(sql)
        try:
            (done,), _ = await ours.execute(sql)
            mine: Any = done.rows_affected
        except ConstraintViolation:
            mine = "refused"
        assert (mine == "refused") == (theirs == "refused"), (seed, mine, theirs, said)
        return bool(mine != "refused")

    async def compare() -> None:
        for table in TABLES:
            await cursor.execute(f"SELECT * FROM {table}")
            rows = in_order(await cursor.fetchall())
            (found,), _ = await ours.execute(f"SELECT * FROM {table}")
            assert in_order(found.rows) == rows, (seed, table, said)

    late: list[str] = []
    try:
        for table, keys in definitions(drawn):
            if seed % 2:
                late += [f"ALTER TABLE {table[0]} ADD {key}" for key in keys]
                keys.clear()
            assert await both(f"CREATE TABLE {', '.join([table[:-1], *keys])})")
        for number in range(WRITES):
            if late and number > 5 and await both(late[0]):
                del late[0]
            elif late and number > 5:
                await both(f"DELETE FROM {late[0][12]} WHERE id = {drawn.randrange(6)}")
            await both(write(drawn))
            if number % COMPARED == 0:
                await compare()
        await compare()
        assert not late, (seed, said)
        for refused in ("TRUNCATE a", "DROP TABLE a", "DROP INDEX two ON c"):
            with pytest.raises(MySQLError):
                await cursor.execute(refused)
            with pytest.raises(HeadraceError) as error:
                await ours.execute(refused)
            assert isinstance(error.value, StillInUse)
        for key in ("c DROP FOREIGN KEY two", "m DROP CONSTRAINT name"):
            assert await both(f"ALTER TABLE {key}")
        for number in range(WRITES // 2):
            await both(write(drawn))
            if number % COMPARED == 0:
                await compare()
        await compare()
    finally:
        await ours.close()
        connection.close()
