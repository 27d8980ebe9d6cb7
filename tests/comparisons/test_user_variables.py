"""User variables have the values that MariaDB gives them, in a text that sets and reads them."""

from __future__ import annotations

from pathlib import Path

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import HeadraceError
from loadgen.bench import servers

TABLE = ("CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(9))", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
TEXTS = [
    "SET @x = 1; SET @x = 2, @y := @x + 1; SELECT @x, @Y, @y * 2 AS z",
    "SET @m = (SELECT MAX(id) FROM t); SELECT id, @m FROM t WHERE id < @m ORDER BY id",
    "SET @a = 2; SELECT id, (SELECT COUNT(*) FROM t u WHERE u.id < t.id + @a) FROM t ORDER BY id LIMIT 2",
    "SET @s = 'b'; SELECT id FROM t WHERE s IN (@s, CONCAT(@s, '!')) OR s LIKE CONCAT(@s, '%')",
    "SET @n = NULL; SELECT @n IS NULL, @n, COALESCE(@n, 7)",
    "SET NAMES utf8mb4, @`a b` = x'41ff'; SELECT HEX(@`a b`)",
    "SET @d = CAST('2020-01-02' AS DATE); SELECT @d, @d + INTERVAL 1 DAY",
    "SET @x = -1.50; SET @x = @x - 1; SELECT @x",
    "SET @x = 1e3; SELECT @x, @x / 8",
    "SET @x = 'a'; SET @x = CONCAT(@x, 'b'), @z = @x; SELECT @x, LENGTH(@x), @z",
    "SET @i = 10; INSERT INTO t VALUES (@i, 'n'), (@i + 1, @i); UPDATE t SET s = CONCAT(s, @i) WHERE id = @i; "
    "DELETE FROM t WHERE id = @i + 1; SELECT * FROM t WHERE id >= @i",
    "SET @none = (SELECT s FROM t WHERE id = 99); SELECT @none",
    "SET @x = (SELECT COUNT(*) > 1 FROM t); SELECT @x, @x + 0.5",
    "SET @x = (SELECT MAX(id) FROM t), @y := 4 + 1, @z = ((SELECT MIN(id) FROM t)) + 1; SELECT @x, @y, @z",
]
MISSING = servers.missing("mariadb")


@pytest.fixture
async def deployment(tmp_path: Path) -> LocalDeployment:
    made = await LocalDeployment.open(tmp_path, memory_limit=64_000_000)
    await made.execute(";".join(TABLE))
    return made


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
async def test_answers_are_mariadbs(mariadb: int, deployment: LocalDeployment) -> None:
    connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    for sql in ("CREATE DATABASE variables", "USE variables", *TABLE):
        await cursor.execute(sql)
    for text in TEXTS:
        for statement in text.split("; "):
            await cursor.execute(statement)
        theirs = list(await cursor.fetchall())
        results, _ = await deployment.execute(text)
        assert shown(results[-1].rows) == shown(theirs), text
    connection.close()
    await deployment.close()


def shown(rows: object) -> list[list[str]]:
    assert isinstance(rows, (list, tuple))
    return [[value.decode() if isinstance(value, bytes) else str(value) for value in row] for row in rows]


async def test_columns_have_the_names_that_were_written(deployment: LocalDeployment) -> None:
    results, _ = await deployment.execute("SET @a = ?; SELECT @a, @A + ? AS more, id FROM t WHERE id = @a", [1, 2])
    assert [column.name for column in results[-1].columns] == ["@a", "more", "id"]
    assert list(results[-1].rows) == [(1, 3, 1)]
    await deployment.close()


async def test_a_variable_ends_with_its_request(deployment: LocalDeployment) -> None:
    await deployment.execute("SET @a = 1")
    with pytest.raises(HeadraceError, match=r"the user variable @a, which is not set"):
        await deployment.execute("SELECT @a")
    for sql in ("SET @b = 1, @c = (SELECT id FROM t); SELECT 1", "SET @b = 1, sql_mode = 'ANSI_QUOTES'; SELECT 1"):
        with pytest.raises(HeadraceError):
            await deployment.execute(sql)
    with pytest.raises(HeadraceError, match=r"@"):
        await deployment.execute("SET @a = 1; CREATE VIEW v AS SELECT id, @a AS a FROM t")
    await deployment.close()


async def test_what_read_a_variable_is_asked_anew(deployment: LocalDeployment) -> None:
    """Also where the text came before, and its SELECT is remembered."""
    for value in (1, 2, 1, 2, 3):
        (_, found), _ = await deployment.execute("SET @a = ?; SELECT id, s FROM t WHERE id = @a", [value])
        assert list(found.rows) == [(value, {1: "a", 2: "b", 3: None}[value])]
    await deployment.close()
