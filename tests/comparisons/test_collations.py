"""Collations beside MariaDB's, and beside MySQL's manual where MariaDB has none.

MariaDB has ``utf8mb4_general_ci``: all weights of the Basic Multilingual Plane are its own, and queries of a table with
such a column answer as there. ``utf8mb4_0900_ai_ci`` it has not; its judges are examples of MySQL's manual and the
conformance of Unicode's table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import ConstraintViolation, SqlError, Unsupported
from domains.language.collating.collation import BINARY, Collation, key_of
from loadgen.bench import servers
from tests.comparisons.test_queries import Answer, plain

MISSING = servers.missing("mariadb")
QUERIES = (Path(__file__).parent / "collations.txt").read_text("utf-8").splitlines()
ANSWERS = Path(__file__).parent / "collations.json"
"""By query, as MariaDB answers: ``test_mariadb_answers_as_recorded`` says what to write where it is another."""
ROWS = (
    "(1, 'Zoe', 'Zoe', 'on')",
    "(2, 'zoë', 'zoe', 'Off')",
    "(3, 'ZOE ', 'ZOE', 'on')",
    "(4, 'b', 'B', 'Off')",
    "(5, 'B', 'b', NULL)",
    "(6, NULL, 'x', 'on')",
    "(7, 'ß', 's', 'on')",
    "(8, 'ss', 'SS', 'Off')",
    "(9, 'Été', 'ete', 'Off')",
    "(10, 'a%b', 'A%B', 'on')",
    "(11, 'a\\tb', 'a b', 'on')",
    "(12, 'a', 'A', 'on')",
    "(13, 'a b', 'a\\tb', 'on')",
    "(14, 'a\\t', '', 'on')",
    "(15, '', ' ', 'on')",
    "(16, '1', '01', 'on')",
    "(17, '😀', '😁', 'on')",
)
SETUP = (
    "CREATE TABLE g (id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, "
    "plain VARCHAR(20), kind ENUM('on', 'Off') COLLATE utf8mb4_general_ci)",
    f"INSERT INTO g VALUES {', '.join(ROWS)}",
)


def shown(rows: Sequence[Any]) -> Answer:
    return [[plain(value) for value in row] for row in rows]


BY_DEFAULT = (
    SETUP[0]
    .replace("plain VARCHAR(20)", "plain VARCHAR(20) COLLATE utf8mb4_bin")
    .replace(" COLLATE utf8mb4_general_ci", "")
)
"""The same table where ``utf8mb4_general_ci`` need not be named."""


@pytest.mark.parametrize(("default", "create"), [(BINARY, SETUP[0]), (Collation.GENERAL_CI, BY_DEFAULT)])
async def test_queries_answer_as_mariadb(default: str, create: str, tmp_path: Path) -> None:
    expected: dict[str, Answer] = json.loads(ANSWERS.read_text("utf-8"))
    deployment = await LocalDeployment.open(tmp_path, collation=default)
    try:
        await deployment.execute(";".join((create, *SETUP[1:])))
        found = {text: shown((await deployment.execute(text))[0][0].rows) for text in QUERIES}
    finally:
        await deployment.close()
    assert {text: rows for text, rows in found.items() if rows != expected[text]} == {}


async def theirs(port: int, texts: Sequence[str]) -> dict[str, Answer]:
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    found: dict[str, Answer] = {}
    before = (
        "CREATE DATABASE collated COLLATE utf8mb4_nopad_bin",
        "USE collated",
        "SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin",
    )
    for statement in (*before, *SETUP):
        await cursor.execute(statement)
    for text in texts:
        await cursor.execute(text)
        found[text] = shown(await cursor.fetchall())
    connection.close()
    return found


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
async def test_mariadb_answers_as_recorded(mariadb: int) -> None:
    found = await theirs(mariadb, QUERIES)
    written = json.dumps(found, ensure_ascii=False, indent=0) + "\n"
    assert found == json.loads(ANSWERS.read_text("utf-8")), written


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
async def test_the_weights_of_general_ci_are_those_of_mariadb(mariadb: int) -> None:
    connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    await cursor.execute("SET NAMES utf8mb4")
    different: list[str] = []
    for start in range(0x21, 0x10000, 4096):
        codes = [code for code in range(start, min(start + 4096, 0x10000)) if not 0xD800 <= code < 0xE000]
        if not codes:
            continue
        texts = (f"CONVERT(X'{chr(code).encode().hex()}' USING utf8mb4)" for code in codes)
        weights = ", ".join(f"HEX(WEIGHT_STRING({text} COLLATE utf8mb4_general_ci))" for text in texts)
        await cursor.execute(f"SELECT {weights}")
        for code, weight in zip(codes, await cursor.fetchone(), strict=True):
            key: bytes = key_of(chr(code), Collation.GENERAL_CI)
            if key != chr(int(weight, 16)).encode() + b"\x1f":
                different.append(f"{code:04x} {weight} {key!r}")
    connection.close()
    assert different == []


def equal(one: str, other: str) -> bool:
    collation = Collation.UCA_0900_AI_CI
    return bool(key_of(one, collation) == key_of(other, collation))


@pytest.mark.parametrize(
    ("one", "other", "are_equal"),
    [
        ("a", "A", True),
        ("e", "é", True),
        ("ß", "ss", True),  # MySQL 8.0 manual, "Unicode Character Sets": the 0900 collations, also for German.
        ("a", "a ", False),  # "Trailing space handling in comparisons": NO PAD.
        ("\U0001f363", "\U0001f37a", False),  # "sushi" and "beer" are told apart, as they are not in general_ci.
        ("Å", "A\u030a", True),
        ("か", "が", True),  # "ai": the voiced mark is of the second level.
        ("カ", "か", True),
        ("-", "", False),  # Punctuation counts: nothing is of variable weight.
        ("\u0000", "", True),  # Control characters have no weight.
        ("각", "\u1100\u1161\u11a8", True),
        ("一", "丁", False),
    ],
)
def test_0900_ai_ci_compares_as_the_manual_of_mysql_says(one: str, other: str, are_equal: bool) -> None:
    assert equal(one, other) is are_equal


def test_weights_of_0900_ai_ci() -> None:
    """WEIGHT_STRING as MySQL 8 shows it, of primary weights alone: Unicode's allkeys.txt 9.0.0 has them."""
    weights = {"½": "1c3e06261c3f", "A": "1c47", "ß": "1e711e71", "一": "fb40ce00", "\U00017000": "fb008000"}
    assert {text: key_of(text, Collation.UCA_0900_AI_CI).hex() for text in weights} == weights


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id FROM g WHERE name = name COLLATE utf8mb4_0900_ai_ci AND name = other",
        "SELECT id FROM g WHERE name COLLATE utf8mb4_0900_ai_ci = other COLLATE utf8mb4_general_ci",
        "SELECT CONCAT(name, other) FROM g",
        "SELECT name FROM g UNION SELECT other FROM g",
    ],
)
async def test_an_illegal_mix_is_refused(sql: str, tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    try:
        types = "name TEXT COLLATE utf8mb4_general_ci, other TEXT COLLATE utf8mb4_0900_ai_ci"
        await deployment.execute(f"CREATE TABLE g (id INT PRIMARY KEY, {types})")
        with pytest.raises(SqlError, match="illegal mix of collations"):
            await deployment.execute(sql)
    finally:
        await deployment.close()


async def test_distinct_of_several_values_has_no_key_of_a_collation(tmp_path: Path) -> None:
    """To say 'a' and 'A' are two of COUNT(DISTINCT name, id) would be wrong: MariaDB says one."""
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute("CREATE TABLE g (id INT PRIMARY KEY, n INT, name TEXT COLLATE utf8mb4_general_ci)")
        await deployment.execute("INSERT INTO g VALUES (1, 1, 'a'), (2, 1, 'A '), (3, 2, 'é'), (4, 2, 'e')")
        with pytest.raises(Unsupported, match="general_ci"):
            await deployment.execute("SELECT COUNT(DISTINCT name, n) FROM g")
        apart = "SELECT COUNT(DISTINCT name), (SELECT COUNT(*) FROM (SELECT DISTINCT name, n FROM g) AS x) FROM g"
        ((answer,), _) = await deployment.execute(apart)
        assert answer.rows == ((2, 2),)
    finally:
        await deployment.close()


async def test_tables_keep_their_collations(tmp_path: Path) -> None:
    """Keys on disk, a restart, what SHOW says, and a key that is taken already in another spelling."""
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute(
            "CREATE TABLE g (name VARCHAR(9), plain VARCHAR(9) COLLATE utf8mb4_bin, PRIMARY KEY (name), UNIQUE (plain))"
            " DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci; INSERT INTO g VALUES ('Zoë', 'a'); "
            "ALTER TABLE g ADD later TEXT; CREATE VIEW V AS SELECT plain FROM g WHERE name = ?"
        )
    finally:
        await deployment.close()
    deployment = await LocalDeployment.open(tmp_path)
    try:
        with pytest.raises(ConstraintViolation, match="ZOE"):
            await deployment.execute("INSERT INTO g (name, plain) VALUES ('ZOE', 'b')")
        await deployment.execute("INSERT INTO g (name, plain) VALUES ('Anna', 'A')")
        page = await deployment.read("V", lambda binding: binding.from_arguments(["zoE"]))
        assert page == b'{"plain":"a"}'
        (shown, *_), _ = await deployment.execute("SHOW FULL COLUMNS FROM g")
        assert [row[2] for row in shown.rows] == ["utf8mb4_0900_ai_ci", "utf8mb4_bin", "utf8mb4_0900_ai_ci"]
        (explained, *_), _ = await deployment.execute("EXPLAIN V")
        assert "partial by (name)" in str(explained.rows)
    finally:
        await deployment.close()


ALTERED = (
    "CREATE TABLE a (x VARCHAR(9), y VARCHAR(9) COLLATE utf8mb4_bin) COLLATE utf8mb4_general_ci",
    "CREATE TABLE b LIKE a",
    "ALTER TABLE a DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin, ADD COLUMN z TEXT",
    "ALTER TABLE b ADD COLUMN z TEXT",
    "ALTER TABLE b DEFAULT COLLATE utf8mb4_bin",
    "ALTER TABLE b ADD COLUMN w TEXT",
    "ALTER TABLE a ADD COLUMN w VARCHAR(9) COLLATE utf8mb4_general_ci FIRST",
)
COLUMNS = {
    "a": [("w", "general_ci"), ("x", "general_ci"), ("y", "bin"), ("z", "bin")],
    "b": [("x", "general_ci"), ("y", "bin"), ("z", "general_ci"), ("w", "bin")],
}


async def test_columns_have_the_default_of_their_time(tmp_path: Path) -> None:
    """Of the table when they came, and of the server when the table came; also after a restart with another one."""
    deployment = await LocalDeployment.open(tmp_path)
    try:
        for statement in ALTERED:
            await deployment.execute(statement)
        text = deployment.schema()
    finally:
        await deployment.close()
    for data in (tmp_path, tmp_path / "anew"):
        deployment = await LocalDeployment.open(data, collation=Collation.UCA_0900_AI_CI)
        try:
            if data != tmp_path:
                await deployment.execute(text)
            for table, columns in COLUMNS.items():
                (found, *_), _ = await deployment.execute(f"SHOW FULL COLUMNS FROM {table}")
                assert [(row[0], row[2].removeprefix("utf8mb4_")) for row in found.rows] == columns
            await deployment.execute("CREATE TABLE c (x TEXT)")
            (found, *_), _ = await deployment.execute("SHOW FULL COLUMNS FROM c")
            assert found.rows[0][2] == Collation.UCA_0900_AI_CI
            assert deployment.schema().startswith(text)
        finally:
            await deployment.close()


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
async def test_columns_of_mariadb_have_the_default_of_their_time(mariadb: int) -> None:
    connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    for statement in ("CREATE DATABASE altered COLLATE utf8mb4_bin", "USE altered", *ALTERED):
        await cursor.execute(statement)
    for table, columns in COLUMNS.items():
        await cursor.execute(f"SHOW FULL COLUMNS FROM {table}")
        assert [(row[0], row[2].removeprefix("utf8mb4_")) for row in await cursor.fetchall()] == columns
    connection.close()
