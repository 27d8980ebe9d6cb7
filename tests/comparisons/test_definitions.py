"""Tables that definitions make and change answer as MariaDB's do.

``definitions.txt`` has a case a line: statements with ``;;`` between them, and MariaDB's answers to those that answer
rows, or are refused. Each begins without a table. MariaDB is asked again where it is installed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncmy
import pytest
from asyncmy.errors import MySQLError

from controller.embedded.local import LocalDeployment
from domains.errors import ConstraintViolation, HeadraceError
from loadgen.bench import servers

EXPECTED = Path(__file__).parent / "definitions.txt"
MISSING = servers.missing("mariadb")
REFUSED = "refused"
ALONE = re.compile("ALTER TABLE .*(UNIQUE|PRIMARY KEY FIRST)")
"""Cases with a key that does not have the column by which tables of several shards are spread."""


def recorded() -> dict[str, Any]:
    lines = EXPECTED.read_text("utf-8").splitlines()
    return {text: json.loads(answer) for text, answer in (line.rsplit(" : ", 1) for line in lines)}


def alike(value: Any) -> Any:
    """As JSON has it; numbers with their digits."""
    return value if value is None or isinstance(value, int | float) else str(value)


def shown(statement: str, rows: Sequence[Any]) -> list[Any]:
    """In order. Of SHOW COLUMNS all but the type and what is extra."""
    found = [[alike(value) for value in row] for row in rows]
    if not statement.startswith("SHOW COLUMNS"):
        return found if "ORDER BY" in statement else sorted(found, key=repr)
    columns = [[row[0], row[2], row[3], row[4]] for row in found]
    return [[name, null, key, _default(value)] for name, null, key, value in columns]


def _default(value: str | None) -> str | None:
    """MariaDB writes DEFAULT NULL, and the function's call; here each DATETIME keeps microseconds, and its default says
    so."""
    if value is None or value == "NULL":
        return None
    return re.sub(r"(?i)^current_timestamp\(6?\)$", "CURRENT_TIMESTAMP", value).strip("'")


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path, shards=request.param)
    yield opened
    await opened.close()


async def test_they_answer_as_is_recorded(deployment: LocalDeployment) -> None:
    for text, expected in recorded().items():
        if deployment.state.shards > 1 and ALONE.search(text):
            continue
        answers: list[Any] = []
        for statement in text.split(" ;; "):
            try:
                (found,), _ = await deployment.execute(statement)
            except HeadraceError:
                answers.append(REFUSED)
                continue
            if found.columns:
                answers.append(shown(statement, found.rows))
        assert answers == expected, text
        for schema in deployment.tables():
            await deployment.execute(f"DROP TABLE {schema.name}")


async def their_answers(port: int, texts: Sequence[str]) -> dict[str, Any]:
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    await cursor.execute("SET NAMES utf8mb4 COLLATE utf8mb4_bin")
    found: dict[str, Any] = {}
    for text in texts:
        for statement in ("CREATE OR REPLACE DATABASE definitions COLLATE utf8mb4_bin", "USE definitions"):
            await cursor.execute(statement)
        answers: list[Any] = []
        for statement in text.split(" ;; "):
            try:
                await cursor.execute(statement)
            except MySQLError:
                answers.append(REFUSED)
                continue
            if cursor.description:
                answers.append(shown(statement, await cursor.fetchall()))
        found[text] = answers
    connection.close()
    return found


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(mariadb: int) -> None:
    found = asyncio.run(their_answers(mariadb, list(recorded())))
    written = "\n".join(f"{text} : {json.dumps(answer, ensure_ascii=False)}" for text, answer in found.items())
    assert found == recorded(), written


@pytest.mark.parametrize(("word", "kept"), [("IGNORE", (1, 2)), ("REPLACE", (1, 4))])
async def test_one_of_several_rows_with_a_key_is_kept(deployment: LocalDeployment, word: str, kept: Any) -> None:
    """MySQL's manual, CREATE TABLE … SELECT: "With IGNORE, rows that duplicate an existing row on a unique key value
    are discarded. With REPLACE, new rows replace rows that have the same unique key value." (MariaDB 10.11 keeps none
    with IGNORE.)"""
    await deployment.execute("CREATE TABLE s (a INT PRIMARY KEY, b INT); INSERT INTO s VALUES (2, 1), (4, 1)")
    await deployment.execute(f"CREATE TABLE m (PRIMARY KEY (b)) {word} AS SELECT b, a FROM s ORDER BY a")
    (found,), _ = await deployment.execute("SELECT b, a FROM m")
    assert found.rows == (kept,)
    (made,), _ = await deployment.execute("CREATE TABLE n AS SELECT a FROM s WHERE a > ?", [2])
    assert (made.rows_affected, made.done) == (1, "table n created")


async def test_what_is_not_made_of_a_select_is_named(deployment: LocalDeployment) -> None:
    for text, why in (
        ("CREATE TEMPORARY TABLE m AS SELECT 1 AS a", "CREATE TEMPORARY TABLE"),
        ("CREATE TEMPORARY TABLE m (a INT)", "CREATE TEMPORARY TABLE"),
        ("DROP TEMPORARY TABLE m", "DROP TEMPORARY TABLE"),
        ("CREATE TABLE m AS SELECT NULL AS a", 'column "a", which is NULL and of no type'),
        ("CREATE TABLE m (FOREIGN KEY (a) REFERENCES s (a)) AS SELECT 1 AS a", "a foreign key of a table that is made"),
        ("CREATE TABLE m (b INT, c INT AS (b)) AS SELECT 1 AS c", 'column "c" is generated'),
    ):
        with pytest.raises(HeadraceError) as refused:
            await deployment.execute(text)
        assert why in refused.value.message, text
    assert deployment.tables() == []


WRITES = (
    "INSERT INTO s VALUES (1, 'Ann', 'x'), (2, 'bob', 'y'), (3, NULL, 'z')",
    "INSERT INTO s VALUES (4, 'ANN', 'q')",
    "INSERT INTO s VALUES (4, NULL, 'q')",
    "UPDATE s SET name = 'aNN' WHERE id = 2",
    "UPDATE s SET name = UPPER(name), note = 'up'",
    "INSERT INTO s VALUES (5, 'bOB', 'z') ON DUPLICATE KEY UPDATE note = CONCAT(note, id)",
    "REPLACE INTO s VALUES (6, 'ann', 'w')",
    "INSERT IGNORE INTO s VALUES (7, 'Bob', 'no'), (8, 'carl', 'yes')",
    "DELETE FROM s WHERE name = 'carl'",
    "INSERT INTO s VALUES (9, 'CARL', 'again')",
)


async def written(deployment: LocalDeployment, definition: str) -> list[Any]:
    """What becomes of the writes, and of the rows."""
    await deployment.execute(definition)
    found: list[Any] = []
    for statement in WRITES:
        try:
            found.append((await deployment.execute(statement))[0][0].rows_affected)
        except HeadraceError:
            found.append(REFUSED)
    (rows,), _ = await deployment.execute("SELECT id, name, note FROM s ORDER BY id")
    await deployment.execute("DROP TABLE s")
    return [*found, *rows.rows]


async def test_a_functional_key_is_one_on_a_generated_column(deployment: LocalDeployment) -> None:
    """MySQL's manual, CREATE INDEX, "Functional Key Parts": they are hidden virtual generated columns."""
    columns = "id INT, name VARCHAR(20), note VARCHAR(20)"
    one = await written(deployment, f"CREATE TABLE s ({columns}, UNIQUE KEY ((LOWER(name))))")
    spread = f"CREATE TABLE s ({columns}) SHARD BY (id) SHARDS 1"
    for later in ("CREATE UNIQUE INDEX u ON s ((LOWER(name)))", "ALTER TABLE s ADD UNIQUE ((LOWER(name)))"):
        assert one == await written(deployment, f"{spread}; {later}")
    await deployment.execute(f"CREATE TABLE s ({columns}, low VARCHAR(20) AS (LOWER(name)), UNIQUE KEY (low))")
    other: list[Any] = []
    for statement in WRITES:
        try:
            given = statement.replace("INTO s VALUES", "INTO s (id, name, note) VALUES")
            other.append((await deployment.execute(given))[0][0].rows_affected)
        except HeadraceError:
            other.append(REFUSED)
    (rows,), _ = await deployment.execute("SELECT id, name, note FROM s ORDER BY id")
    assert one == [*other, *rows.rows]
    assert one.count(REFUSED) == 2


async def test_parts_of_keys_are_shown_as_keys_and_nowhere_else(tmp_path: Path) -> None:
    text = (
        "UNIQUE KEY `functional_index` ((lower(`b`))),\n  UNIQUE KEY `a` (`a`(3),`id`),\n  KEY `k` (((`id` + 1)),`b`)\n"
    )
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute(
            "CREATE TABLE s (id INT PRIMARY KEY, a TEXT, b VARCHAR(9), UNIQUE ((LOWER(b))), UNIQUE (a(3), id),"
            " KEY k ((id + 1), b)); INSERT INTO s VALUES (1, 'abcd', 'X'); CREATE EXT VIEW v AS SELECT id, a FROM s"
        )
        with pytest.raises(ConstraintViolation, match=r'unique key "\(LOWER\(b\)\)" of table "s" has the value \'x\''):
            await deployment.execute("INSERT INTO s VALUES (2, 'q', 'x')")
        for why, statement in (
            ("reads column", "ALTER TABLE s DROP COLUMN b"),
            ("which is a column", "CREATE UNIQUE INDEX u ON s ((a))"),
            ("of type JSON", "ALTER TABLE s ADD UNIQUE ((JSON_ARRAY(a)))"),
            ("which is a column", "CREATE TABLE t (a INT, UNIQUE ((a)))"),
            ("of type JSON", "CREATE TABLE t (a JSON, KEY ((JSON_EXTRACT(a, '$.x'))))"),
        ):
            with pytest.raises(HeadraceError) as refused:
                await deployment.execute(statement)
            assert why in refused.value.message, statement
        await deployment.execute("CREATE TABLE t LIKE s; ALTER TABLE s DROP INDEX functional_index, DROP INDEX k")
        await deployment.execute("ALTER TABLE s DROP COLUMN b, ADD COLUMN b INT; INSERT INTO s VALUES (2, 'q', 3)")
    finally:
        await deployment.close()
    deployment = await LocalDeployment.open(tmp_path)
    try:
        (found,), _ = await deployment.execute("SHOW CREATE TABLE t")
        assert text in found.rows[0][1]
        (found,), _ = await deployment.execute("SELECT * FROM s ORDER BY id")
        assert found.rows == ((1, "abcd", None), (2, "q", 3))
        with pytest.raises(ConstraintViolation, match=r'unique key "a\(3\)", "id"|primary key'):
            await deployment.execute("INSERT INTO s VALUES (2, 'q', 3)")
    finally:
        await deployment.close()
